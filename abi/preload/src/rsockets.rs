//! The functions of rsocket(7): hooks by other names, of sockets that require DDP (decision 0036).
//!
//! Each fails with EBADF for a descriptor that is no rsocket, and is the hook of the ordinary call from there on. What
//! differs: sends never raise SIGPIPE, and there are options of a level of its own.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{
    fd_set, iovec, msghdr, nfds_t, off_t, pollfd, size_t, sockaddr, socklen_t, ssize_t, timeval,
};
use weft_abi_rsockets::{rsocket_functions, Functions, VERSION};
use weft_os::user::UserRange;
use weft_os::{mappings, stream};
use weft_sockets::tcp::RdmaOptions;
use weft_sockets::verdict::Verdict;
use weft_sockets::Errno;

use crate::edge::{buffer, caught, fail, get, put};
use crate::mine::{known, Mine};
use crate::start::begun_by_program;
use crate::tcp::TcpSocket;
use crate::{descriptors, options, receive, send, wait};

/// The level of an rsocket's own options, and they (rdma/rsocket.h).
const SOL_RDMA: c_int = 0x10000;
const RDMA_SQSIZE: c_int = 0;
const RDMA_RQSIZE: c_int = 1;
const RDMA_INLINE: c_int = 2;
const RDMA_IOMAPSIZE: c_int = 3;
const RDMA_ROUTE: c_int = 4;

/// `WEFT_DDP_REQUIRE` of `weft/sockets.h`, as `setsockopt` takes it.
const WEFT_SO_DDP: c_int = 1;
const REQUIRE: c_int = 2;

/// Bits of a socket's type that are flags.
const TYPE_FLAGS: c_int = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;

/// The rsocket behind `fd`, with its options.
fn rsocket_at(fd: c_int) -> Option<(TcpSocket, RdmaOptions)> {
    match known(fd)? {
        Mine::Streams(socket) => Some((socket, socket.rdma_options()?)),
        Mine::Datagrams(_) => None,
    }
}

/// Makes an rsocket of a TCP socket that has just been made or accepted.
fn become_one(fd: c_int, options: RdmaOptions) -> Option<TcpSocket> {
    let socket = TcpSocket::claim(fd)?;
    socket.set_rdma_options(options).then_some(socket)
}

/// Fails with this errno, and says the program's first time what is not served.
fn refuse(said: &AtomicBool, errno: Errno, words: &str) -> isize {
    if !said.swap(true, Ordering::Relaxed) {
        caught((), || weft_settings::warn!("{words}"));
    }
    fail(errno)
}

unsafe extern "C-unwind" fn rsocket(family: c_int, kind: c_int, protocol: c_int) -> c_int {
    static SAID: AtomicBool = AtomicBool::new(false);
    let is_stream = kind & !TYPE_FLAGS == libc::SOCK_STREAM;
    if !stream::is_internet(family) || !is_stream || ![0, libc::IPPROTO_TCP].contains(&protocol) {
        let words = "rsocket: rsockets are served as streams over IPv4 and IPv6 only: not as datagrams (SOCK_DGRAM), \
                     whose programs can have ordinary UDP sockets";
        return refuse(&SAID, libc::EOPNOTSUPP, words) as c_int;
    }
    let Some(stack) = caught(None, begun_by_program) else {
        return fail(libc::ENODEV) as c_int;
    };
    // SAFETY: a call without pointers.
    let fd = unsafe { descriptors::socket(family, kind, protocol) };
    if fd < 0 {
        return fd;
    }
    let asked = become_one(fd, RdmaOptions::default()).map(|socket| {
        let mode = REQUIRE;
        let mode = (&raw const mode).cast();
        socket.set_option(WEFT_SO_DDP, mode, size_of::<c_int>() as socklen_t)
    });
    match asked {
        Some(Verdict::Done(Ok(_))) => fd,
        _ => {
            // SAFETY: the descriptor was made above, and nobody knows it.
            unsafe { descriptors::close(fd) };
            fail(match stack.is_confined() {
                true => libc::EPERM,
                false => libc::ENOBUFS,
            }) as c_int
        }
    }
}

unsafe extern "C-unwind" fn raccept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let Some((_, options)) = rsocket_at(fd) else {
        return fail(libc::EBADF) as c_int;
    };
    // SAFETY: the program's own call.
    let connection = unsafe { descriptors::accept(fd, addr, len) };
    if connection < 0 || become_one(connection, options).is_some() {
        return connection;
    }
    // SAFETY: the descriptor was made above, and nobody knows it.
    unsafe { descriptors::close(connection) };
    fail(libc::ENOBUFS) as c_int
}

