// Parses answers with the schemas of the TypeScript SDKs: a file with [version, method, result] in each line; prints what fails.
import { readFileSync } from "node:fs";

import * as second from "@modelcontextprotocol/core";
import * as first from "@modelcontextprotocol/sdk/types.js";

const SCHEMAS = {
  "tools/list": "ListToolsResultSchema",
  "resources/list": "ListResourcesResultSchema",
  "resources/templates/list": "ListResourceTemplatesResultSchema",
  "prompts/list": "ListPromptsResultSchema",
  "tools/call": "CallToolResultSchema",
  "prompts/get": "GetPromptResultSchema",
  "resources/read": "ReadResourceResultSchema",
};
const failed = [];
let parsed = 0;
for (const line of readFileSync(process.argv[2], "utf8").trim().split("\n")) {
  const [version, method, result] = JSON.parse(line);
  // The first SDK speaks none but the handshake versions; the second speaks all.
  for (const sdk of version === "2026-07-28" ? [second] : [first, second]) {
    const outcome = sdk[SCHEMAS[method]].safeParse(result);
    parsed += 1;
    if (!outcome.success) failed.push([version, method, result, outcome.error.message]);
  }
}
const said = JSON.stringify({ parsed, failed: failed.slice(0, 5) });
await new Promise((written) => process.stdout.write(said, written));
