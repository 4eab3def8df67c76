//! The server's side of a replay: a queue pair, and memory as the captured server had it.

use std::collections::HashMap;

use std::time::Duration;
use weft_iwarp::{AtomicOperation, Established, Header};

use weft_verbs::host::{AtomicFault, Host, MemoryFault, RegionFault, Scope, Span};
use weft_verbs::outgoing::Piece;
use weft_verbs::qp::{FpduPolicy, Qp, QpConfig};
use weft_verbs::types::{
    Access, AsyncEventKind, Bind, Completion, PdId, QpCap, QpNumber, Sge, Stag,
};
use weft_verbs::wqe::RecvWqe;

use super::messages::{Decoder, Message};

/// The region of what the server's program sends.
const OUTGOING: Stag = Stag(1);
/// The region of receive buffers, which nobody looks at.
const RECEIVES: Stag = Stag(2);
const RECEIVE_LEN: u32 = 1 << 20;

/// What a capture says of the server's memory.
pub struct Capture {
    /// By STag the tagged offsets that the client was allowed: first, and behind the last.
    allowed: HashMap<Stag, (u64, u64)>,
    /// What its reads were answered with, in order.
    read: Vec<u8>,
}

impl Capture {
    /// Reads both sides: `client` is what the server received.
    pub fn read(server: &Established, client: &[u8], view: &Established, siw: &[u8]) -> Capture {
        let sent = Decoder::new(view).take(siw);
        let mut capture = Capture {
            allowed: HashMap::new(),
            read: Vec::new(),
        };
        let mut decoder = Decoder::new(server);
        for message in decoder.take(client) {
            match &message {
                Message::Write { stag, to, payload } => {
                    capture.allow(*stag, *to, payload.len() as u64);
                }
                Message::ReadRequest { request, .. } => {
                    let (stag, to) = (request.source_stag, request.source_to);
                    capture.allow(stag, to, u64::from(request.size));
                }
                _ => {}
            }
        }
        // Of a message that was refused, what came before the refused segment was allowed.
        if let (Some(Message::Write { stag, to, .. }), Some(end)) =
            (decoder.unfinished(), refused_at(&sent))
        {
            capture.allow(*stag, *to, end - to);
        }
        for message in &sent {
            match message {
                Message::ReadResponse { payload, .. } => capture.read.extend_from_slice(payload),
                Message::ReadRequest { request, .. } => {
                    let (stag, to) = (request.sink_stag, request.sink_to);
                    capture.allow(stag, to, u64::from(request.size));
                }
                _ => {}
            }
        }
        capture
    }

    fn allow(&mut self, stag: Stag, to: u64, len: u64) {
        let range = self.allowed.entry(stag).or_insert((to, to + len));
        *range = (range.0.min(to), range.1.max(to + len));
    }
}

/// The tagged offset of the segment that the server refused.
fn refused_at(sent: &[Message]) -> Option<u64> {
    sent.iter().find_map(|message| match message {
        Message::Terminate {
            header: Some(Header::Tagged(header)),
            ..
        } => Some(header.to),
        _ => None,
    })
}

/// The memory of the replayed server.
pub struct Memory<'a> {
    capture: &'a Capture,
    /// Octets of the capture's reads that were answered.
    answered: usize,
    outgoing: Vec<u8>,
    polled: u64,
}

impl Memory<'_> {
    /// Puts what the program is going to send where it can be gathered.
    pub fn provide(&mut self, payload: &[u8]) -> Sge {
        let addr = self.outgoing.len() as u64;
        self.outgoing.extend_from_slice(payload);
        Sge {
            addr,
            length: payload.len() as u32,
            lkey: OUTGOING.0,
        }
    }

    /// A buffer for any receive.
    pub fn receive_buffer(&self) -> Sge {
        Sge {
            addr: 0,
            length: RECEIVE_LEN,
            lkey: RECEIVES.0,
        }
    }
}

