//! What the engine tells carriers and listeners of an adapter: that a queue pair has a connection, and that a listener
//! has no place for another, which then costs nothing.

#[allow(dead_code, reason = "a part of it is used")]
#[path = "../../engine/tests/common/mod.rs"]
mod common;

#[allow(dead_code, reason = "a part of it is used")]
#[path = "peers/made.rs"]
mod made;

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use common::{expect, pair, End};
use weft_engine::carrier::{
    Bound, Carrier, Drive, Interest, Listener, Network, Readiness, SocketOptions, Source,
};
use weft_engine::cm::{ConnParam, EventChannel, EventKind, Id};
use weft_engine::settings::Settings;

/// How often listeners said what they wait for.
static ASKED: AtomicU64 = AtomicU64::new(0);

/// A network whose listeners are counted.
#[derive(Debug)]
struct Counted(Arc<dyn Network>);

#[derive(Debug)]
struct CountedBound(Box<dyn Bound>);

#[derive(Debug)]
struct CountedListener(Box<dyn Listener>);

impl Network for Counted {
    fn bind(&self, addr: SocketAddr, options: &SocketOptions) -> io::Result<Box<dyn Bound>> {
        Ok(Box::new(CountedBound(self.0.bind(addr, options)?)))
    }

    fn connect(&self, peer: SocketAddr, options: &SocketOptions) -> io::Result<Box<dyn Carrier>> {
        self.0.connect(peer, options)
    }

    fn source_towards(&self, peer: SocketAddr) -> io::Result<SocketAddr> {
        self.0.source_towards(peer)
    }

    fn drives(&self) -> Vec<Arc<dyn Drive>> {
        self.0.drives()
    }
}

impl Bound for CountedBound {
    fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    fn listen(self: Box<Self>, backlog: i32) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(CountedListener(self.0.listen(backlog)?)))
    }

    fn connect(self: Box<Self>, peer: SocketAddr) -> io::Result<Box<dyn Carrier>> {
        self.0.connect(peer)
    }
}

impl Source for CountedListener {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.descriptor()
    }

    fn wait_for(&self, interest: Interest, readiness: &Readiness) {
        ASKED.fetch_add(1, Ordering::Relaxed);
        self.0.wait_for(interest, readiness);
    }
}

impl Listener for CountedListener {
    fn accept(&self) -> io::Result<Option<(Box<dyn Carrier>, SocketAddr)>> {
        self.0.accept()
    }

    fn has_waiting(&self) -> bool {
        self.0.has_waiting()
    }
}

/// Somebody who asks to be connected.
fn ask(address: SocketAddr) -> End {
    let channel = EventChannel::new().unwrap();
    let id = Id::new(Some(&channel), 0).unwrap();
    id.resolve_addr(None, address, None).unwrap();
    expect(&channel, EventKind::AddrResolved);
    id.resolve_route().unwrap();
    expect(&channel, EventKind::RouteResolved);
    let end = End::new(channel, id);
    end.id.connect(ConnParam::default()).unwrap();
    end
}

/// Starts the engine over the network of this file.
fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let (settings, _) = Settings::from_env();
        weft_engine::start_on(settings, Arc::new(Counted(made::network()))).unwrap();
    });
}

/// Without that a connection would keep the window of a stranger, and nobody would see but by the time it takes.
#[test]
fn connections_learn_that_a_queue_pair_has_them() {
    start();
    let ends = pair();
    assert_eq!(made::ATTACHED.load(Ordering::Relaxed), 2);
    drop(ends);
}

#[test]
fn a_listener_that_is_full_hears_nothing_until_it_has_room() {
    start();
    let channel = EventChannel::new().unwrap();
    let id = Id::new(Some(&channel), 0).unwrap();
    id.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    // Twice that many requests may wait for the program; the others wait in the adapter.
    id.listen(1).unwrap();
    let address = id.local_addr().unwrap();
    let clients: Vec<End> = (0..4).map(|_| ask(address)).collect();
    std::thread::sleep(Duration::from_millis(300));
    let before = ASKED.load(Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(300));
    let meanwhile = ASKED.load(Ordering::Relaxed) - before;
    assert!(meanwhile < 10, "it looked {meanwhile} times");
    // With each answer there is room for one more: all of them come.
    for _ in 0..clients.len() {
        let request = expect(&channel, EventKind::ConnectRequest);
        request.id.reject(b"").unwrap();
        request.id.destroy();
    }
    for client in &clients {
        client.expect(EventKind::Rejected);
    }
}
