//! Waiting for sockets: epoll, and event counters that programs can wait on.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{epoll, eventfd, EventfdFlags, Timespec};

use crate::guarded::Held;
use crate::private::Private;
use crate::{descriptors, sys};

/// What an epoll set reports for one member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ready {
    /// The number the member was added with.
    pub token: u64,
    /// It can be read, or has ended.
    pub readable: bool,
    /// It can be written, or has failed.
    pub writable: bool,
}

/// What is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interest {
    /// Octets, connections or the end.
    Read,
    /// Room to write, or the end of a connect.
    Write,
    /// Both.
    ReadWrite,
    /// Nothing but the end of both directions. It is told once: whoever waits for nothing else may leave it at that.
    End,
}

impl Interest {
    /// What to wait for when the reader, the writer or both have something to do.
    pub fn of(read: bool, write: bool) -> Interest {
        match (read, write) {
            (true, true) => Interest::ReadWrite,
            (true, false) => Interest::Read,
            (false, true) => Interest::Write,
            (false, false) => Interest::End,
        }
    }

    /// Whether octets are waited for.
    pub fn reads(self) -> bool {
        matches!(self, Interest::Read | Interest::ReadWrite)
    }

    /// Whether room to write is waited for.
    pub fn writes(self) -> bool {
        matches!(self, Interest::Write | Interest::ReadWrite)
    }

    fn flags(self) -> epoll::EventFlags {
        let read = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        match self {
            Interest::Read => read,
            Interest::Write => epoll::EventFlags::OUT,
            Interest::ReadWrite => read | epoll::EventFlags::OUT,
            Interest::End => epoll::EventFlags::ET,
        }
    }
}

/// A level-triggered epoll set.
#[derive(Debug)]
pub struct Epoll {
    fd: Private,
}

/// Members reported by one wait at most.
pub const READY_MAX: usize = 64;

impl Epoll {
    /// An empty set.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Epoll> {
        Ok(Epoll {
            fd: descriptors::open(|| epoll::create(epoll::CreateFlags::CLOEXEC))?.into(),
        })
    }

    /// Adds a member.
    ///
    /// # Errors
    /// It is a member already, or memory is short.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        Ok(epoll::add(&self.fd, fd, data, interest.flags())?)
    }

    /// Changes what is waited for.
    ///
    /// # Errors
    /// It is no member.
    pub fn modify(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        Ok(epoll::modify(&self.fd, fd, data, interest.flags())?)
    }

    /// Removes a member; nothing happens when it is none.
    pub fn remove(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.fd, fd);
    }

    /// Waits until a member is ready, at most `timeout` (`None`: for ever), and calls `each`
    /// for up to `most` ready members, [`READY_MAX`] at most. Returns how many there were.
    ///
    /// # Errors
    /// `EINTR` when a signal handler ran.
    pub fn wait(
        &self,
        timeout: Option<Duration>,
        most: usize,
        mut each: impl FnMut(Ready),
    ) -> io::Result<usize> {
        let mut room = [const { MaybeUninit::<epoll::Event>::uninit() }; READY_MAX];
        let timeout = timeout.map(|t| Timespec {
            tv_sec: t.as_secs() as _,
            tv_nsec: i64::from(t.subsec_nanos()) as _,
        });
        let most = most.clamp(1, READY_MAX);
        let (events, _) = epoll::wait(&self.fd, &mut room[..most], timeout.as_ref())?;
        let failed = epoll::EventFlags::ERR | epoll::EventFlags::HUP;
        let read = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | failed;
        let write = epoll::EventFlags::OUT | failed;
        for event in events.iter() {
            let flags = event.flags;
            each(Ready {
                token: event.data.u64(),
                readable: flags.intersects(read),
                writable: flags.intersects(write),
            });
        }
        Ok(events.len())
    }
}

/// Descriptors that [`wait_readable`] looks at in one call at most.
pub const WAITED_FOR_MAX: usize = 256;

