//! One end of a connection through Weft's Rust API.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{ensure, Context as _, Result};
use weft_engine::cm::{ConnParam, Event, EventChannel, EventKind, Id};
use weft_engine::mem::Registered;
use weft_engine::types::{
    Access, Completion, Payload, QpCap, QpState, RecvRequest, SendFlags, SendOp, SendRequest, Sge,
    WcStatus,
};
use weft_engine::{Context, Cq, Mr, Pd, Qp, QpInit};

/// Most work requests outstanding.
pub(super) const DEPTH: u32 = 128;
/// A completion for this many requests.
pub(super) const SIGNAL_EVERY: u32 = 32;
/// Messages this short go inline, as perftest sends them.
const INLINE: usize = 236;

/// A connected queue pair with a source and a target buffer.
pub(super) struct End {
    pub(super) send_cq: Arc<Cq>,
    pub(super) qp: Arc<Qp>,
    recv_cq: Arc<Cq>,
    source: Arc<Mr>,
    target: Arc<Mr>,
    size: usize,
    remote: Remote,
    small: Vec<u8>,
    /// Sends of a ping-pong so far.
    turns: Cell<u32>,
    /// Last: it outlives what it connects.
    id: Arc<Id>,
}

/// Where the other side's target buffer is.
#[derive(Clone, Copy, Default)]
struct Remote {
    addr: u64,
    rkey: u32,
}

/// Waits for connections.
pub(super) struct Listener {
    channel: Arc<EventChannel>,
    _id: Arc<Id>,
}

impl Listener {
    pub(super) fn bind(address: SocketAddr) -> Result<Listener> {
        let channel = EventChannel::new()?;
        let id = Id::new(Some(&channel), 0)?;
        id.bind(address)
            .with_context(|| format!("cannot listen on {address}"))?;
        id.listen(16)?;
        Ok(Listener { channel, _id: id })
    }

    /// Where it listens.
    #[cfg(test)]
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self._id.local_addr()
    }

    /// The next connection, for messages of `size` octets, ready for use.
    pub(super) fn accept(&self, size: usize) -> Result<End> {
        let request = expect(&self.channel, EventKind::ConnectRequest)?;
        let end = accept(request, size)?;
        expect(&self.channel, EventKind::Established)?;
        Ok(end)
    }

    /// Accepts connections until `count` of them have ended. The end of one and the request of the
    /// next come in any order.
    pub(super) fn accept_many(&self, count: usize) -> Result<()> {
        let (mut open, mut ended) = (Vec::new(), 0);
        while ended < count {
            let event = self.channel.get_event()?;
            match event.kind {
                EventKind::ConnectRequest => open.push(accept(event, 1)?),
                EventKind::Established => {}
                EventKind::Disconnected => {
                    open.retain(|end| !Arc::ptr_eq(&end.id, &event.id));
                    ended += 1;
                }
                other => anyhow::bail!("{other:?} (status {})", event.status),
            }
        }
        Ok(())
    }

    /// Waits until the last accepted connection ends.
    pub(super) fn wait_disconnected(&self) -> Result<()> {
        expect(&self.channel, EventKind::Disconnected).map(drop)
    }
}

fn accept(request: Event, size: usize) -> Result<End> {
    let mut end = End::new(request.id, size)?;
    end.remote = Remote::decode(&request.private_data)?;
    let ours = end.ours().encode();
    end.id.accept(param(&ours))?;
    Ok(end)
}

/// A connection that is ready to be made: address resolved, queue pair there.
pub(super) struct Connector {
    channel: Arc<EventChannel>,
    end: End,
}

impl Connector {
    pub(super) fn new(server: SocketAddr, size: usize) -> Result<Connector> {
        let channel = EventChannel::new()?;
        let id = Id::new(Some(&channel), 0)?;
        id.resolve_addr(None, server, None)?;
        expect(&channel, EventKind::AddrResolved)?;
        id.resolve_route()?;
        expect(&channel, EventKind::RouteResolved)?;
        let end = End::new(id, size)?;
        Ok(Connector { channel, end })
    }

    /// From here to the return is what "connect to established" means.
    pub(super) fn connect(mut self) -> Result<End> {
        let ours = self.end.ours().encode();
        self.end.id.connect(param(&ours))?;
        let established = expect(&self.channel, EventKind::Established)?;
        self.end.remote = Remote::decode(&established.private_data)?;
        Ok(self.end)
    }
}

