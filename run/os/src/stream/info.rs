//! What the kernel tells of a TCP connection beside its octets: `TCP_INFO`, `SO_MEMINFO`.

use super::{unacknowledged, unread};
use crate::dgram::{self, get_int, set_int, NAME_LEN};
use crate::sys;

/// The connection's round trip, as the kernel measured it.
pub fn round_trip(fd: i32) -> std::time::Duration {
    // struct tcp_info of include/uapi/linux/tcp.h: where the smoothed round trip in microseconds is.
    const RTT: usize = 68;
    const OCTETS: usize = RTT + 4;
    let micros = tcp_info::<OCTETS>(fd).and_then(|info| info[RTT..].first_chunk().copied());
    std::time::Duration::from_micros(micros.map_or(0, u32::from_ne_bytes).into())
}

/// The shortest round trip of the last minutes; nothing where the kernel has measured none.
pub fn least_round_trip(fd: i32) -> Option<std::time::Duration> {
    // The same structure; before it was measured the number is the greatest.
    const MIN_RTT: usize = 148;
    const OCTETS: usize = MIN_RTT + 4;
    let info = tcp_info::<OCTETS>(fd)?;
    let micros = u32::from_ne_bytes(*info[MIN_RTT..].first_chunk()?);
    (micros != u32::MAX).then_some(std::time::Duration::from_micros(micros.into()))
}

/// Octets that fit into the socket's send buffer, as the kernel counts them: with what it needs beside them. A send of
/// fewer is taken whole.
pub fn send_room(fd: i32) -> Option<usize> {
    let memory = memory(fd)?;
    Some(memory[SNDBUF].saturating_sub(memory[WMEM_QUEUED]) as usize)
}

/// How much memory the octets take that the socket has received, as the kernel counts it, and how much they may take.
pub fn receive_memory(fd: i32) -> Option<(usize, usize)> {
    let memory = memory(fd)?;
    Some((memory[RMEM_ALLOC] as usize, memory[RCVBUF] as usize))
}

/// Octets of the connection's segments, where they are far shorter than its path would carry: the kernel makes none
/// that is longer than half of the largest window that the peer has given. It needs memory beside each.
pub fn short_segment(fd: i32) -> Option<usize> {
    // struct tcp_info of include/uapi/linux/tcp.h: where the size of segments and the path's MTU are.
    const SEGMENT: usize = 16;
    const PATH: usize = 60;
    const OCTETS: usize = PATH + 4;
    let info = tcp_info::<OCTETS>(fd)?;
    let number = |at: usize| info[at..].first_chunk().map(|it| u32::from_ne_bytes(*it));
    let (segment, path) = (number(SEGMENT)? as usize, number(PATH)? as usize);
    (segment < path / 2).then_some(segment.max(1))
}

// Which of them is what, as include/uapi/linux/sock_diag.h numbers them.
const RMEM_ALLOC: usize = 0;
const RCVBUF: usize = 1;
const SNDBUF: usize = 3;
const WMEM_QUEUED: usize = 5;
const MEMORY_COUNT: usize = 9;

/// What the kernel says of the socket's memory.
fn memory(fd: i32) -> Option<[u32; MEMORY_COUNT]> {
    let mut values = [0u32; MEMORY_COUNT];
    let mut len = std::mem::size_of_val(&values) as u32;
    let args = [
        fd as usize,
        libc::SOL_SOCKET as usize,
        libc::SO_MEMINFO as usize,
        values.as_mut_ptr() as usize,
        std::ptr::from_mut(&mut len) as usize,
        0,
    ];
    // SAFETY: the kernel writes as many octets as `len` says to `values`, and the length.
    unsafe { sys::call(libc::SYS_getsockopt, args) }.ok()?;
    Some(values)
}

/// How much a connection has carried, in octets that wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// What the socket has taken to send.
    pub sent: u32,
    /// What was taken from it.
    pub received: u32,
}

