//! Bytes on the control socket between host and launcher, both of the same build.
//!
//! Owns the encoding of the specification (host to launcher, once) and of the fixed-size reports (launcher to host).
//! Refuses lengths beyond its limits and trailing bytes; it does no input or output.
//!
//! ```text
//! host -> launcher   u32 length, specification; then one byte per order
//! launcher -> host   records of RECORD_BYTES: tag, i32, u32 (little endian); listening sockets come with theirs
//! ```

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    time::Duration,
};

mod sandbox;

use super::failure::{Failure, Step};
use crate::{Exceeded, LaunchSpec, Limits, MainExit, Reached, StopGrace, enforcement::Applied, spec::MAX_SPEC_BYTES};

pub(super) use sandbox::put_sandbox;

/// Size of the length in front of the specification.
pub(super) const HEADER_BYTES: usize = 4;
/// Size of each report.
pub(super) const RECORD_BYTES: usize = 9;
/// Order: ask every process of the tree to terminate.
pub(super) const ORDER_TERMINATE: u8 = b'T';
/// Order: kill the whole tree and end.
pub(super) const ORDER_KILL: u8 = b'K';

/// The bytes cannot be a message of this build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// What the launcher tells the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Record {
    /// The plugin's program is executing, with this process id, under these layers.
    Started { pid: i32, applied: Applied },
    /// The sockets of a plugin with listed hosts, this many, come along as descriptors. Before `Started`.
    Listening { count: u32 },
    /// Nothing was started.
    Failed(Failure),
    /// A limit was passed, so the tree is being killed. Comes before the end of the main process.
    Exceeded { limit: Limit, used_mib: u32 },
    /// The plugin is at a limit that the kernel keeps.
    Reached(Bound),
    /// The plugin's main process ended; its tree is being ended.
    MainExit(MainExit),
    /// The launcher is done and ends now.
    Gone { survivors: i32, leftovers_killed: u32 },
}

/// A limit that the launcher keeps. The host knows how high it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    Memory,
    Disk,
    DiskDepth,
    WallTime,
    Hidden,
    CpuTime,
}

impl Limit {
    const ALL: [Self; 6] = [Self::Memory, Self::Disk, Self::DiskDepth, Self::WallTime, Self::Hidden, Self::CpuTime];
}

/// A limit that the kernel keeps. The host knows how high it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    Processes,
    OpenFiles,
    TemporaryFiles,
}

impl Bound {
    const ALL: [Self; 3] = [Self::Processes, Self::OpenFiles, Self::TemporaryFiles];

    /// What that means for a plugin in this sandbox.
    pub(super) fn reached(self, limits: &Limits, tmp_bytes: u64) -> Reached {
        match self {
            Self::Processes => Reached::Processes { limit: limits.processes.unwrap_or_default() },
            Self::OpenFiles => Reached::OpenFiles { limit: limits.open_files.unwrap_or_default() },
            Self::TemporaryFiles => Reached::TemporaryFiles { limit_bytes: tmp_bytes },
        }
    }
}

impl From<Reached> for Record {
    fn from(reached: Reached) -> Self {
        Self::Reached(match reached {
            Reached::Processes { .. } => Bound::Processes,
            Reached::OpenFiles { .. } => Bound::OpenFiles,
            Reached::TemporaryFiles { .. } => Bound::TemporaryFiles,
        })
    }
}

impl From<Exceeded> for Record {
    fn from(exceeded: Exceeded) -> Self {
        // Rounded up, so that what is over a limit does not read as the limit.
        let mib = |bytes: u64| u32::try_from(bytes.div_ceil(MIB)).unwrap_or(u32::MAX);
        let (limit, used_mib) = match exceeded {
            Exceeded::Memory { used_bytes, .. } => (Limit::Memory, mib(used_bytes)),
            Exceeded::Disk { used_bytes: Some(used_bytes), .. } => (Limit::Disk, mib(used_bytes)),
            Exceeded::Disk { used_bytes: None, .. } => (Limit::DiskDepth, 0),
            Exceeded::WallTime { .. } => (Limit::WallTime, 0),
            Exceeded::Hidden => (Limit::Hidden, 0),
            Exceeded::CpuTime { .. } => (Limit::CpuTime, 0),
        };
        Self::Exceeded { limit, used_mib }
    }
}

