//! Webhooks: what is sent when, what becomes of it, and that it harms nothing else.

use std::time::Instant;

use plugward_host::{Environment, SpanFilter};
use plugward_policy::{HostStatus, PluginStatus};
use serde_json::json;

use super::Bench;
use super::receiver::{Reaction, Receiver};
use crate::support::{Fixture, Settings, eventually};

const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
const TOKEN: &str = "planted-token-value-1234";

fn settings() -> Settings {
    let mut settings = Settings { environment: Environment::Production, ..Settings::default() };
    for (name, value) in [("HOOK_SECRET", SECRET), ("HOOK_TOKEN", TOKEN), ("HOOK_PATH", "path-as-key-98765")] {
        settings.host_environment.push((name.to_owned(), value.to_owned()));
    }
    settings
}

/// A webhook for `receiver` with these further lines.
fn hook(receiver: &Receiver, lines: &str) -> String {
    let place = receiver.address;
    format!(
        "type: integration\nname: notice\ndescription: Tells somebody\nwebhook_url: http://{place}/${{HOOK_PATH}}\n\
         permissions: [net:{place}]\nsecret: ${{HOOK_SECRET}}\nretry_delay_ms: 10\n{lines}"
    )
}

/// A plugin that is ready as soon as it is enabled.
const OTHER: &str = "type: agent\nname: other\ndescription: d\nprompt_template: hello\n";

async fn restart_other(bench: &Bench) {
    bench.test.host.disable("other").await.unwrap();
    bench.test.host.enable("other").await.unwrap();
}

// Requirement 159, 94: seen whole before it sends anything; what is sent is signed, and says what happened.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_sent_signed_and_traced() {
    let receiver = Receiver::reacting(&[]).await;
    let bench = Bench::new(settings()).await;
    let host = &bench.test.host;
    let text = hook(
        &receiver,
        "events: [plugin.ready]\nheaders: {Authorization: \"Bearer ${HOOK_TOKEN}\"}\n\
         payload_template: '{\"text\": \"<{{event.message}}>\", \"plugin\": {{event.plugin}}, \"n\": {{event.tools.count}}}'\n",
    );
    bench.install("notice", &text).await;
    bench.run("other", OTHER).await;
    assert!(host.enable("notice").await.is_err(), "nobody approved it");
    let review = host.review("notice").await.unwrap();
    assert_eq!((review.runs, review.executable.as_str()), ("webhook", ""));
    assert_eq!(review.argv[0], format!("POST http://{}/${{HOOK_PATH}}", receiver.address));
    assert!(review.argv.contains(&"at plugin.ready".to_owned()) && review.argv.contains(&"signed".to_owned()));
    assert!(review.environment.contains(&("secret".to_owned(), "***".to_owned())), "{:?}", review.environment);
    let shown = format!("{review:?}");
    assert!(!shown.contains("MDEyMz") && !shown.contains(TOKEN) && !shown.contains("path-as-key"), "{shown}");
    bench.test.approve("notice").await;
    let view = host.enable("notice").await.unwrap();
    assert_eq!((view.status, view.host_status), (PluginStatus::Ready, HostStatus::Ready));
    assert_eq!(view.detail, "ready: events are sent as they happen");
    assert!(receiver.received().is_empty(), "what was so before is no news");
    restart_other(&bench).await;
    let sent = receiver.has(1).await.remove(0);
    assert!(sent.head.starts_with("POST /path-as-key-98765 HTTP/1.1\r\n"), "{}", sent.head);
    assert_eq!(sent.header("authorization"), Some(format!("Bearer {TOKEN}").as_str()));
    assert_eq!(sent.header("content-type"), Some("application/json"));
    let body = sent.json();
    assert_eq!(body["text"], "<plugin other is ready>");
    assert_eq!(
        (&body["plugin"]["id"], &body["plugin"]["status"], &body["n"]),
        (&json!("other"), &json!("ready"), &json!(null))
    );
    let (id, time) = (sent.header("webhook-id").unwrap(), sent.header("webhook-timestamp").unwrap());
    let signature = sent.header("webhook-signature").unwrap();
    assert_eq!(signature, signature_by_openssl(&format!("{id}.{time}.{}", sent.body)));
    let span = eventually("its trace", || {
        let view = host.host_status("notice").unwrap();
        (view.deliveries.unwrap().delivered == 1).then_some(())
    });
    span.await;
    let spans =
        host.spans(SpanFilter { plugin_id: Some("notice".to_owned()), ..SpanFilter::default() }).await.unwrap().spans;
    assert_eq!((spans[0].name.as_str(), spans[0].outcome.as_str()), ("webhook plugin.ready", "ok"));
    assert_eq!(spans[0].trace_id, id, "a receiver's id is the trace's");
    let log = format!("{:?}", host.logs("notice").unwrap());
    assert!(log.contains("delivered: status 200") && !log.contains(TOKEN) && !log.contains("path-as-key"), "{log}");
}

