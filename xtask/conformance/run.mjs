// Starts the given program with its face over HTTP, runs the official suite against it once for each revision, and
// prints which checks failed: {"REVISION": {"SCENARIO": ["CHECK", ...]}}, every scenario that ran among them. Judges
// nothing.
import { spawn } from "node:child_process";
import { mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";

import { serve } from "../../xtask/host.mjs";

const [program, home, wantedTool, ...revisions] = process.argv.slice(2);
const PATIENCE_MS = 60_000;
// What a check that was made ends with; the suite has others for those that were skipped or only tell something.
const JUDGED = ["SUCCESS", "FAILURE", "WARNING"];
// Stands as a failed check of a scenario that made none.
const NO_CHECKS = "makes-no-checks";

const { url, token, stop, told } = await serve(program, home);

// The plugin starts beside the server; the suite must not meet a list that is still empty.
const deadline = Date.now() + PATIENCE_MS;
for (;;) {
  const meta = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
  };
  const answer = await fetch(url, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      authorization: `Bearer ${token}`,
      "mcp-protocol-version": "2026-07-28",
      "mcp-method": "tools/list",
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list", params: { _meta: meta } }),
  });
  const text = await answer.text();
  if (text.includes(`"${wantedTool}"`)) break;
  if (Date.now() > deadline) throw new Error(`tool ${wantedTool} does not appear: ${text}\n${told()}`);
  await new Promise((resolve) => setTimeout(resolve, 50));
}

const results = {};
for (const revision of revisions) {
  const out = await mkdtemp(path.join(tmpdir(), "plugward-conformance-"));
  const suite = spawn(
    process.execPath,
    [
      "--import",
      path.resolve("token.mjs"),
      "node_modules/@modelcontextprotocol/conformance/dist/index.js",
      ...["server", "--url", url, "--requirements", revision, "-o", out],
    ],
    { stdio: ["ignore", "inherit", "inherit"], env: { ...process.env, PLUGWARD_CONFORMANCE_TOKEN: token } },
  );
  // Its exit code says no more than the checks do.
  await new Promise((ended) => suite.on("exit", ended));
  const scenarios = {};
  for (const folder of await readdir(out)) {
    const scenario = folder.replace(/^server-/, "").replace(/-\d{4}-\d{2}-\d{2}T.*$/, "");
    const checks = JSON.parse(await readFile(path.join(out, folder, "checks.json"), "utf8"));
    const failed = checks.filter((check) => check.status === "FAILURE");
    scenarios[scenario] = [...new Set(failed.map((check) => check.id))].sort();
    // A scenario that looked at nothing has shown nothing.
    if (!checks.some((check) => JUDGED.includes(check.status))) scenarios[scenario].push(NO_CHECKS);
    for (const check of failed) console.error(`${revision} ${scenario} ${check.id}: ${check.errorMessage}`);
  }
  results[revision] = scenarios;
  await rm(out, { recursive: true });
}
await stop();
// On a line of its own: the suite writes to the same stream.
process.stdout.write(`\nRESULTS ${JSON.stringify(results)}\n`);
