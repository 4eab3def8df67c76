//! Tests of the rings' numbers, without octets.

use std::sync::atomic::AtomicU64;

use proptest::prelude::*;

use super::protocol::{say, End, Lie, Side, FINISHED, FOR_OCTETS, FOR_ROOM, RESET};

const SIZE: usize = 64;

/// The words that both ends see.
#[derive(Debug, Default)]
struct Words([[AtomicU64; 4]; 2]);

impl Words {
    /// What that end shows.
    fn side(&self, end: usize) -> Side<'_> {
        let [written, taken, bell, state] = &self.0[end];
        Side {
            written,
            taken,
            bell,
            state,
        }
    }
}

fn set(word: &AtomicU64, value: u64) {
    word.store(value, std::sync::atomic::Ordering::SeqCst);
}

fn ends() -> (Words, End, End) {
    (Words::default(), End::new(SIZE), End::new(SIZE))
}

#[test]
fn what_is_published_is_available_and_what_is_released_is_room() {
    let (words, mut a, mut b) = ends();
    let (of_a, of_b) = (words.side(0), words.side(1));
    assert_eq!(a.room(of_b, 100), Ok(SIZE));
    assert!(!a.publish(of_a, of_b, 40), "nobody sleeps");
    assert_eq!(b.available(of_a), Ok(40));
    assert_eq!(a.room(of_b, 24), Ok(24));
    assert_eq!(a.room(of_b, 25), Ok(24));
    assert!(!b.release(of_b, of_a, 30));
    assert_eq!((b.available(of_a), a.room(of_b, 25)), (Ok(10), Ok(54)));
    assert_eq!((a.written(), b.taken()), (40, 30));
}

#[test]
fn a_bell_rings_once_for_each_arming() {
    let (words, mut a, mut b) = ends();
    let (of_a, of_b) = (words.side(0), words.side(1));
    assert!(b.arm(of_b, of_a, FOR_OCTETS), "it may sleep");
    assert!(a.publish(of_a, of_b, 1));
    assert!(!a.publish(of_a, of_b, 1), "rung already");
    assert!(!End::is_armed(of_b, FOR_OCTETS), "the bell was taken");
    assert!(!b.arm(of_b, of_a, FOR_OCTETS), "two octets are there");
    b.release(of_b, of_a, 2);
    assert!(b.arm(of_b, of_a, FOR_OCTETS));
    assert!(End::is_armed(of_b, FOR_OCTETS));
}

/// The writer has filled its ring and says nothing more. A reader that looked, did not sleep and took nothing has to
/// look again before it sleeps: nobody is going to ring.
#[test]
fn a_bell_is_not_armed_over_octets_that_are_there() {
    let (words, mut a, mut b) = ends();
    let (of_a, of_b) = (words.side(0), words.side(1));
    a.publish(of_a, of_b, SIZE);
    for for_what in [FOR_OCTETS, FOR_OCTETS | FOR_ROOM] {
        assert!(!b.arm(of_b, of_a, for_what));
        assert!(!End::is_armed(of_b, FOR_OCTETS));
    }
    assert!(!b.arm(of_b, of_a, FOR_ROOM), "there is room");
    assert!(!End::is_armed(of_b, FOR_ROOM));
}

#[test]
fn a_writer_without_room_is_woken_for_half_a_ring() {
    let (words, mut a, mut b) = ends();
    let (of_a, of_b) = (words.side(0), words.side(1));
    a.publish(of_a, of_b, SIZE);
    assert_eq!(
        (a.room(of_b, 1), a.has_room_again(of_b)),
        (Ok(0), Ok(false))
    );
    assert!(a.arm(of_a, of_b, FOR_OCTETS | FOR_ROOM));
    assert!(!b.release(of_b, of_a, SIZE / 2 - 1), "too little");
    assert_eq!(a.has_room_again(of_b), Ok(false));
    let rung = (0..=8).any(|_| b.release(of_b, of_a, 1));
    assert!(rung, "no later than an eighth of the ring after half of it");
    assert_eq!(a.has_room_again(of_b), Ok(true));
    assert!(!a.arm(of_a, of_b, FOR_ROOM), "there is room");
}

/// The bell is looked at now and then only: wherever that is, it is once more before the ring is empty.
#[test]
fn a_writer_that_sleeps_over_a_full_ring_is_woken_wherever_the_reader_was() {
    for (before, step) in (0..SIZE).flat_map(|before| (1..=SIZE).map(move |step| (before, step))) {
        let (words, mut a, mut b) = ends();
        let (of_a, of_b) = (words.side(0), words.side(1));
        a.publish(of_a, of_b, before);
        b.release(of_b, of_a, before);
        assert_eq!(a.room(of_b, SIZE), Ok(SIZE));
        a.publish(of_a, of_b, SIZE);
        assert!(a.arm(of_a, of_b, FOR_ROOM), "it may sleep");
        let steps = (0..SIZE).step_by(step).map(|at| step.min(SIZE - at));
        let rings = steps.filter(|octets| b.release(of_b, of_a, *octets));
        assert_eq!(rings.count(), 1, "behind {before} octets, by {step}");
    }
}

