//! Queue pairs on the host stack, as a program sees them: made, moved through their states, destroyed. How one comes to
//! its stream is in [`attaching`], what happens to it then in [`serving`]. Posting to the send queue is in
//! [`gathering`], receives and messages that wait for them are in [`rnr`], what a thread that polls may keep to itself
//! in [`lease`], Writes that the peer answers in [`answers`], what arrives in any order in [`placing`], and what leaves
//! when the process exits in [`exit`]. How two ends on one machine come to share memory is in [`meeting`], and how
//! nobody sleeps over it in [`rings`]. Who is above a queue pair is behind the traits of [`owner`].

mod answers;
mod attaching;
mod buffers;
mod exit;
mod following;
mod gathering;
mod lease;
mod meeting;
mod meeting_names;
mod owner;
mod placing;
mod rings;
mod rnr;
mod serving;
mod stream;
mod table;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use weft_settings::transport::Policy;
use weft_verbs::qp::{Qp as QpMachine, QpConfig};
use weft_verbs::types::{Access, PostError, QpCap, QpNumber, QpState, MAX_INLINE, MAX_SGE, MAX_WR};

use crate::context::{AsyncObject, Pd};
use crate::cq::{Cq, Withholds};
use crate::engine::Engine;
use crate::error::Error;
use crate::host::{EngineHost, Results};
use crate::srq::Srq;
use crate::stats::Total;
use answers::Answers;
use lease::Leased;
use stream::Stream;
use table::Table;

pub(crate) use attaching::Start;
pub use exit::hold_while_leaving;
pub(crate) use gathering::Gathering;
pub use gathering::SendBatch;
pub use meeting_names::PREFIX as SAME_HOST_PREFIX;
pub(crate) use owner::{Admission, Owner, Supplier};

/// What a queue pair is created with.
#[derive(Clone, Debug)]
pub struct QpInit {
    /// Where send completions go.
    pub send_cq: Arc<Cq>,
    /// Where receive completions go.
    pub recv_cq: Arc<Cq>,
    /// Receives come from here instead of the queue pair's own queue.
    pub srq: Option<Arc<Srq>>,
    /// Sizes of the queues.
    pub cap: QpCap,
    /// Every send work request is signalled.
    pub sq_sig_all: bool,
    /// Names the queue pair in events.
    pub cookie: u64,
}

/// A reliable connected queue pair.
#[derive(Debug)]
pub struct Qp {
    me: Weak<Qp>,
    number: QpNumber,
    pd: Arc<Pd>,
    send_cq: Arc<Cq>,
    recv_cq: Arc<Cq>,
    srq: Option<Arc<Srq>>,
    cap: QpCap,
    cookie: u64,
    inner: Mutex<Inner>,
    gathering: Gathering,
    destroyed: AtomicBool,
    /// An acknowledgement of Writes is outstanding; a hint.
    unacknowledged: AtomicBool,
    /// As above, and that Write is the only request outstanding; a hint.
    waits_for_one: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) machine: QpMachine,
    stream: Option<Stream>,
    results: Results,
    /// Whose stream it is, as long as there is one.
    owner: Option<Arc<dyn Owner>>,
    /// Where the program exchanged addresses and numbers by itself: what makes streams.
    supplier: Option<Arc<dyn Supplier>>,
    /// A timer is set for then, or earlier than any deadline that the machine has.
    armed: Option<Duration>,
    /// Whether a thread that polls has a lease of the stream.
    leased: Leased,
    /// What became of Writes that were posted one at a time.
    answers: Answers,
}

impl Inner {
    /// Whether it has a stream.
    pub(crate) fn is_connected(&self) -> bool {
        self.stream.is_some()
    }

    /// What makes its streams, if that is a `T`.
    pub(crate) fn supplier<T: Supplier>(&self) -> Option<Arc<T>> {
        let supplier: Arc<dyn std::any::Any + Send + Sync> = self.supplier.clone()?;
        supplier.downcast().ok()
    }

    /// From now on this makes its streams.
    pub(crate) fn set_supplier(&mut self, supplier: Arc<dyn Supplier>) {
        self.supplier = Some(supplier);
    }
}

