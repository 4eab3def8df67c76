//! Frames that leave together.

use std::io;
use std::marker::PhantomData;
use std::mem::{zeroed, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::guard;
use crate::mem::{Registered, Unmapped};
use crate::sys::{self, IoVec};

/// Octets of the virtio-net header that the kernel gives and takes with each frame.
pub const OFFLOAD_LEN: usize = 10;

/// Frames that a batch holds at most.
pub const BATCH_FRAMES_MAX: usize = 32;
/// Pieces of memory that they are of at most.
const PARTS_MAX: usize = 256;

/// Frames on their way to a device: for each a virtio-net header, and pieces of borrowed or registered memory that
/// follow each other. Nothing is copied but the virtio-net header.
pub struct Batch<'a> {
    offloads: [[u8; OFFLOAD_LEN]; BATCH_FRAMES_MAX],
    parts: [MaybeUninit<IoVec>; PARTS_MAX],
    /// Parts in use.
    used: usize,
    /// Where the parts of each frame end.
    ends: [u16; BATCH_FRAMES_MAX],
    frames: usize,
    _borrowed: PhantomData<&'a [u8]>,
}

impl Default for Batch<'_> {
    fn default() -> Self {
        Batch {
            offloads: [[0; OFFLOAD_LEN]; BATCH_FRAMES_MAX],
            parts: [const { MaybeUninit::uninit() }; PARTS_MAX],
            used: 0,
            ends: [0; BATCH_FRAMES_MAX],
            frames: 0,
            _borrowed: PhantomData,
        }
    }
}

impl<'a> Batch<'a> {
    /// Begins a frame. `offload` is its virtio-net header, numbers in the machine's byte order. False when the batch is
    /// full: send it first.
    #[inline]
    pub fn frame(&mut self, offload: &[u8; OFFLOAD_LEN]) -> bool {
        // A frame needs two parts at least: its virtio-net header and its own.
        if self.frames == BATCH_FRAMES_MAX || self.used + 2 > PARTS_MAX {
            return false;
        }
        self.offloads[self.frames] = *offload;
        // The header's place is known when nothing moves any more, in `frame_parts`.
        self.parts[self.used].write(IoVec { base: 0, len: 0 });
        self.used += 1;
        self.ends[self.frames] = self.used as u16;
        self.frames += 1;
        true
    }

    /// Adds octets to the frame begun last; false when there is no frame, or no room for a piece more.
    #[inline]
    pub fn push(&mut self, octets: &'a [u8]) -> bool {
        self.add(octets.as_ptr() as usize, octets.len())
    }

    /// Adds registered memory to the frame begun last; false when there is no frame or no room, or the range is
    /// outside of it.
    #[inline]
    pub fn push_registered(&mut self, memory: &'a Registered, offset: u64, len: usize) -> bool {
        match memory.range(offset, len) {
            Some(base) => self.add(base, len),
            None => false,
        }
    }

    #[inline]
    fn add(&mut self, base: usize, len: usize) -> bool {
        if self.frames == 0 || self.used == PARTS_MAX {
            return false;
        }
        self.parts[self.used].write(IoVec { base, len });
        self.used += 1;
        self.ends[self.frames - 1] = self.used as u16;
        true
    }

    /// Takes the frame begun last away again: it did not fit.
    pub fn cancel(&mut self) {
        if self.frames > 0 {
            self.frames -= 1;
            self.used = match self.frames {
                0 => 0,
                frames => usize::from(self.ends[frames - 1]),
            };
        }
    }

