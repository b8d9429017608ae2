// The TypeScript SDK's client as a caller: node typescript.mjs ENTRY TOOL. ENTRY is the server, as JSON.
// Prints a line when it is connected. Each line of stdin, {"count", "concurrency", "size"}, asks for so many calls, and is
// answered with what one of them cost: {"cpu", "wall"}, in seconds of this process and of the clock.
import { createInterface } from "node:readline";

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const [entry, name] = [JSON.parse(process.argv[2]), process.argv[3]];
const transport = entry.url
  ? new StreamableHTTPClientTransport(new URL(entry.url))
  : new StdioClientTransport({ command: entry.command, args: entry.args, cwd: entry.cwd });
const client = new Client({ name: "bench", version: "1" });
await client.connect(transport);
console.log("ready");

for await (const line of createInterface({ input: process.stdin })) {
  const { count, concurrency, size } = JSON.parse(line);
  const work = async () => {
    for (let made = 0; made < count / concurrency; made++) {
      const { content } = await client.callTool({ name, arguments: { size } });
      if (content[0].text.length !== size) throw new Error(`${content[0].text.length} bytes, not ${size}`);
    }
  };
  const [before, began] = [process.cpuUsage(), performance.now()];
  await Promise.all(Array.from({ length: concurrency }, work));
  const { user, system } = process.cpuUsage(before);
  const wall = (performance.now() - began) / 1000;
  console.log(JSON.stringify({ cpu: (user + system) / 1e6 / count, wall: wall / count }));
}
await client.close();
process.exit(0);
