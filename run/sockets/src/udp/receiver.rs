//! A socket's incoming datagrams, split from what the kernel coalesced.
//!
//! What is at the head of the kernel's queue is copied without being taken, handed out datagram by datagram, and
//! taken when the last is gone. So the kernel's own idea of readiness stays right for poll, epoll, other
//! threads and other processes, however many datagrams wait here; the price is one call more for each head.

use weft_datagram::control;
use weft_datagram::split::{Head, Taken};
use weft_os::dgram::{Peeked, NAME_LEN};

use super::slot::Slot;
use crate::Errno;

/// Octets of memory a receiver stages a head in: the longest there is.
pub const MEMORY_OCTETS: usize = 65_536;
/// Octets of control messages kept; no set of options of UDP comes near it.
pub const CONTROL_OCTETS: usize = 1024;

/// Where heads come from: the kernel's receive queue, or a test. Neither call waits.
pub trait Queue {
    /// Copies the head without taking it.
    ///
    /// # Errors
    /// The errno; EAGAIN when the queue is empty.
    fn peek(
        &mut self,
        octets: &mut [u8],
        name: &mut [u8; NAME_LEN],
        control: &mut [u8],
    ) -> Result<Peeked, Errno>;

    /// Takes the head.
    ///
    /// # Errors
    /// The errno; nothing was taken.
    fn discard(&mut self) -> Result<(), Errno>;
}

/// What is to become of the datagram that is handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// Octets the program has room for.
    pub room: usize,
    /// `MSG_TRUNC`: the result is to be the datagram's real length.
    pub whole: bool,
    /// `MSG_PEEK`: the datagram is to stay.
    pub stay: bool,
}

/// A datagram that is handed out.
#[derive(Debug)]
pub struct Datagram<'a> {
    /// Its octets, as many as there is room for.
    pub octets: &'a [u8],
    /// Where it came from.
    pub name: &'a [u8],
    /// Control messages of the head, for [`control::hand_over`].
    pub control: &'a [u8],
    /// The call's result.
    pub result: usize,
    /// Whether it was cut.
    pub truncated: bool,
}

impl<'a> Datagram<'a> {
    /// One that came alone and without control messages, for which there is as much room as `ask` says.
    #[inline]
    pub(super) fn whole(octets: &'a [u8], name: &'a [u8], ask: Ask) -> Self {
        let fits = octets.len().min(ask.room);
        Datagram {
            octets: &octets[..fits],
            name,
            control: &[],
            result: if ask.whole { octets.len() } else { fits },
            truncated: fits < octets.len(),
        }
    }
}

/// Splits the incoming datagrams of one socket.
#[derive(Debug)]
pub struct Receiver {
    memory: &'static mut [u8],
    name: [u8; NAME_LEN],
    control: [u8; CONTROL_OCTETS],
    staged: Option<Staged>,
}

#[derive(Clone, Copy, Debug)]
struct Staged {
    generation: u32,
    head: Head,
    name: usize,
    control: usize,
}

impl Default for Receiver {
    fn default() -> Self {
        Receiver::new()
    }
}

impl Receiver {
    /// A receiver that can stage nothing before it has memory.
    pub const fn new() -> Receiver {
        Receiver {
            memory: &mut [],
            name: [0; NAME_LEN],
            control: [0; CONTROL_OCTETS],
            staged: None,
        }
    }

    /// Whether it has memory.
    pub fn has_memory(&self) -> bool {
        !self.memory.is_empty()
    }

    /// Gives it memory: [`MEMORY_OCTETS`] octets.
    pub fn set_memory(&mut self, memory: &'static mut [u8]) {
        assert_eq!(memory.len(), MEMORY_OCTETS);
        self.memory = memory;
    }

    /// Forgets what was staged; what was handed out stays handed out.
    pub fn forget(&mut self) {
        self.staged = None;
    }

