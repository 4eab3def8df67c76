//! The bodies of the fuzz targets, to be run by the fuzzer and, over the committed corpora, by the tests.
//!
//! Each takes any octets and panics when the code under test breaks a promise: that the answer does not depend on how
//! the octets were split, and that what is asked for is progress.

use std::vec::Vec;

use crate::connection_data::ConnectionData;
use crate::receiver::{Check, Event, Next, Receiver};
use crate::start;
use crate::Fault;

/// What came out of a receiver.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
struct Seen {
    stream: Vec<u8>,
    /// Octets for mapped memory, each with its place.
    mapped: Vec<(u64, u8)>,
    events: Vec<Event>,
    fault: Option<Fault>,
}

/// Target `stream`: flags (bit 0 CRC, 1 the peer is Weft, 2 its order is big-endian, 3 this end has a table of mapped
/// memory, 4 it has mapped some), octets a read gives; then what the peer sends.
pub fn stream(data: &[u8]) {
    let [flags, read, octets @ ..] = data else {
        return;
    };
    let own = Receiver::connection_data(0x1234, 0x1000, 0x5678, 0x2000);
    let own = own.with_map_entries(if flags & 8 != 0 { 4 } else { 0 });
    let peer = ConnectionData {
        weft: flags & 2 != 0,
        big_endian: flags & 4 != 0,
        ..own
    };
    let mut receiver = Receiver::new(&own, &peer, flags & 1 != 0);
    if flags & 16 != 0 {
        receiver.begin_mapping();
    }
    let whole = receive(receiver, octets, octets.len().max(1));
    let parts = receive(receiver, octets, usize::from(*read).max(1));
    assert_eq!(whole, parts, "what comes out depends on the reads");
}

fn receive(mut receiver: Receiver, octets: &[u8], read: usize) -> Seen {
    let mut seen = Seen::default();
    // What the socket has that was not taken.
    let (mut at, mut end) = (0, 0);
    while end < octets.len() {
        end = octets.len().min(end + read);
        if let Err(fault) = take(&mut receiver, &octets[..end], &mut at, &mut seen) {
            seen.fault = Some(fault);
            return seen;
        }
    }
    seen
}

fn take(
    receiver: &mut Receiver,
    octets: &[u8],
    at: &mut usize,
    seen: &mut Seen,
) -> Result<(), Fault> {
    while *at < octets.len() {
        let next = &octets[*at..];
        let good = match receiver.check(next)? {
            Check::Good(good) => &next[..good],
            Check::Need(need) => {
                assert!(need > next.len(), "it asks for what there is");
                return Ok(());
            }
        };
        match receiver.next() {
            Next::Nothing => return Ok(()),
            Next::Payload(left) => {
                let now = good.len().min(left as usize);
                assert!(now > 0, "a payload of nothing");
                seen.stream.extend_from_slice(&good[..now]);
                receiver.take_payload(now as u32);
                *at += now;
            }
            Next::Mapped { to, left, .. } => {
                let now = good.len().min(left as usize);
                assert!(now > 0, "a payload of nothing");
                let places = (0..).map(|at| to.wrapping_add(at));
                seen.mapped.extend(places.zip(good[..now].iter().copied()));
                receiver.take_mapped(now as u32);
                *at += now;
            }
            Next::Framing(wanted) => {
                assert!(wanted > 0, "framing of nothing");
                let framing = receiver.take_framing(good)?;
                assert!(framing.taken > 0, "no progress");
                seen.events.extend(framing.event);
                *at += framing.taken;
            }
        }
        if let Some(renewal) = receiver.renewal() {
            receiver.renewed(&renewal);
            assert_eq!(receiver.renewal(), None, "renewed and still due");
        }
    }
    Ok(())
}

/// Target `stream_start`: an even first octet reads the rest as a Request, an odd one as a Reply.
pub fn stream_start(data: &[u8]) {
    let Some((kind, octets)) = data.split_first() else {
        return;
    };
    let own = Receiver::connection_data(0x1234, 0x1000, 0x5678, 0x2000);
    if kind % 2 == 1 {
        let whole = start::read_reply(octets, false);
        for len in 0..octets.len() {
            progress(start::read_reply(&octets[..len], false), len, &whole);
        }
        return;
    }
    let whole = start::read_request(octets);
    for len in 0..octets.len() {
        progress(start::read_request(&octets[..len]), len, &whole);
    }
    if let Ok(Ok(request)) = whole {
        let (reply, len, agreed) = request.accept(&own, false);
        if let Ok(Ok((other, read))) = start::read_reply(&reply[..len], false) {
            assert_eq!((read, other.peer), (len, own));
            assert_eq!(other.ready_to_receive, agreed.ready_to_receive);
        }
    }
}

/// What the first `len` octets said is no more and nothing else than what all of them say.
fn progress<T: PartialEq + core::fmt::Debug, F: PartialEq + core::fmt::Debug>(
    part: Result<Result<T, usize>, F>,
    len: usize,
    whole: &Result<Result<T, usize>, F>,
) {
    match part {
        Ok(Err(need)) => assert!(need > len, "it asks for what there is"),
        said => assert_eq!(&said, whole),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    /// Runs every file of a committed corpus; gives how many there were.
    fn replay(target: &str, run: fn(&[u8])) -> usize {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../fuzz/corpus")
            .join(target);
        let files = fs::read_dir(corpus).expect("corpus folder");
        files
            .map(|file| run(&fs::read(file.expect("entry").path()).expect("file")))
            .count()
    }

    #[test]
    fn corpora() {
        assert!(replay("stream", stream) > 8);
        assert!(replay("stream_start", stream_start) > 3);
    }
}
