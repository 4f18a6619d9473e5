//! Agents' own settings: finding them, and our one entry in each.
//!
//! ```text
//! table (facts) -> Machine (paths here) -> file (text) -> edit (proved) -> file (atomic) -> records (undo)
//! ```
//!
//! Owns what `connect`, `disconnect`, `clients` and `doctor` do to and say about them. Refuses terminals and questions,
//! and to touch, copy or show anything of another entry than its name: others hold secrets.

mod diff;
mod edit;
mod file;
mod records;
mod table;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use plugward_policy::Digest;
use serde_json::Value;

pub(crate) use edit::EditError;
pub(crate) use file::FileError;
pub(crate) use table::{CLIENTS, ClientKind, client};

use edit::Spot;
use records::{Record, Records};
use table::{Base, ENTRY_NAME, Shape, System};

/// Why a client's settings are left as they are.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// The file itself.
    #[error(transparent)]
    File(#[from] FileError),
    /// What is in the file.
    #[error("settings file `{path}`: {source}")]
    Edit {
        /// The file.
        path: String,
        /// What is wrong.
        source: EditError,
    },
    /// The client has no settings where they are looked for.
    #[error("{title} keeps no settings of its own in a project")]
    NoProject {
        /// The client.
        title: &'static str,
    },
    /// There is no folder that the path could begin with.
    #[error("settings of {title} cannot be located: `HOME` is not set")]
    NoPlace {
        /// The client.
        title: &'static str,
    },
}

/// What this machine gives: folders, variables, and what an entry is to start.
pub(crate) struct Machine {
    system: System,
    home: Option<PathBuf>,
    config: Option<PathBuf>,
    settings: Option<PathBuf>,
    variables: Vec<(&'static str, PathBuf)>,
    program: String,
    /// Arguments behind those of every entry: the state folder, where it is not the usual one.
    extra: Vec<String>,
    records_home: PathBuf,
}

/// How a client's settings stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Neither the file nor its folder is there.
    NotFound,
    /// It is in use here, without our entry.
    Found,
    /// Our entry is what we would write.
    Connected,
    /// Our entry is there and starts something else, or nothing.
    Drifted(String),
    /// The file cannot be read.
    Broken(String),
}

/// One settings file as it is.
#[derive(Debug)]
pub(crate) struct Report {
    /// The client.
    pub(crate) client: &'static ClientKind,
    /// Its file.
    pub(crate) file: PathBuf,
    /// How it stands.
    pub(crate) standing: Standing,
    /// Names of entries that are not ours.
    pub(crate) others: Vec<String>,
    /// Whether it was ours once by our record.
    pub(crate) is_recorded: bool,
}

/// An edit that waits to be agreed to.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The client.
    pub(crate) client: &'static ClientKind,
    /// Its file.
    pub(crate) file: PathBuf,
    /// The change as a unified diff; empty if there is none.
    pub(crate) diff: String,
    old: Option<String>,
    new: Option<String>,
    made_container: bool,
}

