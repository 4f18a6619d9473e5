//! Texts that Windows takes for a process: its command line and its environment, in UTF-16.
//!
//! Owns the quoting by which a program gets back exactly the arguments it was given, and the order of variables. Refuses
//! programs that read their command line by other rules. It is compiled for tests on every system.

/// Why a program cannot be started with literal arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotLiteral {
    /// A script of the command interpreter, which reads arguments as commands.
    CommandScript,
}

/// Ends of the names of scripts of the command interpreter.
const COMMAND_SCRIPTS: [&str; 2] = [".bat", ".cmd"];

const QUOTE: u16 = b'"' as u16;
const BACKSLASH: u16 = b'\\' as u16;
const SPACE: u16 = b' ' as u16;
const TAB: u16 = b'\t' as u16;

/// Refuses what would run something else than it was given.
pub(crate) fn check_program(file_name: &str) -> Result<(), NotLiteral> {
    // Windows ignores dots and spaces at the end of names.
    let name = file_name.trim_end_matches(['.', ' ']).to_ascii_lowercase();
    if COMMAND_SCRIPTS.iter().any(|end| name.ends_with(end)) { Err(NotLiteral::CommandScript) } else { Ok(()) }
}

/// One command line with its end mark, from arguments without NUL.
pub(crate) fn command_line(arguments: &[Vec<u16>]) -> Vec<u16> {
    let mut line = Vec::new();
    for (position, argument) in arguments.iter().enumerate() {
        if position > 0 {
            line.push(SPACE);
        }
        quote(&mut line, argument);
    }
    line.push(0);
    line
}

/// Backslashes count double in front of a quotation mark, and only there.
fn quote(line: &mut Vec<u16>, argument: &[u16]) {
    let is_plain = !argument.is_empty() && !argument.iter().any(|unit| matches!(*unit, SPACE | TAB | QUOTE));
    if is_plain {
        line.extend_from_slice(argument);
        return;
    }
    line.push(QUOTE);
    let mut backslashes = 0;
    for unit in argument {
        match *unit {
            BACKSLASH => backslashes += 1,
            QUOTE => {
                line.extend(std::iter::repeat_n(BACKSLASH, backslashes + 1));
                backslashes = 0;
            }
            _ => backslashes = 0,
        }
        line.push(*unit);
    }
    line.extend(std::iter::repeat_n(BACKSLASH, backslashes));
    line.push(QUOTE);
}

/// The block of variables with its end mark: `NAME=VALUE` each, in the order that the system expects.
pub(crate) fn environment_block(variables: &[(Vec<u16>, Vec<u16>)]) -> Vec<u16> {
    let mut sorted: Vec<&(Vec<u16>, Vec<u16>)> = variables.iter().collect();
    sorted.sort_by_key(|(name, _)| String::from_utf16_lossy(name).to_uppercase());
    let mut block = Vec::new();
    for (name, value) in sorted {
        block.extend_from_slice(name);
        block.push(u16::from(b'='));
        block.extend_from_slice(value);
        block.push(0);
    }
    // An empty block has two end marks as well.
    if block.is_empty() {
        block.push(0);
    }
    block.push(0);
    block
}

/// Name of the container of a plugin: the same for the same folders, so that its rights are found again, and no other's.
/// Windows takes 64 characters.
pub(crate) fn container_name(key: &[u8]) -> String {
    use sha2::{Digest as _, Sha256};
    use std::fmt::Write as _;
    const SHOWN_HASH_BYTES: usize = 16;
    let mut name = String::from("plugward.plugin.");
    for byte in &Sha256::digest(key)[..SHOWN_HASH_BYTES] {
        let _infallible = write!(name, "{byte:02x}");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wide(text: &str) -> Vec<u16> {
        text.encode_utf16().collect()
    }

    fn line(arguments: &[&str]) -> String {
        let mut line = command_line(&arguments.iter().map(|argument| wide(argument)).collect::<Vec<_>>());
        assert_eq!(line.pop(), Some(0));
        String::from_utf16(&line).unwrap()
    }

    // Requirement 75: an argument with quotation marks must not become two arguments or a flag.
    #[test]
    fn arguments_come_back_as_they_were_given() {
        assert_eq!(line(&["a", "b c", "", "d\te"]), "a \"b c\" \"\" \"d\te\"");
        assert_eq!(line(&[r"C:\x y\", r"C:\x\"]), r#""C:\x y\\" C:\x\"#);
        assert_eq!(line(&[r#"a"b"#, r#"a\"b"#, r#"\\"#]), r#""a\"b" "a\\\"b" \\"#);
        assert_eq!(line(&[r#"" --evil ""#]), r#""\" --evil \"""#);
    }

    #[test]
    fn scripts_of_the_command_interpreter_are_refused() {
        for name in ["npx.cmd", "RUN.BAT", "run.bat. .", "x.Cmd "] {
            assert_eq!(check_program(name), Err(NotLiteral::CommandScript), "{name}");
        }
        assert_eq!(check_program("node.exe"), Ok(()));
    }

    #[test]
    fn variables_are_sorted_and_ended() {
        let block = environment_block(&[(wide("b"), wide("2")), (wide("A"), wide("1=x"))]);
        assert_eq!(String::from_utf16(&block).unwrap(), "A=1=x\0b=2\0\0");
        assert_eq!(environment_block(&[]), [0, 0]);
    }

    /// Two plugins with one container would have each other's rights.
    #[test]
    fn containers_have_names_of_their_own() {
        assert_ne!(container_name(b"a"), container_name(b"b"));
        assert_eq!(container_name(b"a"), container_name(b"a"));
        assert!(container_name(b"a").len() <= 64);
    }
}