/// Waits until one of the descriptors with these numbers can be read, has failed or is none, at most `timeout` (`None`:
/// for ever). Says of each in `ready` whether it is so. Allocates nothing; of more than [`WAITED_FOR_MAX`] the rest is
/// not looked at.
///
/// Unlike an epoll set it has its members' files for as long as it waits, so that one which the program closes
/// meanwhile still wakes it.
///
/// # Errors
/// `EINTR` when a signal handler ran.
pub fn wait_readable(
    numbers: &[RawFd],
    ready: &mut [bool],
    timeout: Option<Duration>,
) -> io::Result<()> {
    let readable = |number: &RawFd| (*number, Interest::Read);
    wait_numbers(numbers.iter().map(readable), ready, timeout)
}

/// The same, each for what is said of it: to be read, or to be written.
///
/// # Errors
/// As there.
pub fn wait_ready(
    numbers: &[(RawFd, Interest)],
    ready: &mut [bool],
    timeout: Option<Duration>,
) -> io::Result<()> {
    wait_numbers(numbers.iter().copied(), ready, timeout)
}

fn wait_numbers(
    numbers: impl ExactSizeIterator<Item = (RawFd, Interest)>,
    ready: &mut [bool],
    timeout: Option<Duration>,
) -> io::Result<()> {
    let none = libc::pollfd {
        fd: -1,
        events: 0,
        revents: 0,
    };
    let mut fds = [none; WAITED_FOR_MAX];
    let count = numbers.len().min(ready.len()).min(WAITED_FOR_MAX);
    for (fd, (number, interest)) in fds.iter_mut().zip(numbers) {
        fd.fd = number;
        let events = [
            (interest.reads(), libc::POLLIN),
            (interest.writes(), libc::POLLOUT),
        ];
        let wanted = events.iter().filter(|(is_wanted, _)| *is_wanted);
        fd.events = wanted.fold(0, |all, (_, event)| all | event);
    }
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs() as _,
        tv_nsec: timeout.subsec_nanos() as _,
    });
    let addr = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    let args = [fds.as_mut_ptr() as usize, count, addr as usize, 0, 0, 0];
    // SAFETY: the kernel reads and writes `count` entries and reads the time; both outlive the call.
    unsafe { sys::call(libc::SYS_ppoll, args) }.map_err(io::Error::from_raw_os_error)?;
    for (ready, fd) in ready.iter_mut().zip(&fds[..count]) {
        *ready = fd.revents != 0;
    }
    Ok(())
}

/// A descriptor whose readiness counts events: readable while the count is above zero.
///
/// Programs see it as a completion, connection or asynchronous event channel, may set
/// `O_NONBLOCK` on it, poll it and pass it on; so a forked child keeps its copy.
#[derive(Debug)]
pub struct EventCounter {
    fd: OwnedFd,
}

