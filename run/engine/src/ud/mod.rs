//! Queue pairs that send datagrams (decision 0008): made, posted to, served, ended. Their sockets are in
//! [`socket`].

mod socket;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};
use weft_verbs::qp::QpConfig;
use weft_verbs::types::{PostError, QpCap, QpNumber, QpState, RecvRequest, SendRequest};
pub use weft_verbs::ud::grh::{ends as grh_ends, GRH_LEN};
pub use weft_verbs::ud::Target as UdTarget;
use weft_verbs::ud::{Arrival, Debt, Fate, UdQp as Machine, Why};

use crate::context::{AsyncEvent, AsyncObject, Pd};
use crate::cq::Cq;
use crate::engine::Engine;
use crate::error::Error;
use crate::host::{EngineHost, Results};
use crate::progress::Flush;
use crate::qp::{checked_cap, Gathering, QpInit};
use crate::srq::Srq;
use crate::stats::Total;

use socket::{Sockets, Step, UdSocket};

/// Where datagrams go: the addresses of both ends. The queue pair there is named by each request.
#[derive(Debug)]
pub struct AddressHandle {
    pd: Arc<Pd>,
    /// The address of this end.
    pub local: IpAddr,
    /// The address of the other end.
    pub peer: IpAddr,
}

impl AddressHandle {
    /// A handle of a domain.
    pub fn new(pd: &Arc<Pd>, local: IpAddr, peer: IpAddr) -> AddressHandle {
        pd.add_user();
        AddressHandle {
            pd: pd.clone(),
            local,
            peer,
        }
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        self.pd.drop_user();
    }
}

/// A queue pair of type UD.
#[derive(Debug)]
pub struct UdQp {
    me: Weak<UdQp>,
    number: QpNumber,
    pd: Arc<Pd>,
    send_cq: Arc<Cq>,
    recv_cq: Arc<Cq>,
    srq: Option<Arc<Srq>>,
    cap: QpCap,
    cookie: u64,
    socket: Arc<UdSocket>,
    inner: Mutex<Inner>,
    gathering: Gathering,
    /// It stands among those that wait until the socket may send.
    waits: AtomicBool,
    destroyed: AtomicBool,
}

#[derive(Debug)]
struct Inner {
    machine: Machine,
    results: Results,
}

impl UdQp {
    pub(crate) fn new(pd: &Arc<Pd>, init: QpInit) -> Result<Arc<UdQp>, Error> {
        let cap = checked_cap(init.cap, init.srq.is_some())?;
        let engine = pd.engine();
        let sockets: Arc<Sockets> = engine.part();
        let (number, socket) = engine
            .numbers
            .take_at(|port| sockets.of_port(port, engine))?;
        let number = QpNumber(number);
        let machine = Machine::new(QpConfig {
            number,
            pd: pd.id(),
            cap,
            sq_sig_all: init.sq_sig_all,
            shared_receive: init.srq.is_some(),
        });
        pd.add_user();
        init.send_cq.add_user();
        init.recv_cq.add_user();
        if let Some(srq) = &init.srq {
            srq.add_user();
        }
        let qp = Arc::new_cyclic(|me| UdQp {
            me: me.clone(),
            number,
            pd: pd.clone(),
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            srq: init.srq,
            cap,
            cookie: init.cookie,
            socket,
            inner: Mutex::new(Inner {
                machine,
                results: Results::default(),
            }),
            gathering: Gathering::default(),
            waits: AtomicBool::new(false),
            destroyed: AtomicBool::new(false),
        });
        qp.send_cq
            .add_sender(number, &qp.inner.lock().results.polled, None);
        qp.socket.remember(&qp);
        engine.stats.add(Total::QueuePairs, 1);
        Ok(qp)
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number.0
    }

    /// Sizes of its queues.
    pub fn cap(&self) -> QpCap {
        self.cap
    }

    /// Its state.
    pub fn state(&self) -> QpState {
        self.inner.lock().machine.state()
    }

    /// What senders have to know.
    pub fn qkey(&self) -> u32 {
        self.inner.lock().machine.qkey()
    }

    /// Sets what senders have to know.
    pub fn set_qkey(&self, qkey: u32) {
        self.inner.lock().machine.set_qkey(qkey);
    }

    /// Changes the state.
    ///
    /// # Errors
    /// The transition does not exist.
    pub fn modify_state(&self, to: QpState) -> Result<(), Error> {
        let engine = self.pd.engine();
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        {
            let mut host = EngineHost::begin(engine, &mut inner.results, self.srq.as_ref());
            inner.machine.modify(to, &mut host)?;
        }
        if to == QpState::Reset {
            // What completed before is forgotten, polled or not.
            self.send_cq.forget(self.number);
            self.recv_cq.forget(self.number);
            inner.results.polled.store(0, Ordering::Release);
        }
        self.transmit_locked(guard, engine);
        Ok(())
    }

    /// Posts a datagram.
    ///
    /// # Errors
    /// See [`PostError`].
    #[inline]
    pub fn post_send(&self, request: &SendRequest<'_>, target: UdTarget) -> Result<(), PostError> {
        let mut batch = self.send_batch();
        batch.post(request, target)
    }