    /// Frames in it.
    pub fn len(&self) -> usize {
        self.frames
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// Appends the octets of the frame at `index`, and gives its virtio-net header, for a link that is not the
    /// kernel's. None where there is no such frame.
    ///
    /// # Errors
    /// Registered memory in it is not mapped; nothing is appended then.
    pub fn append_frame(
        &self,
        index: usize,
        out: &mut Vec<u8>,
    ) -> Option<Result<[u8; OFFLOAD_LEN], Unmapped>> {
        let end = usize::from(*self.ends[..self.frames].get(index)?);
        let start = index
            .checked_sub(1)
            .map_or(0, |at| usize::from(self.ends[at]));
        let before = out.len();
        // The first part stands for the virtio-net header, whose place is not known before it is sent.
        for part in &self.parts[start + 1..end] {
            // SAFETY: the first `used` parts were written by `frame` and `add`.
            let part = unsafe { part.assume_init_ref() };
            let at = out.len();
            out.resize(at + part.len, 0);
            // SAFETY: `out` has so many octets from `at` on. The part is of borrowed octets, or of registered memory,
            // for which the copy is guarded.
            let copied =
                unsafe { guard::copy(out[at..].as_mut_ptr(), part.base as *const u8, part.len) };
            if !copied {
                out.truncate(before);
                return Some(Err(Unmapped));
            }
        }
        Some(Ok(self.offloads[index]))
    }

    /// The frames were taken.
    pub fn empty(&mut self) {
        self.clear();
    }

    /// The parts of each frame, the virtio-net header first. They name memory of `self`: it must not move before they
    /// were used.
    fn frame_parts(&mut self) -> impl Iterator<Item = &[IoVec]> {
        // SAFETY: the first `used` parts were written by `frame` and `add`.
        let parts = unsafe {
            std::slice::from_raw_parts_mut(self.parts.as_mut_ptr().cast::<IoVec>(), self.used)
        };
        let mut start = 0;
        for (end, offload) in self.ends[..self.frames].iter().zip(&self.offloads) {
            parts[start] = IoVec {
                base: offload.as_ptr() as usize,
                len: OFFLOAD_LEN,
            };
            start = usize::from(*end);
        }
        let parts = &*parts;
        let mut start = 0;
        self.ends[..self.frames].iter().map(move |end| {
            let from = std::mem::replace(&mut start, usize::from(*end));
            &parts[from..usize::from(*end)]
        })
    }

    fn clear(&mut self) {
        self.frames = 0;
        self.used = 0;
    }

    /// Sends each frame as a message of a socket, all by one call. `waits` where the socket is busy.
    pub(crate) fn send_messages(&mut self, fd: BorrowedFd<'_>, waits: bool) -> io::Result<usize> {
        let count = self.frames;
        let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH_FRAMES_MAX];
        for (message, parts) in messages.iter_mut().zip(self.frame_parts()) {
            // SAFETY: all-zero is a value of the plain structure.
            let mut empty: libc::mmsghdr = unsafe { zeroed() };
            empty.msg_hdr.msg_iov = parts.as_ptr().cast_mut().cast();
            empty.msg_hdr.msg_iovlen = parts.len() as _;
            message.write(empty);
        }
        let messages = messages.as_mut_ptr() as usize;
        let flags = if waits {
            0
        } else {
            libc::MSG_DONTWAIT as usize
        };
        let fd = fd.as_raw_fd() as usize;
        // SAFETY: the first `count` messages were written above; they, the parts they name, which nothing moves
        // meanwhile, and the octets those name outlive the call, which reads them and writes the lengths sent to the
        // messages. Registered memory that is unmapped is the kernel's to find out: it says EFAULT.
        let sent = unsafe {
            match count {
                0 => Ok(0),
                // Of an mmsghdr the message itself comes first. The call for one costs less than the call for many.
                1 => sys::call(libc::SYS_sendmsg, [fd, messages, flags, 0, 0, 0]).map(|_| 1),
                _ => sys::call(libc::SYS_sendmmsg, [fd, messages, count, flags, 0, 0]),
            }
        };
        self.clear();
        sent.map_err(io::Error::from_raw_os_error)
    }

    /// Writes each frame by a call of its own: all that a TAP takes.
    pub(crate) fn write_each(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let fd = fd.as_raw_fd() as usize;
        let mut sent = Ok(0);
        for (done, parts) in self.frame_parts().enumerate() {
            let args = [fd, parts.as_ptr() as usize, parts.len(), 0, 0, 0];
            // SAFETY: as above; the kernel only reads.
            match unsafe { sys::call(libc::SYS_writev, args) } {
                Ok(_) => sent = Ok(done + 1),
                Err(error) if done == 0 => {
                    sent = Err(io::Error::from_raw_os_error(error));
                    break;
                }
                Err(_) => break,
            }
        }
        self.clear();
        sent
    }
}