impl Machine {
    /// Reads what is needed from the environment. `home` is the state folder, and `is_usual_home` tells that our
    /// program finds it by itself.
    pub(crate) fn of(
        variable: impl Fn(&str) -> Option<OsString>,
        program: &Path,
        home: &Path,
        is_usual_home: bool,
    ) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let absolute = |name: &str| set(name).filter(|path| path.is_absolute());
        let system = System::HERE;
        let user = set("HOME").or_else(|| set("USERPROFILE"));
        let in_user = |path: &str| user.as_ref().map(|user| user.join(path));
        let config = absolute("XDG_CONFIG_HOME").or_else(|| in_user(".config"));
        let settings = match system {
            System::Unix => config.clone(),
            System::Mac => in_user("Library/Application Support"),
            System::Windows => absolute("APPDATA"),
        };
        let named = CLIENTS.iter().flat_map(|client| client.places).filter_map(|place| match place.base {
            Base::Variable(name) => Some((name, set(name)?)),
            _ => None,
        });
        let extra = if is_usual_home { Vec::new() } else { vec!["--home".to_owned(), home.display().to_string()] };
        Self {
            system,
            variables: named.collect(),
            config,
            settings,
            home: user,
            program: program.display().to_string(),
            extra,
            records_home: home.to_owned(),
        }
    }

    /// The settings file of a client: in a project folder, else the user's.
    pub(crate) fn locate(&self, client: &'static ClientKind, project: Option<&Path>) -> Result<PathBuf, ClientError> {
        if let Some(folder) = project {
            let path = client.project.ok_or(ClientError::NoProject { title: client.title })?;
            return Ok(folder.join(path));
        }
        let places = client.places.iter().filter(|place| place.system.is_none_or(|only| only == self.system));
        let mut candidates = Vec::new();
        for place in places {
            let base = match place.base {
                Base::Home => self.home.as_ref(),
                Base::Config => self.config.as_ref(),
                Base::Settings => self.settings.as_ref(),
                Base::Variable(name) => {
                    let value = self.variables.iter().find(|(known, _)| *known == name);
                    if let Some((_, folder)) = value {
                        return Ok(folder.join(place.path));
                    }
                    None
                }
            };
            candidates.extend(base.map(|base| base.join(place.path)));
        }
        let there = |path: &&PathBuf| path.exists();
        let prepared = |path: &&PathBuf| path.parent().is_some_and(Path::is_dir);
        let found = candidates.iter().find(there).or_else(|| candidates.iter().find(prepared));
        found.or(candidates.first()).cloned().ok_or(ClientError::NoPlace { title: client.title })
    }

    fn arguments(&self, client: &ClientKind) -> Vec<String> {
        let own = ["serve", "--stdio", "--client", client.name].map(ToOwned::to_owned);
        own.into_iter().chain(self.extra.iter().cloned()).collect()
    }

    fn entry(&self, client: &ClientKind) -> Value {
        client.shape.entry(&self.program, &self.arguments(client))
    }

    /// Why the records of what we wrote cannot be used, if they cannot. Nothing is written before they can.
    pub(crate) fn records_fault(&self) -> Option<FileError> {
        Records::open(&self.records_home).err()
    }

    /// How every client's user settings stand, and every project file that we once wrote.
    pub(crate) fn survey(&self) -> Vec<Report> {
        let records = Records::open(&self.records_home).unwrap_or_else(|_| Records::none(&self.records_home));
        let mut reports: Vec<Report> = CLIENTS
            .iter()
            .filter_map(|client| Some(self.report(client, self.locate(client, None).ok()?, &records)))
            .collect();
        for record in records.all() {
            if let Some(client) = client(&record.client)
                && !reports.iter().any(|report| report.file == record.file)
            {
                reports.push(self.report(client, record.file.clone(), &records));
            }
        }
        reports
    }

    fn report(&self, client: &'static ClientKind, path: PathBuf, records: &Records) -> Report {
        let is_recorded = records.of(&path).is_some();
        let (standing, others) = self.standing(client, &path);
        Report { client, file: path, standing, others, is_recorded }
    }

    fn standing(&self, client: &ClientKind, path: &Path) -> (Standing, Vec<String>) {
        let text = match file::read(path) {
            Ok(Some(text)) => text,
            Ok(None) => {
                let sign = client.sign.and_then(|sign| Some(self.home.as_ref()?.join(sign)));
                let folder = sign.as_deref().or(path.parent());
                let is_there = folder.is_some_and(|folder| folder.is_dir() && Some(folder) != self.home.as_deref());
                return (if is_there { Standing::Found } else { Standing::NotFound }, Vec::new());
            }
            Err(error) => return (Standing::Broken(error.to_string()), Vec::new()),
        };
        let entries = match edit::entries(client.format, &text, spot(client)) {
            Ok(entries) => entries,
            Err(error) => return (Standing::Broken(error.to_string()), Vec::new()),
        };
        let (ours, others): (Vec<_>, Vec<_>) = entries.into_iter().partition(|(name, _)| name == ENTRY_NAME);
        let standing = match ours.first() {
            None => Standing::Found,
            Some((_, entry)) => self.drift(client, entry).map_or(Standing::Connected, Standing::Drifted),
        };
        (standing, others.into_iter().map(|(name, _)| name).collect())
    }

    /// What is wrong with our entry. Other keys than those that start us are the client's and the person's.
    fn drift(&self, client: &ClientKind, entry: &Value) -> Option<String> {
        let Some((program, arguments)) = client.shape.launch(entry) else {
            return Some("it names no program".to_owned());
        };
        if Shape::is_switched_off(entry) {
            return Some("it is switched off in the client".to_owned());
        }
        if program != self.program {
            let is_there = Path::new(&program).is_file();
            return Some(if is_there {
                format!("it starts `{program}`, and this program is `{}`", self.program)
            } else {
                format!("its program `{program}` is not there")
            });
        }
        (arguments != self.arguments(client))
            .then(|| format!("its arguments are `{}`", edit::shown(&arguments.join(" "))))
    }

    /// Plans to add our entry. Keys that the client or a person added to an earlier one stay.
    pub(crate) fn plan_connect(
        &self,
        client: &'static ClientKind,
        project: Option<&Path>,
    ) -> Result<Plan, ClientError> {
        let path = self.locate(client, project)?;
        let old = file::read(&path)?;
        let text = old.clone().unwrap_or_default();
        let (spot, wrap) = (spot(client), |source| edit_error(&path, source));
        let known = edit::entries(client.format, &text, spot).map_err(wrap)?;
        let mut entry = self.entry(client);
        let ours = known.iter().find(|(name, _)| name == ENTRY_NAME);
        if let (Some((_, Value::Object(known))), Value::Object(entry)) = (ours, &mut entry) {
            for (key, value) in known {
                // What switches it off is what a person who connects does not want.
                if key != "disabled" && entry.get(key).is_none_or(is_open) {
                    entry.insert(key.clone(), value.clone());
                }
            }
        }
        let made_container = !edit::has_container(client.format, &text, spot).map_err(wrap)?;
        let is_right = ours.is_some_and(|(_, known)| self.drift(client, known).is_none());
        let new =
            if is_right { old.clone() } else { Some(edit::insert(client.format, &text, spot, &entry).map_err(wrap)?) };
        Ok(plan(client, path, old, new, made_container))
    }

    /// Plans to take our entry out: to the byte if nobody has touched the file since.
    pub(crate) fn plan_disconnect(
        &self,
        client: &'static ClientKind,
        project: Option<&Path>,
    ) -> Result<Plan, ClientError> {
        let path = self.locate(client, project)?;
        let Some(text) = file::read(&path)? else { return Ok(plan(client, path, None, None, false)) };
        let records = Records::open(&self.records_home)?;
        let record = records.of(&path);
        if let Some(record) = record.filter(|record| record.written == Digest::of(text.as_bytes()).to_string()) {
            let before = match &record.backup {
                Some(backup) => file::read(backup)?.map(Some),
                None => Some(None),
            };
            if let Some(before) = before {
                return Ok(plan(client, path, Some(text), before, false));
            }
        }
        let with_container = record.is_some_and(|record| record.made_container);
        let new = edit::remove(client.format, &text, spot(client), with_container);
        let new = new.map_err(|source| edit_error(&path, source))?;
        Ok(plan(client, path, Some(text), Some(new), false))
    }

    /// Writes a planned entry, and gives the backup of the file that was there.
    pub(crate) fn connect(&self, plan: &Plan) -> Result<Option<PathBuf>, ClientError> {
        let Some(new) = &plan.new else { return Ok(None) };
        let mut records = Records::open(&self.records_home)?;
        let made_folders = file::make_folders(&plan.file)?;
        let backup = match &plan.old {
            Some(old) => Some(records.back_up(plan.client.name, &plan.file, old)?),
            None => None,
        };
        file::replace(&plan.file, plan.old.as_deref(), Some(new))?;
        // What was there before we came the first time is what a disconnect goes back to, unless it was edited since.
        let earlier = records.of(&plan.file).filter(|earlier| {
            plan.old.as_ref().is_some_and(|old| earlier.written == Digest::of(old.as_bytes()).to_string())
        });
        let record = Record {
            client: plan.client.name.to_owned(),
            file: plan.file.clone(),
            backup: earlier.map_or_else(|| backup.clone(), |earlier| earlier.backup.clone()),
            written: Digest::of(new.as_bytes()).to_string(),
            made_container: earlier.map_or(plan.made_container, |earlier| earlier.made_container),
            made_folders: earlier.map_or(made_folders, |earlier| earlier.made_folders.clone()),
        };
        // A file that held an entry of ours before we know of cannot be taken back to before it.
        let record =
            if earlier.is_none() && plan.had_entry() { Record { written: String::new(), ..record } } else { record };
        records.put(record)?;
        Ok(backup)
    }

    /// Writes a planned removal, and gives the backup of the file that was there.
    pub(crate) fn disconnect(&self, plan: &Plan) -> Result<Option<PathBuf>, ClientError> {
        let mut records = Records::open(&self.records_home)?;
        let backup = match (&plan.old, plan.is_change()) {
            (Some(old), true) => {
                let backup = records.back_up(plan.client.name, &plan.file, old)?;
                file::replace(&plan.file, Some(old), plan.new.as_deref())?;
                Some(backup)
            }
            _ => None,
        };
        if let Some(record) = records.of(&plan.file)
            && plan.new.is_none()
        {
            // Innermost first; one that holds something by now stays.
            for folder in record.made_folders.iter().rev() {
                let _ = std::fs::remove_dir(folder);
            }
        }
        records.forget(&plan.file)?;
        Ok(backup)
    }

    /// What to paste by hand into a client's settings.
    pub(crate) fn snippet(&self, client: &ClientKind) -> String {
        edit::snippet(client.format, spot(client), &self.entry(client))
    }
}

