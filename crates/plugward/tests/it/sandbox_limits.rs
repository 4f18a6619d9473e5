//! What a person reads when a plugin was ended at a limit.

use plugward_host::{Environment, LogOrigin};
use serde_json::json;

use crate::support::{Fixture, PATIENCE, Settings, TestHost};

// Requirements 92, 93: a full disk is noticed, and the reason is a limit with its figures and not a signal's number.
#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_fills_its_home_is_ended_by_name() {
    let host = TestHost::with(Settings { environment: Environment::Production, ..Settings::default() }).await;
    let limited = |id: &str, bytes: u64| {
        let limit = format!("sandbox:\n  disk_bytes: {bytes}\n");
        Fixture::imported(id, &["attempts"]).backend("restart: never").extra(&limit)
    };
    host.run(&limited("roomy", 64 << 20)).await;
    host.run(&limited("cramped", 4 << 20)).await;
    for id in ["roomy", "cramped"] {
        let home = host.home().join("homes").join(id).canonicalize().unwrap();
        let arguments = json!({"kind": "fill", "target": home.to_str().unwrap()});
        // It may be ended while it answers.
        let _answer = host.call(&format!("{id}.attempt"), arguments).await;
    }
    let deadline = std::time::Instant::now() + PATIENCE;
    let reason = loop {
        let view = host.host.plugin("cramped").await.unwrap();
        let lines = host.host.logs("cramped").unwrap();
        let fell = lines.iter().find(|line| line.origin == LogOrigin::Host && line.text.contains("fell over"));
        if let Some(line) = fell {
            break format!("{} / {}", line.text, view.detail);
        }
        assert!(std::time::Instant::now() < deadline, "still {}", view.detail);
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    assert!(reason.contains("its own data grew to") && reason.contains("the limit is 4 MiB"), "{reason}");
    let view = host.host.plugin("roomy").await.unwrap();
    assert_eq!(view.detail, "running", "control: the same data below a limit");
}