impl std::fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let octets = |parts: &[IoVec]| parts.iter().skip(1).map(|part| part.len).sum::<usize>();
        let mut start = 0;
        // SAFETY: the first `used` parts were written by `frame` and `add`.
        let parts =
            unsafe { std::slice::from_raw_parts(self.parts.as_ptr().cast::<IoVec>(), self.used) };
        let lengths = self.ends[..self.frames].iter().map(|end| {
            let from = std::mem::replace(&mut start, usize::from(*end));
            octets(&parts[from..usize::from(*end)])
        });
        f.write_str("Batch of frames of ")?;
        f.debug_list().entries(lengths).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn frames_keep_their_parts_and_their_order() {
        let octets = [1u8, 2, 3, 4, 5];
        let mut batch = Batch::default();
        assert!(!batch.push(&octets), "no frame was begun");
        for first in 0..BATCH_FRAMES_MAX {
            assert!(batch.frame(&[first as u8; OFFLOAD_LEN]));
            assert!(batch.push(&octets[..1 + first % 4]));
            assert!(batch.push(&octets[..1]));
        }
        assert!(!batch.frame(&[0; OFFLOAD_LEN]));
        batch.cancel();
        assert_eq!(batch.len(), BATCH_FRAMES_MAX - 1);
        for (first, parts) in batch.frame_parts().enumerate() {
            let lengths: Vec<_> = parts.iter().map(|part| part.len).collect();
            assert_eq!(lengths, [OFFLOAD_LEN, 1 + first % 4, 1]);
        }
    }

    #[test]
    fn parts_are_bounded() {
        let octets = [7u8; 4];
        let mut batch = Batch::default();
        assert!(batch.frame(&[0; OFFLOAD_LEN]));
        let taken = (0..1000).take_while(|_| batch.push(&octets)).count();
        assert_eq!(taken, PARTS_MAX - 1);
        assert!(!batch.frame(&[0; OFFLOAD_LEN]));
        batch.cancel();
        assert!(batch.is_empty() && batch.frame(&[0; OFFLOAD_LEN]));
    }
    #[test]
    fn a_link_in_memory_gets_whole_frames() {
        let memory = Registered::allocate(64).unwrap();
        memory.write(0, b"registered").unwrap();
        let mut batch = Batch::default();
        assert!(batch.frame(&[1; OFFLOAD_LEN]) && batch.push(b"first"));
        assert!(batch.frame(&[2; OFFLOAD_LEN]) && batch.push(b"second "));
        assert!(batch.push_registered(&memory, 0, 10));
        let mut octets = b"before ".to_vec();
        assert_eq!(
            batch.append_frame(1, &mut octets),
            Some(Ok([2; OFFLOAD_LEN]))
        );
        assert_eq!(octets, b"before second registered");
        assert_eq!(batch.append_frame(2, &mut octets), None);
        octets.clear();
        assert_eq!(
            batch.append_frame(0, &mut octets),
            Some(Ok([1; OFFLOAD_LEN]))
        );
        assert_eq!(octets, b"first");
        batch.empty();
        assert!(batch.is_empty() && batch.append_frame(0, &mut octets).is_none());
    }

    /// What a socket of datagrams gets of a batch: the virtio-net header and the parts in their order, as one message.
    #[test]
    fn borrowed_and_registered_memory_leaves_in_order() {
        let (from, to) = UnixDatagram::pair().unwrap();
        let memory = Registered::allocate(4096).unwrap();
        memory.write(100, b"registered").unwrap();
        let mut batch = Batch::default();
        for offload in [[1; OFFLOAD_LEN], [2; OFFLOAD_LEN]] {
            assert!(batch.frame(&offload));
            assert!(batch.push(b"borrowed ") && batch.push_registered(&memory, 100, 10));
            assert!(!batch.push_registered(&memory, 4090, 10), "beyond its end");
        }
        assert_eq!(batch.send_messages(from.as_fd(), false).unwrap(), 2);
        for offload in [1, 2] {
            let mut octets = [0; 64];
            let len = to.recv(&mut octets).unwrap();
            assert_eq!(octets[..OFFLOAD_LEN], [offload; OFFLOAD_LEN]);
            assert_eq!(&octets[OFFLOAD_LEN..len], b"borrowed registered");
        }
        assert_eq!(
            batch.send_messages(from.as_fd(), false).unwrap(),
            0,
            "it is empty"
        );
    }

    /// The program unmapped what it gave to send: an error of that frame, and the ones before it have left.
    #[test]
    fn memory_that_is_gone_is_an_error_of_its_frame() {
        let (from, to) = UnixDatagram::pair().unwrap();
        // SAFETY: the page at address 4096 is never mapped (vm.mmap_min_addr), and only the kernel is given it.
        let gone = unsafe { Registered::new(std::ptr::without_provenance_mut(4096), 64) };
        let mut batch = Batch::default();
        assert!(batch.frame(&[1; OFFLOAD_LEN]) && batch.push(b"whole"));
        assert!(batch.frame(&[2; OFFLOAD_LEN]) && batch.push_registered(&gone, 0, 64));
        assert_eq!(batch.send_messages(from.as_fd(), false).unwrap(), 1);
        assert!(batch.frame(&[2; OFFLOAD_LEN]) && batch.push_registered(&gone, 0, 64));
        let error = batch.send_messages(from.as_fd(), false).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
        let mut octets = [0; 64];
        assert_eq!(to.recv(&mut octets).unwrap(), OFFLOAD_LEN + 5);
        to.set_nonblocking(true).unwrap();
        assert!(to.recv(&mut octets).is_err(), "nothing else came");
    }
}
