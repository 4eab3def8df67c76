//! MPA start-up over a carrier, and what its outcome means for the id.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;
use weft_os::poll::Interest;
use weft_verbs::iwarp::{
    AcceptError, Established, Initiator, InitiatorEvent, PeerRequest, Responder, ResponderEvent,
    Rtr, RtrSet, StartConfig, StartError,
};
use weft_verbs::types::MAX_RD_ATOMIC;

use super::handler::Link;
use super::id::{Attempt, Id, Inner, OwnedParam, Phase, RETRY_DELAY_MAX};
use super::{Event, EventKind};
use crate::carrier::{Carrier, Transfer};
use crate::progress::{Member, Served, Token};
use crate::qp::Start;
use crate::settings::{ReadyToReceive, Settings};

const ECONNREFUSED: i32 = 111;
const ECONNRESET: i32 = 104;
const ETIMEDOUT: i32 = 110;
const EPROTO: i32 = 71;

/// The start-up of one connection.
#[derive(Debug)]
pub(super) enum Startup {
    Initiator(Initiator),
    Responder(Responder),
}

/// What a start-up came to.
enum Outcome {
    Accepted(Established),
    Request(PeerRequest),
    Rejected {
        private_data: Vec<u8>,
        ird: u16,
        ord: u16,
    },
    Failed(StartError),
}

fn config(settings: &Settings, private_data: Vec<u8>, ird: u16, ord: u16) -> StartConfig {
    StartConfig {
        revision: settings.mpa_revision,
        crc: settings.crc,
        markers: settings.markers,
        peer_to_peer: settings.peer_to_peer,
        rtr: match settings.ready_to_receive {
            ReadyToReceive::Any => RtrSet::WRITE_AND_READ,
            ReadyToReceive::Write => RtrSet::from(Rtr::Write),
            ReadyToReceive::Read => RtrSet::from(Rtr::Read),
        },
        ird,
        ord,
        max_ird: MAX_RD_ATOMIC,
        max_ord: MAX_RD_ATOMIC,
        timeout: settings.start_timeout,
        private_data,
    }
}

impl Startup {
    pub(super) fn initiator(settings: &Settings, param: OwnedParam, now: Duration) -> Startup {
        let config = config(settings, param.private_data, param.ird, param.ord);
        Startup::Initiator(Initiator::new(config, now))
    }

    pub(super) fn responder(settings: &Settings, now: Duration) -> Startup {
        let config = config(settings, Vec::new(), MAX_RD_ATOMIC, MAX_RD_ATOMIC);
        Startup::Responder(Responder::new(config, now))
    }

    pub(super) fn accept(
        &mut self,
        private_data: Vec<u8>,
        ird: u16,
        ord: u16,
    ) -> Result<Established, AcceptError> {
        match self {
            Startup::Responder(machine) => machine.accept(private_data, ird, ord),
            Startup::Initiator(_) => Err(AcceptError::NoRequest),
        }
    }

    pub(super) fn reject(&mut self, private_data: Vec<u8>) -> Result<(), AcceptError> {
        match self {
            Startup::Responder(machine) => machine.reject(private_data),
            Startup::Initiator(_) => Err(AcceptError::NoRequest),
        }
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        match self {
            Startup::Initiator(machine) => machine.deadline(),
            Startup::Responder(machine) => machine.deadline(),
        }
    }

    fn handle_bytes(&mut self, octets: &[u8], now: Duration) -> usize {
        match self {
            Startup::Initiator(machine) => machine.handle_bytes(octets, now),
            Startup::Responder(machine) => machine.handle_bytes(octets, now),
        }
    }

    fn handle_eof(&mut self) {
        match self {
            Startup::Initiator(machine) => machine.handle_eof(),
            Startup::Responder(machine) => machine.handle_eof(),
        }
    }

    fn handle_timeout(&mut self, now: Duration) {
        match self {
            Startup::Initiator(machine) => machine.handle_timeout(now),
            Startup::Responder(machine) => machine.handle_timeout(now),
        }
    }

