//! The sending direction of a stream: where its next octets go, and when they may.
//!
//! Two things bound a sender whose peer is not Weft: the *window*, the octets left in the targets that the peer gave,
//! and *credit*, the messages that the peer has buffers for. Between Weft peers neither does: nothing is held in memory
//! for a stream there, and TCP alone holds a sender back.

use weft_iwarp::Msn;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::connection_data::{ConnectionData, Target, TARGETS, TARGET_LEN};
use crate::frame::{
    self, payload_max, ENTRY_WRITE_LEN, MESSAGE_LEN, TARGET_WRITE_LEN, WRITE_HEADER_LEN,
};
use crate::map::{Map, ENTRY_LEN};
use crate::receiver::Renewal;
use crate::word::{Word, VALUE_MAX};

/// Messages that a sender leaves unsent of what it has credit for. A peer's buffers for messages take its Sends of
/// every kind, and only those that tell of octets are counted: a Send that finds no buffer ends an iWARP connection.
const CREDIT_KEPT_BACK: u16 = 4;
/// Octets of what [`Sender::renew`] gives.
pub const RENEWAL_LEN_MAX: usize = TARGET_WRITE_LEN + MESSAGE_LEN;
/// Octets of what [`Sender::tell_of_map`] gives.
pub const MAP_TOLD_LEN: usize = ENTRY_WRITE_LEN + MESSAGE_LEN;

const WEFT: u8 = 1;
const CRC: u8 = 2;
const BIG_ENDIAN: u8 = 4;

/// One end's sending direction. Plain data: any octets make one, and a copy is another sender in the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Sender {
    /// Where the stream's octets go: first the current one, when that is full the other.
    targets: [Target; TARGETS],
    /// The peer's list of the targets that this end gives it; `len` counts targets.
    list: Target,
    /// Octets of payload of one Write at most.
    payload_max: u32,
    /// Octets written that a peer which is not Weft was not told of.
    unannounced: u32,
    msn: u32,
    /// Targets that this end has given, beside the one in its connection data.
    given: u32,
    current: u8,
    flags: u8,
    /// Messages with credit so far, and up to which number there is credit. Both wrap.
    sequence: u16,
    limit: u16,
    /// How many messages the peer has buffers for.
    credits: u16,
    /// Messages of memory that the peer may not have taken: those up to the message with this number, and those behind.
    maps_until: u16,
    maps_before: u16,
    maps_behind: u16,
    /// Entries of the peer's table of what this end maps.
    map_entries: u16,
}

impl Sender {
    /// For a peer that said this of itself. `mulpdu` is the largest ULPDU to make, in octets.
    pub fn new(peer: &ConnectionData, mulpdu: usize, crc: bool) -> Sender {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        Sender {
            targets: [peer.data, Target::default()],
            list: peer.targets,
            payload_max: payload_max(mulpdu) as u32,
            unannounced: 0,
            msn: Msn::FIRST.0,
            given: 0,
            current: 0,
            flags: flag(peer.weft, WEFT) | flag(crc, CRC) | flag(peer.big_endian, BIG_ENDIAN),
            sequence: 0,
            limit: peer.credits,
            credits: peer.credits,
            maps_until: 0,
            maps_before: 0,
            maps_behind: 0,
            map_entries: if peer.maps { peer.map_entries } else { 0 },
        }
    }

    /// The peer is Weft.
    #[inline]
    pub fn is_to_weft(&self) -> bool {
        self.flags & WEFT != 0
    }

    /// FPDUs carry a CRC.
    #[inline]
    pub fn has_crc(&self) -> bool {
        self.flags & CRC != 0
    }

    /// From now on ULPDUs of so many octets at most.
    pub fn set_mulpdu(&mut self, mulpdu: usize) {
        self.payload_max = payload_max(mulpdu) as u32;
    }

    /// Octets that may leave now: 0 while the peer has given no window or no credit for more.
    #[inline]
    pub fn room(&self) -> u32 {
        if self.is_to_weft() {
            return VALUE_MAX;
        }
        let countable = VALUE_MAX - self.unannounced;
        match self.has_credit() {
            true => self.target().len.min(countable),
            false => 0,
        }
    }

    /// The peer has a buffer for one message more that tells of octets.
    fn has_credit(&self) -> bool {
        let taken = CREDIT_KEPT_BACK + self.maps_not_taken();
        self.is_to_weft() || self.limit.wrapping_sub(self.sequence) > taken
    }