impl EventCounter {
    /// A counter at zero whose reads block.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<EventCounter> {
        Ok(EventCounter {
            fd: descriptors::open(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE))?,
        })
    }

    /// Counts one up.
    pub fn add(&self) {
        // An eventfd write fails only at 2^64 - 2 events; then it is readable anyway.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Counts one down if the count is above zero; true when it was. Callers that count down
    /// hold a lock against each other: the descriptor may be a blocking one, and a count that
    /// another takes in between would be waited for.
    pub fn take(&self) -> bool {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut octets = [0u8; 8];
        self.poll(Some(&now)).is_ok_and(|ready| ready)
            && rustix::io::read(&self.fd, &mut octets[..]).is_ok()
    }

    /// Waits until the count is above zero, and leaves it as it is.
    ///
    /// # Errors
    /// `EINTR`.
    pub fn wait(&self) -> io::Result<()> {
        self.poll(None).map(drop)
    }

    fn poll(&self, timeout: Option<&Timespec>) -> io::Result<bool> {
        use rustix::event::{poll, PollFd, PollFlags};
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        Ok(poll(&mut fds, timeout)? > 0)
    }

    /// Whether the program made the descriptor non-blocking.
    pub fn is_nonblocking(&self) -> bool {
        rustix::fs::fcntl_getfl(&self.fd)
            .is_ok_and(|flags| flags.contains(rustix::fs::OFlags::NONBLOCK))
    }

    /// The descriptor's number.
    pub fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Makes whoever sleeps in an epoll set look up.
#[derive(Debug)]
pub struct Waker {
    fd: Private,
}

impl Waker {
    /// A waker that is not set.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Waker> {
        Ok(Waker {
            fd: descriptors::open(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK))?
                .into(),
        })
    }

    /// The same, with a number apart from the program's.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn apart() -> io::Result<Waker> {
        let open = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Waker {
            fd: descriptors::open_apart(open)?,
        })
    }

    /// Sets it.
    pub fn wake(&self) {
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Clears it.
    pub fn clear(&self) {
        let mut octets = [0u8; 8];
        let _ = rustix::io::read(&self.fd, &mut octets[..]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Held for Waker {
    fn abandon(self) {
        self.fd.abandon();
    }
}

impl AsFd for EventCounter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Takes a descriptor out of an epoll, both of the program's.
pub fn unwatch(epoll: i32, fd: i32) {
    let args = [
        epoll as usize,
        libc::EPOLL_CTL_DEL as usize,
        fd as usize,
        0,
        0,
        0,
    ];
    // SAFETY: names no memory.
    let _ = unsafe { crate::sys::call(libc::SYS_epoll_ctl, args) };
}

/// Enters a descriptor anew that is in an epoll already, both of the program's: what it is ready for by now counts as
/// an edge.
pub fn watch_again(epoll: i32, fd: i32, events: u32, data: u64) {
    let event = libc::epoll_event { events, u64: data };
    let args = [
        epoll as usize,
        libc::EPOLL_CTL_MOD as usize,
        fd as usize,
        std::ptr::from_ref(&event) as usize,
        0,
        0,
    ];
    // SAFETY: the kernel reads the event.
    let _ = unsafe { crate::sys::call(libc::SYS_epoll_ctl, args) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_readable_as_often_as_it_was_counted_up() {
        let counter = EventCounter::new().unwrap();
        let epoll = Epoll::new().unwrap();
        epoll.add(&counter, 7, Interest::Read).unwrap();
        let now = Some(Duration::ZERO);
        assert_eq!(
            epoll
                .wait(now, READY_MAX, |_| panic!("nothing yet"))
                .unwrap(),
            0
        );
        counter.add();
        counter.add();
        let mut seen = Vec::new();
        epoll
            .wait(now, READY_MAX, |ready| seen.push(ready.token))
            .unwrap();
        assert_eq!(seen, [7]);
        counter.wait().unwrap();
        assert!(counter.take());
        assert!(counter.take());
        assert!(!counter.take());
        assert!(!counter.is_nonblocking());
    }

    #[test]
    fn who_waits_for_numbers_is_told_which_can_be_read() {
        let wakers = [(); 3].map(|()| Waker::apart().unwrap());
        assert!(wakers
            .iter()
            .all(|waker| waker.fd.as_raw_fd() >= descriptors::APART));
        let numbers: Vec<RawFd> = wakers.iter().map(|waker| waker.fd.as_raw_fd()).collect();
        let mut ready = [true; 3];
        wait_readable(&numbers, &mut ready, Some(Duration::ZERO)).unwrap();
        assert_eq!(ready, [false; 3]);
        wakers[1].wake();
        wait_readable(&numbers, &mut ready, None).unwrap();
        assert_eq!(ready, [false, true, false]);
        wait_readable(&[1_000_000], &mut ready, None).unwrap();
        assert!(ready[0], "a number that is none does not wait");
    }

    #[test]
    fn a_waker_is_set_until_it_is_cleared() {
        let waker = Waker::new().unwrap();
        let epoll = Epoll::new().unwrap();
        epoll.add(&waker, 1, Interest::Read).unwrap();
        let ready = || epoll.wait(Some(Duration::ZERO), READY_MAX, |_| ()).unwrap();
        waker.wake();
        waker.wake();
        assert_eq!(ready(), 1);
        waker.clear();
        waker.clear();
        assert_eq!(ready(), 0);
    }
}
