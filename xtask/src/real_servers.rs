//! `cargo xtask real-servers`: published MCP servers, run from a manifest through every command a person would use,
//! from install to remove, at sandbox level `full` and without a network; then some of them by a host that runs as an
//! ordinary user, and twenty plugins at once. Owns the list of servers and what their answers must hold; a server that
//! stops working here would stop working for a user.

mod crowd;
mod ordinary;
mod static_server;

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::driver::Plugward;
use crate::packages::{self, Package};
use crate::tools;

/// A published server with the calls that show it works.
pub(crate) struct Server {
    /// Plugin id; also the folder below `xtask/real-servers/`.
    pub(crate) id: &'static str,
    finish: fn(&Path) -> Result<()>,
    calls: &'static [Call],
}

/// One call with what must come back.
struct Call {
    tool: &'static str,
    arguments: &'static str,
    /// 0 for a result, 1 for a tool's own error.
    exit_code: i32,
    /// Pieces of text that the result must hold.
    holds: &'static [&'static str],
}

/// Message of the commit in the git server's repository.
const COMMIT_MESSAGE: &str = "Say hello once";

const SERVERS: &[Server] = &[
    Server {
        id: "server-everything",
        finish: |_| Ok(()),
        calls: &[
            Call {
                tool: "echo",
                arguments: r#"{"message":"grüße, plugward"}"#,
                exit_code: 0,
                holds: &["grüße, plugward"],
            },
            Call { tool: "get-sum", arguments: r#"{"a":19,"b":23}"#, exit_code: 0, holds: &["42"] },
            Call {
                tool: "get-structured-content",
                arguments: r#"{"location":"Chicago"}"#,
                exit_code: 0,
                holds: &["structuredContent", "temperature"],
            },
        ],
    },
    Server {
        id: "server-filesystem",
        finish: |_| Ok(()),
        calls: &[
            Call {
                tool: "write_file",
                arguments: r#"{"path":"new.txt","content":"written by a tool"}"#,
                exit_code: 0,
                holds: &["new.txt"],
            },
            Call {
                tool: "read_text_file",
                arguments: r#"{"path":"new.txt"}"#,
                exit_code: 0,
                holds: &["written by a tool"],
            },
            Call { tool: "read_text_file", arguments: r#"{"path":"/etc/hostname"}"#, exit_code: 1, holds: &["denied"] },
        ],
    },
    Server {
        id: "server-filesystem-granted",
        finish: |_| Ok(()),
        calls: &[
            Call {
                tool: "read_text_file",
                arguments: r#"{"path":"{shared}/granted/letter.txt"}"#,
                exit_code: 0,
                holds: &[GRANTED_TEXT],
            },
            // Told of this folder by its command, and not granted it: what keeps it out is the sandbox.
            Call {
                tool: "read_text_file",
                arguments: r#"{"path":"{shared}/next/letter.txt"}"#,
                exit_code: 1,
                holds: &["next"],
            },
        ],
    },
    Server {
        id: "server-memory",
        finish: |_| Ok(()),
        calls: &[
            Call {
                tool: "create_entities",
                arguments: r#"{"entities":[{"name":"harbour","entityType":"place","observations":["ships leave"]}]}"#,
                exit_code: 0,
                holds: &["harbour", "ships leave"],
            },
            Call { tool: "read_graph", arguments: "{}", exit_code: 0, holds: &["entities"] },
        ],
    },
    Server {
        id: "server-sequential-thinking",
        finish: |_| Ok(()),
        calls: &[Call {
            tool: "sequentialthinking",
            arguments: r#"{"thought":"first","nextThoughtNeeded":true,"thoughtNumber":1,"totalThoughts":2}"#,
            exit_code: 0,
            holds: &["thoughtNumber"],
        }],
    },
    Server {
        id: "static-server",
        finish: static_server::build_into,
        calls: &[Call { tool: "echo", arguments: r#"{"text":"one file"}"#, exit_code: 0, holds: &["one file"] }],
    },
    Server {
        id: "mcp-server-time",
        finish: |_| Ok(()),
        calls: &[
            Call {
                tool: "convert_time",
                arguments: r#"{"source_timezone":"Asia/Tokyo","time":"12:00","target_timezone":"UTC"}"#,
                exit_code: 0,
                holds: &["-9.0h"],
            },
            Call { tool: "get_current_time", arguments: r#"{"timezone":"UTC"}"#, exit_code: 0, holds: &["+00:00"] },
            Call {
                tool: "get_current_time",
                arguments: r#"{"timezone":"Nowhere/Land"}"#,
                exit_code: 1,
                holds: &["Nowhere"],
            },
        ],
    },
    Server {
        id: "mcp-server-git",
        finish: |dir| {
            fs::create_dir(dir.join("data"))?;
            packages::make_repository(&dir.join("data"), COMMIT_MESSAGE)
        },
        calls: &[
            Call {
                tool: "git_log",
                arguments: r#"{"repo_path":"data/history.git","max_count":3}"#,
                exit_code: 0,
                holds: &[COMMIT_MESSAGE],
            },
            Call {
                tool: "git_show",
                arguments: r#"{"repo_path":"data/history.git","revision":"HEAD"}"#,
                exit_code: 0,
                holds: &["hello from the first commit"],
            },
            Call {
                tool: "git_branch",
                arguments: r#"{"repo_path":"data/history.git","branch_type":"local"}"#,
                exit_code: 0,
                holds: &["main"],
            },
        ],
    },
];

/// What lies in the granted folder.
const GRANTED_TEXT: &str = "a letter in the granted folder";

/// Steps in the order they are taken, as the columns of the table.
const STEPS: [&str; 8] = ["install", "review", "approve", "enable", "tools", "call", "disable", "remove"];

/// Runs every server through every step; fails if any step of any server does.
pub(crate) fn run() -> Result<()> {
    let root = tools::workspace_root()?;
    let packages: Vec<Package> = SERVERS.iter().map(|server| server.package(&root)).collect::<Result<_>>()?;
    let plugward = Plugward::fresh(&root, "servers")?;
    share(&plugward)?;

    println!("{:<28}{}", "server", STEPS.map(|step| format!("{step:<10}")).concat());
    let mut failures = Vec::new();
    for (server, package) in SERVERS.iter().zip(&packages) {
        walk(&plugward, server, package, &mut failures);
    }
    drop(plugward);
    ordinary::run(&root, SERVERS.iter().zip(&packages), &mut failures)?;
    crowd::run(&root, &packages, &mut failures)?;
    if failures.is_empty() { Ok(()) } else { bail!("real servers:\n{}", failures.join("\n")) }
}

/// Makes the folder that is granted, and the one beside it that is not; everybody may read both.
fn share(plugward: &Plugward) -> Result<()> {
    for (folder, text) in [("granted", GRANTED_TEXT), ("next", "a letter nobody granted")] {
        let folder = plugward.shared().join(folder);
        fs::create_dir(&folder)?;
        fs::write(folder.join("letter.txt"), text)?;
    }
    Ok(())
}

/// Copies a package, links as links.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path())?, target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Takes one server through every step and prints its row.
fn walk(plugward: &Plugward, server: &Server, package: &Package, failures: &mut Vec<String>) {
    let mut row = format!("{:<28}", server.id);
    let mut walk = Walk { plugward, server, package, digest: String::new() };
    for step in STEPS {
        let started = Instant::now();
        if let Err(error) = walk.step(step) {
            row.push_str("FAILED");
            failures.push(format!("{} {step}{}: {error:#}", server.id, plugward.whose()));
            break;
        }
        row.push_str(&format!("{:<10}", format!("{:.1} s", started.elapsed().as_secs_f64())));
    }
    println!("{}", row.trim_end());
}

/// The package of one server by id, for other checks.
pub(crate) fn package(root: &Path, id: &str) -> Result<Package> {
    let server = SERVERS.iter().find(|server| server.id == id).with_context(|| format!("server `{id}` is unknown"))?;
    server.package(root)
}

impl Server {
    fn package(&self, root: &Path) -> Result<Package> {
        let source = root.join("xtask/real-servers").join(self.id);
        Package::prepare(root, &source, &format!("servers/{}", self.id), self.finish)
    }
}

/// One server on its way through the steps.
struct Walk<'a> {
    plugward: &'a Plugward,
    server: &'a Server,
    package: &'a Package,
    digest: String,
}

impl Walk<'_> {
    fn step(&mut self, step: &str) -> Result<()> {
        let (plugward, id) = (self.plugward, self.server.id);
        match step {
            "install" => plugward.install(&self.package.dir),
            "review" => {
                self.digest = plugward.review(id)?;
                Ok(())
            }
            "approve" => plugward.approve(id, &self.digest),
            "enable" => {
                let enabled = plugward.json(&["enable", id, "--json"])?;
                let level = &enabled["plugin"]["enforcement"]["level"];
                if level != "full" {
                    bail!("it runs at sandbox level {level}, not at `full`");
                }
                Ok(())
            }
            "disable" => plugward.succeed(&[step, id]).map(drop),
            "tools" => self.check_tools(),
            "call" => self.server.calls.iter().try_for_each(|call| self.check_call(call)),
            "remove" => self.remove(),
            _ => bail!("step `{step}` is unknown"),
        }
    }

    fn check_tools(&self) -> Result<()> {
        let tools = self.plugward.tools(self.server.id)?;
        for call in self.server.calls {
            let name = format!("{}.{}", self.server.id, call.tool);
            if !tools.contains(&name) {
                bail!("tool `{name}` is not among {}", tools.join(", "));
            }
        }
        Ok(())
    }

    fn check_call(&self, call: &Call) -> Result<()> {
        let name = format!("{}.{}", self.server.id, call.tool);
        let arguments = call.arguments.replace("{shared}", &self.plugward.shared().display().to_string());
        let done = self.plugward.run(&["call", &name, &arguments])?.expect_code(call.exit_code)?;
        for piece in call.holds {
            // A tool's own error may be told on either stream; a result only on standard output.
            let told = done.stdout.contains(piece) || (call.exit_code != 0 && done.stderr.contains(piece));
            if !told {
                bail!("answer of `{name}` does not hold `{piece}`\n{}", done.tail());
            }
        }
        Ok(())
    }

    fn remove(&self) -> Result<()> {
        self.plugward.succeed(&["remove", self.server.id])?;
        if self.plugward.plugins()?.iter().any(|id| id == self.server.id) {
            bail!("plugin `{}` is still listed after its removal", self.server.id);
        }
        Ok(())
    }
}
