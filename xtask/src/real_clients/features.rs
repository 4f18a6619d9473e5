//! What each feature must bring to light, and where it may be missing. A missing cell needs a reason here, so that a
//! script that forgets one is a failure and not a gap.

use serde_json::{Value, json};

use super::Report;

/// Text that the echoes must bring back, with characters that need more than one byte.
const TEXT: &str = "grüße, 世界";

/// Tools that must be listed, under the names that our server shows to clients.
const TOOLS: [&str; 4] = ["calls_echo", "calls_sleep", "offers_test_simple_text", "server-everything_echo"];

/// The code for a tool that nobody has.
const INVALID_PARAMS: i64 = -32602;

/// A feature: its name in reports, what it is for people, and the one right value.
pub(super) struct Feature {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    is_right: fn(&Value) -> bool,
}

macro_rules! exactly {
    ($($value:tt)+) => {
        |found| *found == json!($($value)+)
    };
}

pub(super) const FEATURES: [Feature; 16] = [
    Feature { name: "tools", about: "all tools of all pages are listed", is_right: lists_tools },
    Feature { name: "call", about: "a text comes back as it was sent", is_right: exactly!(TEXT) },
    Feature { name: "structured", about: "structured content", is_right: exactly!({"echo": TEXT}) },
    Feature { name: "contents", about: "several kinds of content", is_right: exactly!(["text", "image", "resource"]) },
    Feature { name: "tool error", about: "a tool that fails is a result", is_right: exactly!(true) },
    Feature { name: "unknown tool", about: "a tool that is not there is an error", is_right: is_refused },
    Feature {
        name: "real server",
        about: "a published server behind",
        is_right: |found| *found == format!("Echo: {TEXT}"),
    },
    Feature { name: "progress", about: "notes of a call while it runs, in order", is_right: is_progress },
    Feature {
        name: "cancel",
        about: "a call that is given up ends, here and at the plugin",
        is_right: exactly!(["cancelled", TEXT]),
    },
    Feature {
        name: "prompts",
        about: "prompts are listed and filled in",
        is_right: |found| *found == json!([true, format!("arg1='one', arg2='{TEXT}'")]),
    },
    Feature {
        name: "resources",
        about: "resources are listed and read",
        is_right: exactly!([true, "A text of the resource."]),
    },
    Feature {
        name: "templates",
        about: "templates are listed, and what they stand for is read",
        is_right: exactly!([true, "{\"id\":\"seven\"}"]),
    },
    Feature { name: "completion", about: "arguments are completed", is_right: exactly!(["test", "tested"]) },
    Feature { name: "changes", about: "a list that changes is told, and is new then", is_right: exactly!(true) },
    Feature {
        name: "questions",
        about: "a question of the plugin reaches the person",
        is_right: exactly!({"username": "ada", "email": "ada@example.test"}),
    },
    Feature { name: "ping", about: "ping", is_right: exactly!(true) },
];

fn lists_tools(found: &Value) -> bool {
    TOOLS.iter().all(|tool| found.as_array().is_some_and(|names| names.iter().any(|name| name == tool)))
}

/// A client may turn the protocol error into an exception or into an error result; both are an error.
fn is_refused(found: &Value) -> bool {
    found["code"] == INVALID_PARAMS
        || found["result"]["isError"] == true
        || found["refused"].as_str().is_some_and(|said| said.contains("no_such_tool"))
}

/// The last note comes together with the result, and the TypeScript SDKs forget who wanted it before they look at it.
fn is_progress(found: &Value) -> bool {
    let notes: Vec<f64> = found.as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    notes == [0.0, 50.0, 100.0] || notes == [0.0, 50.0]
}

/// Why a feature is missing from a report, if it may be.
pub(super) fn reason(behind: &str, report: &Report, feature: &str) -> Option<&'static str> {
    match feature {
        "ping" if report.era == "stateless" => Some("not in this revision"),
        "cancel" if report.client == "Python SDK 1" => Some("the client takes no call back"),
        "changes" | "cancel" | "questions" | "completion" | "ping" | "progress" if report.client == "Inspector" => {
            Some("not on its command line")
        }
        "questions" if behind == "handshake" => Some("plugins with a handshake are not let ask"),
        _ => None,
    }
}