/// By another implementation than ours.
fn signature_by_openssl(signed: &str) -> String {
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    let script = "openssl dgst -sha256 -mac HMAC -macopt key:0123456789abcdef0123456789abcdef -binary | base64";
    let mut child =
        Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(signed.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap().stdout;
    format!("v1,{}", String::from_utf8(output).unwrap().trim())
}

// Rows I1 to I4: an answer that is cut short or never ends settles; 500 is tried again as often as the file says, and no
// more often.
#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_settles_whatever_the_receiver_does() {
    use Reaction::{Compressed, CutShort, Drip, HangUp, Redirect, Silence, Status};
    for (reactions, retries, requests, is_delivered) in [
        (&[CutShort][..], 0, 1, true),
        (&[Drip][..], 0, 1, true),
        (&[Compressed][..], 2, 1, true),
        (&[Status(500), Status(503), HangUp, Status(200)][..], 3, 4, true),
        (&[Status(500), Status(500)][..], 1, 2, false),
        (&[Status(500)][..], 0, 1, false),
        (&[Silence][..], 0, 1, false),
        (&[Silence, Status(204)][..], 1, 2, true),
        (&[Status(404)][..], 3, 1, false),
        (&[Redirect][..], 3, 1, false),
    ] {
        let receiver = Receiver::reacting(reactions).await;
        let bench = Bench::new(settings()).await;
        let lines = format!("events: [plugin.ready]\ntimeout_ms: 300\nretry_count: {retries}\n");
        bench.run("notice", &hook(&receiver, &lines)).await;
        bench.run("other", OTHER).await;
        let counts = eventually("the delivery is over", || {
            let counts = bench.test.host.host_status("notice").unwrap().deliveries.unwrap();
            (counts.delivered + counts.failed == 1).then_some(counts)
        })
        .await;
        assert_eq!(counts.delivered == 1, is_delivered, "{reactions:?}: {counts:?}");
        let received = receiver.received();
        assert_eq!(received.len(), requests, "{reactions:?}");
        let ids: std::collections::BTreeSet<_> = received.iter().map(|sent| sent.header("webhook-id")).collect();
        assert_eq!(ids.len(), 1, "a repetition has the id of the first");
        if !is_delivered {
            let view = bench.test.host.plugin("notice").await.unwrap();
            assert_eq!(view.status, PluginStatus::Ready, "a receiver that is down is no fault of the plugin");
            assert!(view.activity.contains("1 failed") && view.activity.contains("FAILING: "), "{}", view.activity);
            assert!(view.warnings.iter().any(|warning| warning.contains("could not be delivered")));
            assert!(!format!("{view:?}").contains("path-as-key"), "{view:?}");
        }
    }
}

