//! Texts of the help: the grouped list of commands, the first steps, an example for each command.

/// The top level help. Groups are by task, as no library groups commands.
pub(super) const TEMPLATE: &str = "\
{about}

{usage-heading} {usage}

Plugins:
  install     Copy a plugin in; nothing of it runs
  review      Show exactly what a plugin would run and may touch
  approve     Agree to what the review shows, and to nothing else
  enable      Switch a plugin on: start it, check its tools, offer them
  disable     Switch a plugin off: take its tools away, end its processes
  restart     End a plugin's processes and start it anew
  remove      Stop a plugin and forget it; its traces stay

Looking:
  list        Show all plugins (also: ls)
  info        Show one plugin with its process and tools
  tools       Show the tools that can be called
  status      Show whether a host runs here, and how its plugins are
  logs        Show what a plugin wrote to its log
  trace       Show what was called, what was decided and what came of it

Using:
  call        Run a tool and print its result as JSON
  gate        Run the gates of a phase, and tell whether it may go on
  serve       Run the host: offer all tools over MCP, and over HTTP
  stop        End the host that runs, with all plugins

Agents:
  connect     Enter plugward in an agent's own settings
  disconnect  Take plugward out of an agent's own settings
  token       Give single clients over HTTP a token of their own
  clients     Show which agents are here, and which are connected

Permissions:
  permissions Show or change what a plugin may do
  asks        Show calls that wait for your permission
  answer      Answer a call that waits for your permission

Help:
  demo        Walk through everything once with a built-in plugin
  doctor      Check this machine and this home, with a fix for each finding
  completion  Print a completion script for a shell
  help        Print this, or the help of a command

Options:
{options}{after-help}";

/// The way from nothing to a tool in an agent.
pub(super) const FIRST_STEPS: &str = "\
First steps:
  1. plugward demo                      see it all once, on nothing but this program
  2. plugward install ./my-plugin       a folder with a plugin.yaml; prints the plugin's id
  3. plugward review my-plugin          what it would run; then: plugward approve my-plugin
  4. plugward enable my-plugin          then: plugward tools, plugward call my-plugin.TOOL
  5. plugward connect cursor            enter it in your agent; plugward clients lists them

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 denied or needs consent,
5 plugin unhealthy, 124 no answer in time";

pub(super) const INSTALL: &str = "\
Example:
  plugward install ./my-plugin
  plugward install ./my-plugin/plugin.yaml --id my-plugin";

pub(super) const REVIEW: &str = "\
Examples:
  plugward review my-plugin
  plugward review my-plugin --json        .digest is what an approval must name
  plugward review my-plugin --trial       run it once without permissions, and see what it wants";

pub(super) const APPROVE: &str = "\
At a terminal it shows the review and asks. In a script only the exact digest is an approval; there is no --yes.

Examples:
  plugward approve my-plugin
  plugward approve my-plugin --digest sha256:HEX";

pub(super) const ENABLE: &str = "\
Example:
  plugward enable my-plugin";

pub(super) const DISABLE: &str = "\
Example:
  plugward disable my-plugin";

pub(super) const RESTART: &str = "\
Example:
  plugward restart my-plugin";

pub(super) const REMOVE: &str = "\
Example:
  plugward remove my-plugin";

pub(super) const LIST: &str = "\
Examples:
  plugward list
  plugward list --json";

pub(super) const INFO: &str = "\
Example:
  plugward info my-plugin";

pub(super) const TOOLS: &str = "\
Examples:
  plugward tools
  plugward tools my-plugin --json         with the schema of each tool's arguments
  plugward tools --cost --profile cursor  what they cost an agent, in tokens";

pub(super) const CALL: &str = "\
Exit code 1 with a result on standard output means that the tool itself says it failed.

Examples:
  plugward call my-plugin.echo '{\"text\": \"hello\"}'
  plugward call my-plugin.echo --arg text=hello --timeout 5s
  some-program | plugward call my-plugin.echo -";

pub(super) const GATE: &str = "\
Exit code 1 means that a gate that blocks has failed, or could not run.

Example:
  plugward gate run pre-commit";

pub(super) const STATUS: &str = "\
Example:
  plugward status";

pub(super) const LOGS: &str = "\
Logs are kept by the running host, so without `plugward serve` there are none.

Examples:
  plugward logs my-plugin
  plugward logs my-plugin -f";

pub(super) const TRACE: &str = "\
Examples:
  plugward trace list --outcome timed_out
  plugward trace show last";

pub(super) const PERMISSIONS: &str = "\
Examples:
  plugward permissions my-plugin
  plugward permissions my-plugin --revoke notes.write";

pub(super) const ASKS: &str = "\
Example:
  plugward asks";

pub(super) const ANSWER: &str = "\
Examples:
  plugward answer permission_0123456789abcdef allow
  plugward answer permission_0123456789abcdef deny";

pub(super) const SERVE: &str = "\
While it runs, all other commands on the same home act through it. `serve --stdio` joins the host that runs; where none
does it starts one in the background, which ends by itself once nobody has been connected for a while.

Callers over HTTP show a token: MCP clients the one in run/mcp-token of the home, programs that use the Host API the one
in run/api-token. There is no TLS: on an address that other machines can reach, put a proxy that has it in front. The
Host API is served on loopback addresses alone.

Examples:
  plugward serve --stdio                  what an MCP client starts
  plugward serve --http 127.0.0.1:8420    MCP at /mcp, and the Host API for programs
  plugward serve --http 10.0.0.5:8420 --allow-host tools.example
                                          MCP for other machines
  plugward serve                          keep the plugins running for other commands";

pub(super) const TOKEN: &str = "\
Who shows such a token sees the tools of its profile, and stands under its name in traces. Only a digest of it is kept. A
host that runs notices every change: what a token that is gone has opened ends within seconds.

Examples:
  plugward token add build-agent --profile ci
  plugward token list
  plugward token rotate build-agent
  plugward token revoke build-agent
  plugward token rotate default           the token in run/mcp-token";

pub(super) const STOP: &str = "\
Example:
  plugward stop";

pub(super) const CONNECT: &str = "\
It adds one entry, shows the change, asks, keeps a backup and touches nothing else in the file.

Examples:
  plugward connect cursor
  plugward connect vscode --project . --dry-run
  plugward connect --all --yes";

pub(super) const DISCONNECT: &str = "\
A file that nobody has changed since is put back to the byte; else only our entry goes.

Examples:
  plugward disconnect cursor
  plugward disconnect --all --dry-run";

pub(super) const CLIENTS: &str = "\
Examples:
  plugward clients
  plugward clients --json";

pub(super) const DEMO: &str = "\
It needs no network and leaves nothing behind.

Example:
  plugward demo";

pub(super) const DOCTOR: &str = "\
It starts nothing of any plugin. Exit code 1 if anything is broken.

Examples:
  plugward doctor
  plugward doctor --json";

pub(super) const COMPLETION: &str = "\
Examples:
  plugward completion bash > ~/.local/share/bash-completion/completions/plugward
  plugward completion zsh > ~/.zfunc/_plugward";
