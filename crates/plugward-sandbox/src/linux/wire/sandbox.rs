//! The sandbox within the encoded specification.
//!
//! Owns one byte layout for both directions. Refuses unknown words: a launcher must never guess what was meant.

use std::{
    ffi::OsStr,
    net::IpAddr,
    path::{Path, PathBuf},
};

use super::{Malformed, put_count, put_string, take, take_string, take_u32, take_u64};
use crate::{Alias, Level, Limits, ListedHosts, Network, SandboxSpec, UserPolicy};

/// Levels by their number on the wire.
const LEVELS: [Level; 4] = [Level::None, Level::Limited, Level::Partial, Level::Full];

/// Encodes a checked sandbox.
pub(in crate::linux) fn put_sandbox(out: &mut Vec<u8>, spec: &SandboxSpec) {
    out.push(
        LEVELS.iter().position(|level| *level == spec.level).and_then(|it| u8::try_from(it).ok()).unwrap_or(u8::MAX),
    );
    put_paths(out, spec.package_dir.iter().map(PathBuf::as_path));
    put_paths(out, spec.home_dir.iter().map(PathBuf::as_path));
    put_paths(out, spec.read_only.iter().map(PathBuf::as_path));
    put_paths(out, spec.granted.iter().map(PathBuf::as_path));
    put_paths(out, spec.aliases.iter().map(|alias| alias.name.as_path()));
    put_paths(out, spec.aliases.iter().map(|alias| alias.place.as_path()));
    put_paths(out, spec.read_write.iter().map(PathBuf::as_path));
    out.extend_from_slice(&spec.tmp_bytes.to_le_bytes());
    out.extend_from_slice(&spec.shm_bytes.to_le_bytes());
    out.push(u8::from(spec.certificates));
    match &spec.network {
        Network::Off => out.push(0),
        Network::Open => out.push(1),
        Network::Hosts(listed) => {
            out.push(2);
            put_listed(out, listed);
        }
    }
    let Limits {
        memory_bytes,
        address_space_bytes,
        cpu_s,
        processes,
        open_files,
        file_bytes,
        disk_bytes,
        wall_s,
        cpu_percent,
    } = spec.limits;
    let limits =
        [memory_bytes, address_space_bytes, cpu_s, processes, open_files, file_bytes, disk_bytes, wall_s, cpu_percent];
    for limit in limits {
        out.push(u8::from(limit.is_some()));
        out.extend_from_slice(&limit.unwrap_or_default().to_le_bytes());
    }
    let (drops, uid, gid) = match spec.user {
        UserPolicy::Same => (0, 0, 0),
        UserPolicy::Drop { uid, gid } => (1, uid, gid),
    };
    out.push(drops);
    out.extend_from_slice(&uid.to_le_bytes());
    out.extend_from_slice(&gid.to_le_bytes());
}

pub(super) fn take_sandbox(rest: &mut &[u8]) -> Result<SandboxSpec, Malformed> {
    let level = *LEVELS.get(usize::from(take_u8(rest)?)).ok_or(Malformed)?;
    Ok(SandboxSpec {
        level,
        package_dir: take_path(rest)?,
        home_dir: take_path(rest)?,
        read_only: take_paths(rest)?,
        granted: take_paths(rest)?,
        aliases: take_aliases(rest)?,
        read_write: take_paths(rest)?,
        tmp_bytes: take_u64(rest)?,
        shm_bytes: take_u64(rest)?,
        certificates: take_flag(rest)?,
        network: match take_u8(rest)? {
            0 => Network::Off,
            1 => Network::Open,
            2 => Network::Hosts(take_listed(rest)?),
            _ => return Err(Malformed),
        },
        limits: Limits {
            memory_bytes: take_limit(rest)?,
            address_space_bytes: take_limit(rest)?,
            cpu_s: take_limit(rest)?,
            processes: take_limit(rest)?,
            open_files: take_limit(rest)?,
            file_bytes: take_limit(rest)?,
            disk_bytes: take_limit(rest)?,
            wall_s: take_limit(rest)?,
            cpu_percent: take_limit(rest)?,
        },
        user: match (take_flag(rest)?, take_u32(rest)?, take_u32(rest)?) {
            (false, ..) => UserPolicy::Same,
            (true, uid, gid) => UserPolicy::Drop { uid, gid },
        },
    })
}