/// What is wrong with a report.
pub(super) fn faults(behind: &str, report: &Report) -> Vec<String> {
    let mut faults = Vec::new();
    let expected = if report.era == "stateless" { "2026-07-28" } else { "2025-11-25" };
    if report.revision.as_ref().is_some_and(|revision| revision != expected) {
        faults.push(format!("speaks {:?}, expected {expected}", report.revision));
    }
    if report.instructions.as_ref().is_some_and(|said| !said.contains("offers")) {
        faults.push("instructions do not say that the plugins are there".to_owned());
    }
    for feature in &FEATURES {
        match (report.found.get(feature.name), reason(behind, report, feature.name)) {
            (None, None) => faults.push(format!("`{}` is not reported", feature.name)),
            (Some(_), Some(reason)) => faults.push(format!("`{}` is reported, although: {reason}", feature.name)),
            (Some(found), None) if !(feature.is_right)(found) => {
                faults.push(format!("`{}` ({}): found {found}", feature.name, feature.about));
            }
            _ => {}
        }
    }
    let known = |name: &String| FEATURES.iter().any(|feature| feature.name == name);
    faults.extend(report.found.keys().filter(|name| !known(name)).map(|name| format!("`{name}` is no feature")));
    let of = format!("{}, {}, {}", report.client, report.transport, report.era);
    faults.iter().map(|fault| format!("{of}: {fault}")).collect()
}

#[cfg(test)]
pub(super) fn good(behind: &str, client: &str, era: &str) -> Report {
    let values = json!({
        "tools": TOOLS,
        "call": TEXT,
        "structured": {"echo": TEXT},
        "contents": ["text", "image", "resource"],
        "tool error": true,
        "unknown tool": {"code": INVALID_PARAMS},
        "real server": format!("Echo: {TEXT}"),
        "progress": [0, 50, 100],
        "cancel": ["cancelled", TEXT],
        "prompts": [true, format!("arg1='one', arg2='{TEXT}'")],
        "resources": [true, "A text of the resource."],
        "templates": [true, "{\"id\":\"seven\"}"],
        "completion": ["test", "tested"],
        "changes": true,
        "questions": {"username": "ada", "email": "ada@example.test"},
        "ping": true,
    });
    let mut report = Report {
        client: client.to_owned(),
        transport: "stdio".to_owned(),
        era: era.to_owned(),
        revision: None,
        instructions: Some("calls, offers".to_owned()),
        found: values.as_object().cloned().unwrap_or_default(),
    };
    let missing: Vec<&str> =
        FEATURES.iter().map(|feature| feature.name).filter(|name| reason(behind, &report, name).is_some()).collect();
    report.found.retain(|name, _| !missing.contains(&name.as_str()));
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_report_passes_and_each_fault_is_seen() {
        let report = good("stateless", "Python SDK 2", "handshake");
        assert_eq!(faults("stateless", &report), [""; 0]);
        for feature in &FEATURES {
            let mut wrong = report.clone();
            wrong.found[feature.name] = json!({"error": "closed"});
            assert!(faults("stateless", &wrong).join("\n").contains(feature.name), "{}", feature.name);
            wrong.found.remove(feature.name);
            assert!(faults("stateless", &wrong).join("\n").contains("not reported"), "{}", feature.name);
        }
        let mut wrong = report;
        wrong.found.insert("sorcery".to_owned(), json!(true));
        wrong.revision = Some("2026-07-28".to_owned());
        wrong.instructions = Some(String::new());
        assert_eq!(faults("stateless", &wrong).len(), 3);
    }

    #[test]
    fn what_may_be_missing_may_not_be_there() {
        let mut report = good("stateless", "Python SDK 2", "stateless");
        assert_eq!(faults("stateless", &report), [""; 0]);
        report.found.insert("ping".to_owned(), json!(true));
        assert!(faults("stateless", &report).join("\n").contains("although"));
    }
}