/// What a record about a limit means for a plugin with these limits.
pub(super) fn exceeded(limit: Limit, used_mib: u32, limits: &Limits) -> Exceeded {
    let used_bytes = u64::from(used_mib).saturating_mul(MIB);
    match limit {
        Limit::Memory => Exceeded::Memory { used_bytes, limit_bytes: limits.memory_bytes.unwrap_or_default() },
        Limit::Disk => {
            Exceeded::Disk { used_bytes: Some(used_bytes), limit_bytes: limits.disk_bytes.unwrap_or_default() }
        }
        Limit::DiskDepth => Exceeded::Disk { used_bytes: None, limit_bytes: limits.disk_bytes.unwrap_or_default() },
        Limit::WallTime => Exceeded::WallTime { limit_s: limits.wall_s.unwrap_or_default() },
        Limit::Hidden => Exceeded::Hidden,
        Limit::CpuTime => Exceeded::CpuTime { limit_s: limits.cpu_s.unwrap_or_default() },
    }
}

const MIB: u64 = 1024 * 1024;

impl Record {
    pub(super) fn encode(self) -> [u8; RECORD_BYTES] {
        let (tag, first, second) = match self {
            Self::Started { pid, applied } => (1, pid, applied.to_bits()),
            Self::Failed(Failure { step, errno, subject }) => (2, errno, u32::from(subject) << 16 | step as u32),
            Self::MainExit(MainExit::Code(code)) => (3, code, 0),
            Self::MainExit(MainExit::Signal(signal)) => (3, signal, 1),
            Self::MainExit(MainExit::Unknown) => (3, 0, 2),
            Self::Exceeded { limit, used_mib } => (5, limit as i32, used_mib),
            Self::Reached(bound) => (7, bound as i32, 0),
            Self::Gone { survivors, leftovers_killed } => (4, survivors, leftovers_killed),
            Self::Listening { count } => (6, 0, count),
        };
        let mut bytes = [0; RECORD_BYTES];
        bytes[0] = tag;
        bytes[1..5].copy_from_slice(&i32::to_le_bytes(first));
        bytes[5..9].copy_from_slice(&u32::to_le_bytes(second));
        bytes
    }

    pub(super) fn decode(bytes: [u8; RECORD_BYTES]) -> Result<Self, Malformed> {
        let [tag, a, b, c, d, e, f, g, h] = bytes;
        let first = i32::from_le_bytes([a, b, c, d]);
        let second = u32::from_le_bytes([e, f, g, h]);
        Ok(match (tag, second) {
            (1, bits) => Self::Started { pid: first, applied: Applied::from_bits(bits) },
            (2, packed) => {
                let step = Step::ALL.into_iter().find(|known| *known as u32 == packed & 0xffff).ok_or(Malformed)?;
                let subject = u16::try_from(packed >> 16).map_err(|_| Malformed)?;
                Self::Failed(Failure { step, errno: first, subject })
            }
            (3, 0) => Self::MainExit(MainExit::Code(first)),
            (3, 1) => Self::MainExit(MainExit::Signal(first)),
            (3, 2) => Self::MainExit(MainExit::Unknown),
            (5, used_mib) => {
                let limit = Limit::ALL.into_iter().find(|known| *known as i32 == first).ok_or(Malformed)?;
                Self::Exceeded { limit, used_mib }
            }
            (7, 0) => Self::Reached(Bound::ALL.into_iter().find(|known| *known as i32 == first).ok_or(Malformed)?),
            (4, leftovers_killed) => Self::Gone { survivors: first, leftovers_killed },
            (6, count) => Self::Listening { count },
            _ => return Err(Malformed),
        })
    }
}