fn put_listed(out: &mut Vec<u8>, listed: &ListedHosts) {
    put_count(out, listed.listeners.len());
    for listener in &listed.listeners {
        put_address(out, listener.ip());
        out.extend_from_slice(&listener.port().to_le_bytes());
    }
    put_count(out, listed.names.len());
    for (name, address) in &listed.names {
        put_string(out, OsStr::new(name));
        put_address(out, *address);
    }
    out.push(u8::from(listed.name_server.is_some()));
    if let Some(address) = listed.name_server {
        put_address(out, address.into());
    }
}

fn take_listed(rest: &mut &[u8]) -> Result<ListedHosts, Malformed> {
    let mut listed = ListedHosts::default();
    for _ in 0..take_u32(rest)? {
        let address = take_address(rest)?;
        let port = u16::from_le_bytes(take(rest)?);
        listed.listeners.push((address, port).into());
    }
    for _ in 0..take_u32(rest)? {
        let name = take_string(rest)?.into_string().map_err(|_| Malformed)?;
        listed.names.push((name, take_address(rest)?));
    }
    if take_flag(rest)? {
        let IpAddr::V4(address) = take_address(rest)? else { return Err(Malformed) };
        listed.name_server = Some(address);
    }
    // What was checked on the other side; a file of names is made from it.
    listed.check().map_err(|_| Malformed)?;
    Ok(listed)
}

fn put_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => {
            out.push(4);
            out.extend_from_slice(&v4.octets());
        }
        IpAddr::V6(v6) => {
            out.push(6);
            out.extend_from_slice(&v6.octets());
        }
    }
}

fn take_address(rest: &mut &[u8]) -> Result<IpAddr, Malformed> {
    match take_u8(rest)? {
        4 => take::<4>(rest).map(IpAddr::from),
        6 => take::<16>(rest).map(IpAddr::from),
        _ => Err(Malformed),
    }
}

fn put_paths<'a>(out: &mut Vec<u8>, paths: impl Iterator<Item = &'a Path>) {
    let paths: Vec<&Path> = paths.collect();
    put_count(out, paths.len());
    for path in paths {
        put_string(out, path.as_os_str());
    }
}

fn take_paths(rest: &mut &[u8]) -> Result<Vec<PathBuf>, Malformed> {
    let mut paths = Vec::new();
    for _ in 0..take_u32(rest)? {
        paths.push(take_string(rest)?.into());
    }
    Ok(paths)
}

fn take_path(rest: &mut &[u8]) -> Result<Option<PathBuf>, Malformed> {
    let mut paths = take_paths(rest)?;
    if paths.len() > 1 { Err(Malformed) } else { Ok(paths.pop()) }
}

fn take_aliases(rest: &mut &[u8]) -> Result<Vec<Alias>, Malformed> {
    let (names, places) = (take_paths(rest)?, take_paths(rest)?);
    if names.len() != places.len() {
        return Err(Malformed);
    }
    Ok(names.into_iter().zip(places).map(|(name, place)| Alias { name, place }).collect())
}

fn take_limit(rest: &mut &[u8]) -> Result<Option<u64>, Malformed> {
    let (given, value) = (take_flag(rest)?, take_u64(rest)?);
    Ok(given.then_some(value))
}

pub(super) fn take_u8(rest: &mut &[u8]) -> Result<u8, Malformed> {
    take::<1>(rest).map(|[byte]| byte)
}

pub(super) fn take_flag(rest: &mut &[u8]) -> Result<bool, Malformed> {
    match take_u8(rest)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed),
    }
}