    /// Hands a datagram to `deliver` that `take` takes from the queue, where nothing is coalesced: one call, where
    /// [`Receiver::receive`] takes two. Without control messages. Nothing where `take` brings none.
    pub fn receive_whole<T>(
        &mut self,
        ask: Ask,
        take: impl FnOnce(&mut [u8], &mut [u8; NAME_LEN]) -> Option<Peeked>,
        deliver: impl FnOnce(Datagram<'_>) -> Result<T, Errno>,
    ) -> Option<Result<T, Errno>> {
        // A head that was looked at is the one that is taken, or another thread has taken that.
        self.staged = None;
        let taken = take(self.memory, &mut self.name)?;
        let octets = &self.memory[..taken.octets.min(self.memory.len())];
        let name = &self.name[..taken.name];
        Some(deliver(Datagram::whole(octets, name, ask)))
    }

    /// Hands the next datagram to `deliver`, and counts it as handed out whatever that says.
    ///
    /// # Errors
    /// What the queue or `deliver` says; EAGAIN when there is no datagram.
    pub fn receive<T>(
        &mut self,
        slot: Slot,
        queue: &mut impl Queue,
        ask: Ask,
        deliver: impl FnOnce(Datagram<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let _among_processes = slot.lock();
        if let Some(errno) = slot.take_pending() {
            return Err(errno);
        }
        let staged = self.stage(slot, queue)?;
        let consumed = slot.consumed();
        let Taken {
            octets,
            result,
            truncated,
        } = staged.head.take(consumed, ask.room, ask.whole);
        let delivered = deliver(Datagram {
            octets: &self.memory[octets],
            name: &self.name[..staged.name],
            control: &self.control[..staged.control],
            result,
            truncated,
        });
        if !ask.stay {
            self.advance(slot, queue, staged.head, consumed);
        }
        delivered
    }

    /// Octets of the datagram that is next, as `FIONREAD` gives them; 0 when there is none.
    pub fn next_len(&mut self, slot: Slot, queue: &mut impl Queue) -> usize {
        let _among_processes = slot.lock();
        match self.stage(slot, queue) {
            Ok(staged) => staged.head.datagram(slot.consumed()).len(),
            Err(libc::EAGAIN) => 0,
            Err(errno) => {
                slot.set_pending(errno);
                0
            }
        }
    }

    /// The head, copied here if it is not yet.
    fn stage(&mut self, slot: Slot, queue: &mut impl Queue) -> Result<Staged, Errno> {
        let generation = slot.generation();
        if let Some(staged) = self.staged.filter(|staged| staged.generation == generation) {
            return Ok(staged);
        }
        let peeked = queue.peek(self.memory, &mut self.name, &mut self.control)?;
        let control = peeked.control.min(CONTROL_OCTETS);
        let staged = Staged {
            generation,
            head: Head {
                total: peeked.octets.min(self.memory.len()),
                segment: control::segment(&self.control[..control]),
            },
            name: peeked.name,
            control,
        };
        self.staged = Some(staged);
        Ok(staged)
    }

    fn advance(&mut self, slot: Slot, queue: &mut impl Queue, head: Head, consumed: usize) {
        if !head.is_last(consumed) {
            slot.set_consumed(head.datagram(consumed).end);
            return;
        }
        self.staged = None;
        slot.next_generation();
        // An error that waited at the socket comes first, and is for the program's next call. Of those a socket has
        // few; an error that stays is of a descriptor that another thread closed.
        for _ in 0..ERRORS {
            match queue.discard() {
                Ok(()) | Err(libc::EAGAIN) => return,
                Err(libc::EINTR) => {}
                Err(libc::EBADF | libc::ENOTSOCK) => return,
                Err(errno) => slot.set_pending(errno),
            }
        }
    }
}

/// Errors met in a row while the head is taken: the one that waits, and those that arrive meanwhile.
const ERRORS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use weft_os::dgram::{SOL_UDP, UDP_GRO};
    use weft_os::pages;

    use crate::udp::slot::SLOT_WORDS;

    /// Heads: the octets and the segment size.
    #[derive(Default)]
    struct Heads {
        heads: VecDeque<(Vec<u8>, usize)>,
        errors: VecDeque<Errno>,
    }

    impl Queue for Heads {
        fn peek(
            &mut self,
            octets: &mut [u8],
            name: &mut [u8; NAME_LEN],
            control: &mut [u8],
        ) -> Result<Peeked, Errno> {
            if let Some(errno) = self.errors.pop_front() {
                return Err(errno);
            }
            let (head, segment) = self.heads.front().ok_or(libc::EAGAIN)?;
            octets[..head.len()].copy_from_slice(head);
            name[..4].copy_from_slice(b"name");
            let mut message = 20usize.to_ne_bytes().to_vec();
            message.extend(SOL_UDP.to_ne_bytes());
            message.extend(UDP_GRO.to_ne_bytes());
            message.extend((*segment as i32).to_ne_bytes());
            message.resize(24, 0);
            let control_len = if *segment > 0 { 24 } else { 0 };
            control[..control_len].copy_from_slice(&message[..control_len]);
            Ok(Peeked {
                octets: head.len(),
                name: 4,
                control: control_len,
                flags: 0,
            })
        }

        fn discard(&mut self) -> Result<(), Errno> {
            if let Some(errno) = self.errors.pop_front() {
                return Err(errno);
            }
            self.heads.pop_front().map(drop).ok_or(libc::EAGAIN)
        }
    }

    #[test]
    fn what_was_looked_at_is_forgotten_as_it_is_taken_in_one_call() {
        let (slot, mut receiver) = (slot(), Receiver::new());
        receiver.set_memory(pages::octets(MEMORY_OCTETS).unwrap());
        let mut heads = Heads::default();
        heads.heads.push_back((b"first".to_vec(), 0));
        heads.heads.push_back((b"second one".to_vec(), 0));
        let look = Ask {
            room: 100,
            stay: true,
            ..Ask::default()
        };
        let len = |receiver: &mut Receiver, heads: &mut Heads| {
            let len = |datagram: Datagram<'_>| Ok(datagram.octets.len());
            receiver.receive(slot, heads, look, len)
        };
        assert_eq!(len(&mut receiver, &mut heads), Ok(5));
        let taken = receiver.receive_whole(
            look,
            |octets, name| {
                let head = heads.peek(octets, name, &mut [0; CONTROL_OCTETS]).ok()?;
                heads.heads.pop_front();
                Some(head)
            },
            |datagram| Ok(datagram.octets.to_vec()),
        );
        assert_eq!(taken, Some(Ok(b"first".to_vec())));
        assert_eq!(len(&mut receiver, &mut heads), Ok(10));
    }

    fn slot() -> Slot {
        Slot::new(pages::shared_words(SLOT_WORDS).unwrap())
    }

    fn receiver() -> Receiver {
        let mut receiver = Receiver::new();
        receiver.set_memory(Box::leak(vec![0; MEMORY_OCTETS].into_boxed_slice()));
        receiver
    }

    const ALL: Ask = Ask {
        room: 70_000,
        whole: false,
        stay: false,
    };

    fn next(
        receiver: &mut Receiver,
        slot: Slot,
        queue: &mut Heads,
        ask: Ask,
    ) -> Result<Vec<u8>, Errno> {
        receiver.receive(slot, queue, ask, |datagram| Ok(datagram.octets.to_vec()))
    }

    #[test]
    fn the_head_leaves_the_queue_with_its_last_datagram() {
        let (mut receiver, slot) = (receiver(), slot());
        let mut queue = Heads::default();
        queue.heads.push_back((b"aaabbbc".to_vec(), 3));
        assert_eq!(next(&mut receiver, slot, &mut queue, ALL).unwrap(), b"aaa");
        assert_eq!(receiver.next_len(slot, &mut queue), 3);
        assert_eq!(next(&mut receiver, slot, &mut queue, ALL).unwrap(), b"bbb");
        assert_eq!(queue.heads.len(), 1, "readable as long as one waits");
        assert_eq!(next(&mut receiver, slot, &mut queue, ALL).unwrap(), b"c");
        assert_eq!(queue.heads.len(), 0);
        assert_eq!(
            next(&mut receiver, slot, &mut queue, ALL),
            Err(libc::EAGAIN)
        );
        assert_eq!(receiver.next_len(slot, &mut queue), 0);
    }

    #[test]
    fn a_look_changes_nothing() {
        let (mut receiver, slot) = (receiver(), slot());
        let mut queue = Heads::default();
        queue.heads.push_back((b"aab".to_vec(), 2));
        let look = Ask { stay: true, ..ALL };
        for _ in 0..3 {
            assert_eq!(next(&mut receiver, slot, &mut queue, look).unwrap(), b"aa");
        }
        next(&mut receiver, slot, &mut queue, ALL).unwrap();
        assert_eq!(next(&mut receiver, slot, &mut queue, look).unwrap(), b"b");
    }

    #[test]
    fn processes_that_share_the_socket_see_each_datagram_once() {
        let (mut parent, mut child, slot) = (receiver(), receiver(), slot());
        weft_os::process::watch();
        slot.share();
        let mut queue = Heads::default();
        queue.heads.push_back((b"abcd".to_vec(), 1));
        queue.heads.push_back((b"ef".to_vec(), 1));
        let mut seen = Vec::new();
        for turn in 0..6 {
            let who = if turn % 2 == 0 {
                &mut parent
            } else {
                &mut child
            };
            seen.extend(next(who, slot, &mut queue, ALL).unwrap());
        }
        assert_eq!(seen, b"abcdef");
    }

    #[test]
    fn an_error_met_while_taking_is_kept_for_the_next_call() {
        let (mut receiver, slot) = (receiver(), slot());
        let mut queue = Heads::default();
        queue.heads.push_back((b"a".to_vec(), 0));
        // The first call finds the datagram; then an ICMP error comes in.
        let first = receiver.receive(slot, &mut queue, ALL, |_| Ok(()));
        assert_eq!(first, Ok(()));
        queue.heads.push_back((b"b".to_vec(), 0));
        receiver.next_len(slot, &mut queue);
        queue.errors.push_back(libc::ECONNREFUSED);
        assert_eq!(next(&mut receiver, slot, &mut queue, ALL).unwrap(), b"b");
        assert_eq!(queue.heads.len(), 0);
        assert_eq!(
            next(&mut receiver, slot, &mut queue, ALL),
            Err(libc::ECONNREFUSED)
        );
        assert_eq!(
            next(&mut receiver, slot, &mut queue, ALL),
            Err(libc::EAGAIN)
        );
    }

    #[test]
    fn a_descriptor_that_is_closed_meanwhile_ends_the_taking() {
        for errno in [libc::EBADF, libc::ENOTSOCK, libc::ECONNREFUSED] {
            let (mut receiver, slot) = (receiver(), slot());
            let mut queue = Heads::default();
            queue.heads.push_back((b"last".to_vec(), 0));
            let taken = receiver.receive(slot, &mut queue, ALL, |datagram| {
                assert_eq!(datagram.octets, b"last");
                Ok(())
            });
            assert_eq!(taken, Ok(()));
            // Every call fails from now on: the next is told, and nothing hangs.
            queue.heads.push_back((b"more".to_vec(), 0));
            queue.heads.push_back((b"head".to_vec(), 0));
            let mut closed = Closed(&mut queue, errno);
            assert_eq!(receiver.receive(slot, &mut closed, ALL, |_| Ok(())), Ok(()));
        }
    }

    /// A queue that can be looked at and not taken from.
    struct Closed<'a>(&'a mut Heads, Errno);

