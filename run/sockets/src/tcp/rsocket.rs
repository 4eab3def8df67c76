//! What an rsocket has that no other socket has: options of its own, and calls that no hook sees.
//!
//! The options (`SOL_RDMA`, rsocket(7)) say how large the queues of a queue pair are to be. Here is none, so they are
//! kept and told, as programs compare what they get with what they have set.

use std::sync::atomic::{AtomicU32, Ordering};

use weft_os::{pages, stream};
use weft_stream::map::ENTRIES_MAX;

use super::{Record, Streams};

/// The options of an rsocket, in the ranges that rdma-core gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdmaOptions {
    /// Entries of the send queue (`RDMA_SQSIZE`).
    pub send_queue: u16,
    /// Entries of the receive queue (`RDMA_RQSIZE`).
    pub receive_queue: u16,
    /// Octets that are sent inline (`RDMA_INLINE`).
    pub inline: u16,
    /// Ranges of memory that the peer may map (`RDMA_IOMAPSIZE`); above 128 a multiple of 256, at most 1024.
    pub mapped: u16,
}

impl Default for RdmaOptions {
    /// Those of rdma-core where no file says otherwise.
    fn default() -> RdmaOptions {
        RdmaOptions {
            send_queue: 384,
            receive_queue: 384,
            inline: 64,
            mapped: 0,
        }
    }
}

/// Set in the second word of options. No number of mapped ranges has this bit.
const IS_ONE: u32 = 1 << 31;
/// Words of the options of one socket.
const WORDS: usize = 2;
/// Where the ranges that a peer may map stand in the second word, and in what a listener hands on.
const MAPPED_SHIFT: u32 = 16;
const HANDED_ON_SHIFT: u32 = 24;

impl RdmaOptions {
    /// Entries or octets as rdma-core bounds them.
    pub fn bounded(number: u32) -> u16 {
        number.min(0xfffe) as u16
    }

    /// Ranges as they can be said to the peer in eight bits: up to 128 as they are, above in steps of 256.
    pub fn scaled(ranges: u32) -> u16 {
        match ranges {
            0..=128 => ranges as u16,
            129..=255 => 128,
            _ => (ranges >> 8 << 8).min(ENTRIES_MAX.into()) as u16,
        }
    }

    fn to_words(self) -> [u32; WORDS] {
        let pair = |low: u16, high: u16| u32::from(low) | u32::from(high) << MAPPED_SHIFT;
        [
            pair(self.send_queue, self.receive_queue),
            pair(self.inline, self.mapped) | IS_ONE,
        ]
    }

    fn from_words([queues, others]: [u32; WORDS]) -> Option<RdmaOptions> {
        (others & IS_ONE != 0).then_some(RdmaOptions {
            send_queue: queues as u16,
            receive_queue: (queues >> 16) as u16,
            inline: others as u16,
            mapped: ((others & !IS_ONE) >> MAPPED_SHIFT) as u16,
        })
    }
}

/// Which sockets are rsockets, and their options, by the number of the socket.
#[derive(Debug)]
pub(super) struct Rsockets {
    words: &'static [AtomicU32],
}

impl Rsockets {
    /// None of so many sockets is one yet; nothing where the kernel has no memory.
    pub(super) fn new(most: usize) -> Option<Rsockets> {
        pages::words(most * WORDS).map(|words| Rsockets { words })
    }

    fn words(&self, number: usize) -> Option<&[AtomicU32]> {
        self.words.get(number * WORDS..(number + 1) * WORDS)
    }

    fn get(&self, number: usize) -> Option<RdmaOptions> {
        let words = self.words(number)?;
        // The second says whether there is anything in the first.
        let others = words[1].load(Ordering::Acquire);
        RdmaOptions::from_words([words[0].load(Ordering::Relaxed), others])
    }

    fn set(&self, number: usize, options: RdmaOptions) {
        if let Some(words) = self.words(number) {
            let [queues, others] = options.to_words();
            words[0].store(queues, Ordering::Relaxed);
            words[1].store(others, Ordering::Release);
        }
    }

    /// Ranges of memory that the peer may map, whether or not the socket is called one yet.
    fn map_entries(&self, number: usize) -> u16 {
        let words = self.words(number);
        let others = words.map_or(0, |words| words[1].load(Ordering::Acquire));
        ((others & !IS_ONE) >> MAPPED_SHIFT) as u16
    }

