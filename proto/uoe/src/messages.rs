//! Datagrams put together from parts.

use alloc::collections::btree_map::{BTreeMap, Entry};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use crate::fault::Fault;
use crate::frame::Part;
use crate::ranges::Ranges;

/// Datagrams of one carrier that are there in part, at most. A sender sends them one after the other, so that each
/// has a gap of the stream in it, or is the last; as many segments as a window of 16 MB holds have no more.
pub const MESSAGES_MAX: usize = 12 * 1024;

/// Ranges of octets that came of all of these together, at most: an honest sender's parts leave one gap each. Without
/// the bound, parts of single octets would take more memory than they are.
const RANGES_MAX: usize = 4 * MESSAGES_MAX;

#[derive(Clone, Debug)]
struct Message {
    total: u16,
    /// Parts that came, as ranges of the message.
    parts: Ranges,
    /// Empty where there was no room, or it became too old: the message is lost, and what comes of it is only counted
    /// off.
    octets: Vec<u8>,
    missing: usize,
    /// When the first of its parts came, and the last so far.
    begun_at: Duration,
    came_at: Duration,
}

/// The datagrams of one carrier that are there in part.
#[derive(Clone, Debug)]
pub struct Messages {
    /// By channel and number.
    messages: BTreeMap<(u16, u32), Message>,
    octets: usize,
    octets_max: usize,
    /// Ranges of octets that came, of all of them.
    ranges: usize,
    dropped: u64,
}

impl Messages {
    /// None. All together keep at most `octets_max` octets.
    pub fn new(octets_max: usize) -> Messages {
        Messages {
            messages: BTreeMap::new(),
            octets: 0,
            octets_max,
            ranges: 0,
            dropped: 0,
        }
    }

    /// Datagrams for which there was no room, or that became too old. Each is counted once.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Octets that are kept.
    pub fn held(&self) -> usize {
        self.octets
    }

    /// None is there in part.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// A part came: what follows the header of its frame. Gives the datagram if this was the last that was missing.
    ///
    /// # Errors
    /// The part is none, or does not go with the others.
    pub fn handle_part(
        &mut self,
        channel: u16,
        payload: &[u8],
        now: Duration,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let (part, octets) = Part::split(payload)?;
        let contradiction = Fault::Contradiction {
            channel,
            message: part.message,
        };
        let key = (channel, part.message);
        let message = self.find(key, part, now)?;
        let ranges_before = message.parts.len();
        let (start, end) = (
            usize::from(part.offset),
            usize::from(part.offset) + octets.len(),
        );
        if message.total != part.total || !message.parts.insert(start as u64..end as u64) {
            return Err(contradiction);
        }
        if let Some(place) = message.octets.get_mut(start..end) {
            place.copy_from_slice(octets);
        }
        message.came_at = now;
        message.missing -= octets.len();
        let (is_whole, ranges) = (message.missing == 0, message.parts.len());
        self.ranges = self.ranges + ranges - ranges_before;
        if self.ranges > RANGES_MAX {
            return Err(Fault::Messages(MESSAGES_MAX));
        }
        if !is_whole {
            return Ok(None);
        }
        self.ranges -= ranges;
        let whole = self.messages.remove(&key);
        let octets = whole.map(|whole| whole.octets).unwrap_or_default();
        self.octets -= octets.len();
        Ok((!octets.is_empty()).then_some(octets))
    }

    /// The message of a part. It is begun if this is the first part of it that came.
    fn find(&mut self, key: (u16, u32), part: Part, now: Duration) -> Result<&mut Message, Fault> {
        let count = self.messages.len();
        let place = match self.messages.entry(key) {
            Entry::Occupied(place) => return Ok(place.into_mut()),
            Entry::Vacant(_) if count >= MESSAGES_MAX => return Err(Fault::Messages(MESSAGES_MAX)),
            Entry::Vacant(place) => place,
        };
        let total = usize::from(part.total);
        let has_room = self.octets + total <= self.octets_max;
        self.dropped += u64::from(!has_room);
        let octets = vec![0; if has_room { total } else { 0 }];
        self.octets += octets.len();
        Ok(place.insert(Message {
            total: part.total,
            parts: Ranges::default(),
            octets,
            missing: total,
            begun_at: now,
            came_at: now,
        }))
    }