#[test]
fn who_reads_is_told_of_the_end_and_who_only_writes_does_not_spin_on_it() {
    let (words, _, mut b) = ends();
    let (of_a, of_b) = (words.side(0), words.side(1));
    assert!(b.arm(of_b, of_a, FOR_OCTETS));
    assert!(say(of_a, of_b, FINISHED));
    assert!(!b.arm(of_b, of_a, FOR_OCTETS));
    b.publish(of_b, of_a, SIZE);
    assert!(b.arm(of_b, of_a, FOR_ROOM));
    assert!(say(of_a, of_b, RESET), "a cut wakes everybody");
    assert_eq!(
        of_a.state.load(std::sync::atomic::Ordering::SeqCst),
        FINISHED | RESET
    );
    assert!(!b.arm(of_b, of_a, FOR_ROOM), "and nobody sleeps after it");
}

#[test]
fn counts_that_cannot_be_are_lies() {
    let lies = |written: u64, taken: u64| {
        let (words, mut a, _) = ends();
        let (of_a, of_b) = (words.side(0), words.side(1));
        a.publish(of_a, of_b, 10);
        set(of_b.written, written);
        set(of_b.taken, taken);
        (a.available(of_b), a.room(of_b, SIZE))
    };
    assert_eq!(lies(64, 10), (Ok(64), Ok(64)));
    assert_eq!(lies(65, 11), (Err(Lie), Err(Lie)));
    assert_eq!(lies(u64::MAX, u64::MAX), (Err(Lie), Err(Lie)));
    let (words, mut a, _) = ends();
    let (of_a, of_b) = (words.side(0), words.side(1));
    a.publish(of_a, of_b, 10);
    set(of_b.taken, 10);
    set(of_b.written, 9);
    assert_eq!((a.room(of_b, SIZE), a.available(of_b)), (Ok(SIZE), Ok(9)));
    a.release(of_a, of_b, 9);
    set(of_b.taken, 9);
    set(of_b.written, 8);
    assert_eq!(a.available(of_b), Err(Lie), "back before what was taken");
    assert_eq!(a.room(of_b, SIZE), Ok(SIZE), "as it was known before");
    a.publish(of_a, of_b, 1);
    assert_eq!(a.room(of_b, SIZE), Err(Lie), "back before what it said");
}

/// What the other end does to the words that it can reach.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0..200u64, Just(u64::MAX), Just(SIZE as u64)]
}

proptest! {
    /// Whatever the other end writes, this one neither panics nor comes to more octets than a ring has.
    #[test]
    fn no_words_of_the_other_end_lead_out_of_the_ring(
        words_of_other in proptest::collection::vec((word(), word(), word(), word(), word()), 1..40)
    ) {
        let (words, mut a, _) = ends();
        let (of_a, of_b) = (words.side(0), words.side(1));
        for (written, taken, bell, state, own_bell) in words_of_other {
            set(of_b.written, written);
            set(of_b.taken, taken);
            set(of_b.bell, bell);
            set(of_b.state, state);
            set(of_a.bell, own_bell);
            if let Ok(available) = a.available(of_b) {
                prop_assert!(available <= SIZE);
                a.release(of_a, of_b, available / 2);
            }
            if let Ok(room) = a.room(of_b, SIZE) {
                prop_assert!(room <= SIZE);
                a.publish(of_a, of_b, room / 2);
            }
            a.arm(of_a, of_b, FOR_OCTETS | FOR_ROOM);
            let _ = a.has_room_again(of_b);
            End::is_armed(of_a, FOR_ROOM);
        }
    }

    /// Two ends that keep to the rules find their counts in step, whatever they do when.
    #[test]
    fn two_ends_agree(steps in proptest::collection::vec((any::<bool>(), any::<bool>(), 0..80usize), 1..200)) {
        let (words, a, b) = ends();
        let mut both = [a, b];
        let (mut sent, mut got) = ([0u64; 2], [0u64; 2]);
        for (second, writes, octets) in steps {
            let at = usize::from(second);
            let (own, other) = (words.side(at), words.side(1 - at));
            let end = &mut both[at];
            if writes {
                let room = end.room(other, octets).unwrap().min(octets);
                end.publish(own, other, room);
                sent[at] += room as u64;
            } else {
                let available = end.available(other).unwrap().min(octets);
                end.release(own, other, available);
                got[at] += available as u64;
            }
            prop_assert!(got[0] <= sent[1] && sent[1] - got[0] <= SIZE as u64);
            prop_assert!(got[1] <= sent[0] && sent[0] - got[1] <= SIZE as u64);
            prop_assert_eq!(both[0].available(words.side(1)), Ok((sent[1] - got[0]) as usize));
        }
    }
}
