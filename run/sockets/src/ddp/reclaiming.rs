//! Slots of connections that nobody has any more.
//!
//! A connection that several processes had stays taken when they have left: a child that made no call on it may have
//! it too. Whether its socket is anybody's the kernel says, by the socket's inode, of every socket that still has a
//! connection; of the others those are kept that a living process has used ([`super::users`]). So a server that forks
//! for each connection has a few hundred slots more than connections.

use std::sync::atomic::{AtomicU32, Ordering};

use weft_os::pages::Temporary;
use weft_os::sock_diag::{SockDiag, LIST_OCTETS};
use weft_os::{process, sched};
use zerocopy::FromZeros;

use super::slots::{Slots, SLOTS_MAX};

/// Connections that processes have left, of those that others may have, before anybody looks.
const LEFT_MIN: u32 = 256;
/// The kernel goes through all sockets of the machine: so much of the time, as a part, is spent on that at most.
const PART_OF_TIME: u32 = 16;

/// When to look, for all processes of a family.
#[derive(Debug, FromZeros)]
pub(super) struct Reclaiming {
    /// Times that a process has left a connection since somebody looked.
    left: AtomicU32,
    /// Slots that stayed taken then.
    kept: AtomicU32,
    /// When somebody may look again, in milliseconds, and 1; 0 for at once. Wraps.
    not_before: AtomicU32,
}

impl Reclaiming {
    /// A process has left a connection that others may have.
    pub(super) fn count_left(&self) {
        self.left.fetch_add(1, Ordering::Relaxed);
    }

    fn is_due(&self) -> bool {
        let kept = self.kept.load(Ordering::Relaxed);
        self.left.load(Ordering::Relaxed) >= LEFT_MIN.max(kept)
    }

    /// Whether this process is to look now: nobody has of late.
    fn begin(&self) -> bool {
        let now = sched::now_ms();
        let before = self.not_before.load(Ordering::Relaxed);
        let is_time = before == 0 || now.wrapping_sub(before - 1).cast_signed() >= 0;
        // Whoever dies at it holds the others up for a second.
        let for_now = now.wrapping_add(1000) | 1;
        is_time
            && self
                .not_before
                .compare_exchange(before, for_now, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    fn end(&self, begun: u32, kept: u32) {
        self.left.store(0, Ordering::Relaxed);
        self.kept.store(kept, Ordering::Relaxed);
        let now = sched::now_ms();
        let pause = now.wrapping_sub(begun).saturating_mul(PART_OF_TIME).max(1);
        self.not_before
            .store(now.wrapping_add(pause) | 1, Ordering::Release);
    }
}

impl Slots {
    /// Frees slots that nobody has, where processes have left so many connections that it is worth a look.
    #[inline]
    pub(super) fn reclaim_where_due(&self) {
        if self.map.reclaiming.is_due() {
            self.reclaim_now();
        }
    }

    /// The same whether or not they have: slots are short.
    #[cold]
    pub(super) fn reclaim_now(&self) {
        let begun = sched::now_ms();
        if self.map.reclaiming.begin() {
            // Where the kernel does not tell they stay taken until the family has ended.
            let _ = self.reclaim();
            self.map.reclaiming.end(begun, self.taken());
        }
    }

    fn reclaim(&self) -> Option<()> {
        let mut diag = SockDiag::open().ok()?;
        let network = diag.network()?;
        let (mut room, mut places) = (Temporary::new(LIST_OCTETS)?, Temporary::new(PLACES_OCTETS)?);
        let mut candidates = Candidates {
            places: places.octets(),
            count: 0,
        };
        let mut judge = Judge::default();
        for number in self.taken_numbers() {
            let users = &self.get(number as u32)?.users;
            if users.network() == Some(network) && self.is_unused(number, &mut judge) {
                candidates.insert(self.inode_of(number as u32), number as u32);
            }
        }
        // Twice: a socket that moves in the kernel's tables while it lists them may be missing in one list.
        for _ in 0..2 {
            if candidates.count == 0 {
                return Some(());
            }
            let listed = |inode| candidates.remove(inode);
            diag.each_connected_inode(room.octets(), listed).ok()?;
        }
        candidates.each(|inode, number| self.free_unless_used(number as usize, inode));
        Some(())
    }

    /// Whether several processes had the connection, and none that lives has used it and not left it.
    fn is_unused(&self, number: usize, judge: &mut Judge) -> bool {
        self.get(number as u32)
            .is_some_and(|slot| slot.is_shared() && !slot.users.are_any(|one| judge.has_ended(one)))
    }

    fn free_unless_used(&self, number: usize, inode: u32) {
        let Some(slot) = self.get(number as u32) else {
            return;
        };
        if !slot.users.begin_to_free() {
            return;
        }
        // Another process may have used it since, or have freed it: then it is another connection's.
        let is_same = self.inode_of(number as u32) as u32 == inode;
        match is_same && self.is_unused(number, &mut Judge::default()) {
            true => self.free(number),
            false => slot.users.spare(),
        }
    }
}

/// Says which processes have ended. Mostly one has many connections.
#[derive(Default)]
struct Judge {
    last: Option<(u32, bool)>,
}

impl Judge {
    fn has_ended(&mut self, process: u32) -> bool {
        match self.last {
            Some((last, has_ended)) if last == process => has_ended,
            _ => {
                let has_ended = process::has_ended(process);
                self.last = Some((process, has_ended));
                has_ended
            }
        }
    }
}

/// Places of the table, so many that looks into it stay short.
const PLACES: usize = 4 * SLOTS_MAX;
/// Octets of a place: an inode, and the number of a slot and one. Zero where nothing ever was.
const PLACE: usize = 8;
const PLACES_OCTETS: usize = PLACES * PLACE;

/// Slots that may be free, by the inodes of their sockets.
struct Candidates<'a> {
    places: &'a mut [u8],
    count: usize,
}

impl Candidates<'_> {
    fn place(&self, at: usize) -> (u32, u32) {
        let word = |at: usize| {
            let octets = self.places.get(at..).and_then(|rest| rest.first_chunk());
            octets.map_or(0, |octets| u32::from_ne_bytes(*octets))
        };
        let at = at % PLACES * PLACE;
        (word(at), word(at + 4))
    }

