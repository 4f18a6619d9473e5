//! Lines out of bytes.

use plugward_protocol::{DEFAULT_MAX_MESSAGE_BYTES, FramedLine, LineFramer, RequestId, Shape};
use proptest::prelude::*;

fn drain(framer: &mut LineFramer) -> Vec<FramedLine> {
    std::iter::from_fn(|| framer.next_line()).collect()
}

fn lines_of(max_bytes: usize, bytes: &[u8]) -> Vec<FramedLine> {
    let mut framer = LineFramer::new(max_bytes);
    framer.push(bytes);
    let mut lines = drain(&mut framer);
    lines.extend(framer.close());
    lines
}

fn line(text: &str) -> FramedLine {
    FramedLine::Line(text.as_bytes().to_vec())
}

#[test]
fn the_cap_counts_bytes_without_the_line_end() {
    // Requirement 99: 2,097,152 bytes pass, one more does not; characters do not count (N6).
    let max = DEFAULT_MAX_MESSAGE_BYTES;
    assert_eq!(max, 2_097_152);
    let fits = vec![b'x'; max];
    let wide = "\u{e9}".repeat(max / 2 + 1);
    for end in [&b"\n"[..], b"\r\n"] {
        assert_eq!(lines_of(max, &[&fits, end].concat()), [FramedLine::Line(fits.clone())]);
        let over = lines_of(max, &[&fits, &b"x"[..], end].concat());
        assert_eq!(over, [FramedLine::Oversized { bytes: max as u64 + 1, id: None, shape: Shape::Unknown }]);
        let over = lines_of(max, &[wide.as_bytes(), end].concat());
        assert!(matches!(over[..], [FramedLine::Oversized { bytes, .. }] if bytes == max as u64 + 2));
    }
}

#[test]
fn memory_is_bounded_before_a_full_line_is_there() {
    // Requirement 98: 3 MiB without a newline never hold more than the cap and a little.
    let mut framer = LineFramer::new(DEFAULT_MAX_MESSAGE_BYTES);
    let mut most = 0;
    for _ in 0..(3 * 1024 * 1024 / 4096) {
        framer.push(&[b'x'; 4096]);
        most = most.max(framer.held_bytes());
    }
    assert!(most > DEFAULT_MAX_MESSAGE_BYTES / 2, "positive control: the line is held while it fits");
    assert!(most <= DEFAULT_MAX_MESSAGE_BYTES + 1, "held {most} bytes");
    assert_eq!(framer.held_bytes(), 0, "past the cap nothing is held");
    framer.push(b"\nok\n");
    assert!(matches!(framer.next_line(), Some(FramedLine::Oversized { bytes: 3_145_728, .. })));
    assert_eq!(framer.next_line(), Some(line("ok")), "the stream goes on after an oversized line");
}

#[test]
fn an_oversized_answer_still_names_its_request() {
    // Case B026: only the request the line answers has to fail, wherever its id stands.
    let filler = "z".repeat(300);
    let before = format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"{filler}\"}}\n");
    let after = format!("{{\"jsonrpc\":\"2.0\",\"result\":{{\"id\":9,\"t\":\"{filler}\"}},\"id\":\"a\"}}\n");
    for (text, id) in [(before, RequestId::from(7)), (after, RequestId::from("a"))] {
        for step in [1, 7, text.len()] {
            let mut framer = LineFramer::new(100);
            for chunk in text.as_bytes().chunks(step) {
                framer.push(chunk);
            }
            let bytes = text.len() as u64 - 1;
            let expected = FramedLine::Oversized { bytes, id: Some(id.clone()), shape: Shape::Response };
            assert_eq!(framer.next_line(), Some(expected));
        }
    }
}

#[test]
fn mark_carriage_returns_and_blank_lines_are_not_content() {
    // Case B062: one byte order mark at the start, CRLF and empty lines are what Windows programs write.
    let bytes = b"\xEF\xBB\xBF{\"a\":1}\r\n\r\n\n  \t\r\n{\"b\":2}\n";
    assert_eq!(lines_of(100, bytes), [line("{\"a\":1}"), line("{\"b\":2}")]);
    let mut framer = LineFramer::new(100);
    for byte in bytes {
        framer.push(&[*byte]);
    }
    assert_eq!(drain(&mut framer), [line("{\"a\":1}"), line("{\"b\":2}")]);
}

#[test]
fn only_a_whole_mark_at_the_start_is_dropped() {
    assert_eq!(lines_of(9, b"\xEF\xBBx\n"), [FramedLine::Line(b"\xEF\xBBx".to_vec())]);
    assert_eq!(lines_of(9, b"a\n\xEF\xBB\xBFb\n"), [line("a"), FramedLine::Line(b"\xEF\xBB\xBFb".to_vec())]);
    assert_eq!(lines_of(9, b"\xEF\xBB"), [FramedLine::Unterminated { bytes: 2, line: b"\xEF\xBB".to_vec() }]);
    assert_eq!(lines_of(9, b"\xEF\xBB\xBF"), []);
}

#[test]
fn the_end_of_the_stream_shows_a_cut_off_line() {
    assert_eq!(lines_of(9, b"a\nbc"), [line("a"), FramedLine::Unterminated { bytes: 2, line: b"bc".to_vec() }]);
    assert_eq!(lines_of(9, b"a\n \r"), [line("a")]);
    assert_eq!(lines_of(2, b"12345"), [FramedLine::Unterminated { bytes: 5, line: Vec::new() }]);
}

proptest! {
    /// However the operating system cuts the stream, the same lines come out.
    #[test]
    fn any_cutting_gives_the_same_lines(
        pieces in prop::collection::vec(
            prop_oneof![
                Just(b"\n".to_vec()), Just(b"\r\n".to_vec()), Just(b"\r".to_vec()), Just(b"\xEF\xBB\xBF".to_vec()),
                Just(br#"{"id":3,"result":"aaaaaaaaaaaaaaaaaaaaaaaaa"}"#.to_vec()),
                Just("h\u{e9}llo \u{20ac} \u{1f680}".as_bytes().to_vec()),
                prop::collection::vec(any::<u8>(), 0..40),
            ],
            0..12,
        ),
        cuts in prop::collection::vec(1_usize..9, 0..200),
    ) {
        let bytes = pieces.concat();
        let mut framer = LineFramer::new(24);
        let mut rest = &bytes[..];
        let mut lines = Vec::new();
        for cut in cuts.into_iter().chain([usize::MAX]) {
            let (now, later) = rest.split_at(cut.min(rest.len()));
            framer.push(now);
            lines.extend(drain(&mut framer));
            rest = later;
        }
        lines.extend(framer.close());
        prop_assert_eq!(lines, lines_of(24, &bytes));
    }
}
