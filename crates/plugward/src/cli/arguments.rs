//! What can be typed: commands, arguments and options, with the help that teaches them.
//!
//! Owns names, defaults and examples. Refuses behaviour. The list of commands in [`super::help`] is by hand, in the
//! order a newcomer needs them; a test holds it to this file.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

use plugward_host::{TRIAL_DEFAULT, TRIAL_MAX};

use super::help;
use crate::wire::AnswerBody;

/// Spans that `trace list` shows unless told otherwise: about one screen.
const TRACE_LIMIT_DEFAULT: usize = 20;

/// Log lines that `logs` shows unless told otherwise.
const LOG_LINES_DEFAULT: usize = 50;

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "plugward",
    version,
    about = "Runs tools that other people wrote: reviewed first, approved by you, watched, and offered to your agents.",
    help_template = help::TEMPLATE,
    after_help = help::FIRST_STEPS,
    arg_required_else_help = true,
    subcommand_required = true,
    max_term_width = 100
)]
pub(super) struct CommandLine {
    #[command(flatten)]
    pub(super) global: Global,
    #[command(subcommand)]
    pub(super) command: Command,
}

/// Options of every command.
#[derive(Debug, Args)]
pub(super) struct Global {
    /// Print JSON for programs instead of text for people
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// State folder [default: $PLUGWARD_HOME, else the XDG data folder]
    #[arg(long, global = true, value_name = "FOLDER")]
    pub(super) home: Option<PathBuf>,
    /// Only results and errors, no hints
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(super) quiet: bool,
    /// Tell more about what happens; twice for everything
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(super) verbose: u8,
    /// No colours (NO_COLOR and TERM=dumb do the same)
    #[arg(long, global = true)]
    pub(super) no_color: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Copy a plugin in; nothing of it runs
    #[command(after_help = help::INSTALL)]
    Install {
        /// Folder with a plugin.yaml, or the file itself
        source: PathBuf,
        /// Refuse the package unless its id is this
        #[arg(long)]
        id: Option<String>,
    },
    /// Show exactly what a plugin would run and may touch
    #[command(after_help = help::REVIEW)]
    Review {
        /// Id of the plugin
        id: String,
        /// Run it once without any permission, watched, and propose the permissions it needs
        #[arg(long)]
        trial: bool,
        /// The digest the review shows; needed for a trial where nobody can be asked
        #[arg(long, value_name = "sha256:HEX", requires = "trial")]
        digest: Option<String>,
        /// How long the trial lasts at most
        #[arg(long, value_name = "NUMBER", requires = "trial", default_value_t = TRIAL_DEFAULT.as_secs(),
            value_parser = clap::value_parser!(u64).range(1..=TRIAL_MAX.as_secs()))]
        seconds: u64,
    },
    /// Agree to what the review shows, and to nothing else
    #[command(after_help = help::APPROVE)]
    Approve {
        /// Id of the plugin
        id: String,
        /// The digest the review shows; needed where nobody can be asked
        #[arg(long, value_name = "sha256:HEX")]
        digest: Option<String>,
    },
    /// Switch a plugin on: start it, check its tools, offer them
    #[command(after_help = help::ENABLE)]
    Enable {
        /// Id of the plugin
        id: String,
    },
    /// Switch a plugin off: take its tools away, end its processes
    #[command(after_help = help::DISABLE)]
    Disable {
        /// Id of the plugin
        id: String,
    },
    /// End a plugin's processes and start it anew
    #[command(after_help = help::RESTART)]
    Restart {
        /// Id of the plugin
        id: String,
    },
    /// Stop a plugin and forget it; its traces stay
    #[command(after_help = help::REMOVE)]
    Remove {
        /// Id of the plugin
        id: String,
    },
    /// Show all plugins
    #[command(visible_alias = "ls", after_help = help::LIST)]
    List,
    /// Show one plugin with its process and tools
    #[command(after_help = help::INFO)]
    Info {
        /// Id of the plugin
        id: String,
    },
    /// Show the tools that can be called
    #[command(after_help = help::TOOLS)]
    Tools {
        /// Only those of this plugin
        id: Option<String>,
        /// What they cost in a model's context, in tokens
        #[arg(long)]
        cost: bool,
        /// Only those of this profile
        #[arg(long, value_name = "NAME", requires = "cost")]
        profile: Option<String>,
    },
    /// Run a tool and print its result as JSON
    #[command(after_help = help::CALL)]
    Call(CallArguments),
    /// Run the gates of a phase, and tell whether it may go on
    #[command(after_help = help::GATE)]
    Gate {
        #[command(subcommand)]
        command: GateCommand,
    },
    /// Show whether a host runs here, and how its plugins are
    #[command(after_help = help::STATUS)]
    Status,
    /// Show what a plugin wrote to its log
    #[command(after_help = help::LOGS)]
    Logs {
        /// Id of the plugin
        id: String,
        /// Go on with new lines until interrupted
        #[arg(short, long)]
        follow: bool,
        /// Show at most so many of the last lines
        #[arg(short = 'n', long, value_name = "NUMBER", default_value_t = LOG_LINES_DEFAULT)]
        lines: usize,
    },
    /// Show what was called, what was decided and what came of it
    #[command(after_help = help::TRACE)]
    Trace {
        #[command(subcommand)]
        command: TraceCommand,
    },
    /// Show or change what a plugin may do
    #[command(after_help = help::PERMISSIONS)]
    Permissions {
        /// Id of the plugin
        id: String,
        /// Grant these
        #[arg(long, value_name = "NAME", num_args = 1..)]
        grant: Vec<String>,
        /// Take these back
        #[arg(long, value_name = "NAME", num_args = 1..)]
        revoke: Vec<String>,
    },
    /// Show calls that wait for your permission
    #[command(after_help = help::ASKS)]
    Asks,
    /// Answer a call that waits for your permission
    #[command(after_help = help::ANSWER)]
    Answer {
        /// Id of the request, as `plugward asks` shows it
        request: String,
        /// Your answer
        answer: AnswerWord,
    },
    /// Run the host: offer all tools over MCP, and over HTTP
    #[command(after_help = help::SERVE)]
    Serve {
        /// Speak MCP on standard input and output, for one agent; the host is shared by all
        #[arg(long)]
        stdio: bool,
        /// Which agent this is, as `plugward connect` enters it: it chooses the profile
        #[arg(long, value_name = "NAME", requires = "stdio")]
        client: Option<String>,
        /// Serve in this process, and end with its input: start no host in the background
        #[arg(long, requires = "stdio")]
        in_process: bool,
        /// Be the host in the background
        #[arg(long, hide = true, conflicts_with_all = ["stdio", "http"])]
        detached: bool,
        /// Speak MCP (path /mcp) and serve the Host API on this address
        #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_address)]
        http: Option<SocketAddr>,
        /// Also serve MCP to requests addressed to this host name; needed for an address that other machines can reach
        #[arg(long, value_name = "NAME", requires = "http", value_parser = parse_host)]
        allow_host: Vec<String>,
    },
    /// Enter plugward in an agent's own settings
    #[command(after_help = help::CONNECT)]
    Connect(ConnectArguments),
    /// Take plugward out of an agent's own settings
    #[command(after_help = help::DISCONNECT)]
    Disconnect(ConnectArguments),
    /// Show which agents are here, and which are connected
    #[command(after_help = help::CLIENTS)]
    Clients,
    /// Give single clients over HTTP a token of their own
    #[command(after_help = help::TOKEN)]
    Token {
        #[command(subcommand)]
        command: TokenCommand,
    },
    /// End the host that runs, with all plugins
    #[command(after_help = help::STOP)]
    Stop,
    /// Walk through everything once with a built-in plugin
    #[command(after_help = help::DEMO)]
    Demo,
    /// Check this machine and this home, with a fix for each finding
    #[command(after_help = help::DOCTOR)]
    Doctor,
    /// Print a completion script for a shell
    #[command(after_help = help::COMPLETION)]
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Arguments of `call`.
#[derive(Debug, Args)]
pub(super) struct CallArguments {
    /// Internal id of the tool, as `plugward tools` shows it
    pub(super) tool: String,
    /// Arguments as a JSON object, or `-` to read them from standard input
    #[arg(value_name = "JSON | -", allow_hyphen_values = true)]
    pub(super) json_arguments: Option<String>,
    /// One argument; the value is JSON if it can be read as JSON, else text
    #[arg(long = "arg", value_name = "KEY=VALUE", conflicts_with = "json_arguments")]
    pub(super) pairs: Vec<String>,
    /// Give up after this time, such as `5s` or `200ms`; a number alone is seconds
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(super) timeout: Option<Duration>,
}