impl Plan {
    /// Whether there is anything to do.
    pub(crate) fn is_change(&self) -> bool {
        self.old != self.new
    }

    fn had_entry(&self) -> bool {
        let entries = edit::entries(self.client.format, self.old.as_deref().unwrap_or_default(), spot(self.client));
        entries.is_ok_and(|entries| entries.iter().any(|(name, _)| name == ENTRY_NAME))
    }
}

fn plan(
    client: &'static ClientKind,
    path: PathBuf,
    old: Option<String>,
    new: Option<String>,
    made_container: bool,
) -> Plan {
    let diff = diff::unified(&path.display().to_string(), old.as_deref(), new.as_deref());
    Plan { client, file: path, diff, old, new, made_container }
}

fn spot(client: &ClientKind) -> Spot<'static> {
    Spot { container: client.container, is_list: client.shape == Shape::ListItem, name: ENTRY_NAME }
}

/// Whether a value of our entry says nothing about how we are started: what somebody put in its place is theirs.
fn is_open(value: &Value) -> bool {
    match value {
        Value::Null | Value::Number(_) => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

fn edit_error(path: &Path, source: EditError) -> ClientError {
    ClientError::Edit { path: plugward_policy::visible(&path.display().to_string()), source }
}

#[cfg(test)]
mod tests;
