//! The passive side: the program's answer to a request. How connections are taken is in [`super::accepting`].

use std::sync::Arc;

use super::handler::{Handler, Link};
use super::id::{Id, Inner, OwnedParam, Phase};
use super::request_order::Order;
use super::startup::Startup;
use super::turn::Turn;
use super::{ConnParam, Event, EventKind};
use crate::carrier::Carrier;
use crate::error::Error;
use crate::progress::Token;
use crate::qp::{Admission, Start};

impl Id {
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

    /// Accepts a connect request.
    ///
    /// # Errors
    /// There is no request, no queue pair, or parameters are out of range.
    pub fn accept(&self, param: ConnParam<'_>) -> Result<(), Error> {
        self.accept_from(param, None)
    }

    /// Accepts a connect request where `admission` takes it; `handler` is told from now on what becomes of it.
    ///
    /// # Errors
    /// As for [`Id::accept`], and those of `admission`.
    pub(crate) fn accept_for(
        &self,
        param: ConnParam<'_>,
        handler: Arc<dyn Handler>,
        admission: Admission,
    ) -> Result<(), Error> {
        self.inner.lock().handler = Some(handler);
        self.accept_from(param, Some(admission))
    }

    fn accept_from(&self, param: ConnParam<'_>, admission: Option<Admission>) -> Result<(), Error> {
        let param = OwnedParam::new(&param)?;
        let me = self.arc()?;
        let mut inner = self.inner.lock();
        let qp = inner
            .qp
            .clone()
            .ok_or(Error::Invalid("the id has no queue pair"))?;
        let Taken {
            carrier,
            token,
            mut startup,
            turn,
        } = take_request(&mut inner)?;
        let established = match startup.accept(param.private_data, param.ird, param.ord) {
            Ok(established) => established,
            Err(error) => {
                crate::warn!("accept: {error}");
                self.engine.progress.remove_source(&*carrier, token);
                inner.phase = Phase::Disconnected;
                return Err(Error::Invalid("parameters of the accept"));
            }
        };
        let wait_for_peer = established.peer_to_peer;
        let mut event = Event::about(me.clone(), EventKind::Established, 0);
        event.responder_resources = established.ird.min(255) as u8;
        event.initiator_depth = established.ord.min(255) as u8;
        if !startup.flush(&*carrier) {
            self.engine.progress.remove_source(&*carrier, token);
            inner.phase = Phase::Disconnected;
            return Err(Error::Os(104));
        }
        inner.phase = Phase::Connected {
            untold: wait_for_peer.then(|| Box::new(event.clone())),
            _itself: me,
        };
        // Under the lock: the program may post as soon as it has the event, and the end of the
        // stream is told after its beginning.
        let start = Start {
            carrier,
            token,
            established: &established,
            leftover: &[],
            admission,
            owner: Arc::new(Link {
                id: self.me.clone(),
                _turn: turn.map(Box::new),
            }),
        };
        if let Err(error) = qp.attach(start) {
            inner.phase = Phase::Disconnected;
            return Err(error);
        }
        if let (Some(channel), false) = (&inner.channel, wait_for_peer) {
            channel.post(event);
        }
        drop(inner);
        qp.serve_attached();
        Ok(())
    }

    /// Rejects a connect request; `private_data` goes along.
    ///
    /// # Errors
    /// There is no request, or too much private data.
    pub fn reject(&self, private_data: &[u8]) -> Result<(), Error> {
        if self.is_for_datagrams() {
            return self.reject_lookup(private_data);
        }
        let param = OwnedParam::new(&ConnParam {
            private_data,
            ..ConnParam::default()
        })?;
        let mut inner = self.inner.lock();
        let Taken {
            carrier,
            token,
            mut startup,
            ..
        } = take_request(&mut inner)?;
        inner.phase = Phase::Disconnected;
        drop(inner);
        let rejected = startup.reject(param.private_data);
        startup.flush(&*carrier);
        self.engine.progress.remove_source(&*carrier, token);
        rejected.map_err(|_| Error::Invalid("private data"))
    }
}

/// A request that the program answers.
struct Taken {
    carrier: Box<dyn Carrier>,
    token: Token,
    startup: Box<Startup>,
    turn: Option<Turn>,
}

/// Takes a request that waits for the program's answer.
fn take_request(inner: &mut Inner) -> Result<Taken, Error> {
    match std::mem::replace(&mut inner.phase, Phase::Idle) {
        Phase::Starting {
            carrier,
            token,
            startup,
            request: Some(_),
            places,
        } => Ok(Taken {
            carrier,
            token,
            startup,
            turn: places.and_then(|mut places| places.turn.take()),
        }),
        other => {
            inner.phase = other;
            Err(Error::Invalid("the id has no connect request to answer"))
        }
    }
}
