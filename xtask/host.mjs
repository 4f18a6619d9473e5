// Starts the given program with its face over HTTP, and says where it is and with which token. Scripts that are copied below
// `.xtask/` find this file where they lie in the repository as well as where they are copied to.
import { spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import path from "node:path";

const PATIENCE_MS = 60_000;

export async function serve(program, home) {
  const host = spawn(program, ["serve", "--http", "127.0.0.1:0"], { stdio: ["ignore", "ignore", "pipe"] });
  let told = "";
  const url = await new Promise((found, failed) => {
    host.stderr.setEncoding("utf8").on("data", (text) => {
      told += text;
      const match = told.match(/MCP on (http:\/\/\S+\/mcp)/);
      if (match) found(match[1]);
    });
    host.once("exit", () => failed(new Error(`the program ended: ${told}`)));
    setTimeout(() => failed(new Error(`no address within ${PATIENCE_MS} ms: ${told}`)), PATIENCE_MS).unref();
  });
  const token = (await readFile(path.join(home, "run/mcp-token"), "utf8")).trim();
  const stop = async () => {
    const ended = new Promise((resolve) => host.once("exit", resolve));
    host.kill("SIGTERM");
    await ended;
  };
  return { url, token, stop, told: () => told };
}