    /// Sends what the start-up has to send. A frame of a few hundred octets fits a fresh carrier's
    /// buffer; where it does not, the connection is of no use.
    pub(super) fn flush(&mut self, carrier: &dyn Carrier) -> bool {
        let octets = match self {
            Startup::Initiator(machine) => machine.poll_transmit(),
            Startup::Responder(machine) => machine.poll_transmit(),
        };
        match octets {
            None => true,
            Some(octets) => {
                matches!(carrier.send(&octets), Transfer::Octets(n) if n == octets.len())
            }
        }
    }

    fn outcome(&mut self) -> Option<Outcome> {
        match self {
            Startup::Initiator(machine) => machine.poll_event().map(|event| match event {
                InitiatorEvent::Accepted(established) => Outcome::Accepted(established),
                InitiatorEvent::Rejected {
                    private_data,
                    ird,
                    ord,
                } => Outcome::Rejected {
                    private_data,
                    ird,
                    ord,
                },
                InitiatorEvent::Failed(error) => Outcome::Failed(error),
            }),
            Startup::Responder(machine) => machine.poll_event().map(|event| match event {
                ResponderEvent::Request(request) => Outcome::Request(request),
                ResponderEvent::Failed(error) => Outcome::Failed(error),
            }),
        }
    }
}

impl Member for Id {
    fn serve(&self, _writable: bool) -> Served {
        self.serve_socket();
        Served::Setup
    }

    fn on_timer(&self) {
        if let Ok(me) = self.arc() {
            me.handle_timer();
        }
    }
}

impl Id {
    /// Serves the id's carrier.
    pub(super) fn serve_socket(&self) {
        let Ok(me) = self.arc() else {
            return;
        };
        let inner = self.inner.lock();
        match &inner.phase {
            Phase::Listening { .. } => {
                drop(inner);
                me.accept_connections();
            }
            Phase::Connecting { carrier, .. } => {
                // A connect that is under way has no error and no peer yet.
                let result = match carrier.connect_result() {
                    Ok(()) if !carrier.is_connected() => return,
                    result => result,
                };
                drop(inner);
                me.connect_over(result);
            }
            Phase::Starting { .. } => {
                drop(inner);
                me.continue_startup();
            }
            Phase::Asking(_) => {
                drop(inner);
                me.go_on_asking();
            }
            Phase::Answering { desk, .. } => {
                let desk = desk.clone();
                drop(inner);
                me.take_lookups(&desk);
            }
            _ => {}
        }
    }

    /// TCP is connected, or is not going to be.
    fn connect_over(self: &Arc<Self>, result: std::io::Result<()>) {
        let engine = &self.engine;
        let mut inner = self.inner.lock();
        let (carrier, token, attempt) =
            match std::mem::replace(&mut inner.phase, Phase::Disconnected) {
                Phase::Connecting {
                    carrier,
                    token,
                    attempt,
                } => (carrier, token, attempt),
                other => {
                    inner.phase = other;
                    return;
                }
            };
        if let Err(error) = result {
            engine.progress.remove_source(&*carrier, token);
            let errno = error.raw_os_error().unwrap_or(ECONNREFUSED);
            let told = inner.handler.is_some() || engine.now() >= attempt.refusals_until;
            if errno == ECONNREFUSED && !told {
                return self.pause(&mut inner, attempt);
            }
            let kind = match errno {
                ECONNREFUSED | ECONNRESET => EventKind::Rejected,
                _ => EventKind::Unreachable,
            };
            self.post(&inner, kind, -errno);
            return;
        }
        self.initiate(inner, carrier, Some(token), attempt.param);
    }

    /// TCP is connected: begins the start-up. `token` is of a carrier that is in the set already.
    pub(super) fn initiate(
        &self,
        mut inner: MutexGuard<'_, Inner>,
        carrier: Box<dyn Carrier>,
        token: Option<Token>,
        param: OwnedParam,
    ) {
        let engine = &self.engine;
        let mut startup = Startup::initiator(&engine.settings, param, engine.now());
        let flushed = startup.flush(&*carrier);
        // While the Request is on its way.
        inner.local = carrier.local_addr().ok();
        let watched = match token {
            Some(token) => engine
                .progress
                .change_source(&*carrier, token, Interest::Read)
                .map(|()| token),
            None => self
                .arc()
                .and_then(|me| engine.progress.add_source(&*carrier, me, Interest::Read)),
        };
        let token = match watched {
            Ok(watched) if flushed => watched,
            _ => {
                if let Some(token) = token.or(watched.ok()) {
                    engine.progress.remove_source(&*carrier, token);
                }
                inner.phase = Phase::Disconnected;
                self.post(&inner, EventKind::ConnectError, -ECONNRESET);
                return;
            }
        };
        let deadline = startup.deadline();
        inner.phase = Phase::Starting {
            carrier,
            token,
            startup: Box::new(startup),
            request: None,
            places: None,
        };
        drop(inner);
        if let Some(deadline) = deadline {
            engine.progress.add_timer(deadline, token);
        }
    }

