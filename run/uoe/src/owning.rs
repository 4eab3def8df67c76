//! Sockets that several processes have: which of them has carriers for one, and what the others do meanwhile.
//!
//! Weft's own datagrams come to the kernel's socket, which all of them receive from. So one process at a time has
//! channels of a socket: it holds a name made of the socket's inode, as long as it lives. Who receives from a socket
//! that another process may have looks whether somebody holds its name; if so its receives are looked at, and the
//! holder is told by that very look that it is not alone, and gives way (decision 0039).

use std::io::Write as _;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weft_os::dgram::inode;
use weft_os::lock::Locked;
use weft_os::process;
use weft_os::seqpacket::Packets;

use crate::marked::Marked;
use crate::offload::{now, Offload};
use crate::port::Port;

/// How long what a look has shown is believed.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long after a process has taken the name its channels begin, at a socket that others may have: by then each that
/// receives has looked.
pub(crate) const HEARD_AFTER: Duration = Duration::from_millis(150);
/// How long a socket is left alone that another process has received from, doubled each time.
const REST_MIN: Duration = Duration::from_secs(1);
/// The most.
const REST_MAX: Duration = Duration::from_secs(3600);

/// This process holds the name.
const HELD: u32 = 1;
/// Another one did when it was looked for last.
const OTHERS: u32 = 2;

/// What the program does with a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It receives.
    Receives,
    /// It waits for what it could receive.
    Waits,
    /// It has bound it to an address, and may leave the rest to another process.
    Binds,
}

/// What is known of one socket's other processes.
#[derive(Debug)]
pub(crate) struct Owning {
    state: Marked,
    /// When it was looked for them last, in nanoseconds; 0 for never.
    looked_at: AtomicU64,
    /// The process that did.
    looked_in: AtomicU64,
    /// No channels of others come to it until then, in nanoseconds, and how long that was.
    rests_until: AtomicU64,
    rest: AtomicU64,
}

impl Owning {
    pub(crate) const fn new() -> Owning {
        Owning {
            state: Marked::new(0),
            looked_at: AtomicU64::new(0),
            looked_in: AtomicU64::new(0),
            rests_until: AtomicU64::new(0),
            rest: AtomicU64::new(0),
        }
    }

    /// From here on another socket's.
    pub(crate) fn begin(&self) {
        self.state.set(0);
        for word in [
            &self.looked_at,
            &self.looked_in,
            &self.rests_until,
            &self.rest,
        ] {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// This process holds the name, or does no longer.
    pub(crate) fn set_held(&self, is_held: bool) {
        let held = if is_held { HELD } else { 0 };
        self.state.update(0, |before| before & !HELD | held);
    }

    fn is_held(&self) -> bool {
        self.state.get(0) & HELD != 0
    }

    pub(crate) fn set_others(&self, are_there: bool) {
        let others = if are_there { OTHERS } else { 0 };
        self.state.update(0, |before| before & !OTHERS | others);
    }

    /// Whether another process held the name when it was looked for last.
    pub(crate) fn has_others(&self) -> bool {
        self.state.get(0) & OTHERS != 0
    }

    /// Whether it is to be looked for others again; if so, that is done now.
    fn is_due(&self, now: Duration) -> bool {
        let (now, own) = (now.as_nanos() as u64, u64::from(process::id()));
        let is_own = self.looked_in.swap(own, Ordering::Relaxed) == own;
        let since = now.saturating_sub(self.looked_at.load(Ordering::Relaxed));
        if is_own && since < LOOK_EVERY.as_nanos() as u64 {
            return false;
        }
        self.looked_at.store(now, Ordering::Relaxed);
        true
    }

    /// Another process receives from the socket, too: it is left alone for a while.
    pub(crate) fn rest(&self, now: Duration) {
        let before = Duration::from_nanos(self.rest.load(Ordering::Relaxed));
        let rest = (before * 2).clamp(REST_MIN, REST_MAX);
        self.rest.store(rest.as_nanos() as u64, Ordering::Relaxed);
        let until = (now + rest).as_nanos() as u64;
        self.rests_until.store(until, Ordering::Relaxed);
    }

    /// Whether it is.
    pub(crate) fn rests(&self, now: Duration) -> bool {
        (now.as_nanos() as u64) < self.rests_until.load(Ordering::Relaxed)
    }
}

/// The name of the socket behind a descriptor, and how many octets it has. Nothing is allocated.
pub(crate) fn name_of(fd: RawFd) -> Option<([u8; 48], usize)> {
    let mut name = [0; 48];
    let inode = inode(fd)?;
    let mut room = &mut name[..];
    write!(room, "weft-uoe/1/{inode}").ok()?;
    let left = room.len();
    Some((name, 48 - left))
}

impl Offload {
    /// The program does this with the socket behind `fd`, which others know by `key`: they may be told that it takes
    /// carriers.
    #[inline]
    pub fn receives(&'static self, port: &'static Port, key: u32, fd: RawFd, how: Use) {
        // Who has confined itself may have forbidden the calls that this takes.
        if port.is_off() || self.is_over() {
            return;
        }
        if how != Use::Binds {
            port.note_received();
        }
        if port.is_shared() && !self.has_to_itself(port, key, fd, how) {
            return;
        }
        if port.begin_served() {
            self.serve(port, key, fd);
        }
    }

    /// Whether no other process has channels of the socket, as far as is known. Who has is told that this one receives.
    fn has_to_itself(&self, port: &'static Port, key: u32, fd: RawFd, how: Use) -> bool {
        let owning = &port.owning;
        if owning.is_held() {
            return true;
        }
        // Who only waits takes nothing from anybody.
        if how != Use::Receives || process::is_borrowed() || !owning.is_due(now()) {
            return !owning.has_others();
        }
        let are_there = is_name_held(fd);
        owning.set_others(are_there);
        if are_there {
            port.look_at();
            self.end_serving(port, key);
        }
        !are_there
    }

    fn end_serving(&self, port: &'static Port, key: u32) {
        if !port.is_served() {
            return;
        }
        port.end_served();
        if let Some(answering) = self.answering.get() {
            answering.leave(key);
        }
        // The agreed port is left to the process that receives.
        let is_last = match self.served.lock() {
            Locked::Held(served) => {
                let mut held = served.iter().flatten();
                !held.any(|held| held.is_alive() && held.port.is_served())
            }
            _ => false,
        };
        if is_last && self.has_thread() {
            self.is_serving.store(false, Ordering::Release);
            self.wake();
        }
    }

    /// The process is about to fork: a child has the socket too from then on. One that this process has only bound so
    /// far is mostly its children's to receive from.
    pub fn before_fork(&'static self, port: &'static Port, key: u32) {
        port.share();
        if !port.was_received() && !process::is_borrowed() {
            self.end_serving(port, key);
        }
    }

    /// Whether others may be asked to send to the socket by way of this process.
    pub(crate) fn may_take(&self, port: &Port, now: Duration) -> bool {
        let is_others = port.is_shared() && port.owning.has_others();
        !port.is_off() && !is_others && !port.owning.rests(now)
    }
}

/// Whether a process holds the name of the socket behind `fd`, which sees that it was looked for.
fn is_name_held(fd: RawFd) -> bool {
    let Some((name, len)) = name_of(fd) else {
        return true;
    };
    let tried = Packets::open().and_then(|packets| packets.connect(&name[..len]));
    // Where it cannot be told nothing of Weft's own is to be missed.
    !tried.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}
