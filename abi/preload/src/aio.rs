//! POSIX asynchronous input and output (aio) on connections over DDP. The C library reads and writes descriptors in
//! threads of its own by calls that no hook sees; here the requests on one descriptor are done in order by a thread of
//! ours, by the hooks' own reads and writes.
//!
//! A request's outcome stands where the C library's own functions look for it (`aio_error`, `aio_return`), in fields of
//! `struct aiocb` that are part of its binary interface.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{aiocb, sigevent, timespec};
use weft_os::lock::{futex_wait, futex_wake, Lock, Locked};
use weft_os::stack::octets_with;
use weft_os::{process, sched};

use crate::edge::{fail, get, get_octets, put};
use crate::limit::Limit;
use crate::mine::mine;
use crate::real::Real;
use crate::socket::Socket;
use crate::stack::stack;

/// Octets of a thread's stack for its own frames, and for a function of the program's that is told of the end.
const STACK_OCTETS: usize = 2 << 20;
/// Requests that there can be at a time.
const REQUESTS_MAX: usize = 64;
/// How often requests of the C library are looked at by who waits for them and for ours.
const LOOK_EVERY_NS: u64 = 1_000_000;
/// Where `struct aiocb` has the outcome of its request: an errno, and a result.
const ERROR_AT: usize = 112;
const RESULT_AT: usize = 120;
/// Where it has its signal, and how long that is.
const EVENT_AT: usize = std::mem::offset_of!(aiocb, aio_sigevent);
const _: () = assert!(std::mem::size_of::<aiocb>() == 168 && EVENT_AT == 32);

/// A request.
#[derive(Clone, Copy)]
struct Request {
    /// The program's `aiocb`; 0 for none.
    at: usize,
    fd: c_int,
    is_write: bool,
    /// A thread does it.
    is_begun: bool,
    /// Which of them it is, in the order of time.
    number: u64,
}

/// The requests of a process.
struct Requests {
    process: u32,
    list: [Request; REQUESTS_MAX],
    next: u64,
}

const NONE: Request = Request {
    at: 0,
    fd: -1,
    is_write: false,
    is_begun: false,
    number: 0,
};

static REQUESTS: Lock<Requests> = Lock::new(Requests {
    process: 0,
    list: [NONE; REQUESTS_MAX],
    next: 0,
});
/// Changes with each request that is over.
static OVER: AtomicU32 = AtomicU32::new(0);

/// Does something with the requests of this process; nothing in a signal handler that interrupted that.
fn with_requests<T>(work: impl FnOnce(&mut Requests) -> T) -> Option<T> {
    let (Locked::Held(mut requests) | Locked::Orphaned(mut requests)) = REQUESTS.lock() else {
        return None;
    };
    if requests.process != process::id() {
        // A forked child has none of its parent's.
        requests.process = process::id();
        requests.list = [NONE; REQUESTS_MAX];
    }
    Some(work(&mut requests))
}

/// Whether requests on the descriptor are ours to do.
pub fn is_ours(fd: c_int) -> bool {
    stack().is_some() && mine(fd).is_some_and(|mine| mine.is_framed())
}

fn outcome(at: usize, error: c_int, result: isize) {
    let at = at as *mut u8;
    // The result first: who sees the error changed takes it.
    let _ = put(at.wrapping_add(RESULT_AT).cast::<usize>(), result as usize);
    std::sync::atomic::fence(Ordering::Release);
    let _ = put(at.wrapping_add(ERROR_AT).cast::<c_int>(), error);
}

fn error_of(at: usize) -> c_int {
    get((at as *const u8).wrapping_add(ERROR_AT).cast::<c_int>()).unwrap_or(0)
}

/// Begins a request; the call's result.
pub fn begin(request: *mut aiocb, is_write: bool) -> c_int {
    let Some(fd) = get(request.cast::<c_int>()) else {
        return fail(libc::EFAULT) as c_int;
    };
    let at = request as usize;
    outcome(at, libc::EINPROGRESS, 0);
    let entered = with_requests(|requests| {
        let is_first = !requests.list.iter().any(|one| one.at != 0 && one.fd == fd);
        requests.next += 1;
        let number = requests.next;
        let place = requests.list.iter_mut().find(|one| one.at == 0)?;
        *place = Request {
            at,
            fd,
            is_write,
            is_begun: false,
            number,
        };
        Some(is_first)
    });
    let begun = match entered.flatten() {
        // A thread goes through those of one descriptor.
        Some(true) => sched::without_signals(|| {
            std::thread::Builder::new()
                .name("weft-aio".into())
                .stack_size(octets_with(STACK_OCTETS))
                .spawn(move || work_through(fd))
        })
        .is_ok(),
        Some(false) => true,
        None => false,
    };
    if begun {
        return 0;
    }
    remove(at);
    outcome(at, libc::EAGAIN, -1);
    fail(libc::EAGAIN) as c_int
}