    /// The peer refused, and is asked again a little later.
    fn pause(self: &Arc<Self>, inner: &mut Inner, mut attempt: Attempt) {
        let engine = &self.engine;
        let again_at = engine.now() + attempt.again_after;
        attempt.again_after = (attempt.again_after * 2).min(RETRY_DELAY_MAX);
        let token = engine.progress.reserve(self.clone());
        inner.phase = Phase::Refused {
            token,
            again_at,
            attempt,
        };
        engine.progress.add_timer(again_at, token);
    }

    /// The pause after a refusal is over.
    fn connect_again(&self) {
        let mut inner = self.inner.lock();
        let (token, attempt) = match std::mem::replace(&mut inner.phase, Phase::Disconnected) {
            Phase::Refused { token, attempt, .. } => (token, attempt),
            other => {
                inner.phase = other;
                return;
            }
        };
        self.engine.progress.release(token);
        let Some(peer) = inner.peer else {
            return;
        };
        let network = &self.engine.network;
        let started = match attempt.source {
            Some(source) => network
                .bind(source, &inner.options)
                .and_then(|bound| bound.connect(peer)),
            None => network.connect(peer, &inner.options),
        };
        let watched = match started {
            Ok(carrier) => {
                inner.follow_policy(&*carrier);
                self.watch_connect(&mut inner, carrier, attempt).is_ok()
            }
            Err(_) => false,
        };
        if !watched {
            self.post(&inner, EventKind::Rejected, -ECONNREFUSED);
            return;
        }
        drop(inner);
        self.serve_socket();
    }

    /// Octets, or the end, of a carrier in start-up.
    fn continue_startup(self: &Arc<Self>) {
        let engine = &self.engine;
        let mut inner = self.inner.lock();
        let Phase::Starting {
            carrier, startup, ..
        } = &mut inner.phase
        else {
            return;
        };
        // At most a Reply of 532 octets and the first FPDUs behind it.
        let mut buffer = [0u8; 2048];
        let mut leftover = Vec::new();
        match carrier.recv(&mut buffer) {
            Transfer::Octets(octets) => {
                let consumed = startup.handle_bytes(&buffer[..octets], engine.now());
                leftover.extend_from_slice(&buffer[consumed..octets]);
            }
            Transfer::WouldBlock => return,
            Transfer::End | Transfer::Failed(_) => startup.handle_eof(),
        }
        let Some(mut outcome) = startup.outcome() else {
            return;
        };
        if matches!(outcome, Outcome::Request(_)) {
            // Who gave up while it waited in the kernel's queue is nobody to ask the program about.
            match carrier.recv(&mut buffer) {
                Transfer::Octets(octets) => {
                    startup.handle_bytes(&buffer[..octets], engine.now());
                }
                Transfer::WouldBlock => {}
                Transfer::End | Transfer::Failed(_) => startup.handle_eof(),
            }
            outcome = startup.outcome().unwrap_or(outcome);
        }
        if matches!(**startup, Startup::Initiator(_)) {
            engine.progress.busy_wait.answered();
        }
        drop(inner);
        self.conclude(outcome, &leftover);
    }

    fn conclude(self: &Arc<Self>, outcome: Outcome, leftover: &[u8]) {
        match outcome {
            Outcome::Accepted(established) => self.established(established, leftover),
            Outcome::Request(request) => self.requested(request),
            Outcome::Rejected {
                private_data,
                ird,
                ord,
            } => {
                let mut event = Event::about(self.clone(), EventKind::Rejected, -ECONNREFUSED);
                event.private_data = private_data;
                event.responder_resources = ord.min(255) as u8;
                event.initiator_depth = ird.min(255) as u8;
                self.give_up(event);
            }
            Outcome::Failed(error) => self.failed(&error),
        }
    }