/// What the launcher runs under the rules of a specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The plugin.
    Plugin,
    /// The probe that tries to get through, in the place of the plugin.
    Witness,
    /// The plugin, observed. The notebook for what is seen comes with the specification.
    Trial,
}

impl Purpose {
    const ALL: [Self; 3] = [Self::Plugin, Self::Witness, Self::Trial];
}

/// How the namespaces of level `full` are made, and on which side of that the receiver is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// By the launcher itself.
    Native,
    /// By bubblewrap, which the receiver starts.
    Bwrap,
    /// By bubblewrap, inside of which the receiver is.
    InsideBwrap,
}

const ROUTES: [Route; 3] = [Route::Native, Route::Bwrap, Route::InsideBwrap];

/// What the receiver of a specification has to do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Errand {
    pub(super) purpose: Purpose,
    pub(super) route: Route,
    /// The layers under which the probe could not get out. A plugin that would run under fewer is not executed.
    pub(super) witnessed: Applied,
}

impl Errand {
    /// Of something that no probe went before: the probe itself, and what runs without a sandbox.
    pub(super) fn unwitnessed(purpose: Purpose, route: Route) -> Self {
        Self { purpose, route, witnessed: Applied::default() }
    }

    /// Refuses to go on to the execution if, of the layers in `own`, one is missing that the probe had.
    pub(super) fn refuse_fewer_layers(&self, applied: Applied, own: Applied) -> Result<(), Failure> {
        let wanted = self.witnessed.only(own);
        let has_all = applied.has(wanted) && applied.landlock_abi() >= wanted.landlock_abi();
        if has_all { Ok(()) } else { Err(Failure { step: Step::Layers, errno: 0, subject: 0 }) }
    }
}

