//! `config.toml`: its keys, and where a mistake is.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use plugward_host::{Environment, Naming, Trust};
use plugward_policy::{Effect, PermissionName, visible};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::SettingsError;
use super::folders::FileFolders;
use super::profiles;
use super::roots::FileRoots;
use super::supervision::{self, FileSupervision};
use crate::profile::Profiles;

/// Name of the file in the home.
pub(crate) const CONFIG_FILE: &str = "config.toml";

/// Largest file read. A person wrote it; a larger one is not it.
const CONFIG_BYTES_MAX: u64 = 256 * 1024;

/// Longest first pause of a restart, in milliseconds: longer looks like a plugin that is never restarted.
const RESTART_BASE_DELAY_MS_MAX: u64 = 60_000;

/// How alike two words are (Jaro-Winkler) before one is offered for the other.
const SUGGESTION_SIMILARITY_MIN: f64 = 0.8;

const KEYS: [&str; 12] = [
    "daemon",
    "daemon_idle_seconds",
    "environment",
    "extra_roots",
    "naming",
    "permissions",
    "plugins_dir",
    "plugins_poll_ms",
    "plugins_recursive",
    "profiles",
    "restart_base_delay_ms",
    "supervision",
];

/// Longest idle time of a host that was started on demand: a week.
const DAEMON_IDLE_SECONDS_MAX: u64 = 7 * 24 * 3600;

/// What the file says; absent keys are none.
#[derive(Debug, Default)]
pub(super) struct FileSettings {
    pub(super) environment: Option<Environment>,
    pub(super) naming: Option<Naming>,
    pub(super) permissions: Vec<(PermissionName, Effect)>,
    pub(super) restart_base_delay: Option<Duration>,
    pub(super) profiles: Profiles,
    pub(super) is_on_demand: Option<bool>,
    pub(super) daemon_idle: Option<Duration>,
    pub(super) supervision: FileSupervision,
    pub(super) folders: FileFolders,
    /// Whom to trust besides the machine's own authorities.
    pub(super) trust: Trust,
    roots: Option<FileRoots>,
}

/// Reads the file; none if there is none.
pub(super) fn read(path: &Path) -> Result<Option<FileSettings>, SettingsError> {
    use std::io::Read as _;
    let shown = visible(&path.display().to_string());
    let unreadable = |source| SettingsError::Unreadable { path: shown.clone(), source };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let mut text = String::new();
    file.take(CONFIG_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if u64::try_from(text.len()).unwrap_or(u64::MAX) > CONFIG_BYTES_MAX {
        let message = format!("the file is larger than {CONFIG_BYTES_MAX} bytes");
        return Err(SettingsError::Invalid { path: shown, line: 1, column: 1, message });
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let read = parse(text).and_then(|mut settings| {
        if let (Some(roots), Some(home)) = (&settings.roots, path.parent()) {
            settings.trust = roots.read(home)?;
        }
        Ok(settings)
    });
    read.map(Some).map_err(|mistake| {
        let (line, column) = place(text, mistake.at);
        SettingsError::Invalid { path: shown, line, column, message: mistake.message }
    })
}

/// Something wrong at a byte offset.
pub(super) struct Mistake {
    at: usize,
    message: String,
}

impl Mistake {
    pub(super) fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }
}

fn parse(text: &str) -> Result<FileSettings, Mistake> {
    let table = DeTable::parse(text).map_err(|error| {
        let first_line = error.message().lines().next().unwrap_or_default().to_owned();
        Mistake::new(error.span().map_or(0, |span| span.start), visible(&first_line))
    })?;
    let mut settings = FileSettings::default();
    for (key, value) in table.get_ref() {
        let name = key.get_ref().as_ref();
        match name {
            "environment" => settings.environment = Some(environment(name, value)?),
            "naming" => settings.naming = Some(naming(name, value)?),
            "permissions" => settings.permissions = permissions(value)?,
            "restart_base_delay_ms" => settings.restart_base_delay = Some(delay(name, value)?),
            "profiles" => settings.profiles = profiles::read(value)?,
            "daemon" => settings.is_on_demand = Some(is_on_demand(name, value)?),
            "daemon_idle_seconds" => {
                let seconds = number(name, value, 1..=DAEMON_IDLE_SECONDS_MAX)?;
                settings.daemon_idle = Some(Duration::from_secs(seconds));
            }
            "extra_roots" => {
                settings.roots = Some(FileRoots { path: self::text(name, value)?.to_owned(), at: value.span().start });
            }
            "supervision" => settings.supervision = supervision::read(value)?,
            _ if settings.folders.take(name, value)? => {}
            _ => return Err(Mistake::new(key.span().start, unknown(name, &KEYS))),
        }
    }
    Ok(settings)
}

/// What is said of a key that is none of `known`.
pub(super) fn unknown(name: &str, known: &[&str]) -> String {
    let shown = visible(&name.chars().take(64).collect::<String>());
    let alike = known
        .iter()
        .map(|key| (strsim::jaro_winkler(name, key), key))
        .filter(|(similarity, _)| *similarity >= SUGGESTION_SIMILARITY_MIN)
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    match alike {
        Some((_, key)) => format!("unknown setting `{shown}`; did you mean `{key}`?"),
        None => format!("unknown setting `{shown}`; there are: {}", known.join(", ")),
    }
}

/// A text.
pub(super) fn text<'v>(name: &str, value: &'v Spanned<DeValue<'_>>) -> Result<&'v str, Mistake> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text),
        _ => Err(Mistake::new(value.span().start, format!("`{}` must be a text", visible(name)))),
    }
}

