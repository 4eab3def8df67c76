//! A socket's outgoing datagrams: sent at once while the program is idle, gathered by destination while it is
//! busy.

use crate::destination::Destination;
use crate::kernel::{EAGAIN, EINTR, EINVAL, EIO, EMSGSIZE, EOPNOTSUPP};

use crate::batch::{Batch, Fit, Pace, MOST_OCTETS};
use crate::Errno;

/// Destinations whose datagrams gather at a time on one socket.
pub const QUEUES: usize = 8;
/// Octets of memory for all queues together.
pub const MEMORY: usize = QUEUES * QUEUE_OCTETS;
const QUEUE_OCTETS: usize = 65_536;

/// What takes datagrams: the kernel, or a test.
pub trait Wire {
    /// Sends `octets` as one datagram, or as datagrams of `segment` octets and a last one of what is left: all or
    /// none.
    ///
    /// # Errors
    /// The errno.
    fn send(&mut self, to: &Destination, octets: &[u8], segment: Option<u16>) -> Result<(), Errno>;
}

/// What became of a datagram that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// It waits with others; the socket is to be flushed in time.
    Gathered,
    /// It is to be sent plainly, now. Everything before it to this destination has left.
    Plain,
}

/// Gathers the datagrams of one socket.
#[derive(Debug)]
pub struct Sender {
    queues: [DestinationQueue; QUEUES],
    memory: &'static mut [u8],
    pace: Pace,
    /// Longest datagram that is not known to be refused as a segment.
    limit: usize,
    /// What a send that nobody waited for came to; the next call tells.
    pending: Option<Errno>,
    /// Counts appends, to know which queue is oldest.
    clock: u64,
    /// The queue of the last append, where the next one mostly goes.
    last: usize,
    /// The queues in which something waits, a bit each.
    waiting: u8,
}

const _: () = assert!(QUEUES <= u8::BITS as usize);

#[derive(Clone, Copy, Debug)]
struct DestinationQueue {
    to: Destination,
    batch: Batch,
    since: u64,
}

impl Default for Sender {
    fn default() -> Self {
        Sender::new()
    }
}

impl Sender {
    /// A sender that gathers nothing before it has memory.
    pub const fn new() -> Sender {
        const QUEUE_OCTETS: DestinationQueue = DestinationQueue {
            to: Destination::CONNECTED,
            batch: Batch::EMPTY,
            since: 0,
        };
        Sender {
            queues: [QUEUE_OCTETS; QUEUES],
            memory: &mut [],
            pace: Pace::NEW,
            limit: MOST_OCTETS,
            pending: None,
            clock: 0,
            last: 0,
            waiting: 0,
        }
    }

    /// Whether it has memory to gather in.
    pub fn has_memory(&self) -> bool {
        self.memory.len() == MEMORY
    }

    /// Gives it memory: [`MEMORY`] octets.
    pub fn set_memory(&mut self, memory: &'static mut [u8]) {
        assert_eq!(memory.len(), MEMORY);
        self.memory = memory;
    }

