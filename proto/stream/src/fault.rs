//! What a peer can do wrong on a stream. Each fault ends the connection, with a line that says which it was.

use weft_iwarp::Stag;

/// The peer broke the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// ULPDU_Length is too small for the header that follows it.
    #[error("an FPDU of {0} octets, which is less than its header")]
    TooShort(u16),
    /// Another version of DDP or RDMAP than 1.
    #[error("DDP version {ddp}, RDMAP version {rdmap}")]
    Version {
        /// DV.
        ddp: u8,
        /// RV.
        rdmap: u8,
    },
    /// The CRC does not match.
    #[error("an FPDU whose CRC is wrong")]
    Crc,
    /// A message that streams have no use for.
    #[error("a message with opcode {opcode:#x} on queue {queue}")]
    Message {
        /// RDMAP opcode.
        opcode: u8,
        /// Queue number; 0 for tagged messages.
        queue: u32,
    },
    /// An RDMA Write to memory that nobody opened.
    #[error("a Write to STag {0}, which names nothing")]
    Stag(Stag),
    /// A Write of stream octets that are not the next ones.
    #[error("a Write at offset {to:#x} of the stream, where {expected:#x} comes next")]
    Offset {
        /// Where it would go.
        to: u64,
        /// The stream's next octet.
        expected: u64,
    },
    /// More octets than the window has.
    #[error("a Write that ends {beyond} octets beyond the window")]
    Window {
        /// So many too many.
        beyond: u64,
    },
    /// A Write to the list of targets, or the table of mapped memory behind it, that is no whole entry.
    #[error("a Write of {len} octets at {offset} of the lists of targets and mapped memory")]
    Targets {
        /// Octets from the list's beginning.
        offset: u64,
        /// Octets of the Write.
        len: usize,
    },
    /// A target, or mapped memory, that ends behind the last offset there is.
    #[error("a target that lies nowhere")]
    Target,
    /// A message number that is not the next one.
    #[error("message {msn}, where {expected} comes next")]
    Sequence {
        /// What came.
        msn: u32,
        /// What had to come.
        expected: u32,
    },
    /// A Send that is not one word in one segment.
    #[error("a Send of {0} octets, where a word has 4")]
    WordLength(usize),
    /// A word that has no meaning.
    #[error("the word {0:#010x}, which has no meaning")]
    Word(u32),
    /// A count of octets that differs from what was written.
    #[error("a message that tells of {told} octets, where {written} were written")]
    Count {
        /// What the message says.
        told: u32,
        /// What came.
        written: u32,
    },
    /// More messages than there was credit for.
    #[error("a message without credit")]
    Credit,
    /// A Write that goes beyond the memory that its STag names.
    #[error("a Write of {len} octets at {to:#x} of STag {stag}, which has not so many there")]
    Bounds {
        /// It.
        stag: Stag,
        /// Where it would go.
        to: u64,
        /// Octets of the Write.
        len: u32,
    },
    /// Octets of the stream after its end was told.
    #[error("octets behind the end of the stream")]
    BehindTheEnd,
    /// A Read Request of octets: no memory of a stream is open for that.
    #[error("a Read Request of {0} octets")]
    Read(u32),
}
