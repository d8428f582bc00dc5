// Files: promises, streams, links, watchers' absence, compression.
const assert = require('node:assert');
const fs = require('node:fs/promises');
const { createReadStream, createWriteStream, mkdtempSync, writeFileSync, readFileSync } = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { pipeline } = require('node:stream/promises');
const { Transform } = require('node:stream');
const zlib = require('node:zlib');
let checks = 0;
const check = (holds, what) => { assert.ok(holds, what); checks += 1; };

(async () => {
  check(process.cwd() === '/work' && os.homedir() === '/work', 'a home');
  const dir = mkdtempSync(path.join(os.tmpdir(), 'x-'));
  await fs.writeFile(`${dir}/沙漏.txt`, 'text');
  check((await fs.readdir(dir))[0] === '沙漏.txt', 'names in every script');
  await fs.symlink('沙漏.txt', `${dir}/link`);
  check(await fs.readFile(`${dir}/link`, 'utf8') === 'text', 'links of our own');
  await fs.rename(`${dir}/沙漏.txt`, `${dir}/b`);
  await fs.copyFile(`${dir}/b`, `${dir}/c`);
  await fs.appendFile(`${dir}/c`, '+');
  await fs.chmod(`${dir}/c`, 0o600);
  await fs.utimes(`${dir}/c`, 0, 0);
  const stat = await fs.stat(`${dir}/c`);
  check(stat.size === 5 && stat.mtimeMs === 0, 'size and time');
  await fs.cp(dir, '/work/copy', { recursive: true, dereference: false });
  check((await fs.readdir('/work/copy')).length === 3, 'copies of trees');
  const many = await Promise.all(Array.from({ length: 200 }, (_, n) => fs.writeFile(`${dir}/n${n}`, String(n)).then(() => fs.readFile(`${dir}/n${n}`, 'utf8'))));
  check(many.every((text, n) => text === String(n)), 'two hundred files at once');
  const handle = await fs.open(`${dir}/h`, 'w+');
  await handle.write('0123456789', 0);
  await handle.sync();
  check((await handle.read(Buffer.alloc(4), 0, 4, 3)).buffer.toString() === '3456', 'positions');
  await handle.close();
  writeFileSync('/work/big', Buffer.alloc(3 << 20, 'ab'));
  const upper = new Transform({ transform(chunk, _, done) { done(null, chunk.toString().toUpperCase()); } });
  await pipeline(createReadStream('/work/big'), upper, zlib.createGzip(), createWriteStream('/out/big.gz'));
  check(zlib.gunzipSync(readFileSync('/out/big.gz')).subarray(0, 4).toString() === 'ABAB', 'streams and gzip');
  for (const [there, back] of [['deflateSync', 'inflateSync'], ['brotliCompressSync', 'brotliDecompressSync'], ['gzipSync', 'gunzipSync']]) {
    check(zlib[back](zlib[there]('沙漏')).toString() === '沙漏', there);
  }
  await assert.rejects(fs.writeFile('/usr/x', ''), (e) => ['EROFS', 'EACCES', 'EPERM'].includes(e.code));
  checks += 1;
  await fs.rm(dir, { recursive: true });
  await assert.rejects(fs.stat(dir), { code: 'ENOENT' });
  checks += 1;
  for await (const _ of await fs.opendir('/work')) checks += 1;
  console.log(`work ok: ${checks} checks`);
})();
