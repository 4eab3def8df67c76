//! The passive side: accepting TCP connections, and the program's answer to a request.

use std::sync::Arc;
use std::time::Duration;

use weft_os::net::{TcpListener, TcpStream};
use weft_os::poll::Interest;

use super::id::{Id, Inner, OwnedParam, Phase};
use super::order::Order;
use super::startup::Startup;
use super::{ConnParam, Event, EventKind};
use crate::engine::Endpoint;
use crate::error::Error;

/// Start-ups under way beyond a listener's backlog are refused by leaving them in the kernel's
/// queue; this many connections are taken from it in one go.
const ACCEPT_AT_ONCE: usize = 64;
/// How long a listener rests that has no descriptors or memory for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Id {
    /// Takes new connections; each becomes an id of its own that runs MPA start-up.
    pub(super) fn accept_connections(self: &Arc<Self>) {
        for _ in 0..ACCEPT_AT_ONCE {
            let mut inner = self.inner.lock();
            let accepted = match &inner.phase {
                Phase::Listening {
                    listener,
                    waiting,
                    backlog,
                    ..
                } => {
                    if *waiting >= (*backlog).max(1) * 2 {
                        self.refuse_one(listener);
                        return;
                    }
                    listener.accept()
                }
                _ => return,
            };
            let (socket, peer) = match accepted {
                Ok(Some(accepted)) => accepted,
                Ok(None) => return,
                Err(error) => {
                    crate::error::explain(&error);
                    crate::warn!("a connection could not be accepted: {error}");
                    self.pause_accepting(&mut inner);
                    return;
                }
            };
            let by_hand = inner.by_hand;
            let mut ticket = None;
            if let Phase::Listening { waiting, order, .. } = &mut inner.phase {
                *waiting += 1;
                if !by_hand {
                    ticket = Some(order.accepted(peer.ip(), self.engine.now()));
                }
            }
            let options = inner.options;
            drop(inner);
            let child = Id::make(self.engine.clone(), None, 0, Arc::downgrade(self));
            {
                let mut child = child.inner.lock();
                child.options = options;
                child.local = socket.local_addr().ok();
                child.peer = Some(peer);
                child.ticket = ticket;
                child.by_hand = by_hand;
            }
            if let Err(error) = child.start_responding(socket) {
                crate::warn!("{peer}: MPA start-up could not begin: {error}");
                self.request_answered();
                self.tell_requests(|order| {
                    ticket.map(|ticket| order.gone(ticket));
                });
            }
        }
    }

    /// Descriptors or memory are short: connections wait in the kernel's queue. The listener would
    /// stay ready all the while, so it is not looked at for a moment.
    fn pause_accepting(&self, inner: &mut Inner) {
        if let Phase::Listening {
            listener, token, ..
        } = &inner.phase
        {
            let progress = &self.engine.progress;
            let _ = progress.change(listener, *token, None, Interest::End);
            progress.add_timer(self.engine.now() + ACCEPT_PAUSE, *token);
            inner.accepting_paused = true;
        }
    }

    /// The pause may be over.
    pub(super) fn accept_again(&self) {
        let mut inner = self.inner.lock();
        if !std::mem::take(&mut inner.accepting_paused) {
            return;
        }
        if let Phase::Listening {
            listener, token, ..
        } = &inner.phase
        {
            let _ = self
                .engine
                .progress
                .change(listener, *token, None, Interest::Read);
        }
    }

    /// Changes the listener's waiting requests, and tells the program of those that are due.
    pub(super) fn tell_requests<R>(
        &self,
        change: impl FnOnce(&mut Order<Event>) -> R,
    ) -> Option<R> {
        let mut inner = self.inner.lock();
        let channel = inner.channel.clone()?;
        let Phase::Listening { order, token, .. } = &mut inner.phase else {
            return None;
        };
        let result = change(order);
        for request in order.due(self.engine.now()) {
            {
                let mut child = request.id.inner.lock();
                child.channel = Some(channel.clone());
                child.ticket = None;
            }
            channel.post(request);
        }
        if let Some(deadline) = order.deadline() {
            self.engine.progress.add_timer(deadline, *token);
        }
        Some(result)
    }

    /// The backlog is full of requests that the program has not answered: one more is reset.
    fn refuse_one(&self, listener: &TcpListener) {
        if let Ok(Some((socket, peer))) = listener.accept() {
            crate::info!("{peer}: refused, the backlog is full");
            socket.abort_on_close();
        }
    }

    /// A child's request is off the backlog.
    pub(super) fn request_answered(&self) {
        if let Phase::Listening { waiting, .. } = &mut self.inner.lock().phase {
            *waiting = waiting.saturating_sub(1);
        }
    }

    fn start_responding(self: &Arc<Self>, socket: TcpStream) -> Result<(), Error> {
        let now = self.engine.now();
        let startup = Startup::responder(&self.engine.settings, now);
        let deadline = startup.deadline();
        let endpoint = Endpoint::Connecting(self.clone());
        let mut inner = self.inner.lock();
        let token = self
            .engine
            .progress
            .add(&socket, endpoint, Interest::Read)?;
        inner.phase = Phase::Starting {
            socket,
            token,
            startup,
            request: None,
        };
        drop(inner);
        if let Some(deadline) = deadline {
            self.engine.progress.add_timer(deadline, token);
        }
        self.serve(&self.engine);
        Ok(())
    }

    /// Accepts a connect request.
    ///
    /// # Errors
    /// There is no request, no queue pair, or parameters are out of range.
    pub fn accept(&self, param: ConnParam<'_>) -> Result<(), Error> {
        let param = OwnedParam::new(&param)?;
        let me = self.arc()?;
        let mut inner = self.inner.lock();
        let qp = inner
            .qp
            .clone()
            .ok_or(Error::Invalid("the id has no queue pair"))?;
        let (socket, token, mut startup) = take_request(&mut inner)?;
        let established = match startup.accept(param.private_data, param.ird, param.ord) {
            Ok(established) => established,
            Err(error) => {
                crate::warn!("accept: {error}");
                self.engine.progress.remove(&socket, token);
                inner.phase = Phase::Disconnected;
                return Err(Error::Invalid("parameters of the accept"));
            }
        };
        let wait_for_peer = established.peer_to_peer;
        let mut event = Event::about(me.clone(), EventKind::Established, 0);
        event.responder_resources = established.ird.min(255) as u8;
        event.initiator_depth = established.ord.min(255) as u8;
        if !startup.flush(&socket) {
            self.engine.progress.remove(&socket, token);
            inner.phase = Phase::Disconnected;
            return Err(Error::Os(104));
        }
        inner.phase = Phase::Connected {
            announced: !wait_for_peer,
            established: Box::new(event.clone()),
        };
        // Under the lock: the program may post as soon as it has the event, and the end of the
        // stream is told after its beginning.
        if let Err(error) = qp.attach(socket, token, &established, &[], &me) {
            inner.phase = Phase::Disconnected;
            return Err(error);
        }
        if let (Some(channel), false) = (&inner.channel, wait_for_peer) {
            channel.post(event);
        }
        let listener = inner.listener.upgrade();
        drop(inner);
        if let Some(listener) = listener {
            listener.request_answered();
        }
        qp.serve_attached();
        Ok(())
    }

    /// Rejects a connect request; `private_data` goes along.
    ///
    /// # Errors
    /// There is no request, or too much private data.
    pub fn reject(&self, private_data: &[u8]) -> Result<(), Error> {
        let param = OwnedParam::new(&ConnParam {
            private_data,
            ..ConnParam::default()
        })?;
        let mut inner = self.inner.lock();
        let (socket, token, mut startup) = take_request(&mut inner)?;
        inner.phase = Phase::Disconnected;
        let listener = inner.listener.upgrade();
        drop(inner);
        if let Some(listener) = listener {
            listener.request_answered();
        }
        let rejected = startup.reject(param.private_data);
        startup.flush(&socket);
        self.engine.progress.remove(&socket, token);
        rejected.map_err(|_| Error::Invalid("private data"))
    }
}

/// Takes a request that waits for the program's answer.
fn take_request(inner: &mut Inner) -> Result<(TcpStream, crate::progress::Token, Startup), Error> {
    match std::mem::replace(&mut inner.phase, Phase::Idle) {
        Phase::Starting {
            socket,
            token,
            startup,
            request: Some(_),
        } => Ok((socket, token, startup)),
        other => {
            inner.phase = other;
            Err(Error::Invalid("the id has no connect request to answer"))
        }
    }
}
