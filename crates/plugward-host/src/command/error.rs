//! How a run of a command fails. Owns the stable words for it and the stage it failed in (requirements 180, 181, 202).
//! Refuses values of parameters: no text in here repeats one (W11).

/// Stable code of a failed run. Scripts and agents compare the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CommandErrorCode {
    /// No tool has this name.
    NotRegistered,
    /// The values do not fit the parameters.
    ArgumentInvalid,
    /// The command cannot be started: no such program, no such folder, or no sandbox.
    NotExecutable,
    /// It ran longer than it may.
    TimedOut,
    /// It wrote more than is handed on.
    OutputTooLarge,
    /// What it wrote should have gone to a file and could not.
    OutputNotKept,
    /// It ended with an exit code that means failure.
    Failed,
    /// A signal ended it.
    Signalled,
    /// Its output is not what the tool says it is.
    OutputInvalid,
    /// The caller cancelled.
    Cancelled,
    /// The host ends.
    Stopping,
}

impl CommandErrorCode {
    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotRegistered => "COMMAND_NOT_REGISTERED",
            Self::ArgumentInvalid => "COMMAND_ARGUMENT_INVALID",
            Self::NotExecutable => "COMMAND_NOT_EXECUTABLE",
            Self::TimedOut => "COMMAND_TIMEOUT",
            Self::OutputTooLarge => "COMMAND_OUTPUT_TOO_LARGE",
            Self::OutputNotKept => "COMMAND_OUTPUT_NOT_KEPT",
            Self::Failed => "COMMAND_FAILED",
            Self::Signalled => "COMMAND_SIGNALLED",
            Self::OutputInvalid => "COMMAND_OUTPUT_INVALID",
            Self::Cancelled => "COMMAND_CANCELLED",
            Self::Stopping => "COMMAND_STOPPING",
        }
    }
}

/// The four stages of a run (requirement 180).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CommandStage {
    /// Finding the tool and its program.
    PreCheck,
    /// Making arguments of the values.
    Substitution,
    /// The process.
    Run,
    /// Reading its output.
    Normalisation,
}

impl CommandStage {
    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PreCheck => "pre-check",
            Self::Substitution => "substitution",
            Self::Run => "run",
            Self::Normalisation => "normalisation",
        }
    }
}

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CommandError {
    /// The stable code.
    pub code: CommandErrorCode,
    /// The stage it failed in.
    pub stage: CommandStage,
    /// The sentence for people.
    pub message: String,
}

impl CommandError {
    pub(crate) fn new(code: CommandErrorCode, stage: CommandStage, message: impl Into<String>) -> Self {
        Self { code, stage, message: message.into() }
    }
}