impl End {
    fn new(id: Arc<Id>, size: usize) -> Result<End> {
        let context = Context::open()?;
        let pd = context.alloc_pd();
        let send_cq = context.create_cq(2 * DEPTH, None, 0)?;
        let recv_cq = context.create_cq(2 * DEPTH, None, 1)?;
        let init = QpInit {
            send_cq: send_cq.clone(),
            recv_cq: recv_cq.clone(),
            srq: None,
            cap: QpCap {
                max_send_wr: DEPTH,
                max_recv_wr: DEPTH,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: INLINE as u32,
            },
            sq_sig_all: false,
            cookie: 0,
        };
        let qp = pd.create_qp(init)?;
        qp.modify_state(QpState::Init)?;
        id.attach_qp(&qp)?;
        let source = region(&pd, size, Access::NONE)?;
        let target = region(&pd, size, Access::LOCAL_WRITE.union(Access::REMOTE_WRITE))?;
        let small = vec![0x5a; if size <= INLINE { size } else { 0 }];
        let remote = Remote::default();
        let end = End {
            send_cq,
            qp,
            recv_cq,
            source,
            target,
            size,
            remote,
            small,
            turns: Cell::new(0),
            id,
        };
        for _ in 0..DEPTH {
            end.post_recv()?;
        }
        Ok(end)
    }

    fn ours(&self) -> Remote {
        Remote {
            addr: self.target.memory().addr(),
            rkey: self.target.stag().0,
        }
    }

    /// Makes room for one more message from the other side.
    pub(super) fn post_recv(&self) -> Result<()> {
        let scatter = [sge(&self.target, self.size)];
        self.qp
            .post_recv(&RecvRequest {
                wr_id: 0,
                scatter: &scatter,
            })
            .map_err(posting)
    }

    /// Hands `each` the request for one message of this end's size.
    pub(super) fn with_request<T>(
        &self,
        write: bool,
        signaled: bool,
        each: impl FnOnce(&SendRequest<'_>) -> T,
    ) -> T {
        let gather = [sge(&self.source, self.size)];
        let payload = match self.small.is_empty() {
            true => Payload::Gather(&gather),
            false => Payload::Inline(&self.small),
        };
        let rkey = weft_engine::types::Stag(self.remote.rkey);
        let op = match write {
            true => SendOp::Write {
                remote_addr: self.remote.addr,
                rkey,
            },
            false => SendOp::Send,
        };
        let flags = SendFlags {
            signaled,
            ..SendFlags::default()
        };
        each(&SendRequest {
            wr_id: 0,
            op,
            flags,
            payload,
        })
    }

    /// Posts one Send without a completion unless it fails.
    pub(super) fn send(&self, signaled: bool) -> Result<()> {
        self.with_request(false, signaled, |request| self.qp.post_send(request))
            .map_err(posting)
    }

    /// Posts one Send of a ping-pong. Every few of them complete and are reaped, which gives their places in the send
    /// queue back; the answers say that all of them are done.
    pub(super) fn send_in_turn(&self) -> Result<()> {
        let turn = self.turns.get().wrapping_add(1);
        self.turns.set(turn);
        let signaled = turn.is_multiple_of(SIGNAL_EVERY);
        if signaled {
            reap(&self.send_cq)?;
        }
        self.send(signaled)
    }

    /// Spins until a message has arrived, and makes room for another.
    pub(super) fn receive(&self) -> Result<()> {
        while reap(&self.recv_cq)? == 0 {}
        self.post_recv()
    }

    /// Ends the connection.
    pub(super) fn disconnect(&self) -> Result<()> {
        Ok(self.id.disconnect()?)
    }
}

/// Takes what has completed off a queue; a completion that reports no success is an error.
pub(super) fn reap(cq: &Cq) -> Result<usize> {
    let mut failed: Option<Completion> = None;
    let n = cq.poll(16, |completion| {
        if completion.status != WcStatus::Success {
            failed = Some(completion);
        }
    })?;
    match failed {
        Some(completion) => anyhow::bail!("a work request failed: {completion:?}"),
        None => Ok(n),
    }
}

pub(super) fn posting(error: weft_engine::types::PostError) -> anyhow::Error {
    anyhow::anyhow!("cannot post: {error:?}")
}

impl Remote {
    fn encode(self) -> Vec<u8> {
        [&self.addr.to_be_bytes()[..], &self.rkey.to_be_bytes()[..]].concat()
    }

    fn decode(octets: &[u8]) -> Result<Remote> {
        let word = |range: std::ops::Range<usize>| octets.get(range).context("no private data");
        Ok(Remote {
            addr: u64::from_be_bytes(word(0..8)?.try_into()?),
            rkey: u32::from_be_bytes(word(8..12)?.try_into()?),
        })
    }
}

fn region(pd: &Arc<Pd>, size: usize, access: Access) -> Result<Arc<Mr>> {
    let memory = Registered::allocate(size).context("no memory")?;
    let iova = memory.addr();
    Ok(pd.register(memory, iova, access)?)
}

fn sge(region: &Mr, size: usize) -> Sge {
    Sge {
        addr: region.memory().addr(),
        length: size as u32,
        lkey: region.stag().0,
    }
}

fn param(private_data: &[u8]) -> ConnParam<'_> {
    ConnParam {
        private_data,
        responder_resources: 1,
        initiator_depth: 1,
    }
}

fn expect(channel: &EventChannel, kind: EventKind) -> Result<Event> {
    let event = channel.get_event()?;
    ensure!(
        event.kind == kind,
        "{:?} (status {}) instead of {kind:?}",
        event.kind,
        event.status
    );
    Ok(event)
}