    /// The socket was accepted, and this is what its listener has handed on: the peer hears of it before anybody makes
    /// an rsocket of the socket.
    pub(super) fn inherit(&self, number: usize, handed_on: u32) {
        let entries = from_octet((handed_on >> HANDED_ON_SHIFT) as u8);
        if let Some(words) = self.words(number).filter(|_| entries > 0) {
            words[1].store(u32::from(entries) << MAPPED_SHIFT, Ordering::Release);
        }
    }

    /// The socket is gone. A page that no rsocket was in stays untouched.
    pub(super) fn forget(&self, number: usize) {
        if let Some(words) = self.words(number) {
            if words[1].load(Ordering::Relaxed) != 0 {
                words[1].store(0, Ordering::Release);
            }
        }
    }
}

/// Ranges in eight bits, as the peer is told of them.
fn to_octet(entries: u16) -> u8 {
    match u8::try_from(entries) {
        Ok(entries) => entries,
        Err(_) => 0x80 | (entries >> 8) as u8,
    }
}

fn from_octet(octet: u8) -> u16 {
    match octet {
        0..=128 => octet.into(),
        _ => u16::from(octet & 0x7f) << 8,
    }
}

impl Streams {
    /// The options of an rsocket. Nothing of a socket that is none, and where `fd` stands for something else by now.
    pub fn rdma_options(&self, record: &Record, fd: i32) -> Option<RdmaOptions> {
        let options = self.rsockets.as_ref()?.get(record.number())?;
        self.is_its_own(record, fd).then_some(options)
    }

    /// Sets them, which makes an rsocket of the socket; whether there is memory for that.
    pub fn set_rdma_options(&self, record: &Record, options: RdmaOptions) -> bool {
        let rsockets = self.rsockets.as_ref();
        rsockets
            .map(|rsockets| rsockets.set(record.number(), options))
            .is_some()
    }

    /// Entries of the connection's table of what its peer maps.
    pub(super) fn map_entries(&self, record: &Record) -> u16 {
        let rsockets = self.rsockets.as_ref();
        rsockets.map_or(0, |rsockets| rsockets.map_entries(record.number()))
    }

    /// The same of a listener, in the word that it hands on.
    pub(super) fn handed_on_maps(&self, record: &Record) -> u32 {
        u32::from(to_octet(self.map_entries(record))) << HANDED_ON_SHIFT
    }

    /// From now on nobody says when the program closes a descriptor or makes another of its number.
    pub fn calls_are_unseen(&self) {
        self.unseen.store(true, Ordering::Relaxed);
    }

    /// Whether `fd` stands for the socket still, as far as that can be in doubt.
    pub fn is_its_own(&self, record: &Record, fd: i32) -> bool {
        !self.unseen.load(Ordering::Relaxed) || stream::inode(fd) == Some(record.references.inode())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_kept_until_the_socket_is_gone() {
        let rsockets = Rsockets::new(3).unwrap();
        for number in [0, 1, 128, 0xfffe] {
            let options = RdmaOptions {
                send_queue: number,
                receive_queue: number / 2,
                inline: number / 3,
                mapped: RdmaOptions::scaled(number.into()),
            };
            rsockets.set(1, options);
            assert_eq!(rsockets.get(1), Some(options));
        }
        assert_eq!(rsockets.get(0), None);
        assert_eq!(rsockets.get(2), None);
        assert_eq!(rsockets.get(3), None, "there are three");
        rsockets.forget(1);
        assert_eq!(rsockets.get(1), None);
    }

    #[test]
    fn what_is_accepted_has_its_listeners_ranges_before_it_is_an_rsocket() {
        let rsockets = Rsockets::new(2).unwrap();
        for entries in [0, 1, 128, 256, 1024] {
            rsockets.inherit(
                1,
                u32::from(to_octet(entries)) << HANDED_ON_SHIFT | 0x0001_0203,
            );
            assert_eq!((rsockets.map_entries(1), rsockets.get(1)), (entries, None));
            rsockets.forget(1);
            assert_eq!(rsockets.map_entries(1), 0);
        }
    }

    #[test]
    fn numbers_are_bounded_as_rdma_core_bounds_them() {
        assert_eq!(RdmaOptions::bounded(7), 7);
        assert_eq!(RdmaOptions::bounded(1 << 20), 0xfffe);
        let scaled = [0, 1, 128, 129, 255, 256, 700, 32767, 1 << 20].map(RdmaOptions::scaled);
        assert_eq!(scaled, [0, 1, 128, 128, 128, 256, 512, 1024, 1024]);
    }
}
