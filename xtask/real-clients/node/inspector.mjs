// Asks through the command line of the Inspector, over both transports and in both eras. Arguments: the program, its home. Prints one JSON
// array with a report for each. Judging it is the caller's part.
import { spawn } from "node:child_process";

import { serve } from "../../../xtask/host.mjs";

const [program, home] = process.argv.slice(2);
const TEXT = "grüße, 世界";
const INSPECTOR = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
// The variables by which the program finds its home: the Inspector passes only a few on by itself.
const passed = Object.entries(process.env).filter(([name]) => name.startsWith("PLUGWARD_") || name === "PATH");

function run(args) {
  const child = spawn(process.execPath, [INSPECTOR, "--cli", ...args], { stdio: ["ignore", "pipe", "pipe"] });
  const said = { out: "", err: "" };
  child.stdout.setEncoding("utf8").on("data", (text) => (said.out += text));
  child.stderr.setEncoding("utf8").on("data", (text) => (said.err += text));
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code) => {
      try {
        resolve(JSON.parse(said.out));
      } catch {
        reject(new Error(`exit code ${code}: ${said.err || said.out}`));
      }
    });
  });
}

function features(ask) {
  const call = (name, ...args) =>
    ask("tools/call", "--tool-name", name, ...args.flatMap((argument) => ["--tool-arg", argument]));
  const text = (result) => result.content[0].text;
  const echo = call("calls_echo", `text=${TEXT}`);
  // Whoever waits for it below hears of a failure.
  echo.catch(() => {});
  return {
    tools: async () => (await ask("tools/list")).tools.map((tool) => tool.name),
    call: async () => text(await echo),
    structured: async () => (await echo).structuredContent,
    contents: async () => (await call("offers_test_multiple_content_types")).content.map((block) => block.type),
    "tool error": async () => (await call("offers_test_error_handling")).isError,
    "unknown tool": async () => {
      try {
        return { result: await call("calls_no_such_tool") };
      } catch (error) {
        return { refused: error.message };
      }
    },
    "real server": async () => text(await call("server-everything_echo", `message=${TEXT}`)),
    prompts: async () => {
      const name = "offers_test_prompt_with_arguments";
      const { prompts } = await ask("prompts/list");
      const got = await ask("prompts/get", "--prompt-name", name, "--prompt-args", "arg1=one", `arg2=${TEXT}`);
      return [prompts.some((prompt) => prompt.name === name), got.messages[0].content.text];
    },
    resources: async () => {
      const uri = "test://static-text";
      const { resources } = await ask("resources/list");
      return [resources.some((one) => one.uri === uri), (await ask("resources/read", "--uri", uri)).contents[0].text];
    },
    templates: async () => {
      const { resourceTemplates } = await ask("resources/templates/list");
      const read = await ask("resources/read", "--uri", "test://template/seven/data");
      return [resourceTemplates.some((one) => one.uriTemplate === "test://template/{id}/data"), read.contents[0].text];
    },
  };
}

const host = await serve(program, home);
const ways = {
  stdio: [...passed.flatMap(([name, value]) => ["-e", `${name}=${value}`]), program, "serve", "--stdio"],
  http: ["--transport", "http", "--server-url", host.url, "--header", `Authorization: Bearer ${host.token}`],
};
const reports = [];
const combinations = Object.entries({ handshake: "legacy", stateless: "modern" }).flatMap(([era, name]) =>
  Object.entries(ways).map(([transport, way]) => [transport, era, ["--protocol-era", name, ...way]]),
);
for (const [transport, era, way] of combinations) {
  const looks = Object.entries(features((method, ...args) => run([...way, "--method", method, ...args])));
  // Side by side: a process for each question is slow.
  const found = await Promise.all(
    looks.map(async ([name, look]) => {
      try {
        return [name, await look()];
      } catch (error) {
        return [name, { error: error.message }];
      }
    }),
  );
  reports.push({ client: "Inspector", transport, era, found: Object.fromEntries(found) });
}
await host.stop();
console.log(JSON.stringify(reports));