    /// Whether nothing waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        let is_queue_empty = |queue: &DestinationQueue| queue.batch.is_empty();
        debug_assert_eq!(self.waiting == 0, self.queues.iter().all(is_queue_empty));
        self.waiting == 0
    }

    /// Whether what waits is for one destination.
    #[inline]
    pub fn waits_alone(&self) -> bool {
        self.waiting.is_power_of_two()
    }

    /// When somebody looked at the clock last, at a send.
    #[inline]
    pub fn looked_at(&self) -> u64 {
        self.pace.looked_at()
    }

    /// Notes whether something waits in this queue.
    #[inline]
    fn note(&mut self, index: usize) {
        let is_waiting = !self.queues[index].batch.is_empty();
        self.waiting = self.waiting & !(1 << index) | u8::from(is_waiting) << index;
    }

    /// Notes a send of `len` octets at `now` (nanoseconds) and gives whether the program is busy, see [`Pace::note`].
    #[inline]
    pub fn is_busy(&mut self, now: u64, len: usize, after: u32) -> bool {
        self.pace.note(now, len, after)
    }

    /// Notes a send of a busy program while an earlier datagram waits, without a look at the clock, see
    /// [`Pace::note_untimed`]. False where the program is idle or nothing waits: [`Sender::is_busy`] is to be asked.
    #[inline]
    pub fn stays_busy(&mut self, after: u32) -> bool {
        let stays = self.waiting != 0 && self.pace.is_busy(after);
        if stays {
            self.pace.note_untimed();
        }
        stays
    }

    /// The program waited for a datagram, and it came, see [`Pace::answered`].
    pub fn answered(&mut self) {
        self.pace.answered();
    }

    /// A send of what gathered kept the program until `now` (nanoseconds).
    #[inline]
    pub fn resume(&mut self, now: u64) {
        self.pace.resume(now);
    }

    /// The longest datagram that may gather.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Takes a new connection into account: what was learnt of the path is forgotten.
    pub fn forget_path(&mut self) {
        self.limit = MOST_OCTETS;
    }

    /// The error of a send that nobody waited for, once.
    #[inline]
    pub fn take_pending(&mut self) -> Option<Errno> {
        self.pending.take()
    }

    /// Takes a datagram that is like the one before it, as nearly all of a stream are: to the same destination (`name`,
    /// empty for the connected peer), as long, in a batch that waits and has room for yet another. `fill` puts its
    /// octets in place. Nothing where it is not: [`Sender::offer`] is what takes those. All that had to be asked before
    /// the program's datagrams may gather was asked for the one before.
    ///
    /// # Errors
    /// What `fill` says; the datagram was not taken then.
    #[inline]
    pub fn append_alike(
        &mut self,
        name: &[u8],
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), Errno>,
    ) -> Option<Result<(), Errno>> {
        let is_waiting = self.waiting & 1 << self.last != 0;
        let queue = &mut self.queues[self.last];
        let fits = len <= self.limit && queue.batch.has_room_for_alike(len);
        if !is_waiting || !fits || !queue.to.is(name) {
            return None;
        }
        self.pace.note_untimed();
        self.clock += 1;
        let range = queue.batch.append_alike();
        let base = self.last * QUEUE_OCTETS;
        let place = &mut self.memory[base + range.start..base + range.end];
        let filled = fill(place);
        if filled.is_err() {
            self.queues[self.last].batch.take_back(range);
        }
        Some(filled)
    }

    /// Takes a datagram of `len` octets to `to`; `fill` puts its octets in place.
    ///
    /// # Errors
    /// The socket does not take what has gathered (EAGAIN, EINTR; all that waits still waits), or `fill` failed.
    /// The datagram was not taken then.
    #[inline]
    pub fn offer(
        &mut self,
        wire: &mut impl Wire,
        to: &Destination,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), Errno>,
    ) -> Result<Offer, Errno> {
        let index = match self.queue(to) {
            Some(index) => index,
            None => self.new_queue(wire, to)?,
        };
        match self.queues[index].batch.fit(len, self.limit) {
            Fit::Fits => {}
            Fit::AfterFlush => self.flush_queue(wire, index)?,
            Fit::Never => {
                self.flush(wire)?;
                return Ok(Offer::Plain);
            }
        }
        // The flush may have taught that segments of this size are refused.
        if len > self.limit {
            return Ok(Offer::Plain);
        }
        self.append(wire, index, to, len, fill)?;
        Ok(Offer::Gathered)
    }

    #[inline]
    fn append(
        &mut self,
        wire: &mut impl Wire,
        index: usize,
        to: &Destination,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.clock += 1;
        self.last = index;
        let queue = &mut self.queues[index];
        if queue.batch.is_empty() {
            queue.to = *to;
            queue.since = self.clock;
        }
        let range = queue.batch.append(len);
        self.note(index);
        let base = index * QUEUE_OCTETS;
        let place = &mut self.memory[base + range.start..base + range.end];
        if let Err(errno) = fill(place) {
            self.queues[index].batch.take_back(range);
            self.note(index);
            return Err(errno);
        }
        if self.queues[index].batch.is_full() {
            // The datagram is taken: what the socket says now is for later, and a full batch waits its turn.
            let _ = self.flush_queue(wire, index);
        }
        Ok(())
    }

    /// The queue where datagrams to `to` gather.
    #[inline]
    fn queue(&self, to: &Destination) -> Option<usize> {
        let is = |queue: &DestinationQueue| queue.to == *to && !queue.batch.is_empty();
        match is(&self.queues[self.last]) {
            true => Some(self.last),
            false => self.queues.iter().position(is),
        }
    }

    /// A queue for a destination that has none.
    #[inline(never)]
    fn new_queue(&mut self, wire: &mut impl Wire, to: &Destination) -> Result<usize, Errno> {
        // The connected peer may be the same as one that is named: keep the order.
        let named = |queue: &DestinationQueue| queue.to.name().is_empty() != to.name().is_empty();
        let mixed = |queue: &DestinationQueue| !queue.batch.is_empty() && named(queue);
        if self.queues.iter().any(mixed) {
            self.flush(wire)?;
        }
        self.free_queue(wire)
    }

    /// An empty queue, made by flushing the oldest if there is none.
    fn free_queue(&mut self, wire: &mut impl Wire) -> Result<usize, Errno> {
        if let Some(empty) = self.queues.iter().position(|queue| queue.batch.is_empty()) {
            return Ok(empty);
        }
        let (oldest, _) = self
            .queues
            .iter()
            .enumerate()
            .min_by_key(|(_, queue)| queue.since)
            .expect("there are queues");
        self.flush_queue(wire, oldest)?;
        Ok(oldest)
    }

    /// Sends everything that waits, the oldest first.
    ///
    /// # Errors
    /// The socket takes no more for now (EAGAIN, EINTR): the rest still waits. Other errors belong to datagrams
    /// whose send was reported as done; they wait in [`Sender::take_pending`].
    pub fn flush(&mut self, wire: &mut impl Wire) -> Result<(), Errno> {
        loop {
            let waiting = (0..QUEUES).filter(|&index| !self.queues[index].batch.is_empty());
            match waiting.min_by_key(|&index| self.queues[index].since) {
                Some(index) => self.flush_queue(wire, index)?,
                None => return Ok(()),
            }
        }
    }

    fn flush_queue(&mut self, wire: &mut impl Wire, index: usize) -> Result<(), Errno> {
        let DestinationQueue { to, batch, .. } = self.queues[index];
        if batch.count() < 2 {
            return self.send_singly(wire, index);
        }
        let base = index * QUEUE_OCTETS;
        let range = batch.range();
        let octets = &self.memory[base + range.start..base + range.end];
        match wire.send(&to, octets, Some(batch.size() as u16)) {
            Ok(()) => {
                self.queues[index].batch.all_left();
                self.note(index);
            }
            Err(errno) if is_later(errno) => return Err(errno),
            // The kernel or the interface does not segment this: the path's MTU is smaller, the checksum is off, there
            // is a transformation. One by one it is told what is really wrong, if anything.
            Err(EINVAL | EMSGSIZE | EIO | EOPNOTSUPP) => {
                self.limit = self.limit.min(batch.size() - 1);
                return self.send_singly(wire, index);
            }
            Err(errno) => {
                self.pending = Some(errno);
                // An error that waited at the socket was not about these: once more, one by one.
                return self.send_singly(wire, index);
            }
        }
        Ok(())
    }

    fn send_singly(&mut self, wire: &mut impl Wire, index: usize) -> Result<(), Errno> {
        let base = index * QUEUE_OCTETS;
        while !self.queues[index].batch.is_empty() {
            let DestinationQueue { to, batch, .. } = self.queues[index];
            let range = batch.first();
            let octets = &self.memory[base + range.start..base + range.end];
            match wire.send(&to, octets, None) {
                Ok(()) => {}
                Err(errno) if is_later(errno) => return Err(errno),
                Err(errno) => self.pending = Some(errno),
            }
            self.queues[index].batch.first_left();
            self.note(index);
        }
        Ok(())
    }

    /// Forgets all that waits: it is somebody else's to send.
    pub fn abandon(&mut self) {
        for queue in &mut self.queues {
            queue.batch.all_left();
        }
        self.waiting = 0;
        self.pending = None;
    }
}

