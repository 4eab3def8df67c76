//! So many connections of a process share memory, and no more: what each of them takes is bounded (decision 0058).

#[allow(dead_code, reason = "other tests use all of it")]
mod common;
#[path = "peers/raw.rs"]
mod raw;

use std::time::{Duration, Instant};

use common::{pair, sge, End, ALL};
use weft_engine::settings::Settings;
use weft_engine::types::{Access, Payload, RecvRequest, SendFlags, SendOp, SendRequest};

const TIMEOUT: Duration = Duration::from_secs(60);
/// Pairs whose two ends are both this process's.
const PAIRS: usize = 200;
/// Ends that share memory: as many as there may be of connections, listeners and the like when one begins to.
const SHARING_MAX: usize = 260;
const SHARING_MIN: usize = 200;

fn sharing() -> usize {
    let connections = raw::counts().connections;
    connections.iter().filter(|one| one.rings).count()
}

fn send(from: &End, to: &End, text: &[u8]) {
    let (source, target) = (from.memory(64, Access::NONE), to.memory(64, ALL));
    source.memory().write(0, text).unwrap();
    let scatter = &[sge(&target, 0, 64)];
    to.qp.post_recv(&RecvRequest { wr_id: 1, scatter }).unwrap();
    let gather = sge(&source, 0, text.len() as u32);
    from.qp
        .post_send(&SendRequest {
            wr_id: 2,
            op: SendOp::Send,
            payload: Payload::Gather(&[gather]),
            flags: SendFlags {
                signaled: true,
                ..SendFlags::default()
            },
        })
        .unwrap();
    assert_eq!(to.wait_recv().byte_len as usize, text.len());
    from.wait_send();
    let mut octets = vec![0; text.len()];
    target.memory().read(0, &mut octets).unwrap();
    assert_eq!(octets, text);
}

#[test]
fn some_share_memory_and_those_after_them_stay_on_tcp() {
    let settings = Settings {
        same_host: true,
        ..Settings::default()
    };
    weft_engine::start_with(settings).unwrap();
    let pairs: Vec<_> = (0..PAIRS).map(|_| pair()).collect();
    let deadline = Instant::now() + TIMEOUT;
    while sharing() < SHARING_MIN {
        assert!(Instant::now() < deadline, "{} share memory", sharing());
        std::thread::sleep(Duration::from_millis(10));
    }
    for (number, (one, other)) in pairs.iter().enumerate() {
        send(one, other, format!("to the second of {number}").as_bytes());
        send(other, one, format!("to the first of {number}").as_bytes());
    }
    let ends = sharing();
    assert!(
        (SHARING_MIN..=SHARING_MAX).contains(&ends),
        "{ends} share memory"
    );
}
