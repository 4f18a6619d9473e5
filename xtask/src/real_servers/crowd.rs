//! Twenty plugins of one host at once, each in a sandbox of its own: a person's usual set and more. Owns the set and the
//! script that keeps a host running for the length of it. A host that starts them one after the other, or mixes them up,
//! fails here.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::SERVERS;
use crate::driver::Plugward;
use crate::packages::Package;
use crate::process::Job;

/// Copies of each server; the small one makes the number, the others bring run times.
const COPIES: [(&str, usize); 3] = [("static-server", 16), ("server-memory", 2), ("server-sequential-thinking", 2)];

/// All of it on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);

/// Starts a host, switches everything on at once, calls the small ones at once, and ends it. Arguments: the binary, the
/// ids. Standard output: the list of plugins as JSON, then one line for each call.
const SCRIPT: &str = r#"
set -u
plugward=$1; shift
"$plugward" serve >/dev/null 2>&1 &
host=$!
trap 'kill "$host" 2>/dev/null; wait "$host" 2>/dev/null' EXIT
tries=0
until "$plugward" status --json 2>/dev/null | grep -q '"pid"'; do
    tries=$((tries + 1)); [ "$tries" -lt 200 ] || exit 9
    sleep 0.05
done
enabling=
for id in "$@"; do "$plugward" enable "$id" >/dev/null & enabling="$enabling $!"; done
for child in $enabling; do wait "$child" || exit 8; done
calling=
for id in "$@"; do
    case $id in static-*) "$plugward" call "$id.echo" "{\"text\":\"from $id\"}" | tr -d '\n' | sed 's/$/\n/' & calling="$calling $!" ;; esac
done
for child in $calling; do wait "$child" || exit 7; done
"$plugward" list --json
"#;

pub(super) fn run(root: &Path, packages: &[Package], failures: &mut Vec<String>) -> Result<()> {
    let started = Instant::now();
    let plugward = Plugward::fresh(root, "crowd")?;
    let ids = install(&plugward, packages)?;
    let installed = started.elapsed();
    let job = plugward.equip(Job::new("sh", "twenty plugins at once", LIMIT)).args(["-c", SCRIPT, "sh"]);
    let done = job.arg(plugward.binary()).args(&ids).run()?;
    match done.success().and_then(|done| check(&ids, &done.stdout)) {
        Ok(()) => println!(
            "    {} at once: installed in {:.1} s, started, called and ended in {:.1} s",
            ids.len(),
            installed.as_secs_f64(),
            (started.elapsed() - installed).as_secs_f64()
        ),
        Err(error) => failures.push(format!("twenty at once: {error:#}")),
    }
    Ok(())
}

/// Installs and approves every copy; returns their ids.
fn install(plugward: &Plugward, packages: &[Package]) -> Result<Vec<String>> {
    let mut ids = Vec::new();
    for (server, copies) in COPIES {
        let position = SERVERS.iter().position(|known| known.id == server);
        let package = position.and_then(|at| packages.get(at)).with_context(|| format!("no package of `{server}`"))?;
        let copy = plugward.shared().join(server);
        super::copy_folder(&package.dir, &copy)?;
        let manifest = fs::read_to_string(copy.join("plugin.yaml"))?;
        for number in 0..copies {
            let id = format!("{server}-{number}");
            fs::write(copy.join("plugin.yaml"), manifest.replace(&format!("id: {server}\n"), &format!("id: {id}\n")))?;
            plugward.install(&copy)?;
            let digest = plugward.review(&id)?;
            plugward.approve(&id, &digest)?;
            ids.push(id);
        }
    }
    Ok(ids)
}

/// Every plugin is ready at level `full`, and every answer is the one of the plugin that was asked.
fn check(ids: &[String], stdout: &str) -> Result<()> {
    let (answers, list) = stdout.split_at(stdout.find("\n{\n").map_or(0, |at| at + 1));
    for id in ids.iter().filter(|id| id.starts_with("static-")) {
        let said = format!("from {id}\"");
        if answers.matches(&said).count() != 1 {
            bail!("`{said}` was not answered exactly once:\n{answers}");
        }
    }
    let list: Value = serde_json::from_str(list).context("list of plugins is no JSON")?;
    let plugins = list["plugins"].as_array().context("list of plugins is no list")?;
    for id in ids {
        let plugin =
            plugins.iter().find(|plugin| plugin["id"] == *id).with_context(|| format!("`{id}` is not listed"))?;
        if plugin["status"] != "ready" || plugin["enforcement"]["level"] != "full" {
            bail!("`{id}` is not ready at level `full`: {plugin}");
        }
    }
    Ok(())
}
