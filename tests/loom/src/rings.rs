//! Models of two ends that share memory: what is counted has arrived, and nobody sleeps over it.
//!
//! An end sleeps where its bell is armed, and a bell that rings stays heard until it is waited for, as an octet in the
//! connection does.

use std::sync::Arc;

use loom::thread;

use crate::models::check;
use crate::protocol::{said, say, End, Side, FINISHED, FOR_OCTETS, FOR_ROOM};
use crate::silent::Silent;
use crate::sync::{AtomicU64, Ordering, Watched};

/// Octets of a ring.
const SIZE: usize = 8;

/// What both ends have.
struct Memory {
    words: [[AtomicU64; 4]; 2],
    /// What was put into the first end's ring.
    octets: Vec<AtomicU64>,
    bells: [Watched<usize>; 2],
}

impl Memory {
    fn new() -> Arc<Memory> {
        let words = || [0; 4].map(AtomicU64::new);
        Arc::new(Memory {
            words: [words(), words()],
            octets: (0..SIZE).map(|_| AtomicU64::new(0)).collect(),
            bells: [Watched::new(0), Watched::new(0)],
        })
    }

    fn side(&self, end: usize) -> Side<'_> {
        let [written, taken, bell, state] = &self.words[end];
        Side {
            written,
            taken,
            bell,
            state,
        }
    }

    fn ring(&self, end: usize, is_due: bool) {
        if is_due {
            self.bells[end].change(|rung| *rung += 1);
        }
    }

    /// Sleeps until the end's bell has rung.
    fn sleep(&self, end: usize) {
        self.bells[end].wait(|rung| {
            let has_rung = *rung > 0;
            *rung = 0;
            has_rung.then_some(())
        });
    }
}

/// Writes `count` octets, the first of which is `first`, as far as there is room; how many.
fn write(memory: &Memory, end: &mut End, first: u64, count: usize) -> usize {
    let (own, other) = (memory.side(0), memory.side(1));
    let now = end.room(other, count).expect("an honest peer").min(count);
    for at in 0..now as u64 {
        let place = (end.written() + at) as usize % SIZE;
        memory.octets[place].store(first + at, Ordering::Relaxed);
    }
    if now > 0 {
        let rings = end.publish(own, other, now);
        memory.ring(1, rings);
    }
    now
}

/// Reads what is there, at most `most` octets, and looks that each is the next one; how many.
fn read(memory: &Memory, end: &mut End, most: usize) -> usize {
    let (own, other) = (memory.side(1), memory.side(0));
    let now = end.available(other).expect("an honest peer").min(most);
    for at in end.taken()..end.taken() + now as u64 {
        let octet = memory.octets[at as usize % SIZE].load(Ordering::Relaxed);
        assert_eq!(octet, at + 1, "octet {at}");
    }
    if now > 0 {
        let rings = end.release(own, other, now);
        memory.ring(0, rings);
    }
    now
}

/// Reads `count` octets, at most `most` at a time, and sleeps while there are none.
fn read_all(memory: &Memory, count: usize, most: usize) -> End {
    let mut end = End::new(SIZE);
    let mut got = 0;
    while got < count {
        match read(memory, &mut end, most) {
            0 if end.arm(memory.side(1), memory.side(0), FOR_OCTETS) => memory.sleep(1),
            0 => {}
            now => got += now,
        }
    }
    end
}

#[test]
fn a_reader_that_goes_to_sleep_is_woken_for_octets() {
    check(3, || {
        let memory = Memory::new();
        let writes = memory.clone();
        let writer = thread::spawn(move || {
            let mut end = End::new(SIZE);
            assert_eq!(write(&writes, &mut end, 1, 2), 2);
            assert_eq!(write(&writes, &mut end, 3, 1), 1);
        });
        read_all(&memory, 3, SIZE);
        writer.join().expect("a thread");
    });
}

/// It has armed its bell, then a thread of its own polls instead for a while (a lease), and then it sleeps after all.
#[test]
fn a_reader_that_looked_by_itself_meanwhile_is_woken_for_octets() {
    check(3, || {
        let memory = Memory::new();
        let writes = memory.clone();
        let writer = thread::spawn(move || {
            let mut end = End::new(SIZE);
            assert_eq!(write(&writes, &mut end, 1, 1), 1);
            assert_eq!(write(&writes, &mut end, 2, 1), 1);
        });
        let mut end = End::new(SIZE);
        let mut got = 0;
        if end.arm(memory.side(1), memory.side(0), FOR_OCTETS) {
            End::disarm(memory.side(1));
            got += read(&memory, &mut end, SIZE);
        }
        while got < 2 {
            match read(&memory, &mut end, SIZE) {
                0 if end.arm(memory.side(1), memory.side(0), FOR_OCTETS) => memory.sleep(1),
                0 => {}
                now => got += now,
            }
        }
        writer.join().expect("a thread");
    });
}

#[test]
fn a_writer_that_goes_to_sleep_over_a_full_ring_is_woken_for_room() {
    for most in [SIZE, 5] {
        check(2, move || {
            let memory = Memory::new();
            let writes = memory.clone();
            let writer = thread::spawn(move || {
                let mut end = End::new(SIZE);
                let mut sent = 0;
                while sent < SIZE + 2 {
                    match write(&writes, &mut end, 1 + sent as u64, SIZE + 2 - sent) {
                        0 if end.arm(writes.side(0), writes.side(1), FOR_ROOM) => writes.sleep(0),
                        0 => {}
                        now => sent += now,
                    }
                }
            });
            read_all(&memory, SIZE + 2, most);
            writer.join().expect("a thread");
        });
    }
}

#[test]
fn a_reader_that_goes_to_sleep_is_woken_for_the_end_and_has_everything_before_it() {
    check(3, || {
        let memory = Memory::new();
        let writes = memory.clone();
        let writer = thread::spawn(move || {
            let mut end = End::new(SIZE);
            write(&writes, &mut end, 1, 2);
            let rings = say(writes.side(0), writes.side(1), FINISHED);
            writes.ring(1, rings);
        });
        let (mut end, mut got) = (End::new(SIZE), 0);
        loop {
            got += read(&memory, &mut end, SIZE);
            if said(memory.side(0)) != Ok(0) {
                got += read(&memory, &mut end, SIZE);
                break;
            }
            if end.arm(memory.side(1), memory.side(0), FOR_OCTETS) {
                memory.sleep(1);
            }
        }
        assert_eq!(got, 2);
        writer.join().expect("a thread");
    });
}

/// One thread has polled a member and leaves its bell unarmed, another one goes to sleep: then the bell is armed after
/// all, by one of them.
#[test]
fn nobody_sleeps_beside_a_member_whose_bell_is_not_armed() {
    check(3, || {
        let memory = Memory::new();
        let silent = Arc::new(Silent::<u32>::new());
        let arm = |memory: &Memory| {
            let mut end = End::new(SIZE);
            assert!(end.arm(memory.side(1), memory.side(0), FOR_OCTETS));
        };
        let (polled, list) = (memory.clone(), silent.clone());
        let poller = thread::spawn(move || {
            if !list.add(7) {
                arm(&polled);
            }
        });
        silent.begin_sleep();
        while silent.take().is_some() {
            arm(&memory);
        }
        poller.join().expect("a thread");
        assert!(End::is_armed(memory.side(1), FOR_OCTETS));
        assert!(
            silent.next(0, |_| false, |&one| one).is_err(),
            "nobody polls"
        );
        silent.end_sleep();
        assert!(silent.add(7));
    });
}
