//! What others see of a process's datagrams over carriers while it lives: `weft stat` reads it.
//!
//! A memfd of 64-bit words, found as `/proc/PID/fd/N -> /memfd:weft-stat-udp (deleted)`, which goes away with the
//! process. Behind [`MAGIC`], the version, the process and the carriers of now come the counts of [`Counted`], and from
//! word [`ROWS_AT`] on the rows.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_os::shm::SharedWords;

use crate::counts::Counted;

/// The memfd's name.
pub const NAME: &str = "weft-stat-udp";
const MAGIC: u64 = u64::from_be_bytes(*b"weftudps");
const VERSION: u64 = 1;
const COUNTS_AT: usize = 4;
const ROWS_AT: usize = 32;
const ROW_WORDS: usize = 5;
/// Rows shown at most.
pub const ROWS_MAX: usize = 256;
const ALL_WORDS: usize = ROWS_AT + ROWS_MAX * ROW_WORDS;
const _: () = assert!(COUNTS_AT + Counted::COUNT <= ROWS_AT);

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$each:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$each])* $variant,)*
        }

        impl $name {
            #[cfg(test)]
            const ALL: &'static [$name] = &[$($name::$variant),*];

            fn to_word(self) -> u64 {
                match self {
                    $($name::$variant => $word,)*
                }
            }

            fn of_word(word: u64) -> Option<$name> {
                match word {
                    $($word => Some($name::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

words! {
    /// Which way datagrams go between a socket and a peer.
    Way {
        /// To the peer, over a carrier.
        SentOverCarrier = 1,
        /// From the peer, over a carrier.
        ReceivedOverCarrier = 2,
        /// To the peer, plainly.
        SentPlainly = 3,
        /// To the peer nowhere: they wait for a carrier.
        Waiting = 4,
    }
}

words! {
    /// Why it is so.
    Why {
        /// Both ends are Weft.
        BothAreWeft = 0,
        /// Nobody there said that it takes carriers.
        NoAnswer = 1,
        /// No connection came to be.
        NotConnected = 2,
        /// The other end's socket takes none, or not this one.
        Refused = 3,
        /// An address was not proven: UDP does not pass, or is translated.
        NotProven = 4,
        /// The other end is a socket of the same process.
        SameProcess = 5,
        /// This process has as many as it may have.
        TooMany = 6,
        /// Another process has the socket, too, and its channels.
        Shared = 7,
        /// Both ends are Weft and have an adapter, whose connection it is.
        BothHaveAdapters = 8,
    }
}

/// A socket and a peer of its.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The socket's port; 0 where it is not known.
    pub port: u16,
    /// The peer.
    pub peer: SocketAddr,
    /// Which way datagrams go.
    pub way: Way,
    /// Why.
    pub why: Why,
}

impl Row {
    fn to_words(self) -> [u64; ROW_WORDS] {
        let address = match self.peer.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let address = u128::from(address);
        let ports = u64::from(self.port) << 16 | u64::from(self.peer.port());
        [
            self.way.to_word(),
            self.why.to_word(),
            (address >> 64) as u64,
            address as u64,
            ports,
        ]
    }

    fn of_words(words: [u64; ROW_WORDS]) -> Option<Row> {
        let [way, why, high, low, ports] = words;
        let address = Ipv6Addr::from(u128::from(high) << 64 | u128::from(low));
        Some(Row {
            port: (ports >> 16) as u16,
            peer: SocketAddr::new(IpAddr::V6(address).to_canonical(), ports as u16),
            way: Way::of_word(way)?,
            why: Why::of_word(why)?,
        })
    }
}

/// What was seen at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The process.
    pub pid: u64,
    /// Its carriers now.
    pub carriers: u64,
    /// What has become of its datagrams.
    pub counted: Counted,
    /// Its sockets and their peers, as many as are shown.
    pub rows: Vec<Row>,
}

/// The words of this process.
#[derive(Debug)]
pub(crate) struct Shown(&'static SharedWords);

impl Shown {
    /// Shows nothing yet; nothing where no memory is to be had. They stay for as long as the process lives: the program
    /// may have closed their number and given it to a file of its own.
    pub(crate) fn new() -> Option<Shown> {
        let words = SharedWords::create_apart(NAME, ALL_WORDS).ok()?;
        let words: &SharedWords = Box::leak(Box::new(words));
        let shown = Shown(words);
        shown.store(2, weft_os::process::id().into());
        shown.store(1, VERSION);
        shown.store(0, MAGIC);
        Some(shown)
    }

    fn store(&self, at: usize, word: u64) {
        if let Some(place) = self.0.words().get(at) {
            place.store(word, Ordering::Release);
        }
    }

    /// Shows what is so now.
    pub(crate) fn show(&self, carriers: usize, counted: Counted, rows: &[Row]) {
        self.store(3, carriers as u64);
        for (at, word) in counted.to_words().into_iter().enumerate() {
            self.store(COUNTS_AT + at, word);
        }
        for at in 0..ROWS_MAX {
            let words = rows.get(at).map_or([0; ROW_WORDS], |row| row.to_words());
            for (number, word) in words.into_iter().enumerate() {
                self.store(ROWS_AT + at * ROW_WORDS + number, word);
            }
        }
    }
}

/// Reads the words at `path`, such as `/proc/PID/fd/N`.
///
/// # Errors
/// No permission, gone, or not words of this layout.
pub fn read(path: &Path) -> io::Result<Snapshot> {
    let shared = SharedWords::open(path)?;
    let words: &[AtomicU64] = shared.words();
    let load = |at: usize| words.get(at).map_or(0, |word| word.load(Ordering::Acquire));
    if load(0) != MAGIC || load(1) != VERSION {
        let what = "not what this version of Weft shows of datagrams";
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let row = |at: usize| {
        let first = ROWS_AT + at * ROW_WORDS;
        Row::of_words(std::array::from_fn(|number| load(first + number)))
    };
    Ok(Snapshot {
        pid: load(2),
        carriers: load(3),
        counted: Counted::from_words(std::array::from_fn(|at| load(COUNTS_AT + at))),
        rows: (0..ROWS_MAX).filter_map(row).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Option<std::path::PathBuf> {
        let target = format!("/memfd:{NAME} (deleted)");
        let mut files = std::fs::read_dir("/proc/self/fd").ok()?.flatten();
        let is_it = |file: &std::fs::DirEntry| {
            let link = std::fs::read_link(file.path());
            link.is_ok_and(|link| link.as_os_str() == target.as_str())
        };
        files.find(is_it).map(|file| file.path())
    }

    #[test]
    fn what_is_shown_is_what_another_reads() {
        weft_os::process::watch();
        let shown = Shown::new().unwrap();
        let path = own().expect("it is among the descriptors");
        let mut rows: Vec<Row> = Way::ALL
            .iter()
            .flat_map(|way| Why::ALL.iter().map(|why| (*way, *why)))
            .zip(1..)
            .map(|((way, why), port)| Row {
                port,
                peer: ([192, 0, 2, 7], 5000 + port).into(),
                way,
                why,
            })
            .collect();
        rows[0].peer = "[2001:db8::1]:65535".parse().unwrap();
        let counted = Counted {
            sent: 5,
            faults: 7,
            ..Counted::default()
        };
        shown.show(3, counted, &rows);
        let snapshot = Snapshot {
            pid: std::process::id().into(),
            carriers: 3,
            counted,
            rows: rows.clone(),
        };
        assert_eq!(read(&path).unwrap(), snapshot);
        shown.show(0, counted, &rows[..1]);
        assert_eq!(read(&path).unwrap().rows, rows[..1]);
        assert!(read(Path::new("/proc/self/exe")).is_err());
    }
}
