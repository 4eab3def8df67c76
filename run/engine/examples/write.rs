//! One-sided writes in the idiomatic API: one process exposes memory, another writes into it.
//!
//! ```text
//! cargo run --release --example write                      # both ends, in one process
//! cargo run --release --example write -- serve [::]:7471   # or in two
//! cargo run --release --example write -- write 127.0.0.1:7471
//! ```

use std::net::SocketAddr;
use std::sync::Arc;

use weft_engine::cm::{ConnParam, Event, EventChannel, EventKind, Id};
use weft_engine::mem::Registered;
use weft_engine::types::{
    Access, Completion, Payload, QpCap, QpState, RecvRequest, SendFlags, SendOp, SendRequest, Sge,
    Stag, WcStatus,
};
use weft_engine::{Context, Cq, Error, Mr, Pd, Qp, QpInit};

const TEXT: &[u8] = b"written by the peer, with nobody here doing anything";

/// A queue pair and what belongs to it.
struct End {
    pd: Arc<Pd>,
    cq: Arc<Cq>,
    qp: Arc<Qp>,
}

impl End {
    fn new() -> Result<End, Error> {
        let pd = Context::open()?.alloc_pd();
        let cq = pd.context().create_cq(16, None, 0)?;
        let qp = pd.create_qp(QpInit {
            send_cq: cq.clone(),
            recv_cq: cq.clone(),
            srq: None,
            cap: QpCap {
                max_send_wr: 4,
                max_recv_wr: 4,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 64,
            },
            sq_sig_all: true,
            cookie: 0,
        })?;
        qp.modify_state(QpState::Init)?;
        Ok(End { pd, cq, qp })
    }

    fn register(&self, octets: usize, access: Access) -> Result<Arc<Mr>, Error> {
        let memory = Registered::allocate(octets)?;
        let iova = memory.addr();
        self.pd.register(memory, iova, access)
    }

    /// Waits for one completion; polling is what moves the connection on.
    fn complete(&self) -> Result<Completion, Error> {
        let mut completion = None;
        while completion.is_none() {
            self.cq.poll(1, |c| completion = Some(c))?;
        }
        match completion {
            Some(done) if done.status == WcStatus::Success => Ok(done),
            _ => Err(Error::State("a connection that stays up")),
        }
    }

    fn send(&self, op: SendOp, payload: Payload<'_>) -> Result<(), Error> {
        self.qp.post_send(&SendRequest {
            wr_id: 0,
            op,
            flags: SendFlags::default(),
            payload,
        })?;
        self.complete().map(drop)
    }
}

/// Waits for an event of that kind.
fn expect(channel: &EventChannel, kind: EventKind) -> Result<Event, Error> {
    let event = channel.get_event()?;
    if event.kind != kind {
        eprintln!(
            "{:?} instead of {kind:?}, status {}",
            event.kind, event.status
        );
        return Err(Error::State("a peer that answers"));
    }
    Ok(event)
}

fn listen(addr: SocketAddr) -> Result<(Arc<EventChannel>, Arc<Id>), Error> {
    let channel = EventChannel::new()?;
    let id = Id::new(Some(&channel), 0)?;
    id.bind(addr)?;
    id.listen(1)?;
    Ok((channel, id))
}

/// Exposes memory to one peer, tells it where, and shows what it wrote.
fn serve(channel: &EventChannel) -> Result<(), Error> {
    let request = expect(channel, EventKind::ConnectRequest)?;
    let end = End::new()?;
    let target = end.register(4096, Access::LOCAL_WRITE.union(Access::REMOTE_WRITE))?;
    end.qp.post_recv(&RecvRequest {
        wr_id: 0,
        scatter: &[],
    })?;
    let mut place = [0; 12];
    place[..8].copy_from_slice(&target.memory().addr().to_be_bytes());
    place[8..].copy_from_slice(&target.stag().0.to_be_bytes());
    request.id.attach_qp(&end.qp)?;
    request.id.accept(ConnParam {
        private_data: &place,
        ..ConnParam::default()
    })?;
    // The peer's Send says that its Write, which came before it, is placed.
    end.complete()?;
    let mut text = [0; TEXT.len()];
    target
        .memory()
        .read(0, &mut text)
        .map_err(|_| Error::State("mapped memory"))?;
    println!(
        "in the exposed memory: {:?}",
        String::from_utf8_lossy(&text)
    );
    Ok(())
}

/// Connects, writes into the peer's memory and says that it is done.
fn write(addr: SocketAddr) -> Result<(), Error> {
    let channel = EventChannel::new()?;
    let id = Id::new(Some(&channel), 0)?;
    id.resolve_addr(None, addr, None)?;
    expect(&channel, EventKind::AddrResolved)?;
    let end = End::new()?;
    id.attach_qp(&end.qp)?;
    id.connect(ConnParam::default())?;
    let established = expect(&channel, EventKind::Established)?;
    let (addr, stag) = established
        .private_data
        .split_first_chunk()
        .and_then(|(addr, rest)| Some((addr, rest.first_chunk()?)))
        .ok_or(Error::Invalid("private data of the peer"))?;
    let target = SendOp::Write {
        remote_addr: u64::from_be_bytes(*addr),
        rkey: Stag(u32::from_be_bytes(*stag)),
    };
    let source = end.register(TEXT.len(), Access::NONE)?;
    source
        .memory()
        .write(0, TEXT)
        .map_err(|_| Error::State("mapped memory"))?;
    let gather = [Sge {
        addr: source.memory().addr(),
        length: TEXT.len() as u32,
        lkey: source.stag().0,
    }];
    end.send(target, Payload::Gather(&gather))?;
    end.send(SendOp::Send, Payload::Inline(&[]))?;
    expect(&channel, EventKind::Disconnected)?;
    Ok(())
}

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let role = args.next();
    let addr = args.next().map(|text| text.parse().expect("ADDRESS:PORT"));
    match (role.as_deref(), addr) {
        (Some("serve"), Some(addr)) => serve(&listen(addr)?.0),
        (Some("write"), Some(addr)) => write(addr),
        (None, _) => {
            let (channel, listener) = listen("127.0.0.1:0".parse().expect("an address"))?;
            let addr = listener.local_addr().ok_or(Error::State("a bound id"))?;
            let server = std::thread::spawn(move || serve(&channel));
            write(addr)?;
            server.join().expect("the serving end")
        }
        _ => {
            eprintln!("usage: write [serve|write ADDRESS:PORT]");
            Err(Error::Invalid("arguments"))
        }
    }
}