fn remove(at: usize) {
    with_requests(|requests| {
        for one in requests.list.iter_mut().filter(|one| one.at == at) {
            *one = NONE;
        }
    });
}

/// The oldest request on a descriptor, which is begun.
fn next_of(fd: c_int) -> Option<Request> {
    with_requests(|requests| {
        let on_it = requests
            .list
            .iter_mut()
            .filter(|one| one.at != 0 && one.fd == fd);
        // A thread that was about to end may have it already, and goes through those behind it too.
        let oldest = on_it
            .min_by_key(|one| one.number)
            .filter(|one| !one.is_begun)?;
        oldest.is_begun = true;
        Some(*oldest)
    })?
}

fn work_through(fd: c_int) {
    while let Some(request) = next_of(fd) {
        // Places of `aio_buf` and `aio_nbytes`.
        let of = |at: usize| get((request.at as *const u8).wrapping_add(at).cast::<usize>());
        let (addr, len) = (of(16).unwrap_or(0), of(24).unwrap_or(0));
        // SAFETY: the program handed the buffer over until the request is over.
        let result = unsafe {
            match request.is_write {
                true => crate::send::write(fd, addr as *const c_void, len),
                false => crate::receive::read(fd, addr as *mut c_void, len),
            }
        };
        let error = if result < 0 { crate::edge::errno() } else { 0 };
        let mut event = [0; std::mem::size_of::<sigevent>()];
        let is_told = get_octets((request.at + EVENT_AT) as *const c_void, &mut event);
        remove(request.at);
        outcome(request.at, error, result);
        OVER.fetch_add(1, Ordering::Release);
        futex_wake(&OVER, i32::MAX as u32);
        if is_told {
            tell(&event);
        }
    }
}

/// Tells the program as it asked to be told: `sigevent` as octets.
fn tell(event: &[u8]) {
    let int = |at: usize| {
        event[at..]
            .first_chunk()
            .map_or(0, |four| c_int::from_ne_bytes(*four))
    };
    let word = |at: usize| {
        event[at..]
            .first_chunk()
            .map_or(0, |eight| usize::from_ne_bytes(*eight))
    };
    // A value, a signal's number, how to tell; then a function to call in a thread (sigevent(3type)).
    match int(12) {
        libc::SIGEV_SIGNAL => {
            let value = libc::sigval {
                sival_ptr: word(0) as *mut c_void,
            };
            // SAFETY: queues a signal that the program asked for.
            unsafe { libc::sigqueue(libc::getpid(), int(8), value) };
        }
        libc::SIGEV_THREAD if word(16) != 0 => {
            type Function = unsafe extern "C-unwind" fn(libc::sigval);
            // SAFETY: the program's own function, for this.
            let function: Function = unsafe { std::mem::transmute(word(16)) };
            // SAFETY: as above, with the value that it is for.
            unsafe {
                function(libc::sigval {
                    sival_ptr: word(0) as *mut c_void,
                });
            }
        }
        _ => {}
    }
}

/// Takes requests back that have not begun: all on `fd`, or one. The call's result; nothing where none is ours.
pub fn cancel(fd: c_int, request: *const aiocb) -> Option<c_int> {
    const CANCELED: c_int = 0;
    const NOT_CANCELED: c_int = 1;
    const ALL_DONE: c_int = 2;
    if !is_ours(fd) {
        return None;
    }
    let mut taken = [0usize; REQUESTS_MAX];
    let (count, is_one_begun) = with_requests(|requests| {
        let (mut count, mut is_one_begun) = (0, false);
        for one in requests.list.iter_mut() {
            let is_meant = request.is_null() || one.at == request as usize;
            if one.at == 0 || one.fd != fd || !is_meant {
                continue;
            }
            if one.is_begun {
                is_one_begun = true;
                continue;
            }
            taken[count] = one.at;
            count += 1;
            *one = NONE;
        }
        (count, is_one_begun)
    })?;
    for at in &taken[..count] {
        outcome(*at, libc::ECANCELED, -1);
    }
    if count > 0 {
        OVER.fetch_add(1, Ordering::Release);
        futex_wake(&OVER, i32::MAX as u32);
    }
    Some(match (is_one_begun, count) {
        (true, _) => NOT_CANCELED,
        (false, 0) => ALL_DONE,
        (false, _) => CANCELED,
    })
}

