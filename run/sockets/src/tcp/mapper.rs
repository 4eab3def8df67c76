//! The thread that takes what comes for mapped memory: a program that has mapped memory for its peer may look at that
//! memory alone, and make no call.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weft_os::edges::{self, Edges};
use weft_os::guarded::Guarded;
use weft_os::lock::{Guard, Lock, Locked};
use weft_os::own_thread::OwnThread;
use weft_os::poll::Waker;
use weft_os::process;
use weft_os::user::UserRange;

use super::{Record, Streams};
use crate::ddp::{Connection, Received};
use crate::waiting::Waiting;
use crate::Errno;

/// How soon a connection is looked at again that another call had in hand.
const AGAIN: Duration = Duration::from_millis(1);
/// Told of no socket: the thread is to end.
const WOKEN: u64 = u64::MAX;

/// The thread, as calls see it.
#[derive(Debug, Default)]
struct Thread {
    /// The process that it is one of.
    process: u32,
    runs: bool,
    /// The connections that it looks after.
    edges: Option<Guarded<Edges>>,
    waker: Option<Guarded<Waker>>,
}

/// The thread, and what it has to do.
#[derive(Debug)]
pub(super) struct Mapper {
    thread: Lock<Thread>,
    /// Sockets on which something came.
    told: Waiting,
    is_ending: AtomicBool,
    own: OwnThread,
}

impl Mapper {
    /// A thread that is not there yet, for sockets with numbers below `bound`.
    pub(super) fn new(bound: usize) -> Mapper {
        Mapper {
            thread: Lock::new(Thread::default()),
            told: Waiting::new(bound),
            is_ending: AtomicBool::new(false),
            own: OwnThread::new(),
        }
    }

    /// The thread of this process; nothing where the calling thread is at it already.
    fn thread(&self) -> Option<Guard<'_, Thread>> {
        let (Locked::Held(mut thread) | Locked::Orphaned(mut thread)) = self.thread.lock() else {
            return None;
        };
        let own = process::id();
        if thread.process != own {
            // A child has none of its parent's threads, nor its descriptors.
            *thread = Thread {
                process: own,
                ..Thread::default()
            };
            self.told.iter().for_each(|number| self.told.remove(number));
            self.is_ending.store(false, Ordering::SeqCst);
        }
        Some(thread)
    }

    /// What comes on the socket behind `fd` is taken from now on; false where no thread is to be had for that.
    fn watch(&'static self, streams: &'static Streams, number: usize, fd: i32) -> bool {
        let Some(mut thread) = self.thread() else {
            return false;
        };
        if !thread.runs && !self.start(streams, &mut thread) {
            return false;
        }
        let edges = thread.edges.as_mut().and_then(Guarded::get);
        edges.is_some_and(|edges| edges.watch(fd, number as u64).is_ok())
    }

    fn start(&'static self, streams: &'static Streams, thread: &mut Thread) -> bool {
        let (Ok(edges), Ok(waker)) = (Edges::apart(), Waker::apart()) else {
            return false;
        };
        if edges.watch(waker.as_fd().as_raw_fd(), WOKEN).is_err() {
            return false;
        }
        thread.edges = Some(Guarded::new(edges));
        thread.waker = Some(Guarded::new(waker));
        let run = move || streams.mapper.run(streams);
        thread.runs = self.own.start("weft-map", 128 * 1024, run);
        thread.runs
    }

    fn run(&self, streams: &'static Streams) {
        while let Some(edges) = self.edges_number() {
            let timeout = self.told.any().then_some(AGAIN);
            let waited = edges::wait(edges, timeout, |token| {
                if token != WOKEN {
                    self.told.insert(token as usize);
                }
            });
            let is_over =
                waited.is_err_and(|error| error.kind() != std::io::ErrorKind::Interrupted);
            if self.is_ending.load(Ordering::SeqCst) || is_over {
                break;
            }
            for number in self.told.iter() {
                let record = streams.record(number);
                // Whatever comes from here on is told again.
                if record.is_none_or(|record| streams.place(record)) {
                    self.told.remove(number);
                }
            }
        }
        if let Some(mut thread) = self.thread() {
            (thread.runs, thread.edges, thread.waker) = (false, None, None);
        }
    }

    /// The number of the set that the thread waits on; nothing where the program has closed it.
    fn edges_number(&self) -> Option<RawFd> {
        let mut thread = self.thread()?;
        let edges = thread.edges.as_mut()?;
        edges.get()?;
        Some(edges.number())
    }

    /// Ends the thread, if there is one, and waits until it is gone: a program that confines itself may not let it go
    /// afterwards. Not for ever: in a signal handler the program may hold what the thread waits for.
    pub(super) fn end(&self) {
        self.is_ending.store(true, Ordering::SeqCst);
        let wakes = |mut thread: Guard<'_, Thread>| {
            if let Some(waker) = thread.waker.as_mut().and_then(Guarded::get) {
                waker.wake();
            }
            thread.runs
        };
        if !self.thread().is_some_and(wakes) {
            return;
        }
        self.own.await_end(|| ());
    }
}

impl Streams {
    /// Maps memory for the peer, which calls its first octet `offset`; with no offset the peer is not told of it.
    ///
    /// # Errors
    /// Those of [`Connection::map`]; `ENOMEM` where there is no memory for it, or no thread; `EPERM` in a program that
    /// has confined itself.
    pub fn map(
        &'static self,
        record: &'static Record,
        connection: Connection<'static>,
        memory: UserRange,
        offset: Option<u64>,
    ) -> Result<(), Errno> {
        let slot = record.slot().ok().flatten().ok_or(libc::EINVAL)?;
        let maps = self.mapped.as_ref().and_then(|mapped| mapped.make(slot));
        let connection = connection.with_maps(Some(maps.ok_or(libc::ENOMEM)?));
        let Some(offset) = offset else {
            return connection.map_untold(memory);
        };
        if self.is_confined() {
            return Err(libc::EPERM);
        }
        if !self.watch(record, connection.fd()) {
            return Err(libc::ENOMEM);
        }
        connection.map(memory, offset)
    }

    /// The thread takes what comes for mapped memory, by this descriptor.
    pub(super) fn watch(&'static self, record: &Record, fd: i32) -> bool {
        if let Locked::Held(mut served_by) | Locked::Orphaned(mut served_by) =
            record.served_by.lock()
        {
            *served_by = fd;
        }
        self.mapper.watch(self, record.number(), fd)
    }

    /// Takes what has come; false where another call has the connection in hand, so that not all of it was taken, or
    /// not all of it told.
    fn place(&self, record: &Record) -> bool {
        let (Locked::Held(fd) | Locked::Orphaned(fd)) = record.served_by.lock() else {
            return true;
        };
        let is_there = *fd >= 0 && self.is_its_own(record, *fd);
        let connection = is_there.then(|| self.connection(record, *fd)).flatten();
        connection.is_none_or(|connection| {
            let connection = connection.without_waiting();
            let placed = match connection.look() {
                // Octets of the stream stand before it.
                Ok(Received::Octets(_)) => connection.look_past(),
                looked => looked.map(drop),
            };
            // A sender waits for credit that was taken and not told.
            let told = placed.and_then(|()| connection.has_untold());
            !matches!(told, Ok(true) | Err(libc::EAGAIN))
        })
    }
}
