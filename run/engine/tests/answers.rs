//! Two programs that write to each other in turn, take the completion of each Write and spin on memory: once the peer's
//! answers have come soon for long enough, a completion waits for the answer, and for no longer than a moment.

#[allow(dead_code, reason = "other tests use all of it")]
mod common;

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

use common::{pair, sge, End, ALL};
use weft_engine::settings::Settings;
use weft_engine::types::{Completion, Payload, SendFlags, SendOp, SendRequest, WcStatus};
use weft_engine::Mr;

const TIMEOUT: Duration = Duration::from_secs(60);
/// The moment: long, so that a machine that is busy answers within it, too.
const MOMENT: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_millis(100);

fn fresh() -> (End, End) {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let settings = Settings {
            busy_poll: MOMENT,
            ..Settings::default()
        };
        weft_engine::start_with(settings).unwrap();
    });
    pair()
}

/// One of the two programs.
struct Program {
    end: End,
    source: Arc<Mr>,
    own: Arc<Mr>,
}

impl Program {
    fn new(end: End) -> Program {
        let source = end.memory(8, ALL);
        let own = end.memory(8, ALL);
        Program { end, source, own }
    }

    fn write(&self, target: &Mr, value: u8) {
        self.source.memory().write(0, &[value; 8]).unwrap();
        let request = SendRequest {
            wr_id: u64::from(value),
            op: SendOp::Write {
                rkey: target.stag(),
                remote_addr: target.memory().addr(),
            },
            flags: SendFlags {
                signaled: true,
                ..SendFlags::default()
            },
            payload: Payload::Gather(&[sge(&self.source, 0, 8)]),
        };
        self.end.qp.post_send(&request).unwrap();
    }

    /// What its memory shows.
    fn shows(&self) -> u8 {
        let mut octets = [0; 8];
        self.own.memory().read(0, &mut octets).unwrap();
        octets[7]
    }

    /// The completion that is there, without a look at the connection.
    fn ready(&self) -> Option<Completion> {
        let mut found = None;
        let take = |completion| found = Some(completion);
        self.end.send_cq.poll_ready(1, take).unwrap();
        found
    }

    fn complete(&self) {
        assert_eq!(self.end.wait_send().status, WcStatus::Success);
    }
}

/// Answers each Write until it is told to stop.
fn answer(program: &Program, target: &Mr, stops: &AtomicBool) {
    let mut seen = 0;
    while !stops.load(Ordering::Relaxed) {
        let value = program.shows();
        if value == seen {
            std::hint::spin_loop();
            continue;
        }
        seen = value;
        program.write(target, value);
        program.complete();
    }
}

/// Writes, and has answers, until the completion of one Write is withheld; then `after` with the next one posted, which
/// nobody answers.
fn without_an_answer(after: impl FnOnce(&Program, &Mr)) {
    without_an_answer_to(|_| {}, after);
}

/// The same, with `before` ahead of that last post.
fn without_an_answer_to(before: impl FnOnce(&Program), after: impl FnOnce(&Program, &Mr)) {
    // Two threads spin, which is enough for any machine.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let turn = ONE_AT_A_TIME.lock();
    let (a, b) = fresh();
    let (a, b) = (Program::new(a), Program::new(b));
    let (from_a, from_b) = (b.own.clone(), a.own.clone());
    let stops = Arc::new(AtomicBool::new(false));
    let answering = std::thread::spawn({
        let stops = stops.clone();
        move || {
            answer(&b, &from_b, &stops);
            b
        }
    });
    let value = AtomicU8::new(0);
    let next = || value.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let value = next();
        a.write(&from_a, value);
        let is_withheld = a.ready().is_none();
        if is_withheld {
            a.complete();
        }
        while a.shows() != value {
            assert!(Instant::now() < deadline, "no answer to {value}");
            std::hint::spin_loop();
        }
        if is_withheld {
            break;
        }
        assert!(Instant::now() < deadline, "no completion is withheld");
    }
    stops.store(true, Ordering::Relaxed);
    let b = answering.join().unwrap();
    before(&a);
    a.write(&from_a, next());
    after(&a, &from_a);
    drop((b, turn));
}

#[test]
fn who_polls_has_the_completion_a_moment_later() {
    without_an_answer(|program, _| {
        let since = Instant::now();
        program.complete();
        assert!(since.elapsed() < TIMEOUT / 2);
    });
}

#[test]
fn who_does_not_poll_finds_it_later() {
    without_an_answer(|program, _| {
        std::thread::sleep(LONG);
        let completion = program.ready().expect("nobody waits for an answer so long");
        assert_eq!(completion.status, WcStatus::Success);
    });
}

#[test]
fn who_is_told_of_completions_has_it_at_once() {
    let ask = |program: &Program| {
        let asks = || program.end.send_cq.request_notify(false);
        // By another thread than the one that posts.
        std::thread::scope(|scope| scope.spawn(asks).join().unwrap());
    };
    without_an_answer_to(ask, |program, _| {
        assert_eq!(
            program.ready().map(|one| one.status),
            Some(WcStatus::Success)
        );
    });
}

#[test]
fn who_asks_for_an_event_finds_it_there() {
    without_an_answer(|program, _| {
        program.end.send_cq.request_notify(false);
        assert_eq!(
            program.ready().map(|one| one.status),
            Some(WcStatus::Success)
        );
    });
}

#[test]
fn who_posts_again_has_it_at_once() {
    without_an_answer(|program, target| {
        program.write(target, 7);
        assert_eq!(
            program.ready().map(|one| one.status),
            Some(WcStatus::Success)
        );
    });
}

#[test]
fn who_ends_the_connection_has_it_as_a_success() {
    without_an_answer(|program, _| {
        program.end.id.disconnect().unwrap();
        let completion = program.ready().expect("all that was posted has an end");
        assert_eq!(completion.status, WcStatus::Success);
    });
}