    /// Gives up those whose first part came at least `age` ago: what is missing of them is too old. What comes of them
    /// for as long again makes no new one.
    pub fn give_up(&mut self, age: Duration, now: Duration) {
        let (octets, ranges, dropped) = (&mut self.octets, &mut self.ranges, &mut self.dropped);
        self.messages.retain(|_, message| {
            if now < message.begun_at.saturating_add(age) {
                return true;
            }
            *octets -= message.octets.len();
            *dropped += u64::from(!message.octets.is_empty());
            message.octets = Vec::new();
            let is_kept = now < message.came_at.saturating_add(age);
            *ranges -= if is_kept { 0 } else { message.parts.len() };
            is_kept
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::NoFrame;
    use proptest::prelude::*;

    const NOW: Duration = Duration::ZERO;

    fn payload(message: u32, offset: u16, total: u16, octets: &[u8]) -> Vec<u8> {
        let part = Part {
            message,
            offset,
            total,
        };
        [&part.to_octets()[..], octets].concat()
    }

    #[test]
    fn parts_that_contradict_each_other_end_it() {
        let wrong = Err(Fault::Contradiction {
            channel: 1,
            message: 5,
        });
        for second in [
            payload(5, 8, 20, &[2; 4]),
            payload(5, 9, 21, &[2; 4]),
            payload(5, 0, 20, &[2; 10]),
        ] {
            let mut messages = Messages::new(1000);
            assert_eq!(
                messages.handle_part(1, &payload(5, 0, 20, &[1; 10]), NOW),
                Ok(None)
            );
            assert_eq!(messages.handle_part(1, &second, NOW), wrong.clone());
        }
        let mut messages = Messages::new(1000);
        assert_eq!(
            messages.handle_part(1, &payload(5, 0, 20, &[1; 10]), NOW),
            Ok(None)
        );
        assert_eq!(
            messages.handle_part(2, &payload(5, 0, 20, &[1; 10]), NOW),
            Ok(None),
            "another channel"
        );
        assert_eq!(
            messages.handle_part(1, &payload(5, 0, 20, &[]), NOW),
            Err(Fault::Frame(NoFrame::Part))
        );
    }

    #[test]
    fn a_message_without_room_is_lost_once_and_makes_none_later() {
        let mut messages = Messages::new(30);
        assert_eq!(
            messages.handle_part(1, &payload(1, 0, 20, &[1; 10]), NOW),
            Ok(None)
        );
        for (offset, len) in [(0, 10), (10, 5), (15, 5)] {
            let part = payload(2, offset, 20, &[2; 10][..len]);
            assert_eq!(messages.handle_part(1, &part, NOW), Ok(None));
        }
        assert_eq!((messages.dropped(), messages.held()), (1, 20));
        let whole = messages.handle_part(1, &payload(1, 10, 20, &[1; 10]), NOW);
        assert_eq!(whole, Ok(Some(vec![1; 20])));
        assert_eq!((messages.dropped(), messages.held()), (1, 0));
    }

    #[test]
    fn there_are_no_more_than_so_many() {
        let mut messages = Messages::new(1 << 20);
        for number in 0..MESSAGES_MAX as u32 {
            assert_eq!(
                messages.handle_part(1, &payload(number, 0, 20, &[1; 10]), NOW),
                Ok(None)
            );
        }
        let one_more = messages.handle_part(1, &payload(u32::MAX, 0, 20, &[1; 10]), NOW);
        assert_eq!(one_more, Err(Fault::Messages(MESSAGES_MAX)));
    }

    #[test]
    fn parts_of_single_octets_take_bounded_memory() {
        let mut messages = Messages::new(1 << 20);
        let (mut taken, total) = (0, 60_000);
        let ended = 'all: loop {
            for offset in (0..total).step_by(2) {
                let part = payload(taken, offset, total, &[1]);
                if let Err(fault) = messages.handle_part(1, &part, NOW) {
                    break 'all fault;
                }
            }
            taken += 1;
            assert!(taken < 10, "it has no bound");
        };
        assert_eq!(ended, Fault::Messages(MESSAGES_MAX));
        messages.give_up(Duration::ZERO, NOW);
        assert_eq!((messages.ranges, messages.held()), (0, 0));
    }

    #[test]
    fn what_is_too_old_is_lost_once_and_makes_none_later() {
        let ms = Duration::from_millis;
        let mut messages = Messages::new(1000);
        let part = |offset, len| payload(1, offset, 30, &[1; 30][..len]);
        assert_eq!(messages.handle_part(1, &part(0, 10), ms(0)), Ok(None));
        assert_eq!(messages.handle_part(1, &part(20, 10), ms(15)), Ok(None));
        messages.give_up(ms(20), ms(19));
        assert_eq!((messages.dropped(), messages.held()), (0, 30));
        messages.give_up(ms(20), ms(20));
        assert_eq!((messages.dropped(), messages.held()), (1, 0));
        assert_eq!(messages.handle_part(1, &part(10, 5), ms(20)), Ok(None));
        messages.give_up(ms(20), ms(39));
        assert!(!messages.is_empty());
        messages.give_up(ms(20), ms(40));
        assert!(messages.is_empty());
        assert_eq!((messages.dropped(), messages.held()), (1, 0));
    }

    proptest! {
        /// Parts come in any order, and each datagram is as it was.
        #[test]
        fn parts_make_the_datagram(
            lens in prop::collection::vec(2usize..500, 1..10), size in 1usize..100, order: u64
        ) {
            let datagrams: Vec<Vec<u8>> = lens.into_iter().map(|len| (0..len).map(|at| at as u8).collect()).collect();
            let mut parts = vec![];
            for (number, datagram) in datagrams.iter().enumerate() {
                let size = size.min(datagram.len() - 1);
                for (index, piece) in datagram.chunks(size).enumerate() {
                    let key = order.wrapping_mul(2 * parts.len() as u64 + 1).rotate_left(23);
                    parts.push((key, number, payload(number as u32, (index * size) as u16, datagram.len() as u16, piece)));
                }
            }
            parts.sort();
            let (mut messages, mut seen) = (Messages::new(1 << 20), vec![None; datagrams.len()]);
            for (_, number, part) in parts {
                if let Some(whole) = messages.handle_part(3, &part, NOW).unwrap() {
                    prop_assert_eq!(seen[number].replace(whole), None);
                }
            }
            prop_assert_eq!(seen.into_iter().flatten().collect::<Vec<_>>(), datagrams);
            prop_assert_eq!((messages.held(), messages.ranges, messages.dropped()), (0, 0, 0));
        }
    }
}
