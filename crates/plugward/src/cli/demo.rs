//! `demo`: everything once, on nothing but this program.
//!
//! Owns the script. A temporary home, the built-in MCP server as plugin, and the very operations that the commands run;
//! each step shows the command that does the same. Refuses the user's own home, the network and the working directory.

use std::fs;
use std::path::Path;

use plugward_host::{Environment, Host, HostError};
use serde_json::value::RawValue;

use super::link::Link;
use super::output::{Output, Tone, paint, safe, strong};
use super::{FIXTURE_ARGUMENT, plugins, review, trace, unexpected};
use crate::control::{Failure, Operation, Outcome};
use crate::exit::Exit;
use crate::settings::Settings;

/// Id of the built-in plugin.
const PLUGIN: &str = "mcp-fixture";

/// Calls that the demo makes: tool, arguments, and what they show.
const CALLS: [(&str, &str, &str); 3] = [
    ("mcp-fixture.echo", r#"{"text":"hello"}"#, "an ordinary call"),
    ("mcp-fixture.fail", r#"{}"#, "a tool that says it failed: that is a result, and the plugin goes on"),
    (
        "mcp-fixture.sleep",
        r#"{"seconds":5}"#,
        "a tool that takes too long: the call ends after the plugin's limit, 1 s",
    ),
];

pub(super) async fn run(output: &Output) -> Result<Exit, Failure> {
    let folder = tempfile::Builder::new().prefix("plugward-demo-").tempdir().map_err(|error| {
        let message = format!("a temporary folder for the demo cannot be made: {error}");
        Failure::new(Exit::Failure, "DEMO_FAILED", message).with_hint("set TMPDIR to a folder you may write to")
    })?;
    let package = folder.path().join("package");
    make_package(&package).map_err(|error| {
        Failure::new(Exit::Failure, "DEMO_FAILED", format!("package of the demo cannot be made: {error}"))
    })?;
    // No variable and no file of the user's reaches the demo.
    let mut settings = Settings::load(Some(folder.path().join("home")), |_| None)
        .map_err(|error| Failure::new(Exit::Failure, "DEMO_FAILED", error.to_string()))?;
    settings.environment = Environment::Development;
    let config = settings.host_config().map_err(HostError::internal)?;
    let link = Link::InProcess(Host::open(config).await?);
    let mut demo = Demo { output, link: &link, step: 0 };
    let result = demo.play(folder.path(), &package).await;
    link.close().await;
    result?;
    demo_end(output);
    Ok(Exit::Ok)
}

fn demo_end(output: &Output) {
    if output.json {
        output.object(&serde_json::json!({ "demo": "ok" }));
        return;
    }
    output.text(&format!("\n{} The temporary home is gone; nothing is left.", paint(Tone::Good, "Done.")));
    output.next("plugward install FOLDER (a plugin of your own), or plugward --help");
}

/// The running program and a manifest that starts it as an MCP server.
fn make_package(package: &Path) -> std::io::Result<()> {
    fs::create_dir(package)?;
    // By what the running program is, even if its file was replaced since.
    let program = Path::new("/proc/self/exe");
    let target = package.join(PLUGIN);
    let linked = fs::read_link(program).and_then(|path| fs::hard_link(path, &target));
    if linked.is_err() {
        fs::copy(program, &target)?;
    }
    let manifest = mcp_fixture::PLUGIN_YAML.replace("args: [normal]", &format!("args: [{FIXTURE_ARGUMENT}, normal]"));
    fs::write(package.join("plugin.yaml"), manifest)
}

struct Demo<'a> {
    output: &'a Output,
    link: &'a Link,
    step: u32,
}

impl Demo<'_> {
    async fn play(&mut self, folder: &Path, package: &Path) -> Result<(), Failure> {
        self.say(&format!("{} in a temporary home, {}", strong("plugward demo"), folder.display()));
        self.say("environment = development, for this demo only: where this machine cannot hold a sandbox,");
        self.say("the plugin, which is part of this program, runs without one. In production it would not start.");
        self.step("plugward install ./mcp-fixture", "copy the plugin in; nothing of it runs");
        let source = package.to_owned();
        let plugin = plugins::plugin(self.link.run(Operation::Install { source, id: None }).await?)?;
        self.say(&format!("installed {} {}: {}", plugin.id, plugin.version, safe(&plugin.detail)));
        self.step("plugward review mcp-fixture", "see what it would run, before it does");
        let review = review::fetch(self.link, PLUGIN.to_owned()).await?;
        self.say(&review::screen(&review));
        self.step(
            &format!("plugward approve mcp-fixture --digest {}", review.digest),
            "agree to exactly this; a changed byte would be held",
        );
        let digest = review.digest;
        self.link.run(Operation::Approve { id: PLUGIN.to_owned(), digest }).await?;
        self.say("approved");
        self.step("plugward enable mcp-fixture", "start it, check its tools against the manifest, offer them");
        let plugin = plugins::plugin(self.link.run(Operation::Enable { id: PLUGIN.to_owned() }).await?)?;
        self.say(&format!("{}: {} tools", plugin.status, plugin.tools_count));
        self.step("plugward tools", "what an agent gets to see");
        let Outcome::Tools(tools) = self.link.run(Operation::Tools { id: None }).await? else {
            return Err(unexpected());
        };
        for tool in tools {
            self.say(&format!("  {:<24} {}", tool.name, safe(tool.description.lines().next().unwrap_or_default())));
        }
        for (tool, arguments, what) in CALLS {
            self.step(&format!("plugward call {tool} '{arguments}'"), what);
            self.call(tool, arguments).await?;
        }
        self.traces().await?;
        self.step("plugward disable mcp-fixture", "take its tools away, end its processes");
        let plugin = plugins::plugin(self.link.run(Operation::Disable { id: PLUGIN.to_owned() }).await?)?;
        self.say(&format!("{}: {} tools", plugin.status, plugin.tools_count));
        Ok(())
    }

    async fn call(&self, tool: &str, arguments: &str) -> Result<(), Failure> {
        let arguments = RawValue::from_string(arguments.to_owned()).map_err(HostError::internal)?;
        let call = Operation::Call { tool: tool.to_owned(), arguments: Some(arguments), timeout_ms: None };
        match self.link.run(call).await {
            Ok(Outcome::Call(call)) => {
                self.say(call.result.get());
                self.say(if call.is_error { "exit code 1: the tool says it failed" } else { "exit code 0" });
            }
            Ok(_) => return Err(unexpected()),
            Err(failure) => {
                let error = &failure.body.error;
                self.say(&format!("{} {} ({})", paint(Tone::Warn, "error:"), safe(&error.message), error.code));
                self.say(&format!("exit code {}", failure.exit.number()));
            }
        }
        Ok(())
    }

    async fn traces(&mut self) -> Result<(), Failure> {
        self.step("plugward trace list", "every call left a trace, newest first");
        let spans = Operation::Spans { plugin: None, outcome: None, limit: CALLS.len() };
        let Outcome::Spans(page) = self.link.run(spans).await? else { return Err(unexpected()) };
        self.say(&trace::list_text(&page));
        self.step("plugward trace show last", "what was decided and where the time went; never what was said");
        let Outcome::Trace(spans) = self.link.run(Operation::Trace { trace: "last".to_owned() }).await? else {
            return Err(unexpected());
        };
        self.say(&trace::show_text(&spans));
        Ok(())
    }

    fn step(&mut self, command: &str, what: &str) {
        self.step += 1;
        self.say(&format!("\n{} {what}\n   $ {command}", strong(&format!("{}.", self.step))));
    }

    fn say(&self, text: &str) {
        if !self.output.json {
            self.output.text(text);
        }
    }
}
