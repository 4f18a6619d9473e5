// Lists and calls tools through the official TypeScript SDK client. Arguments: the server's command line as a JSON
// array, the calls as a JSON array of {name, arguments}. Prints one JSON object; judging it is the caller's part.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

const [command, ...args] = JSON.parse(process.argv[2]);
const calls = JSON.parse(process.argv[3]);

const client = new Client({ name: "plugward-check-typescript", version: "1.0.0" });
// The SDK passes only a few variables on by itself; the home of the check is not among them.
await client.connect(new StdioClientTransport({ command, args, env: { ...process.env }, stderr: "inherit" }));

const tools = [];
let cursor;
do {
  const page = await client.listTools(cursor === undefined ? undefined : { cursor });
  tools.push(...page.tools.map((tool) => tool.name));
  cursor = page.nextCursor;
} while (cursor !== undefined);

const results = [];
for (const call of calls) {
  try {
    results.push({ result: await client.callTool(call) });
  } catch (error) {
    results.push({ error: { code: error.code ?? null, message: error.message } });
  }
}

const report = { server: client.getServerVersion(), instructions: client.getInstructions() ?? "", tools, results };
await client.close();
console.log(JSON.stringify(report));
