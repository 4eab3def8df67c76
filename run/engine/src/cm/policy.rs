//! How the connection of an id sends, where the program says so.

use weft_settings::transport::Policy;

use super::id::{Id, Inner, Phase};
use crate::carrier::Carrier;
use crate::error::Error;

impl Id {
    /// Has the connection send and acknowledge as `policy` says. Before there is one it is kept for the one that comes;
    /// a listener's is that of the connections that it takes from now on.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: the connection's TCP, or every connection's that this program can have, is the kernel's. The
    /// connection is over.
    pub fn set_policy(&self, policy: Policy) -> Result<(), Error> {
        if self.is_for_datagrams() || !self.engine.network.takes_policies() {
            return Err(Error::Unsupported(
                "a policy for a connection that the kernel has",
            ));
        }
        let mut inner = self.inner.lock();
        match (&inner.phase, &inner.qp) {
            (Phase::Connecting { carrier, .. } | Phase::Starting { carrier, .. }, _) => {
                carrier.set_policy(&policy)?;
            }
            (Phase::Connected { .. }, Some(qp)) => qp.set_policy(&policy)?,
            (Phase::Disconnected | Phase::Destroyed, _) => {
                return Err(Error::State("a connection that is not over"));
            }
            _ => {}
        }
        inner.policy = Some(Box::new(policy));
        Ok(())
    }
}

impl Inner {
    /// Has a new connection send as was asked before there was one. That the kernel has it was not known then, and is
    /// no reason to be without it.
    pub(super) fn follow_policy(&self, carrier: &dyn Carrier) {
        let Some(policy) = &self.policy else {
            return;
        };
        if let Err(error) = carrier.set_policy(policy) {
            crate::warn!("the program's policy for a connection is not followed: {error}");
        }
    }
}
