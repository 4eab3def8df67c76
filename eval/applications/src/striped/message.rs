//! What clients, the manager and the servers of a striped file say to each other.
//!
//! | octets | what |
//! | --- | --- |
//! | 0..4 | the kind, see [`Kind`] |
//! | 4..8 | how many regions there are, [`REGIONS_MAX`] at most |
//! | 8..12 | octets behind the regions, [`OCTETS_MAX`] at most |
//! | 12..20 | the file's handle |
//! | 20.. | the regions, each an offset and a length of 8 octets, then the octets |
//!
//! All numbers are in network order. Each message is answered by one.

use std::io::Read;
use std::net::TcpStream;

use anyhow::{bail, ensure, Context, Result};

use super::layout::Region;
use crate::net::write_all;

/// Regions of one request at most, as in PVFS.
pub const REGIONS_MAX: usize = 64;
/// Octets of one request or of its answer at most.
pub const OCTETS_MAX: usize = 4 << 20;

const HEAD: usize = 20;
const REGION: usize = 16;

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// To the manager: the octets are the name of a file, which is made where there is none.
    Open,
    /// To the manager: it answers once all clients have said so, or one has gone.
    Meet,
    /// The answer: the handle; the region is a stripe's length, and on how many servers.
    Opened,
    /// To a server: these regions of its part of the file become these octets.
    Write,
    /// To a server: these regions are wanted.
    Read,
    /// To a server: what it was given is to be on its disk, and not in memory.
    Settle,
    /// It is done; the octets are those that were wanted.
    Done,
    /// It is not done; the octets say why.
    Failed,
    /// To the manager: the octets are the name of a file that is wanted where there is one.
    Find,
    /// To the manager: the octets are the name of a file that is to be made, and not be there yet.
    Make,
    /// The answer: there is no such file, or there is one already.
    Otherwise,
    /// To the manager: the octets are a name that is to be forgotten. To a server: its part of the file is to go.
    Remove,
    /// To the manager: which files there are, from the one behind this handle on.
    List,
    /// To a server: the length of its part of the file, which is the length of the answer's region.
    Length,
    /// To a server: these regions are wanted, with zeros where there is nothing, and the length of its part.
    Fetch,
    /// To a server: its part of the file is to be as long as the region.
    Cut,
    /// To a server: what it was given is to be on its disk.
    Sync,
}

const KINDS: [Kind; 17] = [
    Kind::Open,
    Kind::Meet,
    Kind::Opened,
    Kind::Write,
    Kind::Read,
    Kind::Settle,
    Kind::Done,
    Kind::Failed,
    Kind::Find,
    Kind::Make,
    Kind::Otherwise,
    Kind::Remove,
    Kind::List,
    Kind::Length,
    Kind::Fetch,
    Kind::Cut,
    Kind::Sync,
];

/// A message that came.
#[derive(Debug)]
pub struct Message {
    pub kind: Kind,
    pub handle: u64,
    pub regions: Vec<Region>,
    pub octets: Vec<u8>,
}

/// Says something; `octets` are one behind the other.
///
/// # Errors
/// The other end is gone.
pub fn say(
    stream: &TcpStream,
    kind: Kind,
    handle: u64,
    regions: &[Region],
    octets: &[&[u8]],
) -> Result<()> {
    let len: usize = octets.iter().map(|part| part.len()).sum();
    assert!(
        regions.len() <= REGIONS_MAX && len <= OCTETS_MAX,
        "a request is shorter"
    );
    let kind = KINDS
        .iter()
        .position(|one| *one == kind)
        .unwrap_or_default();
    let mut head = Vec::with_capacity(HEAD + regions.len() * REGION);
    for number in [kind, regions.len(), len] {
        head.extend_from_slice(&(number as u32).to_be_bytes());
    }
    head.extend_from_slice(&handle.to_be_bytes());
    for region in regions {
        head.extend_from_slice(&region.offset.to_be_bytes());
        head.extend_from_slice(&region.len.to_be_bytes());
    }
    let parts: Vec<&[u8]> = std::iter::once(&head[..])
        .chain(octets.iter().copied())
        .collect();
    write_all(stream, &parts)
}

/// The next message; nothing at the end of the connection. `octets` are used for it.
///
/// # Errors
/// The connection ends amid a message, or has something else on it.
pub fn hear(mut stream: &TcpStream, mut octets: Vec<u8>) -> Result<Option<Message>> {
    let mut head = [0; HEAD];
    // The end is there where a message would begin, and nowhere else.
    if stream.read(&mut head[..1]).context("cannot read")? == 0 {
        return Ok(None);
    }
    stream
        .read_exact(&mut head[1..])
        .context("a message is cut")?;
    let word = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| head[at + i])) as usize;
    let Some(kind) = KINDS.get(word(0)).copied() else {
        bail!("a message of the unknown kind {}", word(0));
    };
    let (count, len) = (word(4), word(8));
    let fits = count <= REGIONS_MAX && len <= OCTETS_MAX;
    ensure!(
        fits,
        "{count} regions and {len} octets, of {REGIONS_MAX} and {OCTETS_MAX} at most"
    );
    let mut list = vec![0; count * REGION];
    stream.read_exact(&mut list).context("a message is cut")?;
    let number = |octets: &[u8]| u64::from_be_bytes(std::array::from_fn(|i| octets[i]));
    let region = |octets: &[u8; REGION]| Region {
        offset: number(octets),
        len: number(&octets[REGION / 2..]),
    };
    octets.resize(len, 0);
    stream.read_exact(&mut octets).context("a message is cut")?;
    Ok(Some(Message {
        kind,
        handle: number(&head[HEAD - 8..]),
        regions: list.as_chunks::<REGION>().0.iter().map(region).collect(),
        octets,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    }

    #[test]
    fn a_message_comes_as_it_was_said_and_then_the_end() {
        let (one, other) = pair();
        let regions = [(5, 7), (u64::MAX, 1)].map(|(offset, len)| Region { offset, len });
        say(&one, Kind::Write, 9, &regions, &[b"some", b"", b"thing"]).unwrap();
        say(&one, Kind::Settle, 10, &[], &[]).unwrap();
        drop(one);
        let message = hear(&other, vec![1; 100]).unwrap().unwrap();
        assert_eq!((message.kind, message.handle), (Kind::Write, 9));
        assert_eq!(
            (&message.regions[..], &message.octets[..]),
            (&regions[..], &b"something"[..])
        );
        let message = hear(&other, message.octets).unwrap().unwrap();
        assert_eq!((message.kind, message.octets.len()), (Kind::Settle, 0));
        assert!(hear(&other, Vec::new()).unwrap().is_none());
    }

    #[test]
    fn what_is_no_message_is_refused_in_words() {
        let head = |numbers: [u32; 5]| numbers.map(u32::to_be_bytes).concat();
        for (octets, wanted) in [
            (head([17, 0, 0, 0, 0]), "unknown kind 17"),
            (head([2, 65, 0, 0, 0]), "65 regions"),
            (head([2, 0, 1 << 23, 0, 0]), "8388608 octets"),
            (head([2, 1, 0, 0, 0]), "is cut"),
            (vec![0; 3], "is cut"),
        ] {
            let (mut one, other) = pair();
            one.write_all(&octets).unwrap();
            drop(one);
            let complaint = format!("{:#}", hear(&other, Vec::new()).unwrap_err());
            assert!(complaint.contains(wanted), "{complaint}, not {wanted}");
        }
    }
}
