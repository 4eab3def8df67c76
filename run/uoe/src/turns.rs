//! Which threads send to several destinations in turn: a wait for one of these keeps the others waiting.
//!
//! A socket knows where it sends; a program may have a socket for each destination, and one thread that serves them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use weft_os::process;
use weft_uoe::End;

/// Threads that are remembered; of those that share a place the one that has sent last.
const PLACES: usize = 64;
/// Who sends to another destination has several for so long, in nanoseconds.
const ALTERNATES_NS: u64 = 100_000_000;

/// What is known of one thread.
#[derive(Debug)]
struct Turn {
    thread: AtomicUsize,
    /// Where it sent last, folded into a word.
    sent_to: AtomicU64,
    /// When it sent to two destinations in turn last, in nanoseconds; 0 for never.
    alternated_at: AtomicU64,
}

/// The threads of a process.
#[derive(Debug)]
pub(crate) struct Turns([Turn; PLACES]);

impl Turns {
    pub(crate) fn new() -> Turns {
        Turns(std::array::from_fn(|_| Turn {
            thread: AtomicUsize::new(0),
            sent_to: AtomicU64::new(0),
            alternated_at: AtomicU64::new(0),
        }))
    }

    /// The calling thread sends to this destination at that time, in nanoseconds; whether it has others, too, at the
    /// moment.
    #[inline]
    pub(crate) fn note(&self, to: End, since: u64) -> bool {
        self.note_of(process::thread(), folded(to), since)
    }

    #[inline]
    fn note_of(&self, thread: usize, to: u64, since: u64) -> bool {
        // Stacks of threads, by which they are told apart, are far from each other.
        let at = (thread >> 12).wrapping_mul(0x9E37_79B9) >> 8;
        let turn = &self.0[at % PLACES];
        if turn.thread.load(Ordering::Relaxed) != thread {
            turn.thread.store(thread, Ordering::Relaxed);
            turn.sent_to.store(to, Ordering::Relaxed);
            turn.alternated_at.store(0, Ordering::Relaxed);
            return false;
        }
        if turn.sent_to.load(Ordering::Relaxed) != to {
            turn.sent_to.store(to, Ordering::Relaxed);
            turn.alternated_at.store(since, Ordering::Relaxed);
        }
        let at = turn.alternated_at.load(Ordering::Relaxed);
        at != 0 && since.saturating_sub(at) < ALTERNATES_NS
    }
}

#[inline]
fn folded(to: End) -> u64 {
    let octets = to.to_octets();
    let (words, rest) = octets.as_chunks::<8>();
    let fold = |state: u64, word: u64| (state ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let rest = rest
        .iter()
        .fold(0, |word, octet| word << 8 | u64::from(*octet));
    words
        .iter()
        .map(|word| u64::from_le_bytes(*word))
        .chain([rest])
        .fold(1, fold)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(last: u8, port: u16) -> End {
        End::new([192, 0, 2, last].into(), port)
    }

    #[test]
    fn who_sends_in_turn_has_others_for_a_while() {
        let turns = Turns::new();
        let mut now = 1_000_000_000;
        let mut note = |thread: usize, to: End, passed_ms: u64| {
            now += passed_ms * 1_000_000;
            turns.note_of(thread, folded(to), now)
        };
        let (one, other) = (0x7000_0000_1000, 0x7000_0080_1000);
        assert!(!note(one, end(1, 5), 0) && !note(one, end(1, 5), 1));
        assert!(
            !note(other, end(2, 5), 1),
            "another thread's destination is its own"
        );
        assert!(!note(one, end(1, 5), 1));
        assert!(note(one, end(1, 6), 1), "another port");
        assert!(note(one, end(1, 6), 50) && note(one, end(1, 5), 40));
        assert!(
            !note(one, end(1, 5), 101),
            "it has sent nowhere else for long"
        );
    }
}