    /// Begins a list of posts that are sent together when the batch is dropped.
    pub fn send_batch(&self) -> UdBatch<'_> {
        UdBatch {
            qp: self,
            inner: Some(self.inner.lock()),
            posts: 0,
        }
    }

    /// Posts a receive: 40 octets of it are for the GRH.
    ///
    /// # Errors
    /// See [`PostError`].
    pub fn post_recv(&self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        let engine = self.pd.engine();
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let posted = {
            let mut host = EngineHost::begin(engine, &mut inner.results, self.srq.as_ref());
            inner.machine.post_recv(request, engine.now(), &mut host)
        };
        if !inner.results.is_empty() {
            self.publish(inner);
        }
        while let Some(debt) = inner.machine.take_debt() {
            self.socket.send_credit(debt);
        }
        posted
    }

    /// Takes datagrams for this queue pair, the first one and those that `next` gives. The last
    /// credit that one of them asked for, if it is due.
    fn take<'a>(
        &self,
        first: Arrival<'a>,
        mut next: impl FnMut() -> Option<Arrival<'a>>,
    ) -> Option<Debt> {
        let engine = self.pd.engine();
        let now = engine.now();
        let (mut debt, mut dropped, mut wrong_keys) = (None, 0, 0);
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        {
            let mut host = EngineHost::begin(engine, &mut inner.results, self.srq.as_ref());
            let mut arrived = Some(first);
            while let Some(arrival) = arrived {
                let fate = inner.machine.receive(&arrival, now, &mut host);
                if let Fate::Dropped(why) = fate {
                    dropped += 1;
                    wrong_keys += u64::from(why == Why::QKey);
                    crate::debug!(
                        "qp {}: a datagram from {} is dropped: {why:?}",
                        self.number.0,
                        arrival.from
                    );
                }
                if fate.owes_credit() {
                    debt = arrival.debt.or(debt);
                }
                arrived = next();
            }
        }
        engine
            .stats
            .add(Total::Recvs, inner.results.recvs.len() as u64);
        self.publish(inner);
        if dropped > 0 {
            engine.stats.add(Total::DatagramsDropped, dropped);
            engine.stats.add(Total::WrongQKeys, wrong_keys);
        }
        while let Some(earlier) = inner.machine.take_debt() {
            self.socket.send_credit(earlier);
        }
        debt
    }

    fn transmit_locked(&self, mut guard: MutexGuard<'_, Inner>, engine: &Engine) {
        let inner = &mut *guard;
        loop {
            let mut host = EngineHost::begin(engine, &mut inner.results, self.srq.as_ref());
            match self.socket.send_some(self, &mut inner.machine, &mut host) {
                Step::Sent(count) => engine.stats.add(Total::Sends, count as u64),
                Step::Nothing => break,
            }
        }
        if !inner.results.is_empty() {
            self.publish(inner);
        }
    }

    fn publish(&self, inner: &mut Inner) {
        debug_assert!(!inner.results.invalidated, "nothing invalidates here");
        let destroyed = self.destroyed.load(Ordering::Acquire);
        let queues = (&*self.send_cq, &*self.recv_cq);
        inner.results.publish(destroyed, queues, |kind| {
            let object = AsyncObject::Qp(self.cookie);
            self.pd.context().raise(AsyncEvent { kind, object });
        });
    }

    /// Ends the queue pair; its completions are dropped.
    pub fn destroy(&self) {
        if self.destroyed.swap(true, Ordering::AcqRel) {
            return;
        }
        let engine = self.pd.engine();
        self.socket.forget(self.number);
        let _ = self.modify_state(QpState::Error);
        engine.numbers.give_back(self.number.0);
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

/// Sends what has gathered, or has waited for the socket.
impl Flush for UdQp {
    fn flush(&self) {
        self.gathering.end();
        self.transmit_locked(self.inner.lock(), self.pd.engine());
    }
}

impl Pd {
    /// A queue pair of type UD.
    ///
    /// # Errors
    /// Sizes out of range, or the device is full.
    pub fn create_ud_qp(self: &Arc<Self>, init: QpInit) -> Result<Arc<UdQp>, Error> {
        UdQp::new(self, init)
    }
}

/// Posts that are sent together when this is dropped, or with the next ones of a burst.
#[derive(Debug)]
pub struct UdBatch<'a> {
    qp: &'a UdQp,
    inner: Option<MutexGuard<'a, Inner>>,
    posts: u32,
}

impl UdBatch<'_> {
    /// Posts one datagram.
    ///
    /// # Errors
    /// See [`PostError`]; earlier posts of the batch stand.
    pub fn post(&mut self, request: &SendRequest<'_>, target: UdTarget) -> Result<(), PostError> {
        self.posts += 1;
        let target = UdTarget {
            local: target.local.to_canonical(),
            peer: target.peer.to_canonical(),
            ..target
        };
        self.with_machine(|machine, host| machine.post_send(request, target, host))
    }

    /// Whether a datagram could be posted if `earlier` others were before it.
    ///
    /// # Errors
    /// Those that posting it would give.
    pub fn check(&mut self, request: &SendRequest<'_>, earlier: u32) -> Result<(), PostError> {
        self.with_machine(|machine, host| machine.check_send(request, earlier, host))
    }

    fn with_machine(
        &mut self,
        act: impl FnOnce(&mut Machine, &mut EngineHost<'_>) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        let Some(inner) = &mut self.inner else {
            return Err(PostError::InvalidState);
        };
        let inner = &mut **inner;
        let engine = self.qp.pd.engine();
        let mut host = EngineHost::begin(engine, &mut inner.results, self.qp.srq.as_ref());
        act(&mut inner.machine, &mut host)
    }
}

impl Drop for UdBatch<'_> {
    fn drop(&mut self) {
        let Some(inner) = self.inner.take() else {
            return;
        };
        let (qp, engine) = (self.qp, self.qp.pd.engine());
        // A datagram is short, so that gathering it with others pays.
        let gathers = qp.gathering.gathers(self.posts, true, engine, || {
            let qp: Arc<dyn Flush> = qp.me.upgrade()?;
            Some(qp)
        });
        if !gathers {
            qp.transmit_locked(inner, engine);
        }
    }
}
