// What is refused to Node itself: each refusal is an ordinary error, and Node goes on.
const assert = require('node:assert');
const dgram = require('node:dgram');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
let checks = 0;
const refused = (what, error) => {
  assert.ok(error instanceof Error, `${what} was not refused`);
  assert.ok(typeof (error.code ?? error.info?.code) === 'string', `${what}: not an ordinary error: ${error}`);
  checks += 1;
};
const attempt = (call) => { try { call(); } catch (error) { return error; } return undefined; };

(async () => {
  refused('a listening socket', await new Promise((done) => net.createServer().on('error', done).listen(0, () => done())));
  refused('a connection', await new Promise((done) => net.connect(80, '127.0.0.1').on('error', done).on('connect', () => done())));
  refused('a datagram socket', await new Promise((done) => {
    const socket = attempt(() => dgram.createSocket('udp4').on('error', done).bind(0, () => done()));
    if (socket) done(socket);
  }));
  refused('a write to the image', attempt(() => fs.writeFileSync('/usr/bin/node', 'x')));
  refused('a setting of the kernel', attempt(() => fs.writeFileSync('/proc/sys/kernel/hostname', 'x')));
  refused('the priority of PID 1', attempt(() => os.setPriority(1, 10)));
  refused('root', attempt(() => process.setuid(0)));
  refused('a real-time priority', attempt(() => os.setPriority(0, -20)));
  refused('the memory of PID 1', attempt(() => fs.readFileSync('/proc/1/mem')));
  refused('a program of its own', attempt(() => {
    fs.copyFileSync('/bin/true', '/work/true');
    fs.chmodSync('/work/true', 0o755);
    require('node:child_process').execFileSync('/work/true');
  }));
  // io_uring is not there; libuv must have fallen back without a word.
  assert.strictEqual(await fs.promises.readFile('/etc/passwd', 'utf8').then((text) => text.includes('nobody')), true);
  checks += 1;
  assert.ok(Array.isArray(os.cpus()));
  checks += 1;
  console.log(`work ok: ${checks} checks`);
})();