fn environment(name: &str, value: &Spanned<DeValue<'_>>) -> Result<Environment, Mistake> {
    match text(name, value)? {
        "production" => Ok(Environment::Production),
        "development" => Ok(Environment::Development),
        other => {
            let message = format!("environment `{}` is unknown: use production or development", visible(other));
            Err(Mistake::new(value.span().start, message))
        }
    }
}

fn is_on_demand(name: &str, value: &Spanned<DeValue<'_>>) -> Result<bool, Mistake> {
    match text(name, value)? {
        "on-demand" => Ok(true),
        "off" => Ok(false),
        other => {
            let message = format!("daemon `{}` is unknown: use on-demand or off", visible(other));
            Err(Mistake::new(value.span().start, message))
        }
    }
}

fn naming(name: &str, value: &Spanned<DeValue<'_>>) -> Result<Naming, Mistake> {
    match text(name, value)? {
        "prefixed" => Ok(Naming::Prefixed),
        "pass-through" => Ok(Naming::PassThrough),
        other => {
            let message = format!("naming `{}` is unknown: use prefixed or pass-through", visible(other));
            Err(Mistake::new(value.span().start, message))
        }
    }
}

fn permissions(value: &Spanned<DeValue<'_>>) -> Result<Vec<(PermissionName, Effect)>, Mistake> {
    let mut found = Vec::new();
    collect_permissions("", value, &mut found)?;
    Ok(found)
}

/// Names have dots, and unquoted dots make tables in TOML: `notes.read = "ask"` means what it looks like.
fn collect_permissions(
    prefix: &str,
    value: &Spanned<DeValue<'_>>,
    found: &mut Vec<(PermissionName, Effect)>,
) -> Result<(), Mistake> {
    let DeValue::Table(table) = value.get_ref() else {
        return Err(Mistake::new(value.span().start, "`permissions` must be a table"));
    };
    for (key, value) in table {
        let name = format!("{prefix}{}", key.get_ref());
        if matches!(value.get_ref(), DeValue::Table(_)) {
            collect_permissions(&format!("{name}."), value, found)?;
            continue;
        }
        let effect = text(&name, value)?
            .parse::<Effect>()
            .map_err(|error| Mistake::new(value.span().start, error.to_string()))?;
        let name = PermissionName::new(name).map_err(|error| Mistake::new(key.span().start, error.to_string()))?;
        found.push((name, effect));
    }
    Ok(())
}

fn delay(name: &str, value: &Spanned<DeValue<'_>>) -> Result<Duration, Mistake> {
    number(name, value, 1..=RESTART_BASE_DELAY_MS_MAX).map(Duration::from_millis)
}

/// A whole number within `range`.
pub(super) fn number(name: &str, value: &Spanned<DeValue<'_>>, range: RangeInclusive<u64>) -> Result<u64, Mistake> {
    let number = match value.get_ref() {
        DeValue::Integer(integer) => u64::from_str_radix(integer.as_str(), integer.radix()).ok(),
        _ => None,
    };
    number.filter(|number| range.contains(number)).ok_or_else(|| {
        let message = format!("`{name}` must be a whole number from {} to {}", range.start(), range.end());
        Mistake::new(value.span().start, message)
    })
}

/// Line and column, from 1, of a byte offset.
fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at.min(text.len())).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}