/// Whether a send may simply be tried again.
fn is_later(errno: Errno) -> bool {
    matches!(errno, EAGAIN | EINTR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::prelude::v1::*;
    use std::vec;

    /// Keeps what it is sent, as the datagrams a receiver would see.
    #[derive(Default)]
    struct Recorder {
        datagrams: Vec<(Destination, Vec<u8>)>,
        sends: usize,
        /// Errors to answer with, first to last; `None` is success.
        answers: std::collections::VecDeque<Option<Errno>>,
        /// Longest segment.
        mtu: Option<usize>,
    }

    impl Wire for Recorder {
        fn send(
            &mut self,
            to: &Destination,
            octets: &[u8],
            segment: Option<u16>,
        ) -> Result<(), Errno> {
            if let Some(Some(errno)) = self.answers.pop_front() {
                return Err(errno);
            }
            let size = segment.map_or(octets.len().max(1), usize::from);
            if segment.is_some() && self.mtu.is_some_and(|mtu| size > mtu) {
                return Err(EINVAL);
            }
            assert!(
                segment.is_none() || octets.len() > size,
                "one segment needs no segmentation"
            );
            assert!(octets.len() <= MOST_OCTETS && octets.len().div_ceil(size) <= 64);
            self.sends += 1;
            for datagram in octets.chunks(size) {
                self.datagrams.push((*to, datagram.to_vec()));
            }
            Ok(())
        }
    }

    fn sender() -> Sender {
        let mut sender = Sender::new();
        sender.set_memory(Box::leak(vec![0; MEMORY].into_boxed_slice()));
        sender
    }

    fn to(number: u8) -> Destination {
        Destination::new(&[number; 16]).unwrap()
    }

    fn offer(
        sender: &mut Sender,
        wire: &mut Recorder,
        to: &Destination,
        octets: &[u8],
    ) -> Result<Offer, Errno> {
        sender.offer(wire, to, octets.len(), |place| {
            place.copy_from_slice(octets);
            Ok(())
        })
    }

    #[test]
    fn equal_datagrams_leave_in_one_send() {
        let (mut sender, mut wire) = (sender(), Recorder::default());
        for number in 0..45u8 {
            let taken = offer(&mut sender, &mut wire, &to(1), &[number; 1448]);
            assert_eq!(taken, Ok(Offer::Gathered));
        }
        assert_eq!((wire.sends, wire.datagrams.len()), (1, 45));
        assert!(sender.is_empty());
    }

    /// Whether it was taken as one like that before it.
    fn append_alike(sender: &mut Sender, to: &Destination, octets: &[u8]) -> bool {
        let fill = |place: &mut [u8]| {
            place.copy_from_slice(octets);
            Ok(())
        };
        let taken = sender.append_alike(to.name(), octets.len(), fill);
        assert!(taken.is_none_or(|taken| taken.is_ok()));
        taken.is_some()
    }

    #[test]
    fn one_like_the_one_before_it_joins_it() {
        let (mut sender, mut wire) = (sender(), Recorder::default());
        assert!(!append_alike(&mut sender, &to(1), &[0; 1448]), "no batch");
        offer(&mut sender, &mut wire, &to(1), &[0; 1448]).unwrap();
        for number in 1..44 {
            assert!(append_alike(&mut sender, &to(1), &[number; 1448]));
        }
        assert!(
            !append_alike(&mut sender, &to(1), &[44; 1448]),
            "it is the last"
        );
        offer(&mut sender, &mut wire, &to(1), &[44; 1448]).unwrap();
        let octets: Vec<u8> = wire.datagrams.iter().map(|(_, octets)| octets[0]).collect();
        assert_eq!((wire.sends, octets), (1, (0..45).collect()));
        assert!(
            !append_alike(&mut sender, &to(1), &[0; 1448]),
            "it has left"
        );
    }

    #[test]
    fn one_unlike_the_one_before_it_does_not() {
        let (mut sender, mut wire) = (sender(), Recorder::default());
        offer(&mut sender, &mut wire, &to(1), &[0; 100]).unwrap();
        for (to, len) in [
            (to(2), 100),
            (Destination::CONNECTED, 100),
            (to(1), 99),
            (to(1), 101),
        ] {
            assert!(!append_alike(&mut sender, &to, &[0; 101][..len]));
        }
        assert!(append_alike(&mut sender, &to(1), &[1; 100]));
        offer(&mut sender, &mut wire, &to(2), &[0; 100]).unwrap();
        assert!(
            !append_alike(&mut sender, &to(1), &[0; 100]),
            "it was before the last"
        );
        offer(&mut sender, &mut wire, &to(2), &[0; 50]).unwrap();
        assert!(
            !append_alike(&mut sender, &to(2), &[0; 100]),
            "a shorter one ends the row"
        );
    }

    /// Segments of that length are refused, as was learnt when a part of the batch had left.
    #[test]
    fn one_that_is_too_long_to_be_segmented_joins_none() {
        let (mut sender, mut wire) = (sender(), Recorder::default());
        wire.mtu = Some(1472);
        for number in 0..2 {
            offer(&mut sender, &mut wire, &to(1), &[number; 2000]).unwrap();
        }
        wire.answers.extend([None, None, Some(EAGAIN)]);
        assert_eq!(sender.flush(&mut wire), Err(EAGAIN));
        assert_eq!((wire.datagrams.len(), sender.is_empty()), (1, false));
        assert!(!append_alike(&mut sender, &to(1), &[2; 2000]));
    }

    #[test]
    fn what_is_not_mapped_is_not_taken() {
        let (mut sender, mut wire) = (sender(), Recorder::default());
        offer(&mut sender, &mut wire, &to(1), b"abc").unwrap();
        let taken = sender.append_alike(to(1).name(), 3, |_| Err(14));
        assert_eq!(taken, Some(Err(14)));
        assert!(append_alike(&mut sender, &to(1), b"def"));
        sender.flush(&mut wire).unwrap();
        assert_eq!(wire.datagrams.len(), 2);
        assert_eq!(wire.datagrams[1].1, b"def");
    }

    /// A program that pauses is idle once that is over, however many datagrams it had gather before.
    #[test]
    fn who_gathers_is_busy_until_it_pauses() {
        let (mut sender, mut wire) = (sender(), Recorder::default());
        assert!(!sender.stays_busy(4), "nothing is known");
        let at = |quick: u64| 1_000_000 + quick * 1_000;
        let busy = (0..6)
            .map(|number| sender.is_busy(at(number), 64, 4))
            .filter(|is| *is);
        assert_eq!(busy.count(), 2);
        assert!(!sender.stays_busy(4), "nothing waits");
        offer(&mut sender, &mut wire, &to(1), &[0; 64]).unwrap();
        assert!((0..50).all(|_| sender.stays_busy(4)));
        sender.flush(&mut wire).unwrap();
        assert!(sender.is_busy(at(300), 64, 4), "few pauses in fifty");
        offer(&mut sender, &mut wire, &to(1), &[0; 64]).unwrap();
        assert!((0..50).all(|_| sender.stays_busy(4)));
        sender.flush(&mut wire).unwrap();
        assert!(
            !sender.is_busy(at(1_000), 64, 4),
            "longer than any batch waits"
        );
    }

    #[test]
    fn what_cannot_gather_follows_what_has() {
        let (mut sender, mut wire) = (sender(), Recorder::default());
        offer(&mut sender, &mut wire, &to(1), b"first").unwrap();
        assert_eq!(offer(&mut sender, &mut wire, &to(1), b""), Ok(Offer::Plain));
        assert_eq!(wire.datagrams.len(), 1);
    }

    #[test]
    fn destinations_gather_apart() {
        let (mut sender, mut wire) = (sender(), Recorder::default());
        for round in 0..10 {
            for number in 0..QUEUES as u8 {
                offer(&mut sender, &mut wire, &to(number), &[round; 100]).unwrap();
            }
        }
        sender.flush(&mut wire).unwrap();
        assert_eq!((wire.sends, wire.datagrams.len()), (QUEUES, 80));
        let (mut sender, mut wire) = (self::sender(), Recorder::default());
        for number in 0..20 {
            offer(&mut sender, &mut wire, &to(number), &[1; 100]).unwrap();
        }
        assert_eq!(wire.datagrams.len(), 20 - QUEUES);
    }

    #[test]
    fn a_full_socket_keeps_everything_and_says_so() {
        let (mut sender, mut wire) = (sender(), Recorder::default());
        offer(&mut sender, &mut wire, &to(1), &[1; 100]).unwrap();
        offer(&mut sender, &mut wire, &to(1), &[2; 100]).unwrap();
        wire.answers.push_back(Some(EAGAIN));
        assert_eq!(
            offer(&mut sender, &mut wire, &to(1), &[3; 101]),
            Err(EAGAIN)
        );
        assert_eq!(sender.flush(&mut wire), Ok(()));
        assert_eq!(wire.datagrams.len(), 2);
    }

    #[test]
    fn a_batch_that_cannot_be_segmented_leaves_plainly_and_teaches() {
        let (mut sender, mut wire) = (sender(), Recorder::default());
        wire.mtu = Some(1472);
        for number in 0..3 {
            offer(&mut sender, &mut wire, &to(1), &[number; 2000]).unwrap();
        }
        sender.flush(&mut wire).unwrap();
        assert_eq!((wire.sends, wire.datagrams.len()), (3, 3));
        assert_eq!(sender.limit(), 1999);
        assert_eq!(
            offer(&mut sender, &mut wire, &to(1), &[3; 2000]),
            Ok(Offer::Plain)
        );
        assert_eq!(sender.take_pending(), None);
        sender.forget_path();
        assert_eq!(
            offer(&mut sender, &mut wire, &to(1), &[3; 2000]),
            Ok(Offer::Gathered)
        );
    }

    #[test]
    fn an_error_is_told_once_and_costs_no_datagram_it_was_not_about() {
        let (mut sender, mut wire) = (sender(), Recorder::default());
        for number in 0..3 {
            offer(&mut sender, &mut wire, &to(1), &[number; 50]).unwrap();
        }
        wire.answers.push_back(Some(111));
        assert_eq!(sender.flush(&mut wire), Ok(()));
        assert_eq!(wire.datagrams.len(), 3);
        assert_eq!(sender.take_pending(), Some(111));
        assert_eq!(sender.take_pending(), None);
    }

    #[test]
    fn a_bad_address_takes_nothing() {
        let (mut sender, mut wire) = (sender(), Recorder::default());
        offer(&mut sender, &mut wire, &to(1), b"abc").unwrap();
        let bad = sender.offer(&mut wire, &to(1), 2, |_| Err(14));
        assert_eq!(bad, Err(14));
        offer(&mut sender, &mut wire, &to(1), b"def").unwrap();
        sender.flush(&mut wire).unwrap();
        assert_eq!(wire.datagrams[1].1, b"def");
    }

    proptest! {
        /// Whatever is sent wherever, with the socket full now and then: each destination gets its datagrams whole,
        /// once and in order, those that are like the one before them too.
        #[test]
        fn every_destination_sees_its_datagrams_in_order(
            sends in prop::collection::vec((0u8..12, 0usize..3000, 0u8..20, 1usize..80), 0..100)
        ) {
            let alike = sends.into_iter().flat_map(|(peer, len, luck, times)| {
                std::iter::repeat_n((peer, len, luck), if times < 70 { 1 } else { times })
            });
            let (mut sender, mut wire) = (sender(), Recorder::default());
            wire.mtu = Some(1472);
            let mut wanted: Vec<(Destination, Vec<u8>)> = Vec::new();
            for (number, (peer, len, luck)) in alike.enumerate() {
                let octets = vec![number as u8; len];
                if luck == 0 { wire.answers.push_back(Some(EAGAIN)); }
                if luck == 1 { sender.flush(&mut wire).ok(); }
                if append_alike(&mut sender, &to(peer), &octets) {
                    wanted.push((to(peer), octets));
                    wire.answers.clear();
                    continue;
                }
                match offer(&mut sender, &mut wire, &to(peer), &octets) {
                    Ok(Offer::Gathered) => wanted.push((to(peer), octets)),
                    Ok(Offer::Plain) => {
                        wire.datagrams.push((to(peer), octets.clone()));
                        wanted.push((to(peer), octets));
                    }
                    Err(errno) => prop_assert_eq!(errno, EAGAIN),
                }
                wire.answers.clear();
            }
            sender.flush(&mut wire).unwrap();
            prop_assert_eq!(wire.datagrams.len(), wanted.len());
            for peer in 0..12 {
                let of = |all: &[(Destination, Vec<u8>)]| -> Vec<Vec<u8>> {
                    let own = all.iter().filter(|(whom, _)| *whom == to(peer));
                    own.map(|(_, octets)| octets.clone()).collect()
                };
                prop_assert_eq!(of(&wire.datagrams), of(&wanted));
            }
        }
    }
}
