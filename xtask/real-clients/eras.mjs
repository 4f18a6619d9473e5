// Lists and calls tools through both lines of the official TypeScript SDK, over both transports and in both eras.
// Arguments: the program, its home, the calls as a JSON array of {name, arguments}. Prints one JSON object with a report
// for each combination; judging them is the caller's part.
import { spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import path from "node:path";

import { Client as Client2, StreamableHTTPClientTransport as Http2 } from "@modelcontextprotocol/client";
import { StdioClientTransport as Stdio2 } from "@modelcontextprotocol/client/stdio";
import { Client as Client1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as Http1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [program, home, callsText] = process.argv.slice(2);
const calls = JSON.parse(callsText);
const PATIENCE_MS = 60_000;

const server = spawn(program, ["serve", "--http", "127.0.0.1:0"], { stdio: ["ignore", "ignore", "pipe"] });
let told = "";
const url = await new Promise((found, failed) => {
  server.stderr.setEncoding("utf8").on("data", (text) => {
    told += text;
    const match = told.match(/MCP on (http:\/\/\S+\/mcp)/);
    if (match) found(new URL(match[1]));
  });
  server.on("exit", () => failed(new Error(`the program ended: ${told}`)));
  setTimeout(() => failed(new Error(`no address within ${PATIENCE_MS} ms: ${told}`)), PATIENCE_MS).unref();
});
const token = (await readFile(path.join(home, "run/mcp-token"), "utf8")).trim();
const requestInit = { headers: { Authorization: `Bearer ${token}` } };
const stdio = { command: program, args: ["serve", "--stdio"], env: { ...process.env }, stderr: "inherit" };

const info = { name: "plugward-check-eras", version: "1.0.0" };
const modern = { versionNegotiation: { mode: { pin: "2026-07-28" } } };
const legacy = { versionNegotiation: { mode: "legacy" } };
const auto = { versionNegotiation: { mode: "auto" } };
const combinations = [
  ["SDK 1, HTTP", new Client1(info), () => new Http1(url, { requestInit })],
  ["SDK 2, HTTP, legacy", new Client2(info, legacy), () => new Http2(url, { requestInit })],
  ["SDK 2, HTTP, modern", new Client2(info, modern), () => new Http2(url, { requestInit })],
  ["SDK 2, HTTP, auto", new Client2(info, auto), () => new Http2(url, { requestInit })],
  ["SDK 2, stdio, legacy", new Client2(info, legacy), () => new Stdio2(stdio)],
  ["SDK 2, stdio, modern", new Client2(info, modern), () => new Stdio2(stdio)],
  ["SDK 2, stdio, auto", new Client2(info, auto), () => new Stdio2(stdio)],
];

const reports = {};
for (const [name, client, transport] of combinations) {
  await client.connect(transport());
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
  const version = client.getNegotiatedProtocolVersion?.() ?? null;
  reports[name] = { version, instructions: client.getInstructions?.() ?? "", tools, results };
  await client.close();
}
server.removeAllListeners("exit");
const ended = new Promise((resolve) => server.on("exit", resolve));
server.kill("SIGTERM");
await ended;
console.log(JSON.stringify(reports));
