//! A list of permissions as a part of a manifest.
//!
//! Owns the quoting, so that the text reads back as exactly the permissions it was made from. Refuses layout of its own.

/// The `permissions:` of a manifest.
pub(crate) fn fragment(permissions: &[String]) -> String {
    if permissions.is_empty() {
        return "permissions: []\n".to_owned();
    }
    let mut text = "permissions:\n".to_owned();
    for permission in permissions {
        text.push_str("  - ");
        if is_plain(permission) {
            text.push_str(permission);
        } else {
            text.push('\'');
            text.push_str(&permission.replace('\'', "''"));
            text.push('\'');
        }
        text.push('\n');
    }
    text
}

/// Whether a reader of manifests takes it for what it is without quotes.
fn is_plain(text: &str) -> bool {
    // A permission begins with a letter, so nothing in front makes it a number, a list or a reference.
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/~:+@$".contains(&byte)) && !text.ends_with(':')
}

#[cfg(test)]
mod tests {
    use plugward_policy::parse_manifest;

    use super::*;

    // Requirement 30: a text that is copied into a manifest must mean there what it said here.
    #[test]
    fn a_fragment_reads_back_as_it_was() {
        let permissions = [
            "notes.read",
            "fs.read:/srv/it's here: #1",
            "fs.read:/srv/{a} [b], c",
            "fs.write:~/notes",
            "fs.write:/données/日本",
            "net:[2001:db8::1]:443",
            "net:api.example.test:8443",
            "process.spawn",
        ]
        .map(str::to_owned);
        let text = fragment(&permissions);
        let manifest = format!(
            "id: demo\nname: Demo\nversion: 1.0.0\n{text}backend:\n  type: mcp\n  transport: stdio\n  command: x\n"
        );
        let parsed = parse_manifest(&manifest, "plugin.yaml").unwrap().manifest;
        let mut read: Vec<String> = parsed.all_permissions().iter().map(ToString::to_string).collect();
        let mut meant = permissions.to_vec();
        read.sort();
        meant.sort();
        assert_eq!(read, meant, "{text}");
        assert!(text.contains("  - fs.write:~/notes\n") && text.contains("  - 'fs.read:/srv/it''s here: #1'\n"));
        assert_eq!(fragment(&[]), "permissions: []\n");
    }
}
