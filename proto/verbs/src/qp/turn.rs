//! Whose turn it is where the send queue and responses both wait.

/// Who sends the next message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Turn {
    /// This side's requests.
    #[default]
    Requester,
    /// Responses to the peer's.
    Responder,
}

impl Turn {
    /// Whose turn it is; the next one is the other's.
    #[inline]
    pub(super) fn take(&mut self) -> Turn {
        let next = match self {
            Turn::Requester => Turn::Responder,
            Turn::Responder => Turn::Requester,
        };
        core::mem::replace(self, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requester_and_responder_alternate() {
        let mut turn = Turn::default();
        let taken = [turn.take(), turn.take(), turn.take()];
        assert_eq!(taken, [Turn::Requester, Turn::Responder, Turn::Requester]);
    }
}
