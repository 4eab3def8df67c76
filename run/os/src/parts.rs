//! What one call on somebody else's stream socket moves: octets of ours and of the program's by turns.
//!
//! Raw system calls that do not wait; errors are errno values.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use crate::dgram::NAME_LEN;
use crate::sys::{self, IoVec};
use crate::user::UserBuffers;

/// Parts that one call moves at most.
pub const PARTS_MAX: usize = 96;

/// Parts of a call, in order. `'a` is how long what they are of is borrowed.
#[derive(Debug)]
struct Parts<'a> {
    /// The first `count` are set: most calls move few, and the others would be written for nothing.
    list: [MaybeUninit<IoVec>; PARTS_MAX],
    count: usize,
    octets: usize,
    borrowed: PhantomData<&'a mut [u8]>,
}

impl Parts<'_> {
    fn new() -> Self {
        Parts {
            list: [const { MaybeUninit::uninit() }; PARTS_MAX],
            count: 0,
            octets: 0,
            borrowed: PhantomData,
        }
    }

    /// False where there is no place for it.
    #[must_use]
    fn push(&mut self, part: IoVec) -> bool {
        if part.len == 0 {
            return true;
        }
        let Some(place) = self.list.get_mut(self.count) else {
            return false;
        };
        place.write(part);
        self.count += 1;
        self.octets += part.len;
        true
    }

    #[must_use]
    fn push_user(&mut self, buffers: &UserBuffers, range: Range<usize>) -> bool {
        let (count, octets) = (self.count, self.octets);
        let is_whole = buffers.parts(range).all(|part| self.push(part));
        if !is_whole {
            (self.count, self.octets) = (count, octets);
        }
        is_whole
    }

    fn message(&self) -> libc::msghdr {
        // SAFETY: all-zero is a value of the plain structure.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = self.list.as_ptr().cast_mut().cast();
        message.msg_iovlen = self.count as _;
        message
    }

    /// The system call on all parts.
    fn call(&self, number: i64, fd: i32, flags: i32) -> Result<usize, i32> {
        let mut message = self.message();
        let addr = std::ptr::from_mut(&mut message) as usize;
        let flags = flags | libc::MSG_DONTWAIT;
        // SAFETY: the message outlives the call. What the parts name is borrowed for `'a`: for writing where the kernel
        // writes ([`Receives`] takes nothing else), or memory that the program handed over.
        unsafe { sys::call(number, [fd as usize, addr, flags as usize, 0, 0, 0]) }
    }
}

/// What one call sends.
#[derive(Debug)]
pub struct Sends<'a>(Parts<'a>);

impl<'a> Sends<'a> {
    /// Nothing yet.
    #[inline]
    pub fn new() -> Sends<'a> {
        Sends(Parts::new())
    }

    /// Octets of ours behind what there is. False, and nothing changes, where there are [`PARTS_MAX`] parts.
    #[must_use]
    pub fn own(&mut self, octets: &'a [u8]) -> bool {
        self.0.push(IoVec {
            base: octets.as_ptr() as usize,
            len: octets.len(),
        })
    }

    /// A range of the program's octets behind what there is. False, and nothing changes, where there is no place.
    #[must_use]
    pub fn user(&mut self, buffers: &'a UserBuffers, range: Range<usize>) -> bool {
        self.0.push_user(buffers, range)
    }

    /// Octets in all parts.
    pub fn octets(&self) -> usize {
        self.0.octets
    }

    /// Sends them, as many as the socket takes; gives how many. `flags` as of `sendmsg`. No call sends SIGPIPE.
    ///
    /// # Errors
    /// The errno of `sendmsg`; nothing was sent then.
    pub fn send(&self, fd: i32, flags: i32) -> Result<usize, i32> {
        self.0
            .call(libc::SYS_sendmsg, fd, flags | libc::MSG_NOSIGNAL)
    }
}

impl Default for Sends<'_> {
    fn default() -> Self {
        Sends::new()
    }
}

/// What one call receives.
#[derive(Debug)]
pub struct Receives<'a>(Parts<'a>);