// Invariant 9: a receiver that says nothing delays its own events, in their order, and nobody else's.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_receiver_delays_nothing_else() {
    let (slow, quick) = (Receiver::reacting(&[Reaction::Silence]).await, Receiver::reacting(&[]).await);
    let bench = Bench::new(settings()).await;
    let lines = "events: [plugin.ready, plugin.stopped]\ntimeout_ms: 3000\nretry_count: 0\n";
    bench.run("notice", &hook(&slow, lines)).await;
    bench.run("quick", &hook(&quick, lines).replace("name: notice", "name: quick")).await;
    let begun = Instant::now();
    bench.run("other", OTHER).await;
    restart_other(&bench).await;
    // Three of `other`; the slow one also heard that `quick` is ready, and is waiting to be rid of it.
    let told: Vec<_> = quick.has(3).await.iter().map(|sent| sent.json()["type"].clone()).collect();
    assert_eq!(told, [json!("plugin.ready"), json!("plugin.stopped"), json!("plugin.ready")]);
    assert!(begun.elapsed().as_millis() < 3000, "it waited for another receiver");
    let told: Vec<_> = slow.has(4).await.iter().map(|sent| sent.json()["message"].clone()).collect();
    let expected = ["quick is ready", "other is ready", "other was stopped", "other is ready"];
    assert_eq!(told, expected.map(|words| json!(format!("plugin {words}"))));
    let counts = bench.test.host.host_status("notice").unwrap().deliveries.unwrap();
    assert_eq!((counts.failed, counts.dropped), (1, 0));
}

/// What a plugin's failure looks like from outside: its state, and no word of what it was given.
#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_fails_is_told_without_its_secrets() {
    let receiver = Receiver::reacting(&[]).await;
    let bench = Bench::new(Settings { environment: Environment::Development, ..settings() }).await;
    bench.run("notice", &hook(&receiver, "events: [plugin.error, plugin.unhealthy]\n")).await;
    let broken = Fixture::imported("broken", &["no-such-mode"]).backend("env: {API_TOKEN: \"${HOOK_TOKEN}\"}");
    assert!(bench.test.try_run(&broken).await.is_err());
    let sent = receiver.has(1).await.remove(0);
    let event = sent.json();
    assert_eq!((&event["type"], &event["plugin"]["id"]), (&json!("plugin.error"), &json!("broken")));
    assert!(event["plugin"]["error"].as_str().unwrap().contains("broken") && !sent.body.contains(TOKEN), "{event}");
    assert_eq!(event["id"], json!(sent.header("webhook-id").unwrap()));
}

/// What waits when the host ends is sent, within bounds; what waits when it is switched off is not.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_host_sends_what_waits() {
    let receiver = Receiver::reacting(&[]).await;
    let bench = Bench::new(settings()).await;
    bench.run("notice", &hook(&receiver, "events: [plugin.ready]\n")).await;
    bench.run("other", OTHER).await;
    receiver.has(1).await;
    let silent = Receiver::reacting(&[Reaction::Silence; 9]).await;
    let text = hook(&silent, "events: [plugin.ready]\ntimeout_ms: 30000\n").replace("name: notice", "name: stuck");
    bench.run("stuck", &text).await;
    for _ in 0..3 {
        restart_other(&bench).await;
    }
    silent.has(1).await;
    let begun = Instant::now();
    bench.test.host.disable("stuck").await.unwrap();
    assert_eq!(bench.test.host.host_status("stuck").unwrap().status, HostStatus::Stopped);
    let counts = eventually("what waited is counted", || {
        let counts = bench.test.host.host_status("stuck").unwrap().deliveries.unwrap();
        (counts.dropped > 0).then_some(counts)
    })
    .await;
    assert_eq!((counts.dropped, counts.delivered, silent.received().len()), (3, 0, 1), "{counts:?}");
    bench.test.close().await;
    assert!(begun.elapsed().as_secs() < 20, "a receiver held up the end of the host");
    // `stuck` was ready once, `other` four times in all.
    assert_eq!(receiver.received().len(), 5);
}

/// A file that is changed is held like any other: nothing is sent by what nobody has agreed to.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_changed_sends_nothing() {
    let receiver = Receiver::reacting(&[]).await;
    let bench = Bench::new(settings()).await;
    bench.run("notice", &hook(&receiver, "events: [plugin.ready]\n")).await;
    bench.run("other", OTHER).await;
    receiver.has(1).await;
    let copy = std::fs::read_dir(bench.test.home().join("plugins")).unwrap().flatten();
    let copy = copy.map(|entry| entry.path()).find(|path| path.join("notice.yaml").exists()).unwrap();
    std::fs::write(copy.join("notice.yaml"), hook(&receiver, "events: [\"*\"]\n")).unwrap();
    bench.test.host.disable("notice").await.unwrap();
    let error = bench.test.host.enable("notice").await.unwrap_err();
    assert!(error.message.contains("is held"), "{}", error.message);
    restart_other(&bench).await;
    assert_eq!(receiver.received().len(), 1);
}

