//! The bodies of the fuzz targets, to be run by the fuzzer and, over the committed corpora, by the tests.
//!
//! Each takes any octets and panics when the code under test breaks a promise: that the answer does not depend on
//! how the octets were split, that what is asked for is progress, that nothing goes beyond the buffer.

use crate::ddp::Header;
use crate::inbound::{Inbound, InboundConfig, Message, Parse};
use crate::mpa::frame::{FrameKind, RtrSet, StartFrame};
use crate::startup::{
    Established, Initiator, InitiatorEvent, Responder, ResponderEvent, StartConfig, StartError,
};
use crate::terminate::Fault;
use alloc::vec::Vec;
use core::time::Duration;

/// One segment as a driver saw it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// What it was part of.
    pub message: Message,
    /// ULPDU_Length.
    pub ulpdu_len: u16,
    /// DDP header.
    pub header: Header,
    /// The payload that came.
    pub payload: Vec<u8>,
}

/// Receives `stream` as a driver would: `next_read` says how many octets each read gives. Payload of an open
/// segment is read straight to its place when `direct` is set. Gives the segments and the fault that ended them.
pub fn receive(
    inbound: &mut Inbound,
    stream: &[u8],
    direct: bool,
    mut next_read: impl FnMut() -> usize,
) -> (Vec<Seen>, Option<Fault>) {
    let mut seen: Vec<Seen> = Vec::new();
    let mut staged: Vec<u8> = Vec::new();
    let mut rest = stream;
    loop {
        if let Err(fault) = parse_all(inbound, &mut staged, &mut seen) {
            return (seen, Some(fault));
        }
        if rest.is_empty() {
            return (seen, None);
        }
        let (read, behind) = rest.split_at(next_read().clamp(1, rest.len()));
        rest = behind;
        let placed = if direct {
            inbound.outstanding().min(read.len())
        } else {
            0
        };
        if placed > 0 {
            assert!(
                staged.is_empty(),
                "staged octets belong to the open segment"
            );
            let open = seen.last_mut().expect("the open segment was seen");
            open.payload.extend_from_slice(&read[..placed]);
            inbound.placed(placed);
        }
        staged.extend_from_slice(&read[placed..]);
    }
}

/// Parses what is staged until more is needed.
fn parse_all(
    inbound: &mut Inbound,
    staged: &mut Vec<u8>,
    seen: &mut Vec<Seen>,
) -> Result<(), Fault> {
    loop {
        check_whole_write(inbound, staged);
        let consumed = match inbound.parse(staged)? {
            Parse::Need { octets } => {
                assert!(octets > staged.len(), "asked for octets that are there");
                return Ok(());
            }
            Parse::Segment(segment) => {
                assert!(
                    segment.payload.end <= segment.consumed
                        && segment.payload.len() <= segment.payload_len
                );
                seen.push(Seen {
                    message: segment.message,
                    ulpdu_len: segment.ulpdu_len,
                    header: segment.header,
                    payload: staged[segment.payload].to_vec(),
                });
                assert_eq!(
                    inbound.outstanding(),
                    segment.payload_len - seen[seen.len() - 1].payload.len()
                );
                segment.consumed
            }
            Parse::More(more) => {
                let open = seen.last_mut().expect("only an open segment has more");
                open.payload.extend_from_slice(&staged[more.payload]);
                more.consumed
            }
            Parse::Consumed { octets } => octets,
        };
        assert!(consumed > 0, "no progress");
        staged.drain(..consumed);
    }
}

/// Whether [`Inbound::whole_write`] finds what [`Inbound::parse`] finds, and leaves the stream where that does.
fn check_whole_write(inbound: &Inbound, staged: &[u8]) {
    let Some(write) = inbound.whole_write(staged) else {
        return;
    };
    let (mut taken, mut parsed) = (inbound.clone(), inbound.clone());
    taken.note_whole_writes();
    let found = parsed.parse(&mut staged.to_vec());
    let Ok(Parse::Segment(segment)) = found else {
        panic!("{write:?} where a parse finds {found:?}");
    };
    let message = Message::Write {
        stag: write.stag,
        to: write.to,
        last: true,
    };
    assert_eq!(segment.message, message);
    assert_eq!(segment.payload_len, write.payload.len());
    assert_eq!(segment.payload, write.payload);
    assert_eq!(segment.consumed, write.consumed);
    assert_eq!(alloc::format!("{taken:?}"), alloc::format!("{parsed:?}"));
}

/// Fuzz target: an FPDU stream in one read and in many. Octet 0 is the configuration, octet 1 the size of the reads,
/// the rest the stream.
pub fn fpdu_stream(data: &[u8]) {
    let Some(([flags, size], stream)) = data.split_first_chunk() else {
        return;
    };
    let config = InboundConfig {
        crc: flags & 1 != 0,
        markers: flags & 2 != 0,
        rfc7306: flags & 4 != 0,
    };
    let mut whole = Inbound::with_config(config);
    let expected = receive(&mut whole, stream, false, || usize::MAX);
    let mut turn = *size;
    let mut pieces = Inbound::with_config(config);
    let found = receive(&mut pieces, stream, flags & 8 != 0, || {
        turn = turn.wrapping_mul(5).wrapping_add(*size);
        1 + usize::from(turn) % (1 + usize::from(*size))
    });
    assert_eq!(found, expected);
    assert_eq!(pieces.outstanding(), whole.outstanding());
    if let Some(fault) = &expected.1 {
        check_fault(fault);
    }
}

