//! Half round trip of a 64-octet Send between two processes, polling: the engine without any face.
//!
//! `pingpong` forks no process: run `pingpong server` and `pingpong client` on two cores.

use std::sync::Arc;
use std::time::Instant;

use weft_engine::cm::{ConnParam, EventChannel, EventKind, Id};
use weft_engine::mem::Registered;
use weft_engine::types::{
    Access, Payload, QpCap, QpState, RecvRequest, SendFlags, SendOp, SendRequest, Sge,
};
use weft_engine::{Context, Cq, Error, Mr, Pd, Qp, QpInit};

const OCTETS: usize = 64;
const ROUNDS: usize = 200_000;

struct End {
    cq: Arc<Cq>,
    qp: Arc<Qp>,
    memory: Arc<Mr>,
    _pd: Arc<Pd>,
}

impl End {
    fn new() -> Result<End, Error> {
        let context = Context::open()?;
        let pd = context.alloc_pd();
        let cq = context.create_cq(1024, None, 0)?;
        let qp = pd.create_qp(QpInit {
            send_cq: cq.clone(),
            recv_cq: cq.clone(),
            srq: None,
            cap: QpCap {
                max_send_wr: 16,
                max_recv_wr: 512,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 64,
            },
            sq_sig_all: false,
            cookie: 0,
        })?;
        qp.modify_state(QpState::Init)?;
        let memory = Registered::allocate(2 * OCTETS).map_err(Error::from)?;
        let iova = memory.addr();
        let memory = pd.register(memory, iova, Access::LOCAL_WRITE)?;
        let end = End {
            cq,
            qp,
            memory,
            _pd: pd,
        };
        for _ in 0..256 {
            end.post_recv()?;
        }
        Ok(end)
    }

    fn sge(&self, offset: usize) -> [Sge; 1] {
        [Sge {
            addr: self.memory.memory().addr() + offset as u64,
            length: OCTETS as u32,
            lkey: self.memory.stag().0,
        }]
    }

    fn post_recv(&self) -> Result<(), Error> {
        let scatter = self.sge(OCTETS);
        Ok(self.qp.post_recv(&RecvRequest {
            wr_id: 0,
            scatter: &scatter,
        })?)
    }

    fn send(&self) -> Result<(), Error> {
        let gather = self.sge(0);
        Ok(self.qp.post_send(&SendRequest {
            wr_id: 1,
            op: SendOp::Send,
            flags: SendFlags::default(),
            payload: Payload::Gather(&gather),
        })?)
    }

    fn receive(&self) -> Result<(), Error> {
        while self.cq.poll(1, |_| ())? == 0 {}
        self.post_recv()
    }
}

fn main() -> Result<(), Error> {
    let role = std::env::args().nth(1).unwrap_or_default();
    let port = std::env::args()
        .nth(2)
        .unwrap_or_else(|| "17471".to_owned());
    let addr = format!("127.0.0.1:{port}").parse().expect("an address");
    let channel = EventChannel::new()?;
    let id = Id::new(Some(&channel), 0)?;
    let param = ConnParam::default();
    let end = End::new()?;
    if role == "server" {
        id.bind(addr)?;
        id.listen(1)?;
        let request = channel.get_event()?;
        request.id.attach_qp(&end.qp)?;
        request.id.accept(param)?;
        while channel.get_event()?.kind != EventKind::Established {}
        for _ in 0..ROUNDS {
            end.receive()?;
            end.send()?;
        }
        while channel.get_event()?.kind != EventKind::Disconnected {}
    } else {
        id.resolve_addr(None, addr, None)?;
        channel.get_event()?;
        id.attach_qp(&end.qp)?;
        id.connect(param)?;
        while channel.get_event()?.kind != EventKind::Established {}
        let mut samples = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let start = Instant::now();
            end.send()?;
            end.receive()?;
            samples.push(start.elapsed().as_nanos() / 2);
        }
        samples.sort_unstable();
        let at = |q: f64| samples[(q * (ROUNDS - 1) as f64) as usize];
        println!(
            "half round trip of {OCTETS} octets: median {} ns, p99 {} ns",
            at(0.5),
            at(0.99)
        );
        id.disconnect()?;
    }
    Ok(())
}