impl Qp {
    pub(crate) fn new(pd: &Arc<Pd>, init: QpInit) -> Result<Arc<Qp>, Error> {
        let cap = checked_cap(init.cap, init.srq.is_some())?;
        let engine = pd.engine();
        let number = QpNumber(engine.numbers.take()?);
        let mut machine = QpMachine::new(QpConfig {
            number,
            pd: pd.id(),
            cap,
            sq_sig_all: init.sq_sig_all,
            shared_receive: init.srq.is_some(),
        });
        machine.set_receive_wait(engine.settings.receive_wait);
        machine.set_start_timeout(engine.settings.start_timeout);
        machine.set_acknowledge(engine.settings.acknowledge);
        pd.add_user();
        init.send_cq.add_user();
        init.recv_cq.add_user();
        if let Some(srq) = &init.srq {
            srq.add_user();
        }
        let qp = Arc::new_cyclic(|me| Qp {
            me: me.clone(),
            number,
            pd: pd.clone(),
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            srq: init.srq,
            cap,
            cookie: init.cookie,
            inner: Mutex::new(Inner {
                machine,
                stream: None,
                results: Results::default(),
                owner: None,
                supplier: None,
                armed: None,
                leased: Leased::default(),
                answers: Answers::default(),
            }),
            gathering: Gathering::default(),
            destroyed: AtomicBool::new(false),
            unacknowledged: AtomicBool::new(false),
            waits_for_one: AtomicBool::new(false),
        });
        let withholds: Weak<dyn Withholds> = qp.me.clone();
        qp.send_cq
            .add_sender(number, &qp.inner.lock().results.polled, Some(withholds));
        engine.part::<Table>().insert(&qp);
        engine.stats.add(Total::QueuePairs, 1);
        exit::wakeups();
        Ok(qp)
    }

    /// The queue pair of that number.
    pub fn by_number(engine: &Engine, number: u32) -> Option<Arc<Qp>> {
        engine.part::<Table>().get(number)
    }