impl<'a> Receives<'a> {
    /// Nothing yet.
    #[inline]
    pub fn new() -> Receives<'a> {
        Receives(Parts::new())
    }

    /// Room of ours behind what there is. False, and nothing changes, where there are [`PARTS_MAX`] parts.
    #[must_use]
    pub fn own(&mut self, room: &'a mut [u8]) -> bool {
        self.0.push(IoVec {
            base: room.as_mut_ptr() as usize,
            len: room.len(),
        })
    }

    /// Room of the program's behind what there is. False, and nothing changes, where there is no place.
    #[must_use]
    pub fn user(&mut self, buffers: &'a UserBuffers, range: Range<usize>) -> bool {
        self.0.push_user(buffers, range)
    }

    /// Octets of room in all parts.
    pub fn octets(&self) -> usize {
        self.0.octets
    }

    /// Takes octets from the socket, as many as it has; gives how many, 0 at the end of the stream.
    ///
    /// # Errors
    /// The errno of `recvmsg`; nothing was taken then.
    pub fn receive(&mut self, fd: i32) -> Result<usize, i32> {
        self.0.call(libc::SYS_recvmsg, fd, 0)
    }

    /// The header of a message that is received here, and whose source is written to `name`, for a call that the caller
    /// makes by another way: one that waits, say. Gives what that gives, and the octets of the name.
    pub fn with_message<T>(
        &mut self,
        name: &mut [u8; NAME_LEN],
        call: impl FnOnce(*mut libc::msghdr) -> T,
    ) -> (T, usize) {
        let mut message = self.0.message();
        message.msg_name = name.as_mut_ptr().cast();
        message.msg_namelen = NAME_LEN as u32;
        let result = call(&mut message);
        (result, (message.msg_namelen as usize).min(NAME_LEN))
    }

    /// Copies what the socket has next and leaves it there; gives how many octets, 0 at the end of the stream.
    ///
    /// # Errors
    /// The errno of `recvmsg`.
    pub fn peek(&mut self, fd: i32) -> Result<usize, i32> {
        self.0.call(libc::SYS_recvmsg, fd, libc::MSG_PEEK)
    }
}

impl Default for Receives<'_> {
    fn default() -> Self {
        Receives::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user::OwnBuffer;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    }

    #[test]
    fn parts_go_in_order_and_come_in_order() {
        let (one, other) = pair();
        let mut text = *b"over the loom";
        let text = OwnBuffer::from(&mut text[..]);
        let mut sends = Sends::new();
        assert!(sends.own(b"[") && sends.user(&text, 9..13) && sends.own(b"]"));
        assert_eq!(sends.send(one.as_raw_fd(), 0), Ok(6));
        other.peek(&mut [0; 6]).unwrap();

        let (mut header, mut behind, mut room) = ([0; 1], [0; 9], [0; 10]);
        let mut looks = Receives::new();
        assert!(looks.own(&mut header));
        assert_eq!(looks.peek(other.as_raw_fd()), Ok(1));
        let mut receives = Receives::new();
        let user = OwnBuffer::from(&mut room[..]);
        assert!(receives.own(&mut header) && receives.user(&user, 3..7));
        assert!(receives.own(&mut behind));
        assert_eq!(receives.octets(), 14);
        assert_eq!(receives.receive(other.as_raw_fd()), Ok(6));
        assert_eq!((header, behind[0]), (*b"[", b']'));
        assert_eq!(&room, b"\0\0\0loom\0\0\0");
        let mut none = Receives::new();
        assert!(none.own(&mut header));
        assert_eq!(none.receive(other.as_raw_fd()), Err(libc::EAGAIN));
        drop(one);
        other.peek(&mut [0; 1]).unwrap();
        assert_eq!(none.receive(other.as_raw_fd()), Ok(0));
    }

    #[test]
    fn what_has_no_place_changes_nothing() {
        let mut octets = [7; 4];
        let user = OwnBuffer::from(&mut octets[..]);
        let mut sends = Sends::new();
        for _ in 0..PARTS_MAX {
            assert!(sends.own(b"x"));
        }
        assert!(!sends.own(b"y") && !sends.user(&user, 0..4));
        assert!(sends.own(b""), "nothing takes no place");
        assert_eq!(sends.octets(), PARTS_MAX);
    }
}