/// Whatever a peer does wrong, the Terminate for it reads back as it was made.
fn check_fault(fault: &Fault) {
    if let Some(terminate) = fault.terminate() {
        let mut octets = Vec::new();
        terminate.encode(&mut octets);
        assert_eq!(crate::Terminate::decode(&octets), Some(terminate));
    }
}

/// Fuzz target: start-up in either role, in one read and in many. Octets 0 to 3 are the configuration, the rest is what
/// the peer sends.
pub fn mpa_startup(data: &[u8]) {
    let Some((head, octets)) = data.split_first_chunk() else {
        return;
    };
    let [flags, depths, rtr, size] = *head;
    let config = StartConfig {
        revision: 1 + (flags >> 1 & 1),
        crc: flags & 0x04 != 0,
        markers: flags & 0x08 != 0,
        peer_to_peer: flags & 0x10 != 0,
        rtr: RtrSet {
            send: rtr & 1 != 0,
            write: rtr & 2 != 0,
            read: rtr & 4 != 0,
        },
        ird: u16::from(depths & 0xf),
        ord: u16::from(depths >> 4),
        max_ird: 16,
        max_ord: 16,
        timeout: Duration::from_secs(1),
        private_data: Vec::new(),
    };
    let size = 1 + usize::from(size % 32);
    if flags & 1 != 0 {
        let expected = initiate(&config, octets, usize::MAX);
        assert_eq!(initiate(&config, octets, size), expected);
        if let (_, Some(InitiatorEvent::Accepted(established)), _) = &expected {
            check_depths(&config, established);
        }
    } else {
        let accept = flags & 0x20 != 0;
        let expected = respond(&config, accept, octets, usize::MAX);
        assert_eq!(respond(&config, accept, octets, size), expected);
    }
}

/// Octets taken, event and octets sent by an Initiator that receives these octets in pieces.
fn initiate(
    config: &StartConfig,
    octets: &[u8],
    size: usize,
) -> (usize, Option<InitiatorEvent>, Option<Vec<u8>>) {
    let mut initiator = Initiator::new(config.clone(), Duration::ZERO);
    let request = initiator
        .poll_transmit()
        .expect("the configuration is good");
    assert!(matches!(
        StartFrame::parse(FrameKind::Request, &request),
        Ok(Ok(_))
    ));
    let mut taken = 0;
    for piece in octets.chunks(size) {
        let octets = initiator.handle_bytes(piece, Duration::ZERO);
        assert!(octets <= piece.len());
        taken += octets;
        if octets < piece.len() || initiator.deadline().is_none() {
            break;
        }
    }
    let event = initiator.poll_event();
    if matches!(
        event,
        Some(InitiatorEvent::Failed(StartError::Frame { .. }))
    ) {
        // How much of a wrong frame was looked at depends on the reads.
        taken = 0;
    }
    (taken, event, initiator.poll_transmit())
}

/// What became of a Responder that receives these octets in pieces.
#[derive(PartialEq, Eq, Debug)]
enum Response {
    Waiting,
    Failed(StartError),
    Replied(Option<Established>, StartFrame),
}

fn respond(config: &StartConfig, accept: bool, octets: &[u8], size: usize) -> Response {
    let mut responder = Responder::new(config.clone(), Duration::ZERO);
    for piece in octets.chunks(size) {
        responder.handle_bytes(piece, Duration::ZERO);
    }
    match responder.poll_event() {
        None => return Response::Waiting,
        // How many of them were seen depends on the reads.
        Some(ResponderEvent::Failed(StartError::EarlyOctets { .. })) => {
            return Response::Failed(StartError::EarlyOctets { octets: 0 });
        }
        Some(ResponderEvent::Failed(error)) => return Response::Failed(error),
        Some(ResponderEvent::Request(_)) => {}
    }
    let established = if accept {
        let established = responder
            .accept(Vec::new(), config.ird, config.ord)
            .expect("a Request is there");
        check_depths(config, &established);
        Some(established)
    } else {
        responder.reject(Vec::new()).expect("a Request is there");
        None
    };
    let octets = responder.poll_transmit().expect("the Reply");
    match StartFrame::parse(FrameKind::Reply, &octets) {
        Ok(Ok(reply)) => Response::Replied(established, reply),
        other => panic!("own Reply does not parse: {other:?}"),
    }
}

/// Negotiation stays within what this side allows and the peer told.
fn check_depths(config: &StartConfig, established: &Established) {
    assert!(established.ird <= config.max_ird && established.ord <= config.max_ord);
    assert!(established.ord <= established.peer_ird);
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// Runs every file of a committed corpus; gives how many there were.
    fn replay(target: &str, run: fn(&[u8])) -> usize {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../fuzz/corpus")
            .join(target);
        let files = fs::read_dir(&corpus).expect("corpus folder");
        files
            .map(|file| run(&fs::read(file.expect("corpus entry").path()).expect("corpus file")))
            .count()
    }

    #[test]
    fn corpus_of_mpa_startup() {
        assert!(replay("mpa_startup", super::mpa_startup) >= 20);
    }

    #[test]
    fn corpus_of_fpdu_stream() {
        assert!(replay("fpdu_stream", super::fpdu_stream) >= 20);
    }
}
