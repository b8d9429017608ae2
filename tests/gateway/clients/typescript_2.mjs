// The TypeScript SDK 2 as a client: URL, token, era, calls as JSON, and `all` to list more than tools.
import { readFileSync } from "node:fs";

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url, token, era, calls, more] = process.argv.slice(2);
const mode = era === "modern" ? { pin: "2026-07-28" } : era;
const client = new Client({ name: "typescript-2", version: "1" }, { versionNegotiation: { mode } });
const headers = { Authorization: `Bearer ${token}` };
const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
await client.connect(transport);
const { tools } = await client.listTools();
if (more === "cases") {
  const answers = [];
  for (const { kind, name, case: number } of JSON.parse(readFileSync(calls, "utf8"))) {
    const argument = { name: "case", value: String(number) };
    const ask = {
      tool: () => client.callTool({ name, arguments: { case: number } }),
      prompt: () => client.getPrompt({ name, arguments: { case: String(number) } }),
      resource: () => client.readResource({ uri: `case://${number}` }),
      completion: () => client.complete({ ref: { type: "ref/prompt", name }, argument }),
    };
    // An error of the server has a number for a code, one of the client has none.
    answers.push(await ask[kind]().catch((error) => ({ failed: String(error), code: error.code ?? null })));
  }
  const said = JSON.stringify({ version: client.getNegotiatedProtocolVersion(), results: answers });
  await new Promise((written) => process.stdout.write(said, written));
  await transport.terminateSession();
  await client.close();
  process.exit(0);
}
const wanted = JSON.parse(calls);
const results = [];
const call = (each) => client.callTool(each).catch((error) => ({ error: error.message }));
while (results.length < wanted.length) {
  const some = wanted.slice(results.length, results.length + 16);
  results.push(...(await Promise.all(some.map(call))));
}
const lists = {};
if (more) {
  lists.resources = (await client.listResources()).resources.map((each) => each.uri);
  lists.templates = (await client.listResourceTemplates()).resourceTemplates.map((each) => each.uriTemplate);
  lists.prompts = (await client.listPrompts()).prompts.map((each) => each.name);
}
const version = client.getNegotiatedProtocolVersion();
console.log(JSON.stringify({ version, tools: tools.map((tool) => tool.name), results, ...lists }));
await transport.terminateSession();
await client.close();