/// Arguments of `connect` and `disconnect`.
#[derive(Debug, Args)]
pub(super) struct ConnectArguments {
    /// The agent, as `plugward clients` names it
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub(super) client: Option<String>,
    /// Every agent that is found here
    #[arg(long)]
    pub(super) all: bool,
    /// The settings in this project folder instead of your own
    #[arg(long, value_name = "FOLDER", conflicts_with = "all")]
    pub(super) project: Option<PathBuf>,
    /// Only show what would change
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Do not ask
    #[arg(long, conflicts_with = "dry_run")]
    pub(super) yes: bool,
}

/// What can be done with traces.
#[derive(Debug, Subcommand)]
pub(super) enum TraceCommand {
    /// The latest calls, newest first
    List {
        /// Only calls to this plugin
        #[arg(long, value_name = "ID")]
        plugin: Option<String>,
        /// Only calls that ended so: `ok`, `tool_error`, `timed_out`, ...
        #[arg(long)]
        outcome: Option<String>,
        /// At most so many
        #[arg(short = 'n', long, value_name = "NUMBER", default_value_t = TRACE_LIMIT_DEFAULT)]
        limit: usize,
    },
    /// One call, step by step
    Show {
        /// Trace id, the beginning of one, or `last`
        #[arg(value_name = "TRACE_ID | last")]
        trace: String,
    },
}

