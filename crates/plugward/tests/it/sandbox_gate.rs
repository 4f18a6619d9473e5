//! Whether a plugin starts in its sandbox, without one, or not at all.

use plugward_host::{Environment, ErrorCode, LogOrigin};
use plugward_sandbox::Level;

use crate::support::{Fixture, Settings, TestHost};

fn at_level(id: &str, level: &str) -> Fixture {
    Fixture::imported(id, &["attempts"]).extra(&format!("sandbox:\n  minimum_level: {level}\n"))
}

async fn production() -> TestHost {
    TestHost::with(Settings { environment: Environment::Production, ..Settings::default() }).await
}

// Requirements 104, 105: outside development nothing runs with all rights of its user.
#[tokio::test(flavor = "multi_thread")]
async fn production_starts_nothing_unconfined() {
    let host = production().await;
    for level in ["none", "limited"] {
        let error = host.try_run(&at_level(level, level)).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::McpSandboxRequired, "{}", error.message);
        assert!(error.hint.unwrap().contains("PLUGWARD_ENVIRONMENT=development"));
        let review = host.host.review(level).await.unwrap();
        assert!(review.isolation.contains("will not be started"), "{}", review.isolation);
    }
}

// Requirement 69: development is no reason to run a plugin that can be confined without its walls.
#[tokio::test(flavor = "multi_thread")]
async fn development_confines_what_asks_for_it_and_tells_of_the_rest() {
    let host = TestHost::new().await;
    let view = host.run(&at_level("kept", "full")).await;
    assert_eq!((view.enforcement.unwrap().level, view.detail.as_str()), (Level::Full, "running"));
    let view = host.run(&at_level("free", "none")).await;
    assert_eq!(view.enforcement.unwrap().level, Level::None);
    assert_eq!(view.detail, "running without a sandbox, with all your rights: it asks for level `none`");
    let lines = host.host.logs("free").unwrap();
    assert!(lines.iter().any(|line| line.origin == LogOrigin::Host && line.text.contains("without a sandbox")));
}

// Requirement 146: single hosts take a network of the plugin's own; below that level it is an error and not all of the
// network.
#[tokio::test(flavor = "multi_thread")]
async fn a_permission_that_cannot_be_kept_to_stops_the_start() {
    let host = TestHost::new().await;
    for level in ["partial", "limited"] {
        let asks = at_level(level, level).permission("net:api.example.test");
        let error = host.try_run(&asks).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::PluginHostStartFailed);
        assert!(error.message.contains("`net:api.example.test:443` is for single hosts"), "{}", error.message);
        let review = host.host.review(level).await.unwrap();
        assert!(review.warnings.iter().any(|warning| warning.contains("it will not start")), "{:?}", review.warnings);
    }
    let asks = Fixture::imported("reader", &["attempts"]).permission("fs.read:/no/such/place");
    let error = host.try_run(&asks).await.unwrap_err();
    assert!(error.message.contains("`/no/such/place`, which does not exist"), "{}", error.message);
}
