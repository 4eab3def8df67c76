//! Control messages (cmsg(3)) as the kernel would have handed them over, had the datagram come alone.

use crate::kernel::{SCM_RIGHTS, SOL_SOCKET, SOL_UDP, UDP_GRO};

/// Octets of a message's header: length, level and type.
const HEADER: usize = 16;

/// One control message, header and all, without the padding behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message<'a> {
    octets: &'a [u8],
}

/// What went to the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handed {
    /// Octets used of the program's buffer: `msg_controllen` afterwards.
    pub len: usize,
    /// Whether something did not fit: `MSG_CTRUNC`.
    pub truncated: bool,
}

fn messages(control: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let mut rest = control;
    core::iter::from_fn(move || {
        let len = usize::from_ne_bytes(rest.get(..8)?.try_into().ok()?);
        let octets = rest.get(..len).filter(|octets| octets.len() >= HEADER)?;
        rest = rest.get(align(len)..).unwrap_or(&[]);
        Some(Message { octets })
    })
}

impl<'a> Message<'a> {
    fn is(&self, level: i32, kind: i32) -> bool {
        let word = |at: usize| i32::from_ne_bytes(self.octets[at..at + 4].try_into().expect("4"));
        word(8) == level && word(12) == kind
    }

    fn data(&self) -> &'a [u8] {
        &self.octets[HEADER..]
    }
}

fn align(len: usize) -> usize {
    len.next_multiple_of(8)
}

/// The segment size the kernel tells of a coalesced receive; 0 when it is one datagram.
pub fn segment(control: &[u8]) -> usize {
    messages(control)
        .find(|message| message.is(SOL_UDP, UDP_GRO))
        .and_then(|message| message.data().get(..4)?.try_into().ok())
        .map_or(0, |octets| {
            usize::try_from(i32::from_ne_bytes(octets)).unwrap_or(0)
        })
}

/// Copies the messages the program asked for, all but the segment size, to `room` the way `put_cmsg` of the
/// kernel does.
pub fn hand_over(control: &[u8], room: &mut [u8]) -> Handed {
    let mut handed = Handed::default();
    for message in messages(control).filter(|message| !message.is(SOL_UDP, UDP_GRO)) {
        let free = &mut room[handed.len..];
        if free.len() < HEADER {
            handed.truncated = true;
            break;
        }
        let len = message.octets.len().min(free.len());
        handed.truncated |= len < message.octets.len();
        free[..len].copy_from_slice(&message.octets[..len]);
        free[..8].copy_from_slice(&len.to_ne_bytes());
        handed.len += align(len).min(free.len());
    }
    handed
}

/// Descriptors that came with a message over a Unix socket.
pub fn descriptors(control: &[u8]) -> impl Iterator<Item = i32> + '_ {
    messages(control)
        .filter(|message| message.is(SOL_SOCKET, SCM_RIGHTS))
        .flat_map(|message| message.data().as_chunks::<4>().0)
        .map(|number| i32::from_ne_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;

    fn message(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut octets = (HEADER + data.len()).to_ne_bytes().to_vec();
        octets.extend(level.to_ne_bytes());
        octets.extend(kind.to_ne_bytes());
        octets.extend(data);
        octets.resize(align(octets.len()), 0);
        octets
    }

    fn gro(size: i32) -> Vec<u8> {
        message(SOL_UDP, UDP_GRO, &size.to_ne_bytes())
    }

    #[test]
    fn the_segment_size_is_found_and_kept_back() {
        let ttl = message(0, 2, &64i32.to_ne_bytes());
        let control = [ttl.clone(), gro(1448), message(0, 8, &[7; 12])].concat();
        assert_eq!(segment(&control), 1448);
        assert_eq!(segment(&ttl), 0);
        assert_eq!(segment(&[]), 0);
        let mut room = [0; 100];
        let handed = hand_over(&control, &mut room);
        let wanted = [ttl, message(0, 8, &[7; 12])].concat();
        assert_eq!(&room[..handed.len], wanted);
        assert!(!handed.truncated);
    }

    #[test]
    fn little_room_truncates_as_the_kernel_does() {
        let control = [message(0, 2, &[1; 4]), message(0, 8, &[7; 12])].concat();
        // One message and a header's worth: the second is cut.
        let mut room = [0; 24 + 20];
        let handed = hand_over(&control, &mut room);
        assert_eq!((handed.len, handed.truncated), (44, true));
        assert_eq!(usize::from_ne_bytes(room[24..32].try_into().unwrap()), 20);
        let mut none = [0; 0];
        assert_eq!(
            hand_over(&control, &mut none),
            Handed {
                len: 0,
                truncated: true
            }
        );
        assert_eq!(hand_over(&gro(9), &mut none), Handed::default());
    }

    #[test]
    fn descriptors_are_found() {
        let numbers = [3i32.to_ne_bytes(), 9i32.to_ne_bytes()].concat();
        let control = [
            message(SOL_SOCKET, SCM_RIGHTS, &numbers),
            message(0, 2, &[1; 4]),
        ];
        assert_eq!(descriptors(&control.concat()).collect::<Vec<_>>(), [3, 9]);
    }

    #[test]
    fn nonsense_is_passed_over() {
        for nonsense in [&[0xff; 30][..], &[0; 40], &[1; 5]] {
            assert_eq!(segment(nonsense), 0);
            assert_eq!(hand_over(nonsense, &mut [0; 64]), Handed::default());
        }
    }
}
