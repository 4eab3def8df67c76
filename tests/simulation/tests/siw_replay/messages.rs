//! Messages put together from segments, so that two senders that cut them differently can be compared.

use weft_iwarp::{
    Established, Header, Inbound, Message as Segment, Msn, Parse, ReadRequest, Stag, TerminateCode,
};

/// A whole message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    Send {
        msn: Msn,
        solicited: bool,
        payload: Vec<u8>,
    },
    Write {
        stag: Stag,
        to: u64,
        payload: Vec<u8>,
    },
    ReadRequest {
        msn: Msn,
        request: ReadRequest,
    },
    ReadResponse {
        stag: Stag,
        to: u64,
        payload: Vec<u8>,
    },
    Terminate {
        code: TerminateCode,
        /// Of the segment that was refused.
        header: Option<Header>,
    },
}

impl Message {
    /// Its payload.
    pub fn payload(&self) -> &[u8] {
        match self {
            Message::Send { payload, .. }
            | Message::Write { payload, .. }
            | Message::ReadResponse { payload, .. } => payload,
            Message::ReadRequest { .. } | Message::Terminate { .. } => &[],
        }
    }

    fn payload_mut(&mut self) -> Option<&mut Vec<u8>> {
        match self {
            Message::Send { payload, .. }
            | Message::Write { payload, .. }
            | Message::ReadResponse { payload, .. } => Some(payload),
            Message::ReadRequest { .. } | Message::Terminate { .. } => None,
        }
    }
}

/// Puts the messages of one direction together.
pub struct Decoder {
    inbound: Inbound,
    staged: Vec<u8>,
    open: Option<Message>,
    /// The segment under way is its message's last.
    last: bool,
}

impl Decoder {
    /// For what `receiver` receives.
    pub fn new(receiver: &Established) -> Decoder {
        Decoder {
            inbound: Inbound::new(receiver),
            staged: Vec::new(),
            open: None,
            last: false,
        }
    }

    /// Takes octets; gives the messages that they complete.
    pub fn take(&mut self, octets: &[u8]) -> Vec<Message> {
        self.staged.extend_from_slice(octets);
        let mut messages = Vec::new();
        loop {
            let (consumed, payload, more) = match self.inbound.parse(&mut self.staged) {
                Ok(Parse::Need { .. }) => return messages,
                Ok(Parse::Segment(segment)) => {
                    self.begin(&segment.message);
                    (
                        segment.consumed,
                        segment.payload.clone(),
                        self.inbound.outstanding(),
                    )
                }
                Ok(Parse::More(more)) => (more.consumed, more.payload, self.inbound.outstanding()),
                Ok(Parse::Consumed { octets }) => (octets, 0..0, 1),
                Err(fault) => panic!("{fault:?}"),
            };
            let target = self.open.as_mut().and_then(Message::payload_mut);
            if let Some(target) = target {
                target.extend_from_slice(&self.staged[payload]);
            }
            self.staged.drain(..consumed);
            if more == 0 && self.last {
                messages.extend(self.open.take());
            }
        }
    }

    /// The message that has begun and is not whole.
    pub fn unfinished(&self) -> Option<&Message> {
        self.open.as_ref()
    }

    /// A segment begins: of a new message, or the next of the one under way.
    fn begin(&mut self, segment: &Segment) {
        let payload = Vec::new();
        let (message, last) = match *segment {
            Segment::Send {
                msn,
                last,
                solicited,
                ..
            } => {
                let send = Message::Send {
                    msn,
                    solicited,
                    payload,
                };
                (send, last)
            }
            Segment::Write { stag, to, last } => (Message::Write { stag, to, payload }, last),
            Segment::ReadResponse { stag, to, last } => {
                (Message::ReadResponse { stag, to, payload }, last)
            }
            Segment::ReadRequest { msn, request } => (Message::ReadRequest { msn, request }, true),
            Segment::Terminate(ref terminate) => {
                let end = Message::Terminate {
                    code: terminate.code,
                    header: terminate.ddp.map(|(_, header)| header),
                };
                (end, true)
            }
            ref other => panic!("siw has no {other:?}"),
        };
        self.open.get_or_insert(message);
        self.last = last;
    }
}
