const assert = require('node:assert'), fs = require('node:fs'), net = require('node:net'), os = require('node:os');
const { execFileSync } = require('node:child_process'), { Worker } = require('node:worker_threads');
(async () => {
  const folder = await fs.promises.mkdtemp(os.tmpdir() + '/work-');
  try {
    await fs.promises.writeFile(folder + '/a', 'text');
    await fs.promises.copyFile(folder + '/a', folder + '/b');
    await fs.promises.rename(folder + '/b', folder + '/c');
    assert.strictEqual(await fs.promises.readFile(folder + '/c', 'utf8'), 'text');
    assert.deepStrictEqual(fs.readdirSync(folder).sort(), ['a', 'c']);
    const server = net.createServer((socket) => socket.end('hi')).listen(folder + '/socket');
    const said = await new Promise((done) => net.connect(folder + '/socket').on('data', done));
    assert.strictEqual(said.toString(), 'hi');
    server.close();
  } finally {
    await fs.promises.rm(folder, { recursive: true });
  }
  const worker = new Worker('require("node:worker_threads").parentPort.postMessage(6 * 7)', { eval: true });
  assert.strictEqual(await new Promise((done) => worker.on('message', done)), 42);
  assert.strictEqual(execFileSync('sh', ['-c', 'echo out'], { encoding: 'utf8' }), 'out\n');
  const refused = await new Promise((done) => net.connect(1, '127.0.0.1').on('error', done));
  assert.strictEqual(refused.code, 'EAFNOSUPPORT');
  let sum = 0;
  for (let i = 0; i < 1e7; i++) sum += i % 7; // Long enough to be compiled.
  assert.strictEqual(sum, 29999994);
  os.cpus(); os.totalmem(); os.loadavg(); os.userInfo(); process.memoryUsage(); process.resourceUsage();
  assert.throws(() => os.networkInterfaces(), { code: 'ERR_SYSTEM_ERROR' });
})().catch((error) => { console.error(error); process.exitCode = 1; });
