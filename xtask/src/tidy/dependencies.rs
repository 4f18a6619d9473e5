//! Owns the direction of dependencies: which crate of the workspace may know which other, and which outside crates are
//! confined to one place. The table below is the one drawn in ARCHITECTURE.md.

use anyhow::{Context, Result};
use serde_json::Value;

use super::Finding;

/// A crate of the workspace with the workspace crates it may depend on; development dependencies may add `in_tests`.
struct Rule {
    name: &'static str,
    may_use: &'static [&'static str],
    in_tests: &'static [&'static str],
}

const LEAVES: [&str; 4] = ["plugward-policy", "plugward-protocol", "plugward-sandbox", "plugward-store"];

const RULES: &[Rule] = &[
    Rule { name: "plugward-policy", may_use: &[], in_tests: &[] },
    Rule { name: "plugward-protocol", may_use: &[], in_tests: &[] },
    // Its own tests switch on a feature that leaves out one layer.
    Rule { name: "plugward-sandbox", may_use: &[], in_tests: &["plugward-sandbox"] },
    Rule { name: "plugward-store", may_use: &[], in_tests: &[] },
    Rule { name: "plugward-host", may_use: &LEAVES, in_tests: &["mcp-fixture"] },
    Rule {
        name: "plugward",
        may_use: &[
            "mcp-fixture",
            "plugward-host",
            "plugward-policy",
            "plugward-protocol",
            "plugward-sandbox",
            "plugward-store",
        ],
        in_tests: &[],
    },
    // The fixture checks our wire code; sharing code with it would make both wrong together.
    Rule { name: "mcp-fixture", may_use: &[], in_tests: &[] },
    Rule { name: "xtask", may_use: &[], in_tests: &[] },
];

/// Outside crates that only the named crates may use, each with the reason.
const CONFINED: &[(&str, &[&str], &str)] = &[
    ("anyhow", &["plugward", "xtask"], "library errors are enums that say whose fault it is"),
    ("axum", &["plugward"], "HTTP is one of several faces"),
    ("clap", &["plugward"], "the command line is one of several faces"),
    ("clap_complete", &["plugward"], "the command line is one of several faces"),
    ("hyper-util", &["plugward", "plugward-host"], "HTTP is one of several faces; the host itself is a client only"),
    ("jsonschema", &["plugward-host"], "its releases break often; one module wraps it"),
    ("rusqlite", &["plugward-store"], "storage has one door"),
    ("serde-saphyr", &["plugward-policy"], "manifests have one parser"),
    ("tokio", &["plugward", "plugward-host"], "the leaves are free of async"),
    ("utoipa", &["plugward"], "HTTP is one of several faces"),
];

/// One dependency as a crate's Cargo.toml asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Edge {
    /// Name of the crate depended on.
    pub(crate) on: String,
    /// Whether only tests and benchmarks see it.
    pub(crate) in_tests: bool,
}

/// One crate of the workspace.
#[derive(Debug)]
pub(crate) struct Member {
    /// Its name.
    pub(crate) name: String,
    /// Its Cargo.toml, relative to the workspace.
    pub(crate) manifest: String,
    /// Its dependencies.
    pub(crate) edges: Vec<Edge>,
}

/// The crates of the workspace and what they depend on.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// The crates, sorted by name.
    pub(crate) members: Vec<Member>,
}

impl Graph {
    /// Reads the output of `cargo metadata`.
    pub(crate) fn from_metadata(metadata: &Value) -> Result<Self> {
        let root = metadata["workspace_root"].as_str().context("cargo metadata names no workspace root")?;
        let ids = metadata["workspace_members"].as_array().context("cargo metadata names no members")?;
        let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
        let mut members = Vec::new();
        for package in packages.iter().filter(|package| ids.contains(&package["id"])) {
            let manifest = package["manifest_path"].as_str().unwrap_or_default();
            let edges = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
            members.push(Member {
                name: package["name"].as_str().context("cargo metadata has a package without name")?.to_owned(),
                manifest: manifest.trim_start_matches(root).trim_start_matches('/').to_owned(),
                edges: edges
                    .iter()
                    .map(|edge| Edge {
                        on: edge["name"].as_str().unwrap_or_default().to_owned(),
                        in_tests: edge["kind"] == "dev",
                    })
                    .collect(),
            });
        }
        members.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self { members })
    }

    fn has(&self, name: &str) -> bool {
        self.members.iter().any(|member| member.name == name)
    }
}