/// Whether a request is under way here.
fn is_under_way(at: usize) -> bool {
    with_requests(|requests| requests.list.iter().any(|one| one.at == at)).unwrap_or(false)
}

/// Waits until one of these is over; nothing where none is ours.
pub fn suspend(list: *const *const aiocb, count: c_int, timeout: *const timespec) -> Option<c_int> {
    let each = || {
        (0..usize::try_from(count).unwrap_or(0))
            .filter_map(|number| get(list.wrapping_add(number).cast::<usize>()))
            .filter(|at| *at != 0)
    };
    if stack().is_none() || !each().any(is_under_way) {
        return None;
    }
    let limit = Limit::of_time(timeout)?;
    loop {
        let seen = OVER.load(Ordering::Acquire);
        if each().any(|at| error_of(at) != libc::EINPROGRESS) {
            return Some(0);
        }
        // The end of any request wakes everybody, so what has passed is the clock's to say.
        let left_ns = limit.left_ns();
        if left_ns == Some(0) {
            return Some(fail(libc::EAGAIN) as c_int);
        }
        let wait = left_ns.map_or(LOOK_EVERY_NS, |left| left.min(LOOK_EVERY_NS));
        futex_wait(&OVER, seen, Some(wait));
    }
}

/// `lio_listio`, where one of the requests is ours; nothing where none is.
pub fn begin_list(
    mode: c_int,
    list: *const *mut aiocb,
    count: c_int,
    event: *const c_void,
) -> Option<c_int> {
    let each = || {
        (0..usize::try_from(count).unwrap_or(0))
            .filter_map(|number| get(list.wrapping_add(number).cast::<usize>()))
            .filter(|at| *at != 0)
    };
    let is_one_ours = || each().any(|at| get(at as *const c_int).is_some_and(is_ours));
    if stack().is_none() || !is_one_ours() {
        return None;
    }
    let mut has_failed = false;
    for at in each() {
        // The operation is the second field.
        let operation = get((at as *const c_int).wrapping_add(1)).unwrap_or(libc::LIO_NOP);
        let begun = match operation {
            libc::LIO_READ => read_or_write(at as *mut aiocb, false),
            libc::LIO_WRITE => read_or_write(at as *mut aiocb, true),
            _ => 0,
        };
        has_failed |= begun != 0;
    }
    if mode == libc::LIO_WAIT {
        each().for_each(wait_for);
        has_failed |= each().any(|at| error_of(at) != 0);
    }
    let mut octets = [0; std::mem::size_of::<sigevent>()];
    let is_told = mode == libc::LIO_NOWAIT && get_octets(event, &mut octets);
    if is_told {
        let requests: Vec<usize> = each().collect();
        // Who cannot be told looks for itself.
        let _ = sched::without_signals(|| {
            std::thread::Builder::new()
                .name("weft-aio".into())
                .stack_size(octets_with(STACK_OCTETS))
                .spawn(move || {
                    requests.into_iter().for_each(wait_for);
                    tell(&octets);
                })
        });
    }
    Some(match has_failed {
        true => fail(libc::EIO) as c_int,
        false => 0,
    })
}

/// Waits until a request is over, ours or the C library's.
fn wait_for(at: usize) {
    while error_of(at) == libc::EINPROGRESS {
        let seen = OVER.load(Ordering::Acquire);
        futex_wait(&OVER, seen, Some(LOOK_EVERY_NS));
    }
}

/// One request of a list, ours or the C library's.
fn read_or_write(request: *mut aiocb, is_write: bool) -> c_int {
    type Signature = unsafe extern "C-unwind" fn(*mut aiocb) -> c_int;
    static READ: Real<Signature> = Real::new(c"aio_read");
    static WRITE: Real<Signature> = Real::new(c"aio_write");
    listed!(READ);
    listed!(WRITE);
    if get(request.cast::<c_int>()).is_some_and(is_ours) {
        return begin(request, is_write);
    }
    let real = if is_write { WRITE.get() } else { READ.get() };
    // SAFETY: the program's own request.
    unsafe { real(request) }
}
