//! What the status of an answer means, where it is not success.
//!
//! Owns the words for it, and the facts of a challenge (`WWW-Authenticate`) that a person needs to get past it. Refuses to
//! act on a challenge: signing in to servers is for a later version, and this is its seam.

use hyper::StatusCode;
use hyper::header::{HeaderMap, WWW_AUTHENTICATE};
use plugward_policy::visible;

/// Characters kept of a value in a challenge: enough for a URL, short enough for a line.
const MAX_VALUE_CHARS: usize = 200;

/// Parameters of a challenge that tell how to get past it, in the order they are told.
const TOLD: [&str; 5] = ["error", "error_description", "scope", "realm", "resource_metadata"];

/// Why a server will not have us, if it says so.
pub(super) fn refusal(status: StatusCode, headers: &HeaderMap) -> Option<String> {
    let meaning = match status {
        StatusCode::UNAUTHORIZED => "needs authorization (status 401)",
        StatusCode::FORBIDDEN => "refuses what it is sent as authorization (status 403)",
        _ => return None,
    };
    let mut facts = Vec::new();
    for challenge in headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok()) {
        let (scheme, parameters) = challenge.split_once(' ').unwrap_or((challenge, ""));
        facts.push(format!("scheme `{}`", cut(scheme)));
        let found = parameters_of(parameters);
        for name in TOLD {
            if let Some((_, value)) = found.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)) {
                facts.push(format!("{name} `{}`", cut(value)));
            }
        }
    }
    let facts = if facts.is_empty() { String::new() } else { format!(": {}", facts.join(", ")) };
    Some(format!("it {meaning}{facts}; put a token that it takes into `backend.headers`"))
}

fn cut(text: &str) -> String {
    visible(&text.chars().take(MAX_VALUE_CHARS).collect::<String>())
}

/// `name="value"` and `name=value`, separated by commas.
fn parameters_of(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once('=') {
        let (value, left) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_once(',').unwrap_or((after, "")),
        };
        found.push((name.trim_matches([' ', ',']).to_owned(), value.trim().to_owned()));
        rest = left;
    }
    found
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn told(status: u16, challenge: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        if !challenge.is_empty() {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_str(challenge).unwrap());
        }
        refusal(StatusCode::from_u16(status).unwrap(), &headers)
    }

    // B046: a challenge is told with what it takes to get past it.
    #[test]
    fn a_challenge_is_told_with_its_facts() {
        let text = told(
            401,
            "Bearer realm=\"x\", scope=\"a b\", resource_metadata=\"https://m.example.test/.well-known/p\", other=1",
        );
        let text = text.unwrap();
        for fact in
            ["status 401", "`Bearer`", "scope `a b`", "resource_metadata `https://m.example.test/.well-known/p`"]
        {
            assert!(text.contains(fact), "{text}");
        }
        assert!(!text.contains("other"), "{text}");
        assert!(told(401, "").unwrap().contains("needs authorization"));
        assert!(told(403, "Bearer error=insufficient_scope, scope=w").unwrap().contains("error `insufficient_scope`"));
        assert_eq!(told(500, ""), None);
        assert!(told(401, &format!("Bearer realm=\"{}\"", "x".repeat(5000))).unwrap().len() < 500);
    }
}
