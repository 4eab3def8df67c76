//! The models. Each is a few threads of a program and what the world does meanwhile; nobody may be left asleep.

use std::sync::Arc;

use loom::thread;
use weft_verbs::cq::CompletionQueue;
use weft_verbs::types::{Completion, QpNumber, WcOpcode, WcStatus};

use crate::channel::Channel;
use crate::engine::{Engine, Happened};
use crate::sync::{Mutex, Watched};

/// Runs a model in every order with at most so many preemptions (`LOOM_MAX_PREEMPTIONS`, else `usual`).
pub(crate) fn check(usual: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(usual));
    builder.max_branches = 20_000;
    builder.check(model);
}

/// An engine whose every happening is an event on `channel`, and its service thread.
struct Rig {
    engine: Arc<Engine>,
    channel: Arc<Channel<Happened>>,
    /// What happened so far, as a program sees it that spins on memory.
    seen: Arc<Watched<usize>>,
    service: thread::JoinHandle<()>,
}

impl Rig {
    fn new() -> Rig {
        Rig::where_first(|_, _| ())
    }

    /// The engine does `first` of all when something happens.
    fn where_first(first: impl Fn(&Engine, Happened) + Send + Sync + 'static) -> Rig {
        let channel = Arc::new(Channel::new(1).expect("a channel"));
        let seen = Arc::new(Watched::new(0));
        let (posts_to, counts) = (channel.clone(), seen.clone());
        let engine = Arc::new(Engine::new(move |engine, what| {
            first(engine, what);
            posts_to.post(what, engine);
            counts.change(|count| *count += 1);
        }));
        let served = engine.clone();
        let service = thread::spawn(move || served.service_loop());
        Rig {
            engine,
            channel,
            seen,
            service,
        }
    }

    /// A thread of the program.
    fn thread<R: 'static>(
        &self,
        act: impl FnOnce(&Engine, &Channel<Happened>) -> R + 'static,
    ) -> thread::JoinHandle<R> {
        let (engine, channel) = (self.engine.clone(), self.channel.clone());
        thread::spawn(move || act(&engine, &channel))
    }

    /// Waits without the engine's help until so much has happened.
    fn watch_until(&self, count: usize) {
        self.seen.wait(|seen| (*seen >= count).then_some(()));
    }

    fn get(&self) -> Happened {
        self.channel.get(&self.engine).expect("an event")
    }

    fn end(self) {
        assert_eq!(
            self.channel.fd(),
            0,
            "the descriptor counts what is not there"
        );
        self.engine.end();
        self.service.join().expect("the service thread");
    }
}

#[test]
fn a_timer_is_run_while_a_thread_begins_to_wait() {
    check(2, || {
        let rig = Rig::new();
        let adds = rig.thread(|engine, _| engine.add_timer());
        assert_eq!(rig.get(), Happened::Timer);
        adds.join().expect("a thread");
        rig.end();
    });
}

#[test]
fn a_timer_is_run_while_others_poll() {
    check(2, || {
        let rig = Rig::new();
        let polls = rig.thread(|engine, _| engine.note_polling());
        rig.engine.add_timer();
        assert_eq!(rig.get(), Happened::Timer);
        polls.join().expect("a thread");
        rig.end();
    });
}

#[test]
fn a_timer_is_run_while_a_poller_naps() {
    check(2, || {
        let rig = Rig::new();
        let naps = rig.thread(|engine, _| engine.nap());
        rig.engine.add_timer();
        rig.watch_until(1);
        naps.join().expect("a thread");
        assert_eq!(rig.get(), Happened::Timer);
        rig.end();
    });
}

#[test]
fn an_event_of_another_thread_reaches_one_that_waits_while_a_poller_naps() {
    check(2, || {
        let rig = Rig::new();
        let other = rig.thread(|engine, channel| {
            engine.nap();
            channel.post(Happened::Sent, engine);
            engine.nap();
        });
        assert_eq!(rig.get(), Happened::Sent);
        other.join().expect("a thread");
        rig.end();
    });
}

#[test]
fn what_arrives_is_served_while_a_thread_begins_to_wait() {
    check(2, || {
        let rig = Rig::new();
        let world = rig.thread(|engine, _| engine.arrive());
        assert_eq!(rig.get(), Happened::Arrival);
        world.join().expect("a thread");
        rig.end();
    });
}

#[test]
fn an_event_of_another_thread_reaches_one_that_waits() {
    check(2, || {
        let rig = Rig::new();
        let other = rig.thread(|engine, channel| channel.post(Happened::Sent, engine));
        assert_eq!(rig.get(), Happened::Sent);
        other.join().expect("a thread");
        rig.end();
    });
}