/// Functions that are the hook of another name, for an rsocket.
macro_rules! same_as {
    ($(fn $name:ident($fd:ident: c_int $(, $argument:ident: $type:ty)*) -> $result:ty = $call:expr;)*) => {
        $(
            unsafe extern "C-unwind" fn $name($fd: c_int $(, $argument: $type)*) -> $result {
                if rsocket_at($fd).is_none() {
                    return fail(libc::EBADF) as $result;
                }
                // SAFETY: the program's own call, with its own arguments.
                unsafe { $call }
            }
        )*
    };
}

const QUIETLY: c_int = libc::MSG_NOSIGNAL;

same_as! {
    fn rbind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int = options::bind(fd, addr, len);
    fn rlisten(fd: c_int, backlog: c_int) -> c_int = options::listen(fd, backlog);
    fn rconnect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int = options::connect(fd, addr, len);
    fn rshutdown(fd: c_int, how: c_int) -> c_int = options::shutdown(fd, how);
    fn rclose(fd: c_int) -> c_int = descriptors::close(fd);
    fn rrecv(fd: c_int, data: *mut c_void, len: size_t, flags: c_int) -> ssize_t =
        receive::recv(fd, data, len, flags);
    fn rrecvfrom(
        fd: c_int,
        data: *mut c_void,
        len: size_t,
        flags: c_int,
        from: *mut sockaddr,
        from_len: *mut socklen_t
    ) -> ssize_t = receive::recvfrom(fd, data, len, flags, from, from_len);
    fn rrecvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t =
        receive::recvmsg(fd, message, flags);
    fn rread(fd: c_int, data: *mut c_void, len: size_t) -> ssize_t = receive::read(fd, data, len);
    fn rreadv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t = receive::readv(fd, list, count);
    fn rsend(fd: c_int, data: *const c_void, len: size_t, flags: c_int) -> ssize_t =
        send::send(fd, data, len, flags | QUIETLY);
    fn rsendto(
        fd: c_int,
        data: *const c_void,
        len: size_t,
        flags: c_int,
        to: *const sockaddr,
        to_len: socklen_t
    ) -> ssize_t = send::sendto(fd, data, len, flags | QUIETLY, to, to_len);
    fn rsendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t =
        send::sendmsg(fd, message, flags | QUIETLY);
    fn rwrite(fd: c_int, data: *const c_void, len: size_t) -> ssize_t = send::send(fd, data, len, QUIETLY);
    fn rwritev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t = write_list(fd, list, count);
    fn rgetpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int =
        options::getpeername(fd, addr, len);
    fn rgetsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int =
        options::getsockname(fd, addr, len);
    fn rfcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int =
        descriptors::fcntl(fd, command, argument);
}

/// Memory that the program hands over until `riounmap` of it, or until it closes the rsocket.
fn memory_at(data: *mut c_void, len: size_t) -> UserRange {
    // SAFETY: that is what the program says with its call.
    unsafe { UserRange::new(data as usize, len) }
}

unsafe extern "C-unwind" fn riomap(
    fd: c_int,
    data: *mut c_void,
    len: size_t,
    protection: c_int,
    _flags: c_int,
    offset: off_t,
) -> off_t {
    let Some((socket, _)) = rsocket_at(fd) else {
        return fail(libc::EBADF) as off_t;
    };
    // What the wire has no number for.
    let is_too_long = u32::try_from(len).is_err();
    if protection & !libc::PROT_WRITE != 0 || len == 0 || is_too_long {
        return fail(libc::EINVAL) as off_t;
    }
    let offset = match offset {
        -1 => data as off_t,
        offset => offset,
    };
    let is_written = protection & libc::PROT_WRITE != 0;
    // The peer's first Write would end the connection.
    if is_written && !caught(false, || mappings::are_writable(data as usize, len)) {
        return fail(libc::EFAULT) as off_t;
    }
    let told = is_written.then_some(offset.cast_unsigned());
    match socket.map(memory_at(data, len), told) {
        Ok(()) => offset,
        Err(errno) => fail(errno) as off_t,
    }
}

unsafe extern "C-unwind" fn riounmap(fd: c_int, data: *mut c_void, len: size_t) -> c_int {
    match rsocket_at(fd) {
        Some((socket, _)) => given(socket.unmap(&memory_at(data, len))),
        None => fail(libc::EBADF) as c_int,
    }
}

