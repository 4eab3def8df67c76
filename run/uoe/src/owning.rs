//! Sockets that several processes have: which of them has carriers for one, and what the others do meanwhile.
//!
//! Weft's own datagrams come to the kernel's socket, which all of them receive from. So one process at a time has
//! channels of a socket: it holds a name made of the socket's inode, as long as it lives. Who receives from a socket
//! that another process may have looks whether somebody holds its name; if so its receives are looked at, and the
//! holder is told by that very look that it is not alone, and gives way (decision 0039).

use std::io::Write as _;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use weft_os::dgram::inode;
use weft_os::lock::Locked;
use weft_os::process;
use weft_os::seqpacket::Packets;

use crate::offload::{now, Offload};
use crate::port::Port;

/// How long after a process has taken the name its channels begin, at a socket that others may have: by then each that
/// receives has looked.
pub(crate) const HEARD_AFTER: Duration = Duration::from_millis(150);

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
