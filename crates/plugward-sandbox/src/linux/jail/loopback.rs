//! The network of a plugin with listed hosts.
//!
//! Owns the loopback device of the plugin's network and the sockets on it that the host is given. Runs while this process
//! still has the capabilities of its namespaces, because most ports worth listening at are below 1024. Refuses any other
//! device: there is no way out of such a network but through what the host does with the sockets.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    io::{Errno, retry_on_intr},
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, listen, recv, send, socket_with,
        sockopt::set_ipv6_v6only,
    },
};

use crate::{ListedHosts, listed::NAME_PORT};

/// Connections that wait for the host to accept them; the host is quick, and a program that opens more at once waits.
const BACKLOG: i32 = 64;
/// Number of the loopback device, the first one of every network.
const LOOPBACK: u32 = 1;
/// Room for the kernel's answer to one request, which repeats the request.
const ANSWER_BYTES: usize = 512;
/// What the kernel may keep of one connection, each way, in bytes: least, at first, most. It is in no process's memory, and
/// the kernel's own choice lets it grow to many megabytes. The other end is a process of this machine, so that a small window
/// costs no speed.
const TCP_BUFFERS: &str = "4096 65536 262144";

// Numbers of the kernel's routing interface.
const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
const NEW_ROUTE: u16 = 24;
const ERROR: u16 = 2;
/// A request that is to be acknowledged.
const ACKNOWLEDGED: u16 = 1 | 4;
const CREATE: u16 = 0x400;
const UP: u32 = 1;
const ADDRESS: u16 = 1;
const LOCAL_ADDRESS: u16 = 2;
const OUTGOING_DEVICE: u16 = 4;
const TABLE_LOCAL: u8 = 255;
const MADE_BY_HAND: u8 = 4;
const SCOPE_HOST: u8 = 254;
const ROUTE_LOCAL: u8 = 2;
/// Otherwise nothing can be bound to an address of version 6 until the kernel has looked for another that has it.
const NOT_TENTATIVE: u8 = 2;

/// Sets the network up and opens its sockets: the listeners in their order, then the one for names.
pub(super) fn open(listed: &ListedHosts) -> Result<Vec<OwnedFd>, Errno> {
    bound_buffers();
    let kernel = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let mut requests = vec![request(NEW_LINK, 0, &link_up(), &[])];
    for listener in &listed.listeners {
        match listener.ip() {
            own if own.is_loopback() => {}
            any if any.is_unspecified() => requests.push(every_address(any)),
            other => requests.push(own_address(other)),
        }
    }
    for request in &requests {
        ask(kernel.as_fd(), request)?;
    }
    let listeners = listed.listeners.iter().map(|address| listener(*address));
    let names = listed.name_server.iter().map(|address| datagrams((*address, NAME_PORT).into()));
    listeners.chain(names).collect()
}

/// Bounds the buffers of this network's connections. In a container that keeps such settings read-only they stay the kernel's:
/// the number of connections is bounded by the host all the same.
fn bound_buffers() {
    for setting in ["tcp_rmem", "tcp_wmem"] {
        let _read_only = std::fs::write(format!("/proc/sys/net/ipv4/{setting}"), TCP_BUFFERS);
    }
}

fn listener(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let socket = socket_with(family(address.ip()), SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if address.is_ipv6() {
        // Otherwise the unspecified address would take the port of the other family too.
        set_ipv6_v6only(&socket, true)?;
    }
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn datagrams(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let socket = socket_with(family(address.ip()), SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &address)?;
    Ok(socket)
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

fn family_byte(address: IpAddr) -> u8 {
    u8::try_from(family(address).as_raw()).unwrap_or_default()
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// The loopback device, up; it comes with 127.0.0.0/8 and `::1`.
fn link_up() -> Vec<u8> {
    let mut body = vec![0; 4];
    for word in [LOOPBACK, UP, UP] {
        body.extend_from_slice(&word.to_ne_bytes());
    }
    body
}

/// One more address of the loopback device.
fn own_address(address: IpAddr) -> Vec<u8> {
    let octets = octets(address);
    let bits = u8::try_from(octets.len() * 8).unwrap_or(u8::MAX);
    let flags = if address.is_ipv6() { NOT_TENTATIVE } else { 0 };
    let mut body = vec![family_byte(address), bits, flags, SCOPE_HOST];
    body.extend_from_slice(&LOOPBACK.to_ne_bytes());
    request(NEW_ADDRESS, CREATE, &body, &[(LOCAL_ADDRESS, octets.clone()), (ADDRESS, octets)])
}

/// Every address of the family of `any` leads to this network itself.
fn every_address(any: IpAddr) -> Vec<u8> {
    let mut body = vec![family_byte(any), 0, 0, 0, TABLE_LOCAL, MADE_BY_HAND, SCOPE_HOST, ROUTE_LOCAL];
    body.extend_from_slice(&[0; 4]);
    request(NEW_ROUTE, CREATE, &body, &[(OUTGOING_DEVICE, LOOPBACK.to_ne_bytes().to_vec())])
}

/// One message: header, body, attributes, each aligned to four bytes.
fn request(kind: u16, flags: u16, body: &[u8], attributes: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut message = vec![0; 16];
    message.extend_from_slice(body);
    for (kind, value) in attributes {
        let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        message.extend_from_slice(&length.to_ne_bytes());
        message.extend_from_slice(&kind.to_ne_bytes());
        message.extend_from_slice(value);
        message.resize(message.len().next_multiple_of(4), 0);
    }
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    message[..4].copy_from_slice(&length.to_ne_bytes());
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message[6..8].copy_from_slice(&(ACKNOWLEDGED | flags).to_ne_bytes());
    message
}

/// Sends one request and reads its acknowledgement. What is there already is no failure: two listeners can share an
/// address.
fn ask(kernel: BorrowedFd<'_>, request: &[u8]) -> Result<(), Errno> {
    retry_on_intr(|| send(kernel, request, SendFlags::empty()))?;
    let mut answer = [0; ANSWER_BYTES];
    let (length, _) = retry_on_intr(|| recv(kernel, &mut answer, RecvFlags::empty()))?;
    let kind = answer.get(4..6).filter(|_| length >= 20).map(|bytes| u16::from_ne_bytes([bytes[0], bytes[1]]));
    if kind != Some(ERROR) {
        return Err(Errno::PROTO);
    }
    let code = i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]);
    if code == 0 {
        return Ok(());
    }
    match Errno::from_io_error(&std::io::Error::from_raw_os_error(code.saturating_neg())) {
        Some(Errno::EXIST) => Ok(()),
        error => Err(error.unwrap_or(Errno::PROTO)),
    }
}