    /// The initiator has its Reply.
    fn established(self: &Arc<Self>, established: Established, leftover: &[u8]) {
        let progress = &self.engine.progress;
        let mut event = Event::about(self.clone(), EventKind::Established, 0);
        event.private_data.clone_from(&established.private_data);
        event.responder_resources = established.ird.min(255) as u8;
        event.initiator_depth = established.ord.min(255) as u8;
        let mut inner = self.inner.lock();
        let phase = Phase::Connected {
            untold: None,
            _itself: self.clone(),
        };
        let (carrier, token) = match std::mem::replace(&mut inner.phase, phase) {
            Phase::Starting { carrier, token, .. } => (carrier, token),
            other => {
                inner.phase = other;
                return;
            }
        };
        let Some(qp) = inner.qp.clone() else {
            // The program took the queue pair away meanwhile.
            progress.remove_source(&*carrier, token);
            inner.phase = Phase::Disconnected;
            return;
        };
        let handler = inner.handler.clone();
        let admission = handler
            .as_ref()
            .map(|handler| handler.on_reply(self, inner.peer, &established.private_data));
        let admission = match admission {
            Some(None) => {
                progress.remove_source(&*carrier, token);
                inner.phase = Phase::Disconnected;
                self.post(&inner, EventKind::ConnectError, -EPROTO);
                return;
            }
            None => None,
            Some(admission) => admission,
        };
        let start = Start {
            carrier,
            token,
            established: &established,
            leftover,
            admission,
            owner: Arc::new(Link {
                id: self.me.clone(),
                _turn: None,
            }),
        };
        // Under the lock: the program may post as soon as it has the event, and the end of the
        // stream is told after its beginning.
        if let Err(error) = qp.attach(start) {
            crate::warn!("the queue pair cannot take the connection: {error}");
            inner.phase = Phase::Disconnected;
            self.post(&inner, EventKind::ConnectError, -EPROTO);
            return;
        }
        if let Some(channel) = &inner.channel {
            channel.post(event);
        }
        drop(inner);
        if let Some(handler) = handler {
            handler.on_established(self);
        }
        qp.serve_attached();
    }

    /// The responder has the Request.
    fn requested(self: &Arc<Self>, request: PeerRequest) {
        if let Phase::Starting {
            request: waiting, ..
        } = &mut self.inner.lock().phase
        {
            *waiting = Some(request);
        }
        if self.may_go_on() {
            self.go_on();
        }
    }

    /// The listener's program decides on the Request.
    pub(super) fn go_on(self: &Arc<Self>) {
        let (request, listener, ticket, handler) = {
            let inner = self.inner.lock();
            let Phase::Starting {
                request: Some(request),
                ..
            } = &inner.phase
            else {
                return;
            };
            let listener = inner.listener.upgrade();
            (
                request.clone(),
                listener,
                inner.ticket,
                inner.handler.clone(),
            )
        };
        if let Some(handler) = handler {
            // No program is asked.
            return handler.on_request(self, &request);
        }
        let mut event = Event::about(self.clone(), EventKind::ConnectRequest, 0);
        event.responder_resources = depth(request.ord);
        event.initiator_depth = depth(request.ird);
        event.private_data = request.private_data;
        let told = listener.zip(ticket).and_then(|(listener, ticket)| {
            event.listener = Some(listener.clone());
            listener.tell_requests(|order| order.arrived(ticket, event))
        });
        if told.is_none() {
            // Nobody listens any more.
            self.destroy();
        }
    }