    impl Queue for Closed<'_> {
        fn peek(
            &mut self,
            octets: &mut [u8],
            name: &mut [u8; NAME_LEN],
            control: &mut [u8],
        ) -> Result<Peeked, Errno> {
            self.0.peek(octets, name, control)
        }

        fn discard(&mut self) -> Result<(), Errno> {
            Err(self.1)
        }
    }

    proptest! {
        /// Whatever was coalesced how, the program gets the datagrams that were sent.
        #[test]
        fn datagrams_come_back_whole_and_in_order(
            heads in prop::collection::vec((1usize..400, 1usize..30, 0usize..400), 0..40),
            room in 0usize..500,
        ) {
            let (mut receiver, slot) = (receiver(), slot());
            let mut queue = Heads::default();
            let mut wanted = Vec::new();
            for (number, (size, count, last)) in heads.into_iter().enumerate() {
                let last = last.min(size);
                let mut head = vec![number as u8; size * (count - 1)];
                wanted.extend(vec![vec![number as u8; size.min(room)]; count - 1]);
                if last > 0 || count == 1 {
                    head.extend(vec![!(number as u8); last]);
                    wanted.push(vec![!(number as u8); last.min(room)]);
                }
                let segment = if count > 1 { size } else { 0 };
                queue.heads.push_back((head, segment));
            }
            let ask = Ask { room, ..ALL };
            for datagram in wanted {
                prop_assert_eq!(next(&mut receiver, slot, &mut queue, ask), Ok(datagram));
            }
            prop_assert_eq!(next(&mut receiver, slot, &mut queue, ask), Err(libc::EAGAIN));
        }
    }
}