/// The specification with its length in front. The caller has checked it, so every length fits.
pub(super) fn encode_spec(spec: &LaunchSpec, errand: Errand) -> Vec<u8> {
    let Errand { purpose, route, witnessed } = errand;
    let mut out = vec![0; HEADER_BYTES];
    out.push(purpose as u8);
    out.push(ROUTES.iter().position(|known| *known == route).and_then(|it| u8::try_from(it).ok()).unwrap_or(u8::MAX));
    out.extend_from_slice(&witnessed.to_bits().to_le_bytes());
    for duration in [spec.stop.term_after, spec.stop.kill_after] {
        let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        out.extend_from_slice(&ms.to_le_bytes());
    }
    put_string(&mut out, spec.executable.as_os_str());
    put_string(&mut out, spec.cwd.as_os_str());
    put_count(&mut out, spec.argv.len());
    for argument in &spec.argv {
        put_string(&mut out, argument);
    }
    put_count(&mut out, spec.env.len());
    for (name, value) in &spec.env {
        put_string(&mut out, name);
        put_string(&mut out, value);
    }
    out.push(u8::from(spec.sandbox.is_some()));
    if let Some(sandbox) = &spec.sandbox {
        put_sandbox(&mut out, sandbox);
    }
    let length = u32::try_from(out.len() - HEADER_BYTES).unwrap_or(u32::MAX);
    out[..HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
    out
}

/// Length of the specification that follows the header.
pub(super) fn spec_length(header: [u8; HEADER_BYTES]) -> Result<usize, Malformed> {
    let length = usize::try_from(u32::from_le_bytes(header)).map_err(|_| Malformed)?;
    if length > MAX_SPEC_BYTES { Err(Malformed) } else { Ok(length) }
}

/// The specification without its header.
pub(super) fn decode_spec(bytes: &[u8]) -> Result<(LaunchSpec, Errand), Malformed> {
    let mut rest = bytes;
    let number = sandbox::take_u8(&mut rest)?;
    let purpose = Purpose::ALL.into_iter().find(|known| *known as u8 == number).ok_or(Malformed)?;
    let route = *ROUTES.get(usize::from(sandbox::take_u8(&mut rest)?)).ok_or(Malformed)?;
    let witnessed = Applied::from_bits(take_u32(&mut rest)?);
    let term_after = Duration::from_millis(take_u64(&mut rest)?);
    let kill_after = Duration::from_millis(take_u64(&mut rest)?);
    let executable = take_string(&mut rest)?.into();
    let cwd = take_string(&mut rest)?.into();
    let mut argv = Vec::new();
    for _ in 0..take_u32(&mut rest)? {
        argv.push(take_string(&mut rest)?);
    }
    let mut env = Vec::new();
    for _ in 0..take_u32(&mut rest)? {
        env.push((take_string(&mut rest)?, take_string(&mut rest)?));
    }
    let sandbox = if sandbox::take_flag(&mut rest)? { Some(sandbox::take_sandbox(&mut rest)?) } else { None };
    if !rest.is_empty() {
        return Err(Malformed);
    }
    let spec = LaunchSpec { executable, argv, cwd, env, stop: StopGrace { term_after, kill_after }, sandbox };
    Ok((spec, Errand { purpose, route, witnessed }))
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
}

fn put_string(out: &mut Vec<u8>, string: &OsStr) {
    put_count(out, string.len());
    out.extend_from_slice(string.as_bytes());
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Malformed> {
    let (head, tail) = rest.split_first_chunk::<N>().ok_or(Malformed)?;
    *rest = tail;
    Ok(*head)
}

fn take_u32(rest: &mut &[u8]) -> Result<u32, Malformed> {
    take(rest).map(u32::from_le_bytes)
}

fn take_u64(rest: &mut &[u8]) -> Result<u64, Malformed> {
    take(rest).map(u64::from_le_bytes)
}

fn take_string(rest: &mut &[u8]) -> Result<OsString, Malformed> {
    let length = usize::try_from(take_u32(rest)?).map_err(|_| Malformed)?;
    let (head, tail) = rest.split_at_checked(length).ok_or(Malformed)?;
    *rest = tail;
    Ok(OsString::from_vec(head.to_vec()))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::{Alias, Level, ListedHosts, Network, SandboxSpec, UserPolicy};

    fn spec() -> LaunchSpec {
        LaunchSpec {
            executable: "/bin/x".into(),
            argv: vec!["x".into(), "".into(), OsString::from_vec(vec![0xff, b' ', b'\n'])],
            cwd: "/srv".into(),
            env: vec![("A".into(), "1".into()), ("EMPTY".into(), "".into())],
            stop: StopGrace { term_after: Duration::from_millis(1500), kill_after: Duration::from_secs(3) },
            sandbox: Some(SandboxSpec {
                package_dir: Some("/srv/package".into()),
                read_only: vec!["/usr".into(), OsString::from_vec(vec![b'/', 0xfe]).into()],
                granted: vec!["/srv/notes".into()],
                aliases: vec![Alias { name: "/notes".into(), place: "/srv/notes".into() }],
                home_dir: Some("/srv/home".into()),
                read_write: vec!["/srv/data".into()],
                certificates: true,
                network: Network::Open,
                user: UserPolicy::Drop { uid: 1, gid: u32::MAX - 1 },
                ..SandboxSpec::new(Level::Partial)
            }),
        }
    }

    /// An argument that is not UTF-8, or empty, must arrive as it was approved.
    #[test]
    fn specification_survives_byte_for_byte() {
        let errand = Errand { purpose: Purpose::Plugin, route: Route::Bwrap, witnessed: Applied::SECCOMP };
        let encoded = encode_spec(&spec(), errand);
        let (header, body) = encoded.split_first_chunk().unwrap();
        assert_eq!(spec_length(*header), Ok(body.len()));
        assert_eq!(decode_spec(body), Ok((spec(), errand)));
        let mut listing = spec();
        let sandbox = listing.sandbox.as_mut().unwrap();
        sandbox.level = Level::Full;
        sandbox.network = Network::Hosts(ListedHosts {
            listeners: vec!["127.8.0.1:443".parse().unwrap(), "[2001:db8::1]:80".parse().unwrap()],
            names: vec![("api.example.test".to_owned(), Ipv4Addr::new(127, 8, 0, 1).into())],
            name_server: Some(Ipv4Addr::new(127, 0, 0, 53)),
        });
        let errand = Errand::unwitnessed(Purpose::Plugin, Route::Native);
        let encoded = encode_spec(&listing, errand);
        assert_eq!(decode_spec(&encoded[HEADER_BYTES..]), Ok((listing, errand)));
        let unconfined = LaunchSpec { sandbox: None, ..spec() };
        for purpose in Purpose::ALL {
            let errand = Errand::unwitnessed(purpose, Route::InsideBwrap);
            let encoded = encode_spec(&unconfined, errand);
            assert_eq!(decode_spec(&encoded[HEADER_BYTES..]), Ok((unconfined.clone(), errand)));
        }
    }

    /// A cut or padded message must not start a shortened command.
    #[test]
    fn any_other_length_is_refused() {
        let encoded = encode_spec(&spec(), Errand::unwitnessed(Purpose::Witness, Route::Native));
        let body = &encoded[HEADER_BYTES..];
        for length in 0..body.len() {
            assert_eq!(decode_spec(&body[..length]), Err(Malformed), "cut at {length}");
        }
        assert_eq!(decode_spec(&[body, &[0]].concat()), Err(Malformed));
        assert_eq!(spec_length(u32::MAX.to_le_bytes()), Err(Malformed));
    }

    /// The probe counts for the rules it ran under: fewer of them are another sandbox.
    #[test]
    fn fewer_layers_than_the_probe_had_are_refused() {
        let witnessed = Applied::SECCOMP.with(Applied::MOUNTS).with(Applied::MEMORY_WATCH).with(Applied::landlock(6));
        let errand = Errand { witnessed, ..Errand::unwitnessed(Purpose::Plugin, Route::Native) };
        let inside = witnessed.without(Applied::MEMORY_WATCH);
        let own = Applied::from_bits(u32::MAX).without(Applied::MEMORY_WATCH);
        assert_eq!(errand.refuse_fewer_layers(inside, own), Ok(()));
        assert_eq!(errand.refuse_fewer_layers(inside.with(Applied::PROC), own), Ok(()), "more is no less");
        let older = Applied::SECCOMP.with(Applied::MOUNTS).with(Applied::landlock(5));
        for fewer in [inside.without(Applied::SECCOMP), inside.without(Applied::MOUNTS), older] {
            assert_eq!(errand.refuse_fewer_layers(fewer, own).map_err(|it| it.step), Err(Step::Layers), "{fewer:?}");
        }
        assert_eq!(errand.refuse_fewer_layers(inside, Applied::MEMORY_WATCH).map_err(|it| it.step), Err(Step::Layers));
    }

    #[test]
    fn records_survive_and_unknown_ones_are_refused() {
        let mut records = vec![
            Record::Started { pid: 77, applied: Applied::SECCOMP.with(Applied::landlock(7)) },
            Record::MainExit(MainExit::Code(-1)),
            Record::MainExit(MainExit::Signal(9)),
            Record::MainExit(MainExit::Unknown),
            Record::Gone { survivors: 2, leftovers_killed: 5 },
            Record::Listening { count: 3 },
        ];
        records.extend(Limit::ALL.map(|limit| Record::Exceeded { limit, used_mib: 7 }));
        records.extend(Bound::ALL.map(Record::Reached));
        records.extend(Step::ALL.map(|step| Record::Failed(Failure { step, errno: 13, subject: 513 })));
        for record in records {
            assert_eq!(Record::decode(record.encode()), Ok(record));
        }
        assert_eq!(Record::decode([0; RECORD_BYTES]), Err(Malformed));
        assert_eq!(Record::decode([2, 0, 0, 0, 0, 200, 0, 0, 0]), Err(Malformed));
    }
}