    /// The peer has a buffer for one message of memory more. It gives credit for what tells of octets alone, once half
    /// of its buffers have been used for that: so much is left to those, or neither end would go on.
    pub fn may_tell_of_map(&self) -> bool {
        let most = (self.credits / 2).saturating_sub(CREDIT_KEPT_BACK).max(1);
        self.is_to_weft() || self.has_credit() && self.maps_not_taken() < most
    }

    fn maps_not_taken(&self) -> u16 {
        self.maps_before + self.maps_behind
    }

    /// So many ranges of memory this end may map for the peer.
    pub fn map_entries(&self) -> u16 {
        self.map_entries
    }

    /// What tells the peer that `map` is this entry of its table, or that the entry is none any more; `None` where
    /// there is no buffer for it.
    ///
    /// rdma-core counts only messages that tell of octets, so that one of memory that was counted here would be credit
    /// lost for good. It takes a buffer of the peer's until that has taken it.
    pub fn tell_of_map(&mut self, entry: u16, map: &Map) -> Option<[u8; MAP_TOLD_LEN]> {
        if !self.may_tell_of_map() {
            return None;
        }
        if !self.is_to_weft() {
            self.maps_behind += 1;
        }
        let targets = u64::from(self.list.len) * TARGET_LEN as u64;
        let at = targets + u64::from(entry) * ENTRY_LEN as u64;
        let (to, map) = (
            self.list.to.wrapping_add(at),
            map.to_octets(self.flags & BIG_ENDIAN != 0),
        );
        let write = frame::entry_write(self.list.stag, to, map, self.has_crc());
        let mut octets = [0; MAP_TOLD_LEN];
        octets[..ENTRY_WRITE_LEN].copy_from_slice(&write);
        octets[ENTRY_WRITE_LEN..].copy_from_slice(&self.message(Word::Map(entry.into())));
        Some(octets)
    }

    /// Octets of the stream that may leave now in one Write.
    #[inline]
    pub fn at_once(&self) -> usize {
        self.payload_max().min(self.room() as usize)
    }

    /// The most octets of payload of one Write.
    #[inline]
    pub(crate) fn payload_max(&self) -> usize {
        (self.payload_max as usize).max(1)
    }

    fn target(&self) -> &Target {
        &self.targets[usize::from(self.current) % TARGETS]
    }

    /// What stands before a Write of the next octets of the stream.
    #[inline]
    pub fn write_header(&self, payload: usize) -> [u8; WRITE_HEADER_LEN] {
        let target = self.target();
        frame::write_header(target.stag, target.to, payload)
    }

    /// Begins a Write of the next octets of the stream: what stands before them.
    pub(crate) fn begin_write(&mut self, payload: usize) -> [u8; WRITE_HEADER_LEN] {
        let header = self.write_header(payload);
        self.written(payload);
        header
    }

    /// A Write of so many octets, of no more than [`Sender::at_once`], leaves.
    #[inline]
    pub fn written(&mut self, payload: usize) {
        let (weft, at) = (self.is_to_weft(), usize::from(self.current) % TARGETS);
        let target = &mut self.targets[at];
        target.to = target.to.wrapping_add(payload as u64);
        if !weft {
            self.unannounced += payload as u32;
            target.len -= payload as u32;
            if target.len == 0 {
                self.current = (at as u8 + 1) % TARGETS as u8;
            }
        }
    }

    /// Tells of the octets written since the last message; `None` where there are none, and where the peer is Weft,
    /// which takes them as they come (decision 0040).
    #[inline]
    pub fn announce(&mut self) -> Option<[u8; MESSAGE_LEN]> {
        if self.unannounced == 0 {
            return None;
        }
        let word = Word::Data(self.unannounced);
        self.unannounced = 0;
        self.sequence = self.sequence.wrapping_add(1);
        Some(self.message(word))
    }

    /// A message that takes no credit: the end of the stream or of the connection.
    pub fn control(&mut self, word: Word) -> [u8; MESSAGE_LEN] {
        debug_assert!(matches!(word, Word::Shutdown | Word::Disconnect));
        self.message(word)
    }

    fn message(&mut self, word: Word) -> [u8; MESSAGE_LEN] {
        let msn = Msn(self.msn);
        self.msn = msn.next().0;
        frame::message(msn, word, self.has_crc())
    }

    /// What gives the peer more room for its own octets, and how many octets it takes.
    pub fn renew(&mut self, renewal: &Renewal) -> ([u8; RENEWAL_LEN_MAX], usize) {
        let mut octets = [0; RENEWAL_LEN_MAX];
        let mut len = 0;
        if let Some(target) = renewal.target {
            // The connection data gave the first.
            self.given = self.given.wrapping_add(1);
            let entry = u64::from(self.given % self.list.len.max(1));
            let to = self.list.to.wrapping_add(entry * TARGET_LEN as u64);
            let target = target.to_octets(self.flags & BIG_ENDIAN != 0);
            let write = frame::target_write(self.list.stag, to, target, self.has_crc());
            octets[..TARGET_WRITE_LEN].copy_from_slice(&write);
            len = TARGET_WRITE_LEN;
        }
        octets[len..len + MESSAGE_LEN].copy_from_slice(&self.message(Word::Credit(renewal.limit)));
        (octets, len + MESSAGE_LEN)
    }