unsafe extern "C-unwind" fn riowrite(
    fd: c_int,
    data: *const c_void,
    len: size_t,
    offset: off_t,
    flags: c_int,
) -> size_t {
    let Some((socket, _)) = rsocket_at(fd) else {
        return fail(libc::EBADF) as size_t;
    };
    match socket.write_mapped(&buffer(data, len), offset.cast_unsigned(), flags) {
        Ok(octets) => octets,
        Err(errno) => fail(errno) as size_t,
    }
}

/// `writev`, which has no flags, as `sendmsg`, which does.
unsafe fn write_list(fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
    if !(0..=libc::UIO_MAXIOV).contains(&count) {
        return fail(libc::EINVAL);
    }
    // SAFETY: zeroes are a message with nothing in it.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = list.cast_mut();
    message.msg_iovlen = count as usize;
    // SAFETY: the program's own list of so many parts, which is only read.
    unsafe { send::sendmsg(fd, &message, QUIETLY) }
}

unsafe extern "C-unwind" fn rpoll(fds: *mut pollfd, count: nfds_t, ms: c_int) -> c_int {
    // SAFETY: the program's own call.
    unsafe { wait::poll(fds, count, ms) }
}

unsafe extern "C-unwind" fn rselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe { wait::select(count, read, write, except, timeout) }
}

unsafe extern "C-unwind" fn rsetsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    let Some((socket, mut options)) = rsocket_at(fd) else {
        return fail(libc::EBADF) as c_int;
    };
    if level != SOL_RDMA {
        // SAFETY: the program's own call.
        return unsafe { options::setsockopt(fd, level, option, value, len) };
    }
    // As in rdma-core a listener's may be changed: for what it accepts from then on.
    if matches!(stream::state(fd), None | Some(stream::State::Connected)) {
        return fail(libc::EINVAL) as c_int;
    }
    // The kernel has the routes.
    if option == RDMA_ROUTE {
        return 0;
    }
    if !(RDMA_SQSIZE..=RDMA_IOMAPSIZE).contains(&option) {
        return fail(libc::ENOPROTOOPT) as c_int;
    }
    if (len as usize) < size_of::<u32>() {
        return fail(libc::EINVAL) as c_int;
    }
    let Some(number) = get(value.cast::<u32>()) else {
        return fail(libc::EFAULT) as c_int;
    };
    match option {
        RDMA_SQSIZE => options.send_queue = RdmaOptions::bounded(number),
        RDMA_RQSIZE => options.receive_queue = RdmaOptions::bounded(number),
        RDMA_INLINE => options.inline = RdmaOptions::bounded(number),
        _ => options.mapped = RdmaOptions::scaled(number),
    }
    socket.set_rdma_options(options);
    0
}

unsafe extern "C-unwind" fn rgetsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let Some((_, options)) = rsocket_at(fd) else {
        return fail(libc::EBADF) as c_int;
    };
    if level != SOL_RDMA {
        // SAFETY: the program's own call.
        return unsafe { options::getsockopt(fd, level, option, value, len) };
    }
    let number = match option {
        RDMA_SQSIZE => options.send_queue,
        RDMA_RQSIZE => options.receive_queue,
        RDMA_INLINE => options.inline,
        RDMA_IOMAPSIZE => options.mapped,
        // None: they are of InfiniBand.
        RDMA_ROUTE => return given(put(len, 0)),
        _ => return fail(libc::ENOPROTOOPT) as c_int,
    };
    match get(len) {
        None => fail(libc::EFAULT) as c_int,
        Some(room) if (room as usize) < size_of::<c_int>() => fail(libc::EINVAL) as c_int,
        Some(_) => {
            let number = put(value.cast::<c_int>(), number.into());
            given(number.and_then(|()| put(len, size_of::<c_int>() as socklen_t)))
        }
    }
}

/// Ends a call that gives 0, or -1 with this errno.
fn given(written: Result<(), Errno>) -> c_int {
    match written {
        Ok(()) => 0,
        Err(errno) => fail(errno) as c_int,
    }
}

/// Writes the table from the list of its members.
macro_rules! table {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty;)*) => {
        /// What the verbs library asks for.
        #[no_mangle]
        #[allow(non_upper_case_globals)]
        static weft_rsockets: Functions = Functions {
            version: VERSION,
            $($name,)*
        };
    };
}

rsocket_functions!(table);
