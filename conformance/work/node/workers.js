// Worker threads, shared memory, child processes, signals, timers.
const assert = require('node:assert');
const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');
const { execFile, execFileSync, spawn, fork, exec } = require('node:child_process');
const { promisify } = require('node:util');
const timers = require('node:timers/promises');
let checks = 0;
const check = (holds, what) => { assert.ok(holds, what); checks += 1; };

if (!isMainThread) {
  const view = new Int32Array(workerData.shared);
  for (let n = 0; n < 1000; n += 1) Atomics.add(view, 0, 1);
  parentPort.postMessage({ sum: workerData.list.reduce((a, b) => a + b, 0) });
} else if (process.argv[2] === 'child') {
  process.on('message', (m) => { process.send({ twice: m.n * 2 }); process.disconnect(); });
} else {
  (async () => {
    const shared = new SharedArrayBuffer(4);
    const sums = await Promise.all(Array.from({ length: 4 }, () => new Promise((resolve, reject) => {
      const worker = new Worker(__filename, { workerData: { shared, list: [1, 2, 3] } });
      worker.on('message', (m) => resolve(m.sum)).on('error', reject);
    })));
    check(sums.every((s) => s === 6), 'worker threads answer');
    check(new Int32Array(shared)[0] === 4000, 'and share memory');
    check(execFileSync('sh', ['-c', 'printf "b\\na\\n" | sort']).toString() === 'a\nb\n', 'a shell and a pipe');
    check((await promisify(exec)('echo 沙漏')).stdout === '沙漏\n', 'exec');
    await assert.rejects(promisify(execFile)('sh', ['-c', 'exit 9']), (e) => e.code === 9);
    checks += 1;
    const cat = spawn('cat');
    cat.stdin.end('through');
    let text = '';
    for await (const chunk of cat.stdout) text += chunk;
    check(text === 'through', 'spawn');
    const sleeper = spawn('sleep', ['60']);
    sleeper.kill('SIGKILL');
    check(await new Promise((r) => sleeper.on('exit', (_, signal) => r(signal))) === 'SIGKILL', 'a kill');
    const child = fork(__filename, ['child']);
    child.send({ n: 21 });
    check((await new Promise((r) => child.on('message', r))).twice === 42, 'fork and messages');
    await assert.rejects(promisify(execFile)('sleep', ['30'], { timeout: 100 }));
    checks += 1;
    const start = performance.now();
    await timers.setTimeout(50);
    check(performance.now() - start >= 49, 'timers');
    let ticks = 0;
    for await (const _ of timers.setInterval(5)) { ticks += 1; if (ticks === 5) break; }
    check(ticks === 5, 'intervals');
    // A handler alone does not keep Node running.
    const awake = setInterval(() => {}, 1000);
    check(await new Promise((r) => { process.once('SIGUSR2', () => r(true)); process.kill(process.pid, 'SIGUSR2'); }), 'a signal to ourselves');
    clearInterval(awake);
    check(process.execPath && execFileSync(process.execPath, ['-p', '6*7']).toString() === '42\n', 'another Node');
    console.log(`work ok: ${checks} checks`);
  })();
}
