//! Invariant 4: no value of a secret comes out of any command.

use super::Cli;
use crate::support::Fixture;

/// In a variable, in an argument after an option, and inside an argument.
const PLANTED: [&str; 3] = ["planted-variable-7f3a91", "planted-option-9c2be4", "planted-inline-51d0aa"];

#[test]
fn planted_secrets_are_in_no_output() {
    let fixture = Fixture::imported("fix", &["normal", "--api-key", PLANTED[1], &format!("--token={}", PLANTED[2])])
        .backend(&format!("env: {{ SERVICE_API_KEY: {} }}", PLANTED[0]));
    let cli = Cli::new();
    let package = fixture.package();
    let id = cli.approve(&package);
    let mut seen = Vec::new();
    let mut look = |cli: &Cli| {
        let commands: [&[&str]; 16] = [
            &["list"],
            &["review", &id],
            &["enable", &id],
            &["info", &id],
            &["tools", &id],
            &["call", "fix.environment"],
            &["call", "fix.echo", r#"{"text":"x"}"#],
            &["call", "fix.exit"],
            &["status"],
            &["logs", &id],
            &["trace", "list"],
            &["trace", "show", "last"],
            &["permissions", &id],
            &["doctor"],
            &["approve", &id],
            &["restart", &id],
        ];
        for arguments in commands {
            for extra in [&[][..], &["--json"], &["-vv"]] {
                let done = cli.run(&[arguments, extra].concat());
                for secret in PLANTED {
                    assert!(
                        !done.stdout.contains(secret) && !done.stderr.contains(secret),
                        "{arguments:?} {extra:?}: {secret}"
                    );
                }
                seen.push(done.stdout);
            }
        }
    };
    look(&cli);
    let serving = cli.serve(&[]);
    look(&cli);
    assert!(serving.terminate().success());
    // The positive control: the plugin did get them, and what is hidden is shown as hidden.
    assert!(seen.iter().any(|text| text.contains("SERVICE_API_KEY=***")), "the review names the variable");
    assert!(seen.iter().any(|text| text.contains("--api-key") && text.contains("--token=***")), "and the options");
}
