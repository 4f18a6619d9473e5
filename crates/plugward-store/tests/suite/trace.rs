//! Reading the trace: filters, pages, single traces.

use crate::rows::span;
use plugward_store::{SPAN_PAGE_MAX, Span, SpanFilter, Store};

fn filled(count: u64) -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    for number in 0..count {
        store.record_span(span(number));
    }
    store.flush().unwrap();
    assert_eq!(store.dropped_spans(), 0);
    (dir, store)
}

/// Going through the pages shows every span once, newest first.
#[test]
fn pages_cover_everything_once() {
    let (_dir, store) = filled(1234);
    let mut filter = SpanFilter { limit: 100, ..SpanFilter::default() };
    let mut seen: Vec<Span> = Vec::new();
    loop {
        let page = store.spans(&filter).unwrap();
        assert!(page.spans.len() <= 100);
        seen.extend(page.spans);
        match page.next_before {
            Some(before) => filter.before = Some(before),
            None => break,
        }
    }
    let expected: Vec<Span> = (0..1234).rev().map(span).collect();
    assert_eq!(seen, expected);
    for limit in [0, 501, usize::MAX] {
        assert_eq!(store.spans(&SpanFilter { limit, ..SpanFilter::default() }).unwrap().spans.len(), SPAN_PAGE_MAX);
    }
}

#[test]
fn filters_apply_together() {
    let (_dir, store) = filled(20);
    store.record_span(Span { plugin_id: Some("other".into()), tool: Some("fail".into()), ..span(20) });
    store.record_span(Span { tool: Some("fail".into()), outcome: "tool_error".into(), ..span(21) });
    store.record_span(Span { tool: Some("fail".into()), ..span(22) });
    store.flush().unwrap();
    let starts = |filter: SpanFilter| -> Vec<i64> {
        store.spans(&filter).unwrap().spans.iter().map(|s| s.started_at_us).collect()
    };
    let tool = || SpanFilter { tool: Some("fail".into()), ..SpanFilter::default() };
    assert_eq!(starts(tool()), [22, 21, 20]);
    assert_eq!(starts(SpanFilter { plugin_id: Some("demo".into()), ..tool() }), [22, 21]);
    assert_eq!(starts(SpanFilter { outcome: Some("tool_error".into()), ..tool() }), [21]);
    assert_eq!(starts(SpanFilter { since_us: Some(22), ..tool() }), [22]);
    assert!(starts(SpanFilter { plugin_id: Some("' OR 1 --".into()), ..SpanFilter::default() }).is_empty());
}

/// One trace is shown in the order in which it happened, each span once even if handed in twice.
#[test]
fn one_trace_in_order_of_time() {
    let (_dir, store) = filled(0);
    for number in [3, 1, 2, 1] {
        store.record_span(span(number));
    }
    store.flush().unwrap();
    assert_eq!(store.trace(&span(1).trace_id).unwrap(), [span(1), span(2), span(3)]);
    assert!(store.trace("unknown").unwrap().is_empty());
}

/// What is not a number, or no JSON, is still kept in a form that can be read back.
#[test]
fn odd_spans_are_kept_readable() {
    let (_dir, store) = filled(0);
    store.record_span(Span {
        duration_us: u64::MAX,
        attributes_json: "not json".into(),
        events_json: String::new(),
        name: "n".repeat(1000),
        ..span(1)
    });
    store.flush().unwrap();
    let kept = &store.trace(&span(1).trace_id).unwrap()[0];
    assert_eq!(kept.duration_us, i64::MAX.unsigned_abs());
    assert_eq!((kept.attributes_json.as_str(), kept.events_json.as_str()), ("\"not json\"", "[]"));
    assert_eq!(kept.name, format!("{}… [744 characters more]", "n".repeat(256)));
}