impl Host for Memory<'_> {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn check(
        &self,
        stag: Stag,
        addr: u64,
        len: u32,
        _access: Access,
        _scope: Scope,
    ) -> Result<Span, RegionFault> {
        let (first, end) = match stag {
            OUTGOING => (0, self.outgoing.len() as u64),
            RECEIVES => (0, u64::from(RECEIVE_LEN)),
            other => *self
                .capture
                .allowed
                .get(&other)
                .ok_or(RegionFault::InvalidStag)?,
        };
        if addr < first || addr + u64::from(len) > end {
            return Err(RegionFault::Bounds);
        }
        Ok(Span {
            stag,
            offset: addr,
            len,
        })
    }

    fn is_region(&self, _stag: Stag) -> bool {
        true
    }

    fn read(&mut self, span: Span, out: &mut Vec<u8>) -> Result<(), MemoryFault> {
        let len = span.len as usize;
        if span.stag == OUTGOING {
            out.extend_from_slice(&self.outgoing[span.offset as usize..][..len]);
        } else {
            // The same place may have held something else for each of the reads.
            out.extend_from_slice(&self.capture.read[self.answered..][..len]);
            self.answered += len;
        }
        Ok(())
    }

    fn write(&mut self, _span: Span, _octets: &[u8]) -> Result<(), MemoryFault> {
        Ok(())
    }

    fn invalidate(&mut self, _stag: Stag, _scope: Scope) -> Result<(), RegionFault> {
        Err(RegionFault::InvalidStag)
    }

    fn invalidate_for_peer(&mut self, _stag: Stag, _scope: Scope) -> Result<(), RegionFault> {
        Err(RegionFault::InvalidStag)
    }

    fn atomic(&mut self, _: Span, _: &AtomicOperation) -> Result<u64, AtomicFault> {
        Err(AtomicFault::Memory)
    }

    fn bind(&mut self, _: &Bind, _: Scope) -> Result<(), RegionFault> {
        Err(RegionFault::InvalidStag)
    }

    fn polled_slots(&self) -> u64 {
        self.polled
    }

    fn complete_send(&mut self, completion: Completion) {
        self.polled += u64::from(completion.slots);
    }

    fn complete_recv(&mut self, _completion: Completion) {}

    fn take_shared_recv(&mut self) -> Option<RecvWqe> {
        None
    }

    fn async_event(&mut self, _kind: AsyncEventKind) {}
}

/// The replayed server.
pub struct Server<'a> {
    pub qp: Qp,
    pub host: Memory<'a>,
    staged: Vec<u8>,
}

impl<'a> Server<'a> {
    /// A queue pair on the stream that `established` describes.
    pub fn new(established: &Established, emss: usize, capture: &'a Capture) -> Server<'a> {
        let mut qp = Qp::new(QpConfig {
            number: QpNumber(1),
            pd: PdId(1),
            cap: QpCap {
                max_send_wr: 1024,
                max_recv_wr: 1024,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            sq_sig_all: false,
            shared_receive: false,
        });
        qp.attach(established, emss, FpduPolicy::Emss, Duration::ZERO);
        Server {
            qp,
            host: Memory {
                capture,
                answered: 0,
                outgoing: Vec::new(),
                polled: 0,
            },
            staged: Vec::new(),
        }
    }

    /// Octets from the client.
    pub fn receive(&mut self, octets: &[u8]) {
        self.staged.extend_from_slice(octets);
        let result = self.qp.receive(&mut self.staged, &mut self.host);
        self.staged.drain(..result.consumed);
    }

    /// Octets to the client.
    pub fn transmit(&mut self) -> Vec<u8> {
        let mut octets = Vec::new();
        loop {
            self.qp.fill(1 << 20, &mut self.host);
            let queued = self.qp.outgoing().queued();
            if queued == 0 {
                return octets;
            }
            let pieces: Vec<_> = self
                .qp
                .outgoing()
                .pieces()
                .map(|piece| match piece {
                    Piece::Octets(octets) => Ok(octets.to_vec()),
                    Piece::Memory(span) => Err(span),
                })
                .collect();
            for piece in pieces {
                match piece {
                    Ok(framed) => octets.extend(framed),
                    Err(span) => self.host.read(span, &mut octets).expect("memory"),
                }
            }
            self.qp.sent(queued, &mut self.host);
        }
    }
}
