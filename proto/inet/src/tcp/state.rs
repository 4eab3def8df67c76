//! The states of a connection and what leads from one to the next (RFC 9293 section 3.3.2, figure 5).
//!
//! ```text
//!  SYN-SENT ──syn──▶ SYN-RECEIVED ──established──▶ ESTABLISHED ──fin──▶ CLOSE-WAIT ──close──▶ LAST-ACK
//!     │                                              ▲  │ close                                  │ acked
//!     └────────────established───────────────────────┘  ▼                                        ▼
//!                                          FIN-WAIT-1 ──acked──▶ FIN-WAIT-2 ──fin──▶ TIME-WAIT   CLOSED
//!                                             │ fin                                     ▲
//!                                             ▼                                         │
//!                                          CLOSING ─────────────acked───────────────────┘
//! ```
//!
//! LISTEN is not a state of a connection here but an object of its own ([`crate::tcp::listen`]), and TIME-WAIT is kept
//! in a table of small entries ([`crate::tcp::time_wait`]): [`State::TimeWait`] is where a connection hands over to it.

/// The state of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// Sent a SYN, waits for the peer's.
    SynSent,
    /// Sent and received a SYN, waits for the ACK of its own.
    SynReceived,
    /// Data flows both ways.
    Established,
    /// Sent a FIN, waits for its ACK and for the peer's FIN.
    FinWait1,
    /// The FIN was acknowledged, the peer may still send.
    FinWait2,
    /// The peer sent a FIN, we may still send.
    CloseWait,
    /// Both sent a FIN, ours is not acknowledged.
    Closing,
    /// Closed after the peer did, waits for the ACK of the FIN.
    LastAck,
    /// Both directions are closed; the peer may not know.
    TimeWait,
    /// There is no connection.
    Closed,
}

/// What moves a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// A SYN without the ACK of ours (simultaneous open).
    Syn,
    /// Both SYNs are acknowledged.
    Established,
    /// The program closed.
    Close,
    /// The peer's FIN arrived, and all before it.
    Fin,
    /// Our FIN was acknowledged.
    FinAcknowledged,
    /// A reset, a timeout or the program's abort.
    Abort,
}

impl State {
    /// Every state.
    pub const ALL: [State; 10] = [
        State::SynSent,
        State::SynReceived,
        State::Established,
        State::FinWait1,
        State::FinWait2,
        State::CloseWait,
        State::Closing,
        State::LastAck,
        State::TimeWait,
        State::Closed,
    ];

    /// Where `cause` leads; none where it means nothing.
    pub fn next(self, cause: Cause) -> Option<State> {
        use State::*;
        Some(match (self, cause) {
            (_, Cause::Abort) => Closed,
            (SynSent, Cause::Syn) => SynReceived,
            (SynSent | SynReceived, Cause::Established) => Established,
            // CLOSE before the connection is there (RFC 9293 section 3.10.4).
            (SynSent, Cause::Close) => Closed,
            (SynReceived | Established, Cause::Close) => FinWait1,
            (CloseWait, Cause::Close) => LastAck,
            (Established, Cause::Fin) => CloseWait,
            (FinWait1, Cause::Fin) => Closing,
            (FinWait2, Cause::Fin) => TimeWait,
            (FinWait1, Cause::FinAcknowledged) => FinWait2,
            (Closing, Cause::FinAcknowledged) => TimeWait,
            (LastAck, Cause::FinAcknowledged) => Closed,
            _ => return None,
        })
    }

    /// Both SYNs were exchanged (the synchronized states of RFC 9293 section 3.3.2).
    pub fn is_synchronized(self) -> bool {
        !matches!(self, State::SynSent | State::SynReceived | State::Closed)
    }

    /// The program may still give data to send.
    pub fn may_send(self) -> bool {
        use State::*;
        matches!(self, SynSent | SynReceived | Established | CloseWait)
    }

    /// The peer may still send data.
    pub fn may_receive(self) -> bool {
        use State::*;
        matches!(self, Established | FinWait1 | FinWait2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;

    /// The whole table, legal and not: a change of a transition shows here as a change of a line.
    #[test]
    fn table_of_transitions() {
        let causes = [
            Cause::Syn,
            Cause::Established,
            Cause::Close,
            Cause::Fin,
            Cause::FinAcknowledged,
        ];
        let mut table = String::new();
        for state in State::ALL {
            table += &format!("{state:?}:");
            for cause in causes {
                if let Some(next) = state.next(cause) {
                    table += &format!(" {cause:?}->{next:?}");
                }
            }
            table += "\n";
            assert_eq!(state.next(Cause::Abort), Some(State::Closed));
        }
        let expected = "\
SynSent: Syn->SynReceived Established->Established Close->Closed
SynReceived: Established->Established Close->FinWait1
Established: Close->FinWait1 Fin->CloseWait
FinWait1: Fin->Closing FinAcknowledged->FinWait2
FinWait2: Fin->TimeWait
CloseWait: Close->LastAck
Closing: FinAcknowledged->TimeWait
LastAck: FinAcknowledged->Closed
TimeWait:
Closed:
";
        assert_eq!(table, expected);
    }
}