/// How much the connection has carried, but for what is constant for its life; nothing where the kernel does not say.
/// For who sends and receives nothing meanwhile.
///
/// # Errors
/// The errno of a connection that was reset and has nothing more to be received, which the kernel tells once.
pub fn counts(fd: i32) -> Result<Option<Counts>, i32> {
    // struct tcp_info of include/uapi/linux/tcp.h: where the octets acknowledged and received are.
    const ACKED: usize = 120;
    const RECEIVED: usize = 128;
    const OCTETS: usize = 136;
    let number = |info: &[u8; OCTETS], at: usize| {
        u64::from_ne_bytes(*info[at..].first_chunk().unwrap_or(&[0; 8])) as u32
    };
    // What is acknowledged while this looks leaves the one count for the other.
    for _ in 0..100 {
        let Some(before) = tcp_info::<OCTETS>(fd) else {
            break;
        };
        let (unacknowledged, unread) = (unacknowledged(fd), unread(fd));
        let Some(after) = tcp_info::<OCTETS>(fd) else {
            break;
        };
        let (acked, received) = (number(&after, ACKED), number(&after, RECEIVED));
        if (number(&before, ACKED), number(&before, RECEIVED)) != (acked, received) {
            continue;
        }
        // The end counts as an octet received, and none that waits. A connection that was reset had none, perhaps.
        let has_end = match after[0] {
            CLOSED => waiting_with_end(fd)? > unread,
            state => ENDED.contains(&state),
        };
        return Ok(Some(Counts {
            sent: acked.wrapping_add(unacknowledged as u32),
            received: received
                .wrapping_sub(unread as u32)
                .wrapping_sub(has_end.into()),
        }));
    }
    Ok(None)
}

/// Whether the peer has ended its direction (FIN), or the connection is over. Where this end has shut its receiving
/// direction down, `poll` says so of any connection.
pub fn peer_has_ended(fd: i32) -> bool {
    tcp_info::<8>(fd).is_none_or(|info| ENDED.contains(&info[0]))
}

/// The states of a connection whose peer has ended its direction (include/net/tcp_states.h).
const ENDED: [u8; 4] = [CLOSED, 8, 9, 11];
const CLOSED: u8 = 7;

/// Octets that wait to be received, and one more where the peer's end came: what the kernel calls `TCP_INQ`.
///
/// # Errors
/// As of [`counts`].
fn waiting_with_end(fd: i32) -> Result<usize, i32> {
    // include/uapi/linux/tcp.h
    const TCP_INQ: i32 = 36;
    let mut control = [0; 256];
    let before = get_int(fd, libc::IPPROTO_TCP, TCP_INQ)?;
    set_int(fd, libc::IPPROTO_TCP, TCP_INQ, 1)?;
    let peeked = dgram::peek(fd, &mut [0], &mut [0; NAME_LEN], &mut control);
    let _ = set_int(fd, libc::IPPROTO_TCP, TCP_INQ, before);
    let messages = &control[..peeked?.control.min(control.len())];
    Ok(number_of_message(messages, libc::IPPROTO_TCP, TCP_INQ).unwrap_or(0) as usize)
}

/// The number that a control message of this level and kind has (cmsg(3)).
fn number_of_message(mut left: &[u8], level: i32, kind: i32) -> Option<i32> {
    // Each is its length with these 16 octets, the level, the kind, and begins at a multiple of 8 octets.
    loop {
        let (length, words) = left.split_first_chunk::<8>()?;
        let number = |at: usize| {
            words
                .get(at..)?
                .first_chunk()
                .map(|it| i32::from_ne_bytes(*it))
        };
        if (number(0)?, number(4)?) == (level, kind) {
            return number(8);
        }
        left = left.get(usize::from_ne_bytes(*length).max(16).next_multiple_of(8)..)?;
    }
}

/// The first octets of `TCP_INFO`; nothing where the kernel has fewer.
fn tcp_info<const OCTETS: usize>(fd: i32) -> Option<[u8; OCTETS]> {
    let mut info = [0; OCTETS];
    let mut len = OCTETS as u32;
    let args = [
        fd as usize,
        libc::IPPROTO_TCP as usize,
        libc::TCP_INFO as usize,
        info.as_mut_ptr() as usize,
        std::ptr::from_mut(&mut len) as usize,
        0,
    ];
    // SAFETY: the kernel writes as many octets as `len` says to `info`, and the length.
    unsafe { sys::call(libc::SYS_getsockopt, args) }.ok()?;
    (len as usize == OCTETS).then_some(info)
}
