//! The attacking program: one attack per run, named by its argument.
//!
//! Owns doing each attack for real. Refuses judging: it prints `ok` or the number of the error, and the test decides what
//! was to be expected.

#![allow(unsafe_code, reason = "attacks make the calls that no safe wrapper makes")]

use std::{
    ffi::CString,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    mem,
    net::{ToSocketAddrs, UdpSocket},
    os::{
        fd::AsRawFd,
        linux::net::SocketAddrExt,
        unix::{
            fs::{OpenOptionsExt, PermissionsExt, symlink},
            net::{SocketAddr, UnixStream},
            process::CommandExt,
        },
    },
    process::Command,
    ptr, thread,
};

/// First argument that makes the test binary the attacker.
pub(crate) const PROBE: &str = "probe";

/// Runs one attack if this process was started for it.
pub(crate) fn run_if_requested() -> bool {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, attack, rest @ ..] = arguments.as_slice() else { return false };
    if mode != PROBE {
        return false;
    }
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    match attack_named(attack, &rest) {
        Ok(()) => println!("ok"),
        Err(error) => println!("{}", error.raw_os_error().unwrap_or(-1)),
    }
    true
}

fn attack_named(attack: &str, arguments: &[&str]) -> io::Result<()> {
    let first = arguments.first().copied().unwrap_or("");
    let second = arguments.get(1).copied().unwrap_or("");
    match attack {
        "read" => File::open(first)?.read(&mut [0; 16]).map(drop),
        "stat" => fs::metadata(first).map(drop),
        "list" => fs::read_dir(first)?.next().transpose().map(drop),
        "readlink" => fs::read_link(first).map(drop),
        "append" => OpenOptions::new().append(true).open(first)?.write_all(b"#\n"),
        "create" => File::create(first).map(drop),
        "rename" => fs::rename(first, second).and_then(|()| fs::rename(second, first)),
        "read-through-link" => {
            let _replaced = fs::remove_file(second);
            symlink(first, second)?;
            fs::read(second).map(drop)
        }
        "hard-link" => {
            let _replaced = fs::remove_file(second);
            fs::hard_link(first, second)
        }
        "chmod" => fs::set_permissions(first, fs::Permissions::from_mode(0o666)),
        "fchmod" => File::open(first)?.set_permissions(fs::Permissions::from_mode(0o666)),
        "set-id" => set_id(first, OpenOptions::new().write(true).create_new(true).mode(0o755)),
        "set-id-new" => set_id(first, OpenOptions::new().write(true).create_new(true).mode(0o4755)),
        "touch" => touch(first),
        "set-attribute" => set_attribute(first),
        "watch" => watch(first),
        "trace" => trace(number(first)),
        "read-memory" => read_memory(number(first)),
        "signal" => call(libc::SYS_kill, &[number(first), 0]),
        "prlimit" => call(libc::SYS_prlimit64, &[number(first), libc::RLIMIT_NOFILE as usize, 0, 0]),
        "renice" => call(libc::SYS_setpriority, &[0, number(first), 19]),
        "connect-unix" => UnixStream::connect(first).map(drop),
        "connect-abstract" => UnixStream::connect_addr(&SocketAddr::from_abstract_name(first)?).map(drop),
        "connect-tcp" => std::net::TcpStream::connect(("127.0.0.1", number(first) as u16)).map(drop),
        "connect-tcp-mapped" => std::net::TcpStream::connect(("::ffff:127.0.0.1", number(first) as u16)).map(drop),
        "send-fast-open" => send_fast_open(number(first) as u16),
        "send-udp" => UdpSocket::bind("127.0.0.1:0")?.send_to(b"x", ("127.0.0.1", number(first) as u16)).map(drop),
        "connect" => std::net::TcpStream::connect(first).map(drop),
        "exchange" => exchange(first, number(second) as u16),
        "resolve" => (first, 0_u16).to_socket_addrs().map(drop),
        "send-to" => {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.send_to(b"x", first).map(drop)
        }
        "listen" => std::net::TcpListener::bind(first).map(drop),
        "socket" => call(libc::SYS_socket, &[number(first), number(second), number(arguments.get(2).unwrap_or(&"0"))]),
        "io-uring" => call(libc::SYS_io_uring_setup, &[1, [0_u64; 32].as_mut_ptr().addr()]),
        "userfaultfd" => call(libc::SYS_userfaultfd, &[1]),
        "keyring" => call(libc::SYS_keyctl, &[0, usize::MAX - 3, 1]),
        "user-namespace" => call(libc::SYS_unshare, &[libc::CLONE_NEWUSER as usize]),
        "clone-namespace" => clone_namespace(),
        "clone3" => clone3(),
        "x32" => call(0x4000_0000 | 39, &[]),
        "personality" => call(libc::SYS_personality, &[0x0040_0000]),
        "open-pid" => call(libc::SYS_pidfd_open, &[number(first), 0]),
        "type" => type_into(0),
        "type-upper" => type_into(1 << 32),
        "execute" => execute_copy(first),
        "map-executable" => map_executable(first),
        "fork" => fork_many(number(first)),
        "allocate" => allocate(number(first)),
        "open-many" => open_many(number(first)),
        "fill" => fill(first, number(second)),
        "share-memory" => share_memory(number(first)),
        "hide-memory" => hide_memory(number(first)),
        "hide-in-thread" => hide_in_thread(number(first)),
        "outlive-main" => outlive_main(number(first)),
        "fork-memory" => fork_memory(number(first)),
        "hide-in-program" => hide_in_program(first, second),
        "hide-in-memory-program" => hide_in_memory_program(first),
        "socket-buffer" => state(has_larger_buffer()?),
        "pipe-size" => {
            let (end, _other) = rustix::pipe::pipe()?;
            call(libc::SYS_fcntl, &[end.as_raw_fd() as usize, libc::F_SETPIPE_SZ as usize, MIB])
        }
        "give-pages" => give_pages(),
        "hide" => check(prctl(libc::PR_SET_DUMPABLE)),
        "fill-sockets" => fill_sockets(number(first)),
        "fill-pipes" => fill_pipes(number(first)),
        "spawn-shared" => spawn_shared(number(first)),
        "copy-memory" => copy_memory(number(first)),
        "fill-many" => fill_many(first, number(second), false),
        "fill-nameless" => fill_many(first, number(second), true),
        "wait" => wait_for_end(),
        "semaphores" => call(libc::SYS_semget, &[number(first), 1, 0]),
        "shared-memory" => call(libc::SYS_shmget, &[number(first), 1, 0]),
        "host-name" => state(
            fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| uname(), |name| name.trim().to_owned())
                == first,
        ),
        "namespace" => state(fs::read_link(format!("/proc/self/ns/{first}"))?.to_string_lossy() == second),
        "capability" => state(capabilities() != 0),
        "new-privileges" => state(prctl(libc::PR_GET_NO_NEW_PRIVS) != 1),
        "bounding-set" => state(prctl2(libc::PR_CAPBSET_READ, 21) == 1),
        "core-image" => state(core_limit() > 1),
        "unfiltered" => state(prctl(libc::PR_GET_SECCOMP) != 2),
        other => panic!("no attack is called {other}"),
    }
}