    fn put(&mut self, at: usize, inode: u32, word: u32) {
        let at = at % PLACES * PLACE;
        if let Some(place) = self.places.get_mut(at..at + PLACE) {
            place[..4].copy_from_slice(&inode.to_ne_bytes());
            place[4..].copy_from_slice(&word.to_ne_bytes());
        }
    }

    /// Where the socket's place is, or the first that was never anybody's.
    fn find(&self, inode: u32) -> usize {
        // Inodes count up; multiplied by the golden ratio those near each other are far apart (Knuth 6.4).
        let first = inode.wrapping_mul(0x9E37_79B9) as usize >> (32 - PLACES.ilog2());
        let is_it = |at: &usize| matches!(self.place(*at), (of, word) if word == 0 || of == inode);
        (first..first + PLACES).find(is_it).unwrap_or(first)
    }

    /// There are never more than slots.
    fn insert(&mut self, inode: u64, number: u32) {
        // The kernel tells of 32 bits, and gives sockets no longer ones.
        let at = self.find(inode as u32);
        self.put(at, inode as u32, number + 1);
        self.count += 1;
    }

    /// The socket is somebody's.
    fn remove(&mut self, inode: u32) {
        let at = self.find(inode);
        let (of, word) = self.place(at);
        if of == inode && word != 0 && word != REMOVED {
            self.put(at, inode, REMOVED);
            self.count -= 1;
        }
    }

    fn each(&self, mut work: impl FnMut(u32, u32)) {
        for at in 0..PLACES {
            match self.place(at) {
                (_, 0 | REMOVED) => {}
                (inode, word) => work(inode, word - 1),
            }
        }
    }
}

