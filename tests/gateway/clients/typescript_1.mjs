// The TypeScript SDK 1 as a client: URL, token, era (it knows one alone), calls as JSON, and `all` to list more than tools.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [url, token, , calls, more] = process.argv.slice(2);
const client = new Client({ name: "typescript-1", version: "1" });
const headers = { Authorization: `Bearer ${token}` };
const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
await client.connect(transport);
const { tools } = await client.listTools();
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
console.log(JSON.stringify({ version: transport.protocolVersion, tools: tools.map((tool) => tool.name), results, ...lists }));
await transport.terminateSession();
await client.close();
