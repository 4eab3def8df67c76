//! Captures as pcapng files, which tcpdump and Wireshark read (draft-ietf-opsawg-pcapng).

use core::time::Duration;
use std::io::{self, Write};

/// Types of blocks (sections 4.1, 4.2, 4.3).
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const ETHERNET: u16 = 1;
/// Types of options.
const END_OF_OPTIONS: u16 = 0;
const NAME: u16 = 2;
const TIME_RESOLUTION: u16 = 9;
const FLAGS: u16 = 2;
/// Time stamps are in units of 10^-9 s.
const NANOSECONDS: u8 = 9;

/// Which way a frame went at its interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// It came in.
    Inbound = 1,
    /// It went out.
    Outbound = 2,
}

/// A capture under way.
#[derive(Debug)]
pub struct Capture<W> {
    to: W,
    block: Vec<u8>,
}

impl<W: Write> Capture<W> {
    /// Begins a capture of Ethernet frames at interfaces of these names. They are numbered from 0.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn begin(to: W, interfaces: &[&str]) -> io::Result<Capture<W>> {
        let mut capture = Capture {
            to,
            block: Vec::new(),
        };
        capture.put(&BYTE_ORDER.to_le_bytes());
        // Version 1.0; the length of the section is not known.
        capture.put(&[1, 0, 0, 0]);
        capture.put(&u64::MAX.to_le_bytes());
        capture.finish(SECTION_HEADER)?;
        for name in interfaces {
            capture.put(&ETHERNET.to_le_bytes());
            // Reserved; no limit of octets kept.
            capture.put(&[0; 6]);
            capture.put_option(NAME, name.as_bytes());
            capture.put_option(TIME_RESOLUTION, &[NANOSECONDS]);
            capture.put_option(END_OF_OPTIONS, &[]);
            capture.finish(INTERFACE_DESCRIPTION)?;
        }
        Ok(capture)
    }

    /// Writes a frame that an interface had at `at` since 1970.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn frame(
        &mut self,
        interface: u32,
        way: Way,
        at: Duration,
        octets: &[u8],
    ) -> io::Result<()> {
        let nanos = at.as_nanos() as u64;
        let len = octets.len() as u32;
        self.put(&interface.to_le_bytes());
        self.put(&((nanos >> 32) as u32).to_le_bytes());
        self.put(&(nanos as u32).to_le_bytes());
        self.put(&len.to_le_bytes());
        self.put(&len.to_le_bytes());
        self.put_padded(octets);
        self.put_option(FLAGS, &(way as u32).to_le_bytes());
        self.put_option(END_OF_OPTIONS, &[]);
        self.finish(ENHANCED_PACKET)
    }

    /// Makes sure that everything written reaches the file.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }

    fn put(&mut self, octets: &[u8]) {
        self.block.extend_from_slice(octets);
    }

    /// With zeros up to a multiple of four.
    fn put_padded(&mut self, octets: &[u8]) {
        self.put(octets);
        let padding = octets.len().next_multiple_of(4) - octets.len();
        self.put(&[0; 3][..padding]);
    }

    fn put_option(&mut self, kind: u16, value: &[u8]) {
        self.put(&kind.to_le_bytes());
        self.put(&(value.len() as u16).to_le_bytes());
        self.put_padded(value);
    }

    /// Writes the body that was put together as a block: its length stands before and behind it.
    fn finish(&mut self, kind: u32) -> io::Result<()> {
        const AROUND: usize = 12;
        let len = ((self.block.len() + AROUND) as u32).to_le_bytes();
        self.to.write_all(&kind.to_le_bytes())?;
        self.to.write_all(&len)?;
        self.to.write_all(&self.block)?;
        self.block.clear();
        self.to.write_all(&len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Types and bodies of the blocks of a file.
    fn blocks(mut file: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let number = |octets: &[u8]| u32::from_le_bytes(octets[..4].try_into().unwrap());
        let mut found = Vec::new();
        while !file.is_empty() {
            let len = number(&file[4..]) as usize;
            assert_eq!(len % 4, 0);
            assert_eq!(number(&file[len - 4..]) as usize, len);
            found.push((number(file), file[8..len - 4].to_vec()));
            file = &file[len..];
        }
        found
    }

    #[test]
    fn a_file_is_a_chain_of_blocks() {
        let mut file = Vec::new();
        let mut capture = Capture::begin(&mut file, &["veth-a", "b"]).unwrap();
        let at = Duration::new(1_700_000_000, 123_456_789);
        capture
            .frame(1, Way::Outbound, at, &[1, 2, 3, 4, 5])
            .unwrap();
        capture.flush().unwrap();
        let blocks = blocks(&file);
        let kinds: Vec<u32> = blocks.iter().map(|block| block.0).collect();
        assert_eq!(kinds, [SECTION_HEADER, 1, 1, ENHANCED_PACKET]);
        assert_eq!(blocks[1].1[..2], [1, 0]);
        assert_eq!(blocks[1].1[8..18], *b"\x02\x00\x06\x00veth-a");
        let packet = &blocks[3].1;
        assert_eq!(packet[..4], [1, 0, 0, 0]);
        let half = |at: usize| u32::from_le_bytes(packet[at..at + 4].try_into().unwrap());
        let nanos = u64::from(half(4)) << 32 | u64::from(half(8));
        assert_eq!(Duration::from_nanos(nanos), at);
        assert_eq!((half(12), half(16)), (5, 5));
        assert_eq!(packet[20..28], [1, 2, 3, 4, 5, 0, 0, 0]);
        assert_eq!(packet[28..], [2, 0, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    }
}
