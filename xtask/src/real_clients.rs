//! `cargo xtask real-clients`: published MCP clients that list and call tools through `plugward serve --stdio`. Owns
//! which clients, which calls and what they must see; the scripts beside it only speak and report.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::driver::Plugward;
use crate::packages::Package;
use crate::process::Job;
use crate::{real_servers, tools};

/// Starting a client, our server and two plugins, and a few calls, on a busy machine.
const CLIENT_LIMIT: Duration = Duration::from_secs(180);

/// Clients, transports and eras that the script for both eras puts together.
const ERAS_COMBINATIONS: usize = 7;

/// Tools under the names that our server shows to clients.
const FIXTURE_ECHO: &str = "mcp-fixture_echo";
const FIXTURE_FAIL: &str = "mcp-fixture_fail";
const EVERYTHING_ECHO: &str = "server-everything_echo";
const UNKNOWN: &str = "mcp-fixture_no_such_tool";

/// Text that the echoes must bring back, with characters that need more than one byte.
const TEXT: &str = "grüße, 世界";

/// Runs every client; fails if any of them sees something wrong.
pub(crate) fn run() -> Result<()> {
    let root = tools::workspace_root()?;
    let clients = Package::prepare(&root, &root.join("xtask/real-clients"), "clients", |_| Ok(()))?;
    let everything = real_servers::package(&root, "server-everything")?;
    let fixture = fixture_package(&root)?;

    let plugward = Plugward::fresh(&root, "clients")?;
    for (id, package) in [("mcp-fixture", fixture.as_path()), ("server-everything", everything.dir.as_path())] {
        plugward.install(package)?;
        let digest = plugward.review(id)?;
        plugward.approve(id, &digest)?;
        plugward.succeed(&["enable", id])?;
    }

    type Check = fn(&Plugward, &Path) -> Result<()>;
    let checks: [(&str, Check); 4] = [
        ("TypeScript SDK", typescript),
        ("Python SDK", python),
        ("Inspector command line", inspector),
        ("TypeScript, both eras", both_eras),
    ];
    let mut failures = Vec::new();
    for (name, check) in checks {
        let started = Instant::now();
        match check(&plugward, &clients.dir) {
            Ok(()) => println!("{name:<26}ok, {:.1} s", started.elapsed().as_secs_f64()),
            Err(error) => {
                println!("{name:<26}FAILED");
                failures.push(format!("{name}: {error:#}"));
            }
        }
    }
    if failures.is_empty() { Ok(()) } else { bail!("real clients:\n{}", failures.join("\n")) }
}

/// The fixture as a plugin folder: its manifest and the built binary.
fn fixture_package(root: &Path) -> Result<PathBuf> {
    let dir = root.join(".xtask/servers/mcp-fixture");
    fs::create_dir_all(&dir)?;
    let manifest = root.join("fixtures/mcp-fixture/plugin/plugin.yaml");
    fs::copy(&manifest, dir.join("plugin.yaml"))
        .with_context(|| format!("`{}` cannot be copied", manifest.display()))?;
    let binary = tools::debug_binaries(root)?.join("mcp-fixture");
    let copy = dir.join("mcp-fixture");
    fs::copy(&binary, &copy).with_context(|| {
        format!(
            "`{}` is not built; run `cargo build --workspace --features mcp-fixture/misbehaviours`",
            binary.display()
        )
    })?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
    Ok(dir)
}

fn server_command(plugward: &Plugward) -> Value {
    json!([plugward.binary(), "serve", "--stdio"])
}

/// The calls that both SDK clients make, in the order in which [`check_report`] reads the answers.
fn calls() -> Value {
    json!([
        {"name": FIXTURE_ECHO, "arguments": {"text": TEXT}},
        {"name": EVERYTHING_ECHO, "arguments": {"message": TEXT}},
        {"name": FIXTURE_FAIL, "arguments": {}},
        {"name": UNKNOWN, "arguments": {}},
    ])
}

fn typescript(plugward: &Plugward, clients: &Path) -> Result<()> {
    let job = Job::new(tools::require("node")?, "TypeScript SDK client", CLIENT_LIMIT)
        .arg("typescript.mjs")
        .arg(server_command(plugward).to_string())
        .arg(calls().to_string())
        .dir(clients);
    check_report(plugward.equip(job))
}

fn python(plugward: &Plugward, clients: &Path) -> Result<()> {
    let job = Job::new(tools::python_folder()?.join("python3"), "Python SDK client", CLIENT_LIMIT)
        .arg("python.py")
        .arg(server_command(plugward).to_string())
        .arg(calls().to_string())
        .env("PYTHONPATH", clients.join("lib"))
        .dir(clients);
    check_report(plugward.equip(job))
}

/// Both lines of the TypeScript SDK, over stdio and over HTTP, in both eras.
fn both_eras(plugward: &Plugward, clients: &Path) -> Result<()> {
    let job = Job::new(tools::require("node")?, "TypeScript SDKs, both eras", CLIENT_LIMIT)
        .arg("eras.mjs")
        .arg(plugward.binary())
        .arg(plugward.home())
        .arg(calls().to_string())
        .dir(clients);
    let done = plugward.equip(job).run()?.success()?;
    let reports: Value = serde_json::from_str(done.stdout.trim())
        .with_context(|| format!("{}: report is no JSON\n{}", done.label, done.tail()))?;
    let reports = reports.as_object().context("reports are no object")?;
    if reports.len() != ERAS_COMBINATIONS {
        bail!("{} combinations reported, expected {ERAS_COMBINATIONS}", reports.len());
    }
    for (name, report) in reports {
        let context = || format!("{name}: {report:#}\n{}", done.tail());
        judge_report(report).with_context(context)?;
        // A client that finds a server of the newer era has no reason to speak the older one.
        let expected = if name.ends_with("modern") || name.ends_with("auto") { "2026-07-28" } else { "2025-11-25" };
        if report["version"].as_str().is_some_and(|version| version != expected) {
            bail!("{name}: speaks {}, expected {expected}", report["version"]);
        }
    }
    Ok(())
}

