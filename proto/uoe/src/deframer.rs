//! Datagrams out of a stream that comes in order.

use core::ops::Range;

use crate::fault::Fault;
use crate::frame::{Head, Key, NoFrame, HEADER_LEN};

/// What the next octets are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// A whole frame: its header, and where what follows it lies in the octets given. It is taken.
    Frame(Head, Range<usize>),
    /// The beginning of a frame, or nothing. Nothing is taken; so many octets are needed from here on, more than there
    /// are.
    Need(usize),
}

/// Finds the frames of a stream, in order.
#[derive(Clone, Debug)]
pub struct Deframer {
    key: Key,
    offset: u64,
}

impl Deframer {
    /// The first frame begins at `offset` of the stream.
    pub fn new(key: Key, offset: u64) -> Deframer {
        Deframer { key, offset }
    }

    /// Where in the stream the next frame begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next octets of the stream, from [`Deframer::offset`] on.
    ///
    /// # Errors
    /// No frame begins here, or one that there cannot be. The carrier is to be closed.
    #[inline]
    pub fn next(&mut self, octets: &[u8]) -> Result<Next, Fault> {
        let Some(header) = octets.first_chunk::<HEADER_LEN>() else {
            return Ok(Next::Need(HEADER_LEN));
        };
        let head = self.read(header)?;
        let len = head.frame_len();
        if octets.len() < len {
            return Ok(Next::Need(len));
        }
        self.offset += len as u64;
        Ok(Next::Frame(head, HEADER_LEN..len))
    }

    /// A header alone, for who reads what follows straight to where it belongs. The frame is taken: the next octets are
    /// those of the next header.
    ///
    /// # Errors
    /// As [`Deframer::next`].
    #[inline]
    pub fn begin(&mut self, header: &[u8; HEADER_LEN]) -> Result<Head, Fault> {
        let head = self.read(header)?;
        self.offset += head.frame_len() as u64;
        Ok(head)
    }

    #[inline]
    fn read(&self, header: &[u8; HEADER_LEN]) -> Result<Head, Fault> {
        let head = Head::parse(header, self.key, self.offset).ok_or(Fault::Check(self.offset))?;
        // Times are for segments that come in any order.
        match head.is_time() {
            true => Err(Fault::Frame(NoFrame::Length(head))),
            false => Ok(head.verify()?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    const START: u64 = 64;

    fn key() -> Key {
        Key::new(&[1; 16], &[2; 16])
    }

    fn stream(datagrams: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let mut octets = Vec::new();
        for (channel, datagram) in datagrams {
            let head = Head::whole(*channel, datagram.len() as u16);
            octets.extend(head.to_octets(key(), START + octets.len() as u64));
            octets.extend(datagram);
        }
        octets
    }

    #[test]
    fn a_wrong_check_or_length_ends_it() {
        let mut octets = stream(&[(1, vec![7; 20]), (2, vec![8; 30])]);
        octets[28 + 7] ^= 1;
        let mut deframer = Deframer::new(key(), START);
        let first = deframer.next(&octets);
        assert_eq!(first, Ok(Next::Frame(Head::whole(1, 20), 8..28)));
        assert_eq!(deframer.next(&octets[28..]), Err(Fault::Check(START + 28)));
        let long = Head::whole(0, 200);
        let wrong = Err(Fault::Frame(NoFrame::Length(long)));
        let octets = long.to_octets(key(), START);
        let mut deframer = Deframer::new(key(), START);
        assert_eq!(deframer.next(&octets), wrong);
        assert_eq!(deframer.begin(&octets).map(|_| ()), wrong.map(|_: Next| ()));
    }

    #[test]
    fn who_reads_the_rest_elsewhere_goes_on_behind_it() {
        let octets = stream(&[(1, vec![7; 20]), (2, vec![8; 30])]);
        let mut deframer = Deframer::new(key(), START);
        let header = octets.first_chunk().unwrap();
        assert_eq!(deframer.begin(header), Ok(Head::whole(1, 20)));
        let next = deframer.next(&octets[28..]);
        assert_eq!(next, Ok(Next::Frame(Head::whole(2, 30), 8..38)));
        assert_eq!(deframer.offset(), START + octets.len() as u64);
    }

    proptest! {
        /// Datagrams of any length come out as they went in, however the stream is read.
        #[test]
        fn datagrams_come_out_however_they_are_read(
            lens in prop::collection::vec((1u16..100, prop_oneof![0usize..3000, 65_500usize..=65_507]), 0..12),
            reads in prop::collection::vec(1usize..5000, 1..50),
        ) {
            let datagrams: Vec<_> = lens.into_iter().map(|(channel, len)| (channel, vec![channel as u8; len])).collect();
            let octets = stream(&datagrams);
            let mut deframer = Deframer::new(key(), START);
            let (mut at, mut end, mut seen) = (0, 0, Vec::new());
            for read in reads.into_iter().cycle() {
                loop {
                    match deframer.next(&octets[at..end]).unwrap() {
                        Next::Frame(head, range) => {
                            seen.push((head.channel, octets[at..][range].to_vec()));
                            at += head.frame_len();
                        }
                        Next::Need(need) => {
                            prop_assert!(need > end - at);
                            break;
                        }
                    }
                }
                if end == octets.len() { break; }
                end = octets.len().min(end + read);
            }
            prop_assert_eq!(seen, datagrams);
        }
    }
}
