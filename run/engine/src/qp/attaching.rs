//! How a queue pair comes to its stream.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use weft_verbs::iwarp::{Established, Role};
use weft_verbs::qp::FpduPolicy;

use super::stream::Stream;
use super::{placing, Admission, Inner, Leased, Owner, Qp};
use crate::carrier::same_host::SameHost;
use crate::carrier::Carrier;
use crate::error::Error;
use crate::progress::{Member, Token};
use crate::settings::FpduSize;

/// A connection whose MPA start-up is over.
pub(crate) struct Start<'a> {
    pub(crate) carrier: Box<dyn Carrier>,
    /// Waits for octets.
    pub(crate) token: Token,
    pub(crate) established: &'a Established,
    /// What came behind the Reply.
    pub(crate) leftover: &'a [u8],
    /// Asked before the queue pair takes it.
    pub(crate) admission: Option<Admission>,
    /// Who is told what becomes of it.
    pub(crate) owner: Arc<dyn Owner>,
}

/// How large FPDUs are made.
fn fpdu_policy(size: FpduSize) -> FpduPolicy {
    match size {
        FpduSize::Auto => FpduPolicy::Auto,
        FpduSize::Emss => FpduPolicy::Emss,
        FpduSize::Large => FpduPolicy::Large,
    }
}

impl Qp {
    /// Puts the queue pair on a connection. The caller tells the program and then calls [`Qp::serve_attached`].
    ///
    /// # Errors
    /// The queue pair does not wait for one, or not for this one; the connection is over. It is closed then.
    pub(crate) fn attach(&self, start: Start<'_>) -> Result<(), Error> {
        let engine = self.pd.engine();
        let Start {
            carrier,
            token,
            established,
            leftover,
            admission,
            owner,
        } = start;
        let mut inner = self.inner.lock();
        let admitted = self
            .admit(&inner, established.role, admission)
            .and_then(|me| {
                let ends = (carrier.local_addr()?, carrier.peer_addr()?);
                Ok((me, carrier.emss()?, ends))
            });
        let (me, emss, (local, peer)) = match admitted {
            Ok(facts) => facts,
            Err(error) => {
                engine.progress.remove_source(&*carrier, token);
                return Err(error);
            }
        };
        let policy = fpdu_policy(engine.settings.fpdu);
        engine.progress.hand_over(token, me.clone());
        let slot = engine
            .stats
            .open(self.number.0, local, peer, established.crc);
        let places = placing::policy(engine.settings.place).filter(|_| carrier.pieces().is_some());
        // An FPDU longer than a segment is in none of them whole.
        let is_aligned = places.is_some() && policy != FpduPolicy::Large;
        inner.machine.set_aligned(is_aligned);
        inner
            .machine
            .attach(established, emss, policy, engine.now());
        if engine.settings.speak_first && established.rtr.is_none() {
            inner.machine.speak_first();
        }
        carrier.attached();
        carrier.show(engine.stats.path_row(slot));
        let carrier = match self.may_share(&*carrier, (local, peer), engine) {
            true => Box::new(SameHost::over(carrier, leftover.len())),
            false => carrier,
        };
        let mut stream = Stream::new(carrier, token, peer, slot, leftover);
        if let Some(policy) = places {
            stream.place_ahead(policy);
        }
        if stream.has_rings && established.role == Role::Responder {
            stream.meeting = self.expect_peer();
        }
        if let Some(number) = stream.meeting {
            inner.machine.set_meeting(number);
        }
        inner.stream = Some(stream);
        inner.armed = None;
        inner.leased = Leased::default();
        inner.owner = Some(owner);
        Self::follow_deadline(&mut inner, engine);
        engine.progress.note_active(&me);
        Ok(())
    }

    /// Whether it may have a stream now, and this one; itself as what the stream's token is to lead to.
    fn admit(
        &self,
        inner: &Inner,
        role: Role,
        admission: Option<Admission>,
    ) -> Result<Arc<dyn Member>, Error> {
        if !inner.machine.takes_stream() {
            return Err(Error::State("a queue pair that waits to be connected"));
        }
        let me = self
            .me
            .upgrade()
            .filter(|_| !self.destroyed.load(Ordering::Acquire));
        let me = me.ok_or(Error::State("a queue pair that exists"))?;
        admission.map_or(Ok(()), |admit| admit(role))?;
        Ok(me)
    }

    /// Takes what came behind the Reply, as no event will say that it is in the buffer already. Without that, what is
    /// due (the ready-to-receive message) leaves with the program's first message: programs that were told of a
    /// connection post or wait next, and either sends it.
    pub(crate) fn serve_attached(&self) {
        let engine = self.pd.engine();
        let inner = self.inner.lock();
        if inner.stream.as_ref().is_some_and(Stream::has_buffered) {
            self.serve_locked(inner, true);
        } else if inner.machine.wants_to_send() {
            self.defer(engine);
        }
    }
}
