//! Prompts and webhooks through the command line: what a person reads before agreeing, and how it goes afterwards.

use std::path::Path;

use super::Cli;

// Requirement 94: what is said and sent is read before it is agreed to, in full, and no key with it.
#[test]
fn examples_are_reviewed_approved_and_told_of() {
    let cli = Cli::new().variable("PLUGWARD_ENVIRONMENT", "production");
    let cli = cli.variable("CHAT_HOOK", "T1/planted-path-key").variable("CHAT_SECRET", "planted-signing-key");
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for (folder, name) in [("prompts", "review_change"), ("webhooks", "chat_notice")] {
        let file = examples.join(folder).join(format!("{name}.yaml"));
        cli.ok(&["install", file.to_str().unwrap()]);
    }
    let screen = cli.ok(&["review", "review_change"]).stdout;
    for words in ["No program of it runs", "{{params.change}}", "mcp.prompts", "words of somebody else"] {
        assert!(screen.contains(words), "{words}: {screen}");
    }
    for words in ["inside its sandbox", "Tools:", "memory", "program   "] {
        assert!(!screen.contains(words), "{words}: {screen}");
    }
    let screen = cli.ok(&["review", "chat_notice"]).stdout;
    for words in [
        "POST https://chat.example.test/hooks/${CHAT_HOOK}",
        "at plugin.error, plugin.held, request.waiting",
        "may connect to chat.example.test, port 443",
        "with the value of your environment variable CHAT_SECRET",
        "learns what happens in this host",
    ] {
        assert!(screen.contains(words), "{words}: {screen}");
    }
    assert!(!screen.contains("planted"), "{screen}");
    cli.ends(4, &["enable", "chat_notice"]);
    for name in ["review_change", "chat_notice"] {
        let digest = cli.json(&["review", name])["digest"].as_str().unwrap().to_owned();
        cli.ok(&["approve", name, "--digest", &digest]);
    }
    let done = cli.ok(&["enable", "review_change"]);
    assert!(format!("{}{}", done.stdout, done.stderr).contains("its prompt is offered"), "{done:?}");
    cli.ok(&["enable", "chat_notice"]);
    let status = cli.ok(&["status"]).stdout;
    assert!(status.contains("chat_notice: stopped, 0 events delivered, 0 failed, 0 waiting"), "{status}");
    let info = cli.json(&["info", "chat_notice"]);
    assert_eq!((&info["host"]["backend_type"], &info["host"]["transport"]), (&"webhook".into(), &"none".into()));
    assert_eq!(info["host"]["deliveries"]["failed"], 0);
    assert!(!info.to_string().contains("planted"), "{info}");
    // Without its key it says which variable is missing, and sends nothing unsigned.
    let poor = cli.variable("CHAT_SECRET", "");
    let done = poor.run(&["restart", "chat_notice"]);
    assert!(done.code != 0 && done.stderr.contains("`CHAT_SECRET` is not set"), "{done:?}");
    // A key that can be guessed is none.
    let done = poor.variable("CHAT_SECRET", "short").run(&["restart", "chat_notice"]);
    assert!(done.code != 0 && done.stderr.contains("its secret has less than 16 bytes"), "{done:?}");
}
