// Uses everything a client can use through both lines of the official TypeScript SDK, over both transports and in both
// eras. Arguments: the program, its home, the era of its plugins. Prints one JSON array: a report for each combination,
// with what each feature brought to light. Judging it is the caller's part.
import { Client as Client2, StreamableHTTPClientTransport as Http2 } from "@modelcontextprotocol/client";
import { StdioClientTransport as Stdio2 } from "@modelcontextprotocol/client/stdio";
import { Client as Client1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as Stdio1 } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport as Http1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema, ToolListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

import { serve } from "../../../xtask/host.mjs";

const [program, home, behind] = process.argv.slice(2);
const TEXT = "grüße, 世界";
const PATIENCE_MS = 20_000;
const LONG_SECONDS = 20;

const info = { name: "plugward-check", version: "1.0.0" };
const capabilities = { elicitation: {} };
const answer = async () => ({ action: "accept", content: { username: "ada", email: "ada@example.test" } });

// What differs between the two lines.
const lines = {
  1: {
    client: (told) => {
      const client = new Client1(info, { capabilities });
      client.setRequestHandler(ElicitRequestSchema, answer);
      client.setNotificationHandler(ToolListChangedNotificationSchema, told);
      return client;
    },
    call: (client, params, options) => client.callTool(params, undefined, options),
    listen: async () => {},
  },
  2: {
    client: (told, mode) => {
      const client = new Client2(info, { capabilities, versionNegotiation: { mode } });
      client.setRequestHandler("elicitation/create", answer);
      client.setNotificationHandler("notifications/tools/list_changed", told);
      return client;
    },
    call: (client, params, options) => client.callTool(params, options),
    // Without a session nobody is told who did not ask.
    listen: async (client, era) => {
      if (era === "stateless") await client.listen({ toolsListChanged: true });
    },
  },
};

const host = await serve(program, home);
const requestInit = { headers: { Authorization: `Bearer ${host.token}` } };
const stdio = { command: program, args: ["serve", "--stdio"], env: { ...process.env }, stderr: "inherit" };
const transports = {
  1: { stdio: () => new Stdio1(stdio), http: () => new Http1(new URL(host.url), { requestInit }) },
  2: { stdio: () => new Stdio2(stdio), http: () => new Http2(new URL(host.url), { requestInit }) },
};
const pin = { pin: "2026-07-28" };
const combinations = [
  ["TypeScript SDK 1", 1, "stdio", "handshake"],
  ["TypeScript SDK 1", 1, "http", "handshake"],
  ["TypeScript SDK 2", 2, "stdio", "handshake", "legacy"],
  ["TypeScript SDK 2", 2, "http", "handshake", "legacy"],
  ["TypeScript SDK 2", 2, "stdio", "stateless", pin],
  ["TypeScript SDK 2", 2, "http", "stateless", pin],
  ["TypeScript SDK 2, by itself", 2, "stdio", "stateless", "auto"],
  ["TypeScript SDK 2, by itself", 2, "http", "stateless", "auto"],
];

async function pages(list, key) {
  const all = [];
  let cursor;
  do {
    const page = await list(cursor === undefined ? undefined : { cursor });
    all.push(...page[key]);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return all;
}

function features({ client, call, era, told, listen }) {
  const tool = (name, args = {}, options = {}) => call(client, { name, arguments: args }, options);
  const names = async () => (await pages((page) => client.listTools(page), "tools")).map((tool) => tool.name);
  return {
    ping: async () => {
      await client.ping();
      return true;
    },
    tools: names,
    call: async () => (await tool("calls_echo", { text: TEXT })).content[0].text,
    structured: async () => (await tool("calls_echo", { text: TEXT })).structuredContent,
    "tool error": async () => (await tool("offers_test_error_handling")).isError,
    "unknown tool": async () => {
      try {
        return { result: await tool("calls_no_such_tool") };
      } catch (error) {
        return { code: error.code };
      }
    },
    contents: async () => (await tool("offers_test_multiple_content_types")).content.map((block) => block.type),
    "real server": async () => (await tool("server-everything_echo", { message: TEXT })).content[0].text,
    progress: async () => {
      const seen = [];
      await tool("offers_test_tool_with_progress", {}, { onprogress: (note) => seen.push(note.progress) });
      return seen;
    },
    cancel: async () => {
      const controller = new AbortController();
      // The first note shows that the plugin is at it.
      const options = { signal: controller.signal, onprogress: () => controller.abort("enough") };
      const ended = await tool("calls_sleep", { seconds: LONG_SECONDS }, options).then(
        () => "answered",
        () => "cancelled",
      );
      return [ended, (await tool("calls_echo", { text: TEXT })).content[0].text];
    },
    prompts: async () => {
      const listed = (await pages((page) => client.listPrompts(page), "prompts")).map((prompt) => prompt.name);
      const name = "offers_test_prompt_with_arguments";
      const got = await client.getPrompt({ name, arguments: { arg1: "one", arg2: TEXT } });
      return [listed.includes(name), got.messages[0].content.text];
    },
    resources: async () => {
      const uri = "test://static-text";
      const listed = (await pages((page) => client.listResources(page), "resources")).map((one) => one.uri);
      return [listed.includes(uri), (await client.readResource({ uri })).contents[0].text];
    },
    templates: async () => {
      const template = "test://template/{id}/data";
      const listed = await pages((page) => client.listResourceTemplates(page), "resourceTemplates");
      const read = await client.readResource({ uri: "test://template/seven/data" });
      return [listed.some((one) => one.uriTemplate === template), read.contents[0].text];
    },
    completion: async () => {
      const ref = { type: "ref/prompt", name: "offers_test_prompt_with_arguments" };
      return (await client.complete({ ref, argument: { name: "arg1", value: "t" } })).completion.values;
    },
    changes: async () => {
      await listen(client, era);
      const isThere = async () => (await names()).includes("offers_test_changing");
      const before = await isThere();
      const next = told.next();
      await tool("offers_test_trigger_tool_change");
      await next;
      return before !== (await isThere());
    },
    questions: async () => {
      const text = (await tool("offers_test_elicitation", { message: "Who are you?" })).content[0].text;
      return JSON.parse(text).content;
    },
  };
}

// Somebody who waits for the next notice.
function notices() {
  let wake = () => {};
  return {
    tell: () => wake(),
    next: () =>
      new Promise((found, failed) => {
        wake = found;
        setTimeout(() => failed(new Error(`no notice within ${PATIENCE_MS} ms`)), PATIENCE_MS).unref();
      }),
  };
}

const reports = [];
for (const [name, line, transport, era, mode] of combinations) {
  const told = notices();
  const client = lines[line].client(told.tell, mode);
  await client.connect(transports[line][transport]());
  const found = {};
  const { call, listen } = lines[line];
  for (const [feature, look] of Object.entries(features({ client, call, era, told, listen }))) {
    // Not in this revision; and plugins with a handshake are not let ask.
    if (feature === "ping" && era === "stateless") continue;
    if (feature === "questions" && behind === "handshake") continue;
    try {
      found[feature] = await look();
    } catch (error) {
      found[feature] = { error: String(error?.message ?? error), code: error?.code ?? null };
    }
  }
  const revision = client.getNegotiatedProtocolVersion?.() ?? null;
  reports.push({ client: name, transport, era, revision, instructions: client.getInstructions?.() ?? "", found });
  await client.close();
}
await host.stop();
console.log(JSON.stringify(reports));