/// A state that an attacker wants to find.
fn state(found: bool) -> io::Result<()> {
    if found { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
}

fn number(text: &str) -> usize {
    text.parse().unwrap()
}

fn call(number: i64, arguments: &[usize]) -> io::Result<()> {
    let argument = |position: usize| arguments.get(position).copied().unwrap_or(0);
    // SAFETY: pointers among the arguments lead to memory of the caller that is large enough for the call.
    let result =
        unsafe { libc::syscall(number, argument(0), argument(1), argument(2), argument(3), argument(4), argument(5)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn prctl(option: i32) -> i32 {
    prctl2(option, 0)
}

fn prctl2(option: i32, argument: u64) -> i32 {
    // SAFETY: the options used here take numbers.
    unsafe { libc::prctl(option, argument, 0, 0, 0) }
}

fn path(text: &str) -> CString {
    CString::new(text).unwrap()
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Leaves a program that runs as its owner.
fn set_id(target: &str, options: &OpenOptions) -> io::Result<()> {
    let _replaced = fs::remove_file(target);
    let made = options.open(target).and_then(|file| {
        let mode = file.metadata()?.permissions().mode();
        if mode & 0o4000 == 0 { file.set_permissions(fs::Permissions::from_mode(mode | 0o4000)) } else { Ok(()) }
    });
    let _left_behind = fs::remove_file(target);
    made
}

fn touch(file: &str) -> io::Result<()> {
    // SAFETY: a null time means now; the path is NUL-terminated.
    check(unsafe { libc::utimensat(libc::AT_FDCWD, path(file).as_ptr(), ptr::null(), 0) })
}

fn set_attribute(file: &str) -> io::Result<()> {
    // SAFETY: names are NUL-terminated and the value has the length given.
    check(unsafe { libc::setxattr(path(file).as_ptr(), c"user.plugward".as_ptr(), c"1".as_ptr().cast(), 1, 0) })
}

fn watch(file: &str) -> io::Result<()> {
    // SAFETY: the path is NUL-terminated.
    check(unsafe { libc::inotify_add_watch(libc::inotify_init1(0), path(file).as_ptr(), libc::IN_OPEN) })
}

fn trace(pid: usize) -> io::Result<()> {
    const SEIZE: usize = 0x4206;
    call(libc::SYS_ptrace, &[SEIZE, pid, 0, 0])
}

fn read_memory(pid: usize) -> io::Result<()> {
    let mut byte = [0_u8; 1];
    let local = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // Any mapped address will do; the first one of the process tells that its memory can be read.
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let start = usize::from_str_radix(maps.split('-').next().unwrap(), 16).unwrap();
    let remote = libc::iovec { iov_base: ptr::with_exposed_provenance_mut(start), iov_len: 1 };
    call(libc::SYS_process_vm_readv, &[pid, (&raw const local).addr(), 1, (&raw const remote).addr(), 1, 0])
}

fn send_fast_open(port: u16) -> io::Result<()> {
    // SAFETY: plain calls on a socket; the address has the size given.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        check(socket)?;
        let mut address: libc::sockaddr_in = mem::zeroed();
        address.sin_family = libc::AF_INET as u16;
        address.sin_port = port.to_be();
        address.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
        let size = size_of::<libc::sockaddr_in>() as u32;
        let sent = libc::sendto(socket, c"x".as_ptr().cast(), 1, libc::MSG_FASTOPEN, (&raw const address).cast(), size);
        check(sent as i32)
    }
}

/// Reaches a host and hears its answer, as any client would.
fn exchange(host: &str, port: u16) -> io::Result<()> {
    let mut connection = std::net::TcpStream::connect((host, port))?;
    connection.write_all(b"ping")?;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer)?;
    state(answer == b"pong")
}

/// Waits for a child of a raw call, which ends at once.
fn ended(pid: i64) -> io::Result<()> {
    if pid == 0 {
        // SAFETY: ends the copy of this process.
        unsafe { libc::_exit(0) }
    }
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the status is not asked for.
    unsafe { libc::waitpid(pid as i32, ptr::null_mut(), 0) };
    Ok(())
}

fn clone_namespace() -> io::Result<()> {
    // SAFETY: a fork by another name; the child ends at once.
    ended(unsafe { libc::syscall(libc::SYS_clone, libc::CLONE_NEWUSER | libc::SIGCHLD, 0, 0, 0, 0) })
}

fn clone3() -> io::Result<()> {
    let mut arguments = [0_u64; 11];
    arguments[0] = libc::CLONE_NEWUSER as u64;
    arguments[4] = libc::SIGCHLD as u64;
    // SAFETY: as above; the structure has the size given.
    ended(unsafe { libc::syscall(libc::SYS_clone3, arguments.as_ptr(), size_of_val(&arguments)) })
}

fn type_into(upper: u64) -> io::Result<()> {
    let (byte, input) = (b'x', io::stdin().as_raw_fd());
    match call(libc::SYS_ioctl, &[input as usize, (libc::TIOCSTI | upper) as usize, (&raw const byte).addr()]) {
        // Standard input is a pipe, and its driver says so: a terminal of the user's would have obeyed.
        Err(error) if !matches!(error.raw_os_error(), Some(libc::EPERM)) => Ok(()),
        other => other,
    }
}

fn execute_copy(target: &str) -> io::Result<()> {
    let _replaced = fs::remove_file(target);
    // The path by which this program was started, because `/proc` may not be there to ask.
    let program = fs::read(std::env::args_os().next().unwrap())?;
    let mut copy = OpenOptions::new().write(true).create_new(true).mode(0o755).open(target)?;
    copy.write_all(&program)?;
    drop(copy);
    Command::new(target).args([PROBE, "stat", "/"]).output().map(drop)
}

fn map_executable(target: &str) -> io::Result<()> {
    let _replaced = fs::remove_file(target);
    fs::write(target, [0xc3; 4096])?;
    let file = File::open(target)?;
    // SAFETY: a mapping of an open file that nothing else uses.
    let mapped = unsafe {
        libc::mmap(ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
    };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn fork_many(count: usize) -> io::Result<()> {
    let mut children = Vec::new();
    let mut result = Ok(());
    for _ in 0..count {
        // SAFETY: this process has one thread; the child only waits for its end.
        match unsafe { libc::fork() } {
            0 => loop {
                // SAFETY: waits for a signal.
                unsafe { libc::pause() };
            },
            pid if pid > 0 => children.push(pid),
            _ => {
                result = Err(io::Error::last_os_error());
                break;
            }
        }
    }
    for pid in children {
        // SAFETY: children of this process that have not been collected.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, ptr::null_mut(), 0);
        }
    }
    result
}

fn allocate(bytes: usize) -> io::Result<()> {
    // SAFETY: a private anonymous mapping.
    let mapped = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn open_many(count: usize) -> io::Result<()> {
    let mut files = Vec::new();
    for _ in 0..count {
        files.push(File::open("/dev/null")?);
    }
    Ok(())
}

fn fill(target: &str, bytes: usize) -> io::Result<()> {
    // The limit on file sizes also sends a signal, whose default is the end of the process.
    // SAFETY: sets a disposition.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let result = File::create(target).and_then(|mut file| {
        let block = [0; 65_536];
        for _ in 0..bytes / block.len() {
            file.write_all(&block)?;
        }
        Ok(())
    });
    let _left_behind = fs::remove_file(target);
    result
}

const MIB: usize = 1024 * 1024;

/// Keeps what was taken until somebody ends it.
fn wait_for_end() -> ! {
    loop {
        // SAFETY: waits for a signal.
        unsafe { libc::pause() };
    }
}

/// Memory that is nobody's own: a map that children would share.
fn share_memory(mib: usize) -> io::Result<()> {
    // SAFETY: an anonymous mapping that nothing else uses, written within its size.
    unsafe {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        let mapped = libc::mmap(ptr::null_mut(), mib * MIB, access, kind, -1, 0);
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        mapped.cast::<u8>().write_bytes(1, mib * MIB);
    }
    wait_for_end()
}

/// Tries to make what `/proc` tells of this process root's. Refused or not, the attack goes on.
fn hide_from_own_user() {
    let _refused = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
}

/// Memory that is in no map.
fn hide_memory(mib: usize) -> io::Result<()> {
    hide_from_own_user();
    // Behind as many others as it may have, in case somebody stops looking early.
    let mut others = Vec::new();
    while others.len() < 4096
        && let Ok(other) = File::open("/dev/null")
    {
        others.push(other);
    }
    drop(others.pop());
    let mut file = File::from(rustix::fs::memfd_create("hidden", rustix::fs::MemfdFlags::empty())?);
    for _ in 0..mib {
        file.write_all(&vec![1; MIB])?;
    }
    wait_for_end()
}

/// The same from a program that its user may run and not read, of which the kernel makes what `/proc` tells root's.
fn hide_in_program(program: &str, mib: &str) -> io::Result<()> {
    Err(Command::new(program).args([PROBE, "hide-memory", mib]).exec())
}

/// The same from a program that was never on a disk.
fn hide_in_memory_program(mib: &str) -> io::Result<()> {
    let mut file = File::from(rustix::fs::memfd_create("program", rustix::fs::MemfdFlags::empty())?);
    io::copy(&mut File::open(std::env::args_os().next().unwrap())?, &mut file)?;
    file.set_permissions(fs::Permissions::from_mode(0o111))?;
    let arguments = [path("probe"), path(PROBE), path("hide-memory"), path(mib)];
    let arguments: Vec<*const libc::c_char> =
        arguments.iter().map(|argument| argument.as_ptr()).chain([ptr::null()]).collect();
    let none = [ptr::null::<libc::c_char>()];
    call(
        libc::SYS_execveat,
        &[
            file.as_raw_fd() as usize,
            c"".as_ptr().addr(),
            arguments.as_ptr().addr(),
            none.as_ptr().addr(),
            libc::AT_EMPTY_PATH as usize,
        ],
    )
}

/// Memory that is in no map, behind a descriptor that only one thread has: one made with a table of its own.
fn hide_in_thread(mib: usize) -> io::Result<()> {
    const STACK_BYTES: usize = 256 * 1024;
    extern "C" fn fill(mib: *mut libc::c_void) -> libc::c_int {
        static PAGES: [u8; MIB] = [1; MIB];
        // SAFETY: calls of the kernel with static memory; this thread has no storage of its own that `std` could use.
        unsafe {
            let file = libc::memfd_create(c"hidden".as_ptr(), 0);
            for _ in 0..mib as usize {
                libc::write(file, PAGES.as_ptr().cast(), MIB);
            }
            loop {
                libc::pause();
            }
        }
    }
    let stack = Box::leak(vec![0_u8; STACK_BYTES].into_boxed_slice());
    let flags = libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_SIGHAND | libc::CLONE_THREAD | libc::CLONE_SYSVSEM;
    // SAFETY: the stack is never given back, grows down from its end, and is aligned there; the thread only fills.
    let thread = unsafe {
        let end = stack.as_mut_ptr_range().end;
        let end = end.sub(end as usize % 16);
        libc::clone(fill, end.cast(), flags, mib as *mut libc::c_void)
    };
    if thread < 0 {
        return Err(io::Error::last_os_error());
    }
    wait_for_end()
}

/// Memory of a process whose first thread has ended.
fn outlive_main(mib: usize) -> io::Result<()> {
    let first = thread::current();
    thread::spawn(move || {
        drop(first);
        // Shared, so that no limit of a single process keeps it.
        share_memory(mib)
    });
    // SAFETY: ends this thread alone; what it holds stays with the process.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    Ok(())
}

/// Memory of many processes, each with little.
fn fork_memory(mib: usize) -> io::Result<()> {
    const EACH_MIB: usize = 12;
    for _ in 0..mib / EACH_MIB {
        // SAFETY: this process has one thread; the child takes memory and waits.
        if unsafe { libc::fork() } == 0 {
            let taken = vec![1_u8; EACH_MIB * MIB];
            std::hint::black_box(&taken);
            wait_for_end();
        }
    }
    wait_for_end()
}

/// Asks for a larger buffer, and sees whether it came.
fn has_larger_buffer() -> io::Result<bool> {
    let (end, _other) = UnixStream::pair()?;
    let before = rustix::net::sockopt::socket_send_buffer_size(&end)?;
    // The limit that a system sets itself is at least the usual size, of which the kernel gives twice what is asked for.
    rustix::net::sockopt::set_socket_send_buffer_size(&end, before)?;
    Ok(rustix::net::sockopt::socket_send_buffer_size(&end)? > before)
}

/// Gives pages of its own to a pipe.
fn give_pages() -> io::Result<()> {
    let (_end, other) = rustix::pipe::pipe()?;
    let page = vec![1_u8; 4096];
    let given = libc::iovec { iov_base: page.as_ptr().cast_mut().cast(), iov_len: page.len() };
    call(libc::SYS_vmsplice, &[other.as_raw_fd() as usize, (&raw const given).addr(), 1, 0])
}

/// Writes until nothing more is taken.
fn fill_up(mut end: impl Write) {
    let block = [1; 65_536];
    while end.write(&block).is_ok_and(|written| written > 0) {}
}

/// Memory that the kernel keeps between the ends of sockets, about this much.
fn fill_sockets(mib: usize) -> io::Result<()> {
    const PAIRS_EACH_MIB: usize = 2;
    let mut open = Vec::new();
    for _ in 0..mib * PAIRS_EACH_MIB {
        let (one, other) = UnixStream::pair()?;
        for end in [&one, &other] {
            end.set_nonblocking(true)?;
            fill_up(end);
        }
        open.push((one, other));
    }
    wait_for_end()
}

/// The same in pipes, of many processes, because each has but so many descriptors.
fn fill_pipes(mib: usize) -> io::Result<()> {
    const PIPES_EACH: usize = 200;
    const EACH_MIB: usize = 12;
    for _ in 0..mib / EACH_MIB {
        // SAFETY: this process has one thread; the child makes pipes and waits.
        if unsafe { libc::fork() } == 0 {
            let mut open = Vec::new();
            for _ in 0..PIPES_EACH {
                let (end, other) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK)?;
                let other = File::from(other);
                fill_up(&other);
                open.push((end, other));
            }
            wait_for_end();
        }
    }
    wait_for_end()
}

/// No attack: takes memory, and starts something that lives in it until its own program begins, which never comes.
fn spawn_shared(mib: usize) -> io::Result<()> {
    const STACK_BYTES: usize = 64 * 1024;
    extern "C" fn wait(_nothing: *mut libc::c_void) -> libc::c_int {
        loop {
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        }
    }
    let taken = vec![1_u8; mib * MIB];
    std::hint::black_box(&taken);
    let stack = Box::leak(vec![0_u8; STACK_BYTES].into_boxed_slice());
    // SAFETY: as `vfork` does it; the stack is never given back and is aligned at its end, from which it grows.
    let child = unsafe {
        let end = stack.as_mut_ptr_range().end;
        let end = end.sub(end as usize % 16);
        libc::clone(wait, end.cast(), libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD, ptr::null_mut())
    };
    check(child)
}

/// Takes memory, and a child takes the same once more.
fn copy_memory(mib: usize) -> io::Result<()> {
    let mut taken = vec![1_u8; mib * MIB];
    // SAFETY: this process has one thread; the child writes to its own copy and waits.
    if unsafe { libc::fork() } == 0 {
        taken.fill(2);
    }
    std::hint::black_box(&taken);
    wait_for_end()
}

/// Many files of one mebibyte, with names or without.
fn fill_many(folder: &str, count: usize, nameless: bool) -> io::Result<()> {
    if nameless {
        hide_from_own_user();
    }
    let mut open = Vec::new();
    for position in 0..count {
        let path = format!("{folder}/part-{position}");
        let mut file = File::create(&path)?;
        file.write_all(&vec![1; MIB])?;
        if nameless {
            fs::remove_file(path)?;
            open.push(file);
        }
    }
    wait_for_end()
}

fn uname() -> String {
    // SAFETY: the structure is plain bytes, filled by the call.
    let name = unsafe {
        let mut name: libc::utsname = mem::zeroed();
        libc::uname(&raw mut name);
        name.nodename
    };
    name.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte as u8)).collect()
}

fn capabilities() -> u64 {
    let sets = rustix::thread::capabilities(None).unwrap();
    sets.effective.bits() | sets.permitted.bits() | sets.inheritable.bits()
}

fn core_limit() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Core).current.unwrap_or(u64::MAX)
}