#[test]
fn the_service_thread_takes_over_when_the_lead_leaves() {
    check(2, || {
        let rig = Rig::new();
        let world = rig.thread(|engine, _| {
            engine.arrive();
            engine.arrive();
        });
        assert_eq!(rig.get(), Happened::Arrival);
        rig.watch_until(2);
        assert_eq!(rig.get(), Happened::Arrival);
        world.join().expect("a thread");
        rig.end();
    });
}

#[test]
fn what_arrives_behind_a_poller_that_swept_is_served() {
    check(2, || {
        let rig = Rig::new();
        let world = rig.thread(|engine, _| engine.arrive());
        rig.engine.look();
        rig.watch_until(1);
        assert_eq!(rig.get(), Happened::Arrival);
        world.join().expect("a thread");
        rig.end();
    });
}

#[test]
fn a_post_that_waits_is_sent() {
    check(2, || {
        let rig = Rig::new();
        let posts = rig.thread(|engine, _| {
            engine.note_polling();
            engine.post();
        });
        assert_eq!(rig.get(), Happened::Sent);
        posts.join().expect("a thread");
        rig.end();
    });
}

#[test]
fn a_post_that_waits_is_sent_by_nobody_but_the_service_thread() {
    check(2, || {
        let rig = Rig::new();
        rig.engine.note_polling();
        rig.engine.post();
        rig.watch_until(1);
        assert_eq!(rig.get(), Happened::Sent);
        rig.end();
    });
}

#[test]
fn what_a_lead_leaves_to_be_sent_is_sent_though_the_program_never_calls_again() {
    check(2, || {
        let rig = Rig::where_first(|engine, what| {
            if what == Happened::Arrival {
                engine.defer();
            }
        });
        rig.engine.arrive();
        // The message itself is told, or what it made to be sent; the other comes without help.
        let first = rig.get();
        rig.watch_until(2);
        assert_ne!(rig.get(), first);
        rig.end();
    });
}

#[test]
fn two_threads_on_one_channel_get_an_event_each() {
    check(2, || {
        let rig = Rig::new();
        let other = rig.thread(|engine, channel| channel.get(engine).expect("an event"));
        rig.engine.arrive();
        rig.engine.arrive();
        assert_eq!(rig.get(), Happened::Arrival);
        assert_eq!(other.join().expect("a thread"), Happened::Arrival);
        rig.end();
    });
}

#[test]
fn what_is_removed_is_not_counted() {
    check(2, || {
        let rig = Rig::new();
        rig.channel.post(Happened::Timer, &rig.engine);
        let removes =
            rig.thread(|_, channel| channel.remove(|what| *what == Happened::Timer).len());
        rig.channel.post(Happened::Sent, &rig.engine);
        let first = rig.get();
        let removed = removes.join().expect("a thread");
        if first == Happened::Timer {
            assert_eq!(removed, 0);
            assert_eq!(rig.get(), Happened::Sent);
        } else {
            assert_eq!((first, removed), (Happened::Sent, 1));
        }
        rig.end();
    });
}

fn completion() -> Completion {
    Completion {
        wr_id: 0,
        status: WcStatus::Success,
        opcode: WcOpcode::Recv,
        byte_len: 0,
        qp: QpNumber(1),
        slots: 0,
        invalidated: None,
        imm: None,
        solicited: false,
        source: None,
    }
}

#[test]
fn an_armed_queue_tells_of_every_completion() {
    check(2, || {
        let queue = Arc::new(Mutex::new(CompletionQueue::new(8)));
        let channel = Arc::new(Channel::new(1).expect("a channel"));
        let (fills, tells) = (queue.clone(), channel.clone());
        // As the engine's queue publishes: the event goes out behind the completion, without its lock.
        let engine = Arc::new(Engine::new(move |engine, _| {
            let pushed = fills.lock().push(completion());
            if pushed.notify {
                tells.post((), engine);
            }
        }));
        let served = engine.clone();
        let service = thread::spawn(move || served.service_loop());
        let world = engine.clone();
        let world = thread::spawn(move || {
            world.arrive();
            world.arrive();
        });
        let mut taken = 0;
        while taken < 2 {
            queue.lock().arm(false);
            let before = taken;
            while queue.lock().pop().is_some() {
                taken += 1;
            }
            if taken == before {
                channel.get(&engine).expect("an event");
            }
        }
        world.join().expect("a thread");
        engine.end();
        service.join().expect("the service thread");
    });
}
