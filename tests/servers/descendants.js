// A stdio server that starts detached descendants: see descendants.py. Run as `node descendants.js FOLDER MARK`.
const { spawn } = require("node:child_process");
const fs = require("node:fs");

const [folder, mark] = process.argv.slice(2);
const ways = [
  ["sleep", ["120"]],
  [process.execPath, ["-e", "process.title = 'other'; process.on('SIGTERM', () => {}); setTimeout(() => {}, 120000)", mark]],
];
for (const [program, args] of ways) {
  const child = spawn(program, args, { detached: true, stdio: "ignore" });
  child.unref();
  const stat = fs.readFileSync(`/proc/${child.pid}/stat`, "utf8");
  fs.writeFileSync(`${folder}/${child.pid}`, stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19]);
}
process.stdout.write('{"jsonrpc": "2.0", "method": "notifications/started"}\n');
process.stdin.resume();