/// Runs a client script and judges its report.
fn check_report(job: Job) -> Result<()> {
    let done = job.run()?.success()?;
    let report: Value = serde_json::from_str(done.stdout.trim())
        .with_context(|| format!("{}: report is no JSON\n{}", done.label, done.tail()))?;
    let context = || format!("report: {report:#}\n{}", done.tail());
    judge_report(&report).with_context(context)
}

fn judge_report(report: &Value) -> Result<()> {
    let names: Vec<&str> =
        report["tools"].as_array().map_or_else(Vec::new, |tools| tools.iter().filter_map(Value::as_str).collect());
    expect_names(&names)?;
    if !report["instructions"].as_str().unwrap_or_default().contains("mcp-fixture") {
        bail!("instructions do not say that mcp-fixture is there");
    }
    let results = report["results"].as_array().context("report has no results")?;
    let [echo, everything, fail, unknown] = results.as_slice() else { bail!("report has {} results", results.len()) };
    expect_text(&echo["result"], TEXT)?;
    expect_text(&everything["result"], TEXT)?;
    if fail["result"]["isError"] != true {
        bail!("`{FIXTURE_FAIL}` did not come back as a tool error");
    }
    // A client may turn the protocol error into an exception or into an error result; both are an error.
    if unknown["error"].is_null() && unknown["result"]["isError"] != true {
        bail!("`{UNKNOWN}` did not come back as an error");
    }
    Ok(())
}

fn inspector(plugward: &Plugward, clients: &Path) -> Result<()> {
    let ask = |arguments: &[&str]| {
        let job = Job::new(tools::require("node")?, "Inspector", CLIENT_LIMIT)
            .arg("node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js")
            .arg("--cli")
            // It passes only a few variables on by itself.
            .args(plugward.settings().iter().flat_map(|(name, value)| ["-e".to_owned(), format!("{name}={value}")]))
            .arg(plugward.binary())
            .args(["serve", "--stdio"])
            .args(arguments)
            .dir(clients);
        plugward.equip(job).run()
    };
    let answer = |arguments: &[&str]| -> Result<Value> {
        let done = ask(arguments)?.success()?;
        serde_json::from_str(&done.stdout).with_context(|| format!("answer is no JSON\n{}", done.tail()))
    };
    let listed = answer(&["--method", "tools/list"])?;
    let tools = listed["tools"].as_array().context("tools/list has no tools")?;
    expect_names(&tools.iter().filter_map(|tool| tool["name"].as_str()).collect::<Vec<_>>())?;

    let text = format!("text={TEXT}");
    let echoed = answer(&["--method", "tools/call", "--tool-name", FIXTURE_ECHO, "--tool-arg", &text])?;
    expect_text(&echoed, TEXT)?;

    let failed = ask(&["--method", "tools/call", "--tool-name", FIXTURE_FAIL])?;
    if !failed.stdout.contains("isError") && failed.code == Some(0) {
        bail!("`{FIXTURE_FAIL}` did not come back as a tool error\n{}", failed.tail());
    }
    Ok(())
}

fn expect_names(names: &[&str]) -> Result<()> {
    for wanted in [FIXTURE_ECHO, FIXTURE_FAIL, EVERYTHING_ECHO] {
        if !names.contains(&wanted) {
            bail!("tool `{wanted}` is not among {}", names.join(", "));
        }
    }
    Ok(())
}

fn expect_text(result: &Value, text: &str) -> Result<()> {
    let blocks = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    if result["isError"] != true && blocks.iter().any(|block| block["text"].as_str().is_some_and(|t| t.contains(text)))
    {
        return Ok(());
    }
    bail!("result does not hold `{text}`: {result}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Value {
        json!({
            "instructions": "mcp-fixture: 6 tools",
            "tools": [FIXTURE_ECHO, FIXTURE_FAIL, EVERYTHING_ECHO],
            "results": [
                {"result": {"content": [{"type": "text", "text": TEXT}]}},
                {"result": {"content": [{"type": "text", "text": format!("Echo: {TEXT}")}]}},
                {"result": {"isError": true, "content": []}},
                {"error": {"code": -32602, "message": "unknown tool"}},
            ]
        })
    }

    #[test]
    fn a_good_report_passes_and_each_fault_is_seen() {
        judge_report(&good()).unwrap();
        let faults: [fn(&mut Value); 6] = [
            |report| report["tools"] = json!([FIXTURE_ECHO]),
            |report| report["instructions"] = json!(""),
            |report| report["results"][0] = json!({"result": {"content": []}}),
            |report| report["results"][1]["result"]["isError"] = json!(true),
            |report| report["results"][2]["result"]["isError"] = json!(false),
            |report| report["results"][3] = json!({"result": {"content": []}}),
        ];
        for fault in faults {
            let mut report = good();
            fault(&mut report);
            assert!(judge_report(&report).is_err(), "{report:#}");
        }
    }
}