    /// Locks what changes.
    pub(crate) fn lock(&self) -> parking_lot::MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number.0
    }

    /// Its protection domain.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Sizes of its queues.
    pub fn cap(&self) -> QpCap {
        self.cap
    }

    /// Its state.
    pub fn state(&self) -> QpState {
        self.inner.lock().machine.state()
    }

    /// Outbound and inbound limits of outstanding Reads, once connected: `(ORD, IRD)`.
    pub fn read_limits(&self) -> Option<(u16, u16)> {
        self.inner.lock().machine.read_limits()
    }

    /// What the peer may do through it.
    pub fn access(&self) -> Access {
        self.inner.lock().machine.access()
    }

    /// Sets what the peer may do through it.
    pub fn modify_access(&self, access: Access) {
        self.inner.lock().machine.set_access(access);
    }

    /// Changes the state. RTR and RTS are entered by connecting, or by [`Qp::ready_to_receive`]
    /// and [`Qp::ready_to_send`].
    ///
    /// # Errors
    /// The transition does not exist or needs a connection.
    pub fn modify_state(&self, to: QpState) -> Result<(), Error> {
        let engine = self.pd.engine();
        self.send_delayed(&mut self.inner.lock(), engine);
        if to == QpState::Reset {
            self.end_supplier();
            let mut inner = self.inner.lock();
            if inner.machine.is_out_of_band() {
                self.drop_stream(&mut inner, engine);
            }
        }
        self.with_pass(engine, |machine, host| {
            machine.modify(to, host)?;
            if to == QpState::Reset {
                // What completed before is forgotten, polled or not.
                self.send_cq.forget(self.number);
                self.recv_cq.forget(self.number);
                host.results.polled.store(0, Ordering::Release);
            }
            Ok::<(), PostError>(())
        })?;
        Ok(())
    }

    /// Brings the send queue to rest (SQD): what is begun ends, what is posted waits. With `notify`, an asynchronous
    /// event says when it is at rest.
    ///
    /// # Errors
    /// Not in RTS.
    pub fn drain(&self, notify: bool) -> Result<(), Error> {
        self.with_pass(self.pd.engine(), |machine, host| {
            machine.drain(notify, host)
        })?;
        Ok(())
    }

    /// From SQD back to RTS.
    ///
    /// # Errors
    /// Not in SQD.
    pub fn resume(&self) -> Result<(), Error> {
        self.with_pass(self.pd.engine(), |machine, _| machine.resume())?;
        Ok(())
    }

    /// Whether it is in SQD and not at rest yet.
    pub fn is_draining(&self) -> bool {
        self.inner.lock().machine.is_draining()
    }

    /// Makes it a queue pair of type UC: what finds no receive, or no memory it may write, is lost.
    pub fn set_unreliable(&self) {
        self.inner.lock().machine.set_unreliable(true);
    }

    /// Ends the connection: what is framed still goes out, everything posted is flushed.
    pub(crate) fn disconnect(&self) {
        self.with_pass(self.pd.engine(), |machine, host| machine.disconnect(host));
    }

    /// The peer does not answer: the requests that wait for it fail.
    pub(crate) fn give_up_peer(&self) {
        let engine = self.pd.engine();
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        if inner.stream.is_none() {
            let mut host = EngineHost::begin(engine, &mut inner.results, self.srq.as_ref());
            inner.machine.peer_unreachable(&mut host);
        }
        self.transmit_locked(guard, engine);
    }

    /// A program that is above no connection manager lets go of what makes its streams.
    fn end_supplier(&self) {
        let supplier = self.inner.lock().supplier.take();
        if let Some(supplier) = supplier {
            supplier.end();
        }
    }

    /// Whether it has a stream.
    pub fn is_connected(&self) -> bool {
        self.inner.lock().stream.is_some()
    }

    /// Has its stream's carrier send as `policy` says ([`crate::carrier::Carrier::set_policy`]).
    pub(crate) fn set_policy(&self, policy: &Policy) -> Result<(), Error> {
        match &self.inner.lock().stream {
            Some(stream) => Ok(stream.carrier.set_policy(policy)?),
            None => Err(Error::State("a connection that is not over")),
        }
    }

    /// Ends the queue pair. A stream it still has is closed behind what was framed; its
    /// completions are dropped.
    pub fn destroy(&self) {
        if self.destroyed.swap(true, Ordering::AcqRel) {
            return;
        }
        let engine = self.pd.engine();
        self.send_delayed(&mut self.inner.lock(), engine);
        self.end_supplier();
        self.disconnect();
        engine.part::<Table>().remove(self.number);
        engine.numbers.give_back(self.number.0);
        engine.regions.read().release_windows(self.number);
        self.send_cq.forget(self.number);
        self.send_cq.remove_sender(self.number);
        self.recv_cq.forget(self.number);
        self.pd
            .context()
            .forget_events(AsyncObject::Qp(self.cookie));
        self.send_cq.drop_user();
        self.recv_cq.drop_user();
        self.pd.drop_user();
        if let Some(srq) = &self.srq {
            srq.drop_user();
        }
        engine.stats.subtract(Total::QueuePairs, 1);
    }
}

impl Pd {
    /// A queue pair.
    ///
    /// # Errors
    /// Sizes out of range, or the device is full.
    pub fn create_qp(self: &Arc<Self>, init: QpInit) -> Result<Arc<Qp>, Error> {
        Qp::new(self, init)
    }
}

/// Inline data that a queue pair takes without being asked: devices round up, and some programs rely on that
/// (`rdma_xclient` asks for none and sends 16 octets inline). The memory is taken by the first such post.
const INLINE_OCTETS_MIN: u32 = 64;

pub(crate) fn checked_cap(cap: QpCap, shared_receive: bool) -> Result<QpCap, Error> {
    let sizes_ok = cap.max_send_wr <= MAX_WR && cap.max_recv_wr <= MAX_WR;
    let lists_ok = cap.max_send_sge as usize <= MAX_SGE && cap.max_recv_sge as usize <= MAX_SGE;
    if !sizes_ok || !lists_ok || cap.max_inline_data as usize > MAX_INLINE {
        return Err(Error::Invalid("queue pair capacities beyond the device's"));
    }
    Ok(QpCap {
        max_send_wr: cap.max_send_wr.max(1),
        max_recv_wr: if shared_receive { 0 } else { cap.max_recv_wr },
        max_send_sge: cap.max_send_sge.max(1),
        max_recv_sge: if shared_receive {
            0
        } else {
            cap.max_recv_sge.max(1)
        },
        max_inline_data: cap.max_inline_data.max(INLINE_OCTETS_MIN),
    })
}
