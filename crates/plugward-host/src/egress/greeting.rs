//! The beginning of a TLS conversation, as far as it names a host.
//!
//! Owns finding the server's name in a client's first message, however it is cut into records. Refuses to judge anything
//! that is not TLS, and to guess: a greeting that cannot be read is told from one that names nobody.

/// Longest greeting that is read, in bytes. Large ones, with keys against quantum computers, have 2 KiB.
pub(super) const MAX_GREETING_BYTES: usize = 32 * 1024;

const HANDSHAKE_RECORD: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME_EXTENSION: usize = 0;
const HOST_NAME: u8 = 0;

/// What the first bytes of a client say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Greeting {
    /// Not TLS.
    Other,
    /// The beginning of a greeting; more is needed.
    Unfinished,
    /// It names this server, or none.
    Names(Option<String>),
    /// TLS that cannot be read.
    Unreadable,
}

/// Reads what a client has sent so far.
pub(super) fn read(bytes: &[u8]) -> Greeting {
    match bytes {
        [] => return Greeting::Unfinished,
        [HANDSHAKE_RECORD] => return Greeting::Unfinished,
        // The version of the first record has been 3.something since before TLS had its name.
        [HANDSHAKE_RECORD, 3, ..] => {}
        _ => return Greeting::Other,
    }
    let mut message = Vec::new();
    let mut rest = bytes;
    loop {
        if let Some(length) = message.get(1..4).map(number)
            && let Some(body) = message.get(4..4 + length)
        {
            return match message[0] {
                CLIENT_HELLO => server_name(body).map_or(Greeting::Unreadable, Greeting::Names),
                _ => Greeting::Unreadable,
            };
        }
        let Some((header, tail)) = rest.split_at_checked(5) else { return or_too_long(bytes) };
        if header[0] != HANDSHAKE_RECORD {
            return Greeting::Unreadable;
        }
        let length = number(&header[3..5]);
        let Some((record, tail)) = tail.split_at_checked(length) else { return or_too_long(bytes) };
        if record.is_empty() {
            return Greeting::Unreadable;
        }
        message.extend_from_slice(record);
        rest = tail;
    }
}

fn or_too_long(bytes: &[u8]) -> Greeting {
    if bytes.len() >= MAX_GREETING_BYTES { Greeting::Unreadable } else { Greeting::Unfinished }
}

/// The server's name in a greeting's body; the outer `None` if it is malformed.
fn server_name(body: &[u8]) -> Option<Option<String>> {
    // Version and random bytes.
    let mut rest = body.get(2 + 32..)?;
    take(&mut rest, 1)?;
    take(&mut rest, 2)?;
    take(&mut rest, 1)?;
    if rest.is_empty() {
        return Some(None);
    }
    let mut extensions = take(&mut rest, 2)?;
    if !rest.is_empty() {
        return None;
    }
    let mut found = None;
    while !extensions.is_empty() {
        let (kind, tail) = extensions.split_at_checked(2)?;
        extensions = tail;
        let content = take(&mut extensions, 2)?;
        if number(kind) != SERVER_NAME_EXTENSION {
            continue;
        }
        let name = single_name(content)?;
        // Two names would leave it to the server which one counts.
        if found.replace(name).is_some() {
            return None;
        }
    }
    Some(found)
}

fn single_name(mut content: &[u8]) -> Option<String> {
    let mut list = take(&mut content, 2)?;
    let (kind, tail) = list.split_first()?;
    list = tail;
    let name = take(&mut list, 2)?;
    if *kind != HOST_NAME || !list.is_empty() || !content.is_empty() {
        return None;
    }
    std::str::from_utf8(name).ok().map(str::to_owned)
}

/// What follows a length of `width` bytes.
fn take<'a>(rest: &mut &'a [u8], width: usize) -> Option<&'a [u8]> {
    let (length, tail) = rest.split_at_checked(width)?;
    let (content, tail) = tail.split_at_checked(number(length))?;
    *rest = tail;
    Some(content)
}

/// A number of up to three bytes.
fn number(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn counted(width: usize, content: &[u8]) -> Vec<u8> {
        let length = content.len().to_be_bytes();
        [&length[length.len() - width..], content].concat()
    }

    /// A client's greeting with these extensions, in records of at most `record_bytes`.
    fn greeting(extensions: &[(u8, Vec<u8>)], record_bytes: usize) -> Vec<u8> {
        let list: Vec<u8> =
            extensions.iter().flat_map(|(kind, content)| [vec![0, *kind], counted(2, content)].concat()).collect();
        let body =
            [&[3, 3], &[7; 32][..], &counted(1, &[]), &counted(2, &[0x13, 1]), &counted(1, &[0]), &counted(2, &list)]
                .concat();
        let message = [&[CLIENT_HELLO][..], &counted(3, &body)].concat();
        message
            .chunks(record_bytes)
            .flat_map(|part| [&[HANDSHAKE_RECORD, 3, 1][..], &counted(2, part)].concat())
            .collect()
    }

    fn name(host: &str) -> Vec<u8> {
        counted(2, &[&[HOST_NAME][..], &counted(2, host.as_bytes())].concat())
    }

    /// A greeting that names `host`.
    pub(crate) fn hello(host: &str) -> Vec<u8> {
        greeting(&[(10, vec![1, 2]), (0, name(host)), (43, vec![3])], 1 << 14)
    }

    // Threat row 20: the name inside TLS decides which site answers, so it is read however it is cut up.
    #[test]
    fn the_name_is_found_in_any_cut() {
        let named = Greeting::Names(Some("api.example.test".to_owned()));
        assert_eq!(read(&hello("api.example.test")), named);
        for record_bytes in [1, 3, 5, 50] {
            let bytes = greeting(&[(0, name("api.example.test"))], record_bytes);
            assert_eq!(read(&bytes), named, "records of {record_bytes}");
            for length in 0..bytes.len() {
                assert_eq!(read(&bytes[..length]), Greeting::Unfinished, "cut at {length}");
            }
        }
        assert_eq!(read(&greeting(&[(10, vec![])], 99)), Greeting::Names(None));
    }

    #[test]
    fn what_is_not_tls_is_left_alone_and_what_cannot_be_read_is_not() {
        for other in [&b"GET / HTTP/1.1\r\n"[..], b"SSH-2.0-x\r\n", &[0], &[22, 4, 1], b"\x80\x2e\x01"] {
            assert_eq!(read(other), Greeting::Other);
        }
        let twice = greeting(&[(0, name("a.test")), (0, name("b.test"))], 999);
        let two_names = [&[HOST_NAME][..], &counted(2, b"a.test"), &[HOST_NAME], &counted(2, b"b.test")].concat();
        let listed = greeting(&[(0, counted(2, &two_names))], 999);
        let mut interrupted = greeting(&[(0, name("a.test"))], 10);
        interrupted[15] = 21;
        let mut another = hello("a.test");
        another[5] = 2;
        for bad in [twice, listed, interrupted, another, vec![22, 3, 1, 0, 0], vec![22, 3, 1, 0, 4, 1, 0, 0, 0]] {
            assert_eq!(read(&bad), Greeting::Unreadable, "{bad:?}");
        }
        let mut endless = vec![22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff];
        endless.resize(MAX_GREETING_BYTES, 0);
        assert_eq!(read(&endless), Greeting::Unreadable);
    }
}
