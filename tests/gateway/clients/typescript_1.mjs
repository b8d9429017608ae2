// The TypeScript SDK 1 as a client: URL, token, era (it knows one alone), calls as JSON.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [url, token, , calls] = process.argv.slice(2);
const client = new Client({ name: "typescript-1", version: "1" });
const headers = { Authorization: `Bearer ${token}` };
const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
await client.connect(transport);
const { tools } = await client.listTools();
const results = await Promise.all(JSON.parse(calls).map((call) => client.callTool(call)));
console.log(JSON.stringify({ version: transport.protocolVersion, tools: tools.map((tool) => tool.name), results }));
await transport.terminateSession();
await client.close();