/// What happens to one plugin, as its receiver hears it; and what is taken away is not used any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_life_is_told_until_the_host_is_taken_away() {
    let receiver = Receiver::reacting(&[]).await;
    let bench = Bench::new(settings()).await;
    let host = &bench.test.host;
    bench.run("other", OTHER).await;
    bench.run("notice", &hook(&receiver, "events: [\"plugin.*\"]\n")).await;
    let package = std::fs::read_dir(bench.test.home().join("plugins")).unwrap().flatten();
    let package = package.map(|entry| entry.path()).find(|path| path.join("other.yaml").exists()).unwrap();
    host.disable("other").await.unwrap();
    receiver.has(1).await;
    std::fs::write(package.join("other.yaml"), OTHER.replace("hello", "obey")).unwrap();
    assert!(host.enable("other").await.is_err());
    receiver.has(2).await;
    host.remove("other").await.unwrap();
    let told: Vec<_> = receiver.has(3).await.iter().map(|sent| sent.json()["type"].clone()).collect();
    assert_eq!(told, [json!("plugin.stopped"), json!("plugin.held"), json!("plugin.removed")]);
    // It is not told of itself, and after its host was taken away of nothing.
    host.restart("notice").await.unwrap();
    host.set_permissions("notice", &[]).await.unwrap();
    let witness = Receiver::reacting(&[]).await;
    let text = hook(&witness, "events: [plugin.ready]\n").replace("name: notice", "name: witness");
    bench.run("witness", &text).await;
    bench.run("again", &OTHER.replace("other", "again")).await;
    witness.has(1).await;
    assert!(host.enable("notice").await.is_err());
    assert_eq!(receiver.received().len(), 3);
}

/// Over TLS it has to be the receiver that was meant; an authority of one's own is trusted once it was added.
#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_over_tls_has_to_prove_who_it_is() {
    for (added, is_delivered) in [(true, true), (false, false)] {
        let receiver = Receiver::over_tls().await;
        let mut settings = settings();
        if added {
            settings.trust = plugward_host::Trust::with_added(super::receiver::AUTHORITY).unwrap();
        }
        let bench = Bench::new(settings).await;
        let text = hook(&receiver, "events: [plugin.ready]\n").replace("http://", "https://");
        bench.run("notice", &text).await;
        bench.run("other", OTHER).await;
        let counts = eventually("the delivery is over", || {
            let counts = bench.test.host.host_status("notice").unwrap().deliveries.unwrap();
            (counts.delivered + counts.failed == 1).then_some(counts)
        })
        .await;
        assert_eq!((counts.delivered == 1, receiver.received().len()), (is_delivered, usize::from(is_delivered)));
        assert_eq!(counts.failing.is_some_and(|reason| reason.contains("extra_roots")), !is_delivered);
    }
}

// Invariant 7: a receiver that is down for long costs a bounded amount of memory, and what is lost is counted.
#[tokio::test(flavor = "multi_thread")]
async fn events_nobody_takes_are_counted_past_a_limit() {
    const WAIT_MAX: usize = 256;
    let receiver = Receiver::reacting(&[Reaction::Silence; 9]).await;
    let bench = Bench::new(settings()).await;
    bench.run("other", OTHER).await;
    bench.run("notice", &hook(&receiver, "events: [\"plugin.*\"]\ntimeout_ms: 30000\n")).await;
    let counts = || bench.test.host.host_status("notice").unwrap().deliveries.unwrap();
    // Two events each time, one of which is being sent.
    for _ in 0..=WAIT_MAX {
        if counts().dropped > 0 {
            break;
        }
        restart_other(&bench).await;
    }
    let told = eventually("the queue is full", || Some(counts()).filter(|counts| counts.dropped > 0)).await;
    assert_eq!((told.waiting, told.is_sending), (WAIT_MAX, true), "{told:?}");
    let view = bench.test.host.plugin("notice").await.unwrap();
    assert!(view.activity.contains("256 waiting") && view.activity.contains("dropped"), "{}", view.activity);
    assert_eq!(receiver.received().len(), 1);
}