/// What can be done with gates.
#[derive(Debug, Subcommand)]
pub(super) enum GateCommand {
    /// Run every gate of a phase that is switched on; exit code 1 if one that blocks fails
    Run {
        /// `pre-commit`, `post-commit`, `pre-deploy`, `post-deploy` or `review`
        phase: String,
    },
}

/// What can be done with tokens.
#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Make one; it is shown this once
    Add {
        /// What it is called, in traces too
        name: String,
        /// The profile of who shows it [default: the one called NAME, else `default`]
        #[arg(long, value_name = "NAME")]
        profile: Option<String>,
    },
    /// Show which there are
    List,
    /// Replace one by a new one, which is shown this once; `default` is the one in run/mcp-token
    Rotate {
        /// Which
        name: String,
    },
    /// Take one back: whoever shows it is refused from now on
    Revoke {
        /// Which
        name: String,
    },
}

/// Words of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum AnswerWord {
    /// Yes, this call
    Allow,
    /// Yes, this tool until the host ends
    AllowSession,
    /// No
    Deny,
}

impl From<AnswerWord> for AnswerBody {
    fn from(word: AnswerWord) -> Self {
        match word {
            AnswerWord::Allow => AnswerBody::AllowOnce,
            AnswerWord::AllowSession => AnswerBody::AllowSession,
            AnswerWord::Deny => AnswerBody::Deny,
        }
    }
}

/// An address with its port.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "use an address and a port, such as `127.0.0.1:8420` or `[::1]:8420`".to_owned())
}

/// A name as it stands in a `Host` header, without the port.
fn parse_host(text: &str) -> Result<String, String> {
    let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte));
    let address = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_good = match address {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !text.is_empty() && is_name(text),
    };
    if is_good {
        return Ok(text.to_owned());
    }
    Err("use a host name or address without port, such as `tools.example`, `192.0.2.7` or `[2001:db8::7]`".to_owned())
}

/// A time in words (`1m 30s`) or as a number of seconds.
fn parse_time(text: &str) -> Result<Duration, String> {
    let time = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|_| "it is no time".to_owned())?,
        Err(_) => humantime::parse_duration(text).map_err(|_| "use a time such as `5s` or `200ms`".to_owned())?,
    };
    if time.is_zero() { Err("it leaves no time at all".to_owned()) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn a_host_is_one_whole_name() {
        // An empty name would let requests in that are addressed to nobody.
        for good in ["tools.example", "192.0.2.7", "[2001:db8::7]", "localhost"] {
            assert!(parse_host(good).is_ok(), "{good}");
        }
        for bad in ["", "*", "*.example", "tools.example:80", "http://tools.example", "[]", "2001:db8::7", "a b", "ü"]
        {
            assert!(parse_host(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    /// A command nobody can find is not there.
    #[test]
    fn every_command_is_in_the_help_and_has_an_example() {
        for command in CommandLine::command().get_subcommands() {
            let name = command.get_name();
            assert!(help::TEMPLATE.contains(&format!("\n  {name} ")), "`{name}` is missing in the list of commands");
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(after.contains(&format!("plugward {name}")), "`{name}` has no example");
        }
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        let good = [("5s", 5000), ("200ms", 200), ("2", 2000), ("0.25", 250), ("1m 30s", 90_000)];
        for (text, ms) in good {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "x", "-1", "0", "0s", "NaN", "inf", "1e300", "5 parsecs"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