/// Edges within the workspace that the table does not have.
pub(crate) fn wrong_direction(graph: &Graph) -> Vec<Finding> {
    let mut found = Vec::new();
    for member in &graph.members {
        let Some(rule) = RULES.iter().find(|rule| rule.name == member.name) else {
            let message = format!("crate `{}` is not in the table of dependency directions", member.name);
            let fix = "add it to RULES in xtask/src/tidy/dependencies.rs and draw it in ARCHITECTURE.md";
            found.push(Finding::new(&member.manifest, 0, message, fix));
            continue;
        };
        for edge in member.edges.iter().filter(|edge| graph.has(&edge.on)) {
            let on = edge.on.as_str();
            let allowed = rule.may_use.contains(&on) || (edge.in_tests && rule.in_tests.contains(&on));
            if !allowed {
                let message = format!("`{}` must not depend on `{on}`", member.name);
                let fix = "move the code to the side that may know both, or pass it in";
                found.push(Finding::new(&member.manifest, 0, message, fix));
            }
        }
    }
    for rule in RULES.iter().filter(|rule| !graph.has(rule.name)) {
        let message = format!("crate `{}` is in the table but not in the workspace", rule.name);
        found.push(Finding::new("xtask/src/tidy/dependencies.rs", 0, message, "take it out of RULES"));
    }
    found
}

/// Outside crates used where they must not be, development dependencies included.
pub(crate) fn confined(graph: &Graph) -> Vec<Finding> {
    let mut found = Vec::new();
    for member in &graph.members {
        for edge in &member.edges {
            let Some((name, homes, reason)) = CONFINED.iter().find(|(name, ..)| *name == edge.on) else {
                continue;
            };
            if !homes.contains(&member.name.as_str()) {
                let message = format!("`{}` must not depend on `{name}`: {reason}", member.name);
                let fix = format!("keep it within {}", homes.join(", "));
                found.push(Finding::new(&member.manifest, 0, message, fix));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &str, bool)]) -> Graph {
        let members = RULES.iter().map(|rule| Member {
            name: rule.name.into(),
            manifest: format!("crates/{}/Cargo.toml", rule.name),
            edges: edges
                .iter()
                .filter(|(from, ..)| *from == rule.name)
                .map(|(_, on, in_tests)| Edge { on: (*on).into(), in_tests: *in_tests })
                .collect(),
        });
        Graph { members: members.collect() }
    }

    fn messages(findings: &[Finding]) -> Vec<&str> {
        findings.iter().map(|finding| finding.message.as_str()).collect()
    }

    #[test]
    fn the_drawn_direction_passes() {
        let drawn = graph(&[
            ("plugward", "plugward-host", false),
            ("plugward", "mcp-fixture", false),
            ("plugward-host", "plugward-store", false),
            ("plugward-host", "mcp-fixture", true),
            ("plugward", "clap", false),
            ("plugward-host", "tokio", true),
        ]);
        assert_eq!(wrong_direction(&drawn), []);
        assert_eq!(confined(&drawn), []);
    }

    #[test]
    fn every_other_direction_is_found() {
        let wrong = graph(&[
            ("plugward-policy", "plugward-store", false),
            ("plugward-store", "plugward-protocol", true),
            ("plugward-host", "plugward", false),
            ("plugward-host", "mcp-fixture", false),
            ("mcp-fixture", "plugward-protocol", false),
        ]);
        assert_eq!(wrong_direction(&wrong).len(), 5);
    }

    #[test]
    fn confined_crates_are_found_elsewhere() {
        let wrong = graph(&[("plugward-host", "clap", false), ("plugward-store", "anyhow", true)]);
        let found = confined(&wrong);
        assert_eq!(
            messages(&found),
            [
                "`plugward-store` must not depend on `anyhow`: library errors are enums that say whose fault it is",
                "`plugward-host` must not depend on `clap`: the command line is one of several faces",
            ]
        );
    }

    #[test]
    fn table_and_workspace_must_name_the_same_crates() {
        let mut graph = graph(&[]);
        graph.members.retain(|member| member.name != "xtask");
        graph.members.push(Member { name: "plugward-new".into(), manifest: "x/Cargo.toml".into(), edges: vec![] });
        assert_eq!(
            messages(&wrong_direction(&graph)),
            [
                "crate `plugward-new` is not in the table of dependency directions",
                "crate `xtask` is in the table but not in the workspace",
            ]
        );
    }

    #[test]
    fn metadata_is_read() {
        let metadata = serde_json::json!({
            "workspace_root": "/somewhere",
            "workspace_members": ["a 0.1"],
            "packages": [
                {"id": "a 0.1", "name": "a", "manifest_path": "/somewhere/crates/a/Cargo.toml",
                 "dependencies": [{"name": "b", "kind": null}, {"name": "c", "kind": "dev"}]},
                {"id": "b 1", "name": "b", "manifest_path": "/elsewhere/Cargo.toml", "dependencies": []}
            ]
        });
        let graph = Graph::from_metadata(&metadata).unwrap();
        assert_eq!(graph.members.len(), 1);
        assert_eq!(graph.members[0].manifest, "crates/a/Cargo.toml");
        assert_eq!(graph.members[0].edges[1], Edge { on: "c".into(), in_tests: true });
    }
}