    fn failed(self: &Arc<Self>, error: &StartError) {
        let peer = self
            .peer_addr()
            .map_or_else(|| "peer".to_owned(), |p| p.to_string());
        let (kind, errno) = match error {
            StartError::TimedOut { .. } => (EventKind::Unreachable, ETIMEDOUT),
            StartError::Closed { .. } => (EventKind::Rejected, ECONNRESET),
            _ => (EventKind::ConnectError, EPROTO),
        };
        let (passive, has_handler) = {
            let inner = self.inner.lock();
            (inner.listener.upgrade().is_some(), inner.handler.is_some())
        };
        if matches!(error, StartError::Closed { .. }) && has_handler {
            // Nothing is wrong with the peer's revision: it is Weft's, and its program ended the queue pair, or both
            // ends connected. What comes of it the queue pair tells.
            crate::info!("{peer}: the other end of the bring-up closed the connection");
        } else if matches!(error, StartError::Closed { .. }) && passive {
            crate::info!("{peer}: {error}");
        } else {
            crate::warn_of_peer!("{peer}: {error}");
        }
        self.give_up(Event::about(self.clone(), kind, -errno));
    }

    /// The start-up is over without a connection. The program hears of it where it knows the id.
    fn give_up(&self, event: Event) {
        let mut inner = self.inner.lock();
        match std::mem::replace(&mut inner.phase, Phase::Disconnected) {
            Phase::Starting {
                carrier,
                token,
                mut startup,
                request,
                places,
            } => {
                startup.flush(&*carrier);
                self.engine.progress.remove_source(&*carrier, token);
                drop(places);
                let listener = inner.listener.upgrade();
                let ticket = inner.ticket;
                drop(inner);
                if let Some(listener) = listener {
                    let untold = ticket
                        .and_then(|ticket| listener.tell_requests(|order| order.gone(ticket)));
                    if request.is_none() || untold == Some(true) {
                        return;
                    }
                }
                // The listener may have told the program of the request meanwhile.
                let inner = self.inner.lock();
                if let Some(channel) = &inner.channel {
                    channel.post(event);
                } else {
                    self.post(&inner, event.kind, event.status);
                }
            }
            other => inner.phase = other,
        }
    }

    /// A deadline may have passed.
    fn handle_timer(self: &Arc<Self>) {
        let now = self.engine.now();
        let mut inner = self.inner.lock();
        match &mut inner.phase {
            Phase::Refused { again_at, .. } if *again_at <= now => {
                drop(inner);
                self.connect_again();
            }
            Phase::Connecting { attempt, .. } if attempt.deadline <= now => {
                drop(inner);
                let timed_out = std::io::Error::from_raw_os_error(ETIMEDOUT);
                self.connect_over(Err(timed_out));
            }
            Phase::Listening { .. } => {
                drop(inner);
                self.go_on_accepting();
                self.tell_requests(|_| ());
            }
            Phase::Asking(_) => {
                drop(inner);
                self.go_on_asking();
            }
            Phase::Starting { startup, .. } => {
                startup.handle_timeout(now);
                let outcome = startup.outcome();
                drop(inner);
                match outcome {
                    Some(outcome) => self.conclude(outcome, &[]),
                    None => self.on_turn_timer(),
                }
            }
            _ => {}
        }
    }

    /// The peer's first FPDU arrived: in peer-to-peer mode that is when the passive side is
    /// established.
    pub(super) fn on_first_fpdu(&self) {
        let mut inner = self.inner.lock();
        let Phase::Connected { untold, .. } = &mut inner.phase else {
            return;
        };
        if let Some(event) = untold.take() {
            if let Some(channel) = &inner.channel {
                channel.post(*event);
            }
        }
    }

    /// The stream under the connection is over; `was_up` says that it had its first FPDU. The
    /// thread that saw that may come later than this one, and then finds it told.
    pub(super) fn on_stream_ended(&self, was_up: bool) {
        if was_up {
            self.on_first_fpdu();
        }
        let mut inner = self.inner.lock();
        if let Phase::Connected { untold, .. } = &inner.phase {
            let is_told = untold.is_none();
            inner.phase = Phase::Disconnected;
            if is_told {
                self.post(&inner, EventKind::Disconnected, 0);
            } else {
                self.post(&inner, EventKind::ConnectError, -ECONNRESET);
            }
        }
    }
}

/// A depth for the program; what the peer did not negotiate is as much as the device has.
fn depth(negotiated: u16) -> u8 {
    negotiated.min(MAX_RD_ATOMIC).min(255) as u8
}