    /// The peer gives credit up to this message.
    ///
    /// It has taken so many messages less than it has buffers for, and whatever came before those.
    pub fn set_limit(&mut self, limit: u16) {
        self.limit = limit;
        let taken = limit.wrapping_sub(self.credits);
        if taken.wrapping_sub(self.maps_until).cast_signed() > 0 {
            (self.maps_before, self.maps_behind) = (self.maps_behind, 0);
            self.maps_until = self.sequence;
        }
    }

    /// The peer gives a target.
    pub fn set_target(&mut self, index: usize, target: Target) {
        self.targets[index % TARGETS] = target;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(weft: bool) -> ConnectionData {
        ConnectionData {
            big_endian: false,
            weft,
            maps: false,
            credits: 7,
            map_entries: 0,
            targets: Target {
                to: 0x9000,
                stag: 3,
                len: 2,
            },
            data: Target {
                to: 0x1000,
                stag: 2,
                len: 100,
            },
        }
    }

    #[test]
    fn window_and_credit_bound_a_sender() {
        let mut sender = Sender::new(&peer(false), 1442, false);
        assert_eq!(sender.room(), 100);
        sender.begin_write(40);
        sender.begin_write(60);
        assert_eq!(
            sender.room(),
            0,
            "the target is full and the other was never given"
        );
        sender.set_target(
            1,
            Target {
                to: 0x5000,
                stag: 2,
                len: 10,
            },
        );
        assert_eq!(sender.room(), 10);
        assert_eq!(sender.begin_write(4)[8..16], 0x5000u64.to_be_bytes());
        for _ in 0..3 {
            assert!(sender.room() > 0);
            sender.begin_write(1);
            sender.announce().unwrap();
        }
        assert_eq!(sender.room(), 0, "four messages are kept back");
        sender.set_limit(8);
        assert_eq!(sender.room(), 3);
    }

    #[test]
    fn between_weft_peers_neither_does() {
        let mut sender = Sender::new(&peer(true), 1442, false);
        for round in 0..1000u64 {
            assert!(sender.room() > 1 << 20);
            let header = sender.begin_write(1 << 10);
            assert_eq!(header[8..16], (0x1000 + (round << 10)).to_be_bytes());
            assert_eq!(sender.announce(), None, "there is no message");
        }
    }

    #[test]
    fn octets_are_told_of_once() {
        let mut sender = Sender::new(&peer(false), 1442, false);
        assert_eq!(sender.announce(), None);
        sender.begin_write(3);
        sender.begin_write(4);
        let message = frame::message(Msn(1), Word::Data(7), false);
        assert_eq!(sender.announce(), Some(message));
        assert_eq!(sender.announce(), None);
        assert_eq!(
            sender.control(Word::Shutdown),
            frame::message(Msn(2), Word::Shutdown, false)
        );
    }

    #[test]
    fn no_count_goes_beyond_its_29_bits() {
        let mut sender = Sender::new(&peer(false), 1442, false);
        sender.unannounced = VALUE_MAX - 5;
        assert_eq!(sender.room(), 5);
    }

    /// rsockets puts its first target into entry 0 itself, so that the next goes into entry 1, then 0 again.
    #[test]
    fn targets_are_given_in_turn() {
        let mut sender = Sender::new(&peer(false), 1442, false);
        let target = Target {
            to: 0x77,
            stag: 5,
            len: 6,
        };
        let renewal = Renewal {
            limit: 9,
            target: Some(target),
        };
        for (entry, msn) in [(1, 1), (0, 2), (1, 3)] {
            let (octets, len) = sender.renew(&renewal);
            let write = frame::target_write(3, 0x9000 + 16 * entry, target.to_octets(false), false);
            assert_eq!(octets[..TARGET_WRITE_LEN], write);
            let message = frame::message(Msn(msn), Word::Credit(9), false);
            assert_eq!(octets[TARGET_WRITE_LEN..len], message);
        }
        let (octets, len) = sender.renew(&Renewal {
            limit: 10,
            target: None,
        });
        assert_eq!(
            octets[..len],
            frame::message(Msn(4), Word::Credit(10), false)
        );
    }
}
