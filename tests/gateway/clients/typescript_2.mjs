// The TypeScript SDK 2 as a client: URL, token, era, calls as JSON.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url, token, era, calls] = process.argv.slice(2);
const mode = era === "modern" ? { pin: "2026-07-28" } : era;
const client = new Client({ name: "typescript-2", version: "1" }, { versionNegotiation: { mode } });
const headers = { Authorization: `Bearer ${token}` };
const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
await client.connect(transport);
const { tools } = await client.listTools();
const results = await Promise.all(JSON.parse(calls).map((call) => client.callTool(call)));
const version = client.getNegotiatedProtocolVersion();
console.log(JSON.stringify({ version, tools: tools.map((tool) => tool.name), results }));
await transport.terminateSession();
await client.close();
