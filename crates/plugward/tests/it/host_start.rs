//! The eleven start steps: each in its order, and nothing left when one fails (requirements 38-57).

use serde_json::json;

use crate::support::{Fixture, TestHost};

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_way_from_install_to_call() {
    let test = TestHost::new().await;
    let view = test.run(&Fixture::normal("fx")).await;
    assert_eq!(view.status.as_str(), "ready");
    assert_eq!(test.tool_names("fx").len(), 6);
    assert_eq!(test.output("fx.echo", json!({"text": "héllo 世界"})).await, json!({"echo": "héllo 世界"}));
    test.close().await;
}