/// In a place whose socket is somebody's.
const REMOVED: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::super::slot::State;
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use weft_os::stream;
    use weft_os::testing::{await_child, fork};

    fn connected(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    /// A connection of this process by a slot, as a server has it that has forked for it.
    fn shared(slots: &Slots, socket: &TcpStream) -> (u32, u64) {
        let fd = socket.as_raw_fd();
        let inode = stream::inode(fd).unwrap();
        let slot = slots.take(State::Accepted, inode, false, stream::network(fd));
        let slot = slot.unwrap();
        slots.share(slot);
        (slot, inode)
    }

    fn look(slots: &Slots) {
        slots.map.reclaiming.not_before.store(0, Ordering::Relaxed);
        slots.reclaim_now();
    }

    #[test]
    fn what_several_processes_had_is_free_when_the_kernel_knows_no_more_of_it() {
        weft_os::process::watch();
        let slots = Slots::new(false).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ((client, server), (_other, held)) = (connected(&listener), connected(&listener));
        let (slot, inode) = shared(&slots, &server);
        let (kept, kept_inode) = shared(&slots, &held);
        look(&slots);
        assert_eq!(slots.taken(), 2, "they are this process's");
        slots.leave(slot, inode);
        slots.leave(kept, kept_inode);
        look(&slots);
        assert_eq!(slots.taken(), 2, "a child may have them");
        drop((client, server));
        look(&slots);
        assert_eq!(slots.taken(), 1);
        assert_eq!(
            (slots.find(inode), slots.find(kept_inode)),
            (None, Some(kept))
        );
        slots.leave(kept, kept_inode);
        // Of another namespace the kernel says nothing here.
        let elsewhere = slots
            .take(State::Accepted, 5, false, Some(u64::MAX))
            .unwrap();
        slots.share(elsewhere);
        slots.leave(elsewhere, 5);
        drop(held);
        look(&slots);
        assert_eq!((slots.taken(), slots.find(5)), (1, Some(elsewhere)));
    }

    /// The kernel does not tell of a socket whose connection has ended both ways, and octets may be in it.
    #[test]
    fn what_a_process_has_used_is_kept_until_it_has_left_it_or_ended() {
        weft_os::process::watch();
        let slots = Slots::new(false).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (client, server) = connected(&listener);
        let (slot, inode) = shared(&slots, &server);
        let (mut says, hears) = std::os::unix::net::UnixStream::pair().unwrap();
        let child = fork(|| {
            let entered = slots.enter(slot, inode);
            // Until the parent has looked.
            let _ = std::io::Read::read(&mut &hears, &mut [0]);
            entered
        });
        while slots.get(slot).unwrap().users.has_own() {
            slots.leave(slot, inode);
        }
        stream::reset(client.as_raw_fd());
        stream::reset(server.as_raw_fd());
        let users = &slots.get(slot).unwrap().users;
        while !users.are_any(|_| false) {
            std::thread::yield_now();
        }
        look(&slots);
        assert_eq!(slots.taken(), 1, "the child has used it");
        std::io::Write::write_all(&mut says, b"x").unwrap();
        assert!(await_child(child));
        look(&slots);
        assert_eq!(slots.taken(), 0);
        assert!(!slots.enter(slot, inode), "whoever has it still is late");
        assert_eq!(slots.take(State::Accepted, 9, false, None), Some(slot));
        assert!(!slots.enter(slot, inode));
        slots.leave(slot, inode);
        assert_eq!(slots.find(9), Some(slot), "it is another connection's");
    }

    #[test]
    fn a_server_that_forks_for_each_connection_has_room_for_ever() {
        weft_os::process::watch();
        let slots = Slots::new(false).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut most = 0;
        for _ in 0..3 * LEFT_MIN {
            let (_client, server) = connected(&listener);
            let (slot, inode) = shared(&slots, &server);
            slots.leave(slot, inode);
            drop(server);
            most = most.max(slots.taken());
            // As if it were a second later: a look soon after another is put off.
            slots.map.reclaiming.not_before.store(0, Ordering::Relaxed);
        }
        assert!(most <= LEFT_MIN + 1, "{most} slots");
    }
}
