//! Peers that begin and do not go on: silent, slow, too many, or cut off at every place.

#[path = "peers/end.rs"]
mod end;
#[path = "peers/raw.rs"]
mod raw;
#[path = "peers/serving.rs"]
mod serving;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once};
use std::time::{Duration, Instant};

use end::{connect, expect, listener, queue_pair, End};
use serving::serve;
use weft_engine::cm::{ConnParam, Event, EventChannel, EventKind, Id};
use weft_engine::settings::Settings;
use weft_engine::stats::Snapshot;
use weft_engine::types::QpState;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const HALF_OPEN: u64 = 24;
/// More than a machine may stand still in the middle of an honest start.
const START: Duration = Duration::from_secs(3);

/// One at a time: they look at what the whole process holds.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        weft_engine::start_with(Settings {
            crc: false,
            start_timeout: START,
            connect_timeout: START,
            half_open_limit: HALF_OPEN as usize,
            ..Settings::default()
        })
        .unwrap();
    });
    let turn = TURN.lock().unwrap_or_else(|broken| broken.into_inner());
    until("nothing is left of the test before", |counts| {
        counts.totals.half_open == 0 && counts.totals.connections == 0
    });
    turn
}

/// Waits until the statistics are so.
fn until(what: &str, is_so: impl Fn(&Snapshot) -> bool) {
    let deadline = Instant::now() + raw::TIMEOUT;
    while !is_so(&raw::counts()) {
        assert!(Instant::now() < deadline, "{what}: {:?}", raw::counts());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// An honest connection, through its whole life.
fn connect_well(to: SocketAddr, listens: &Arc<EventChannel>) {
    let (channel, active) = connect(to);
    let passive = accept(listens, b"honest");
    expect(&channel, EventKind::Established);
    await_event(listens, &passive.id, EventKind::Established);
    active.id.disconnect().unwrap();
    expect(&channel, EventKind::Disconnected);
    await_event(listens, &passive.id, EventKind::Disconnected);
    active.close();
    passive.close();
}

/// Accepts the request with that private data; others wait no longer.
fn accept(listens: &Arc<EventChannel>, private_data: &[u8]) -> End {
    loop {
        let event = listens.get_event().unwrap();
        if event.kind == EventKind::ConnectRequest && event.private_data == private_data {
            let end = End::new(event.id, 4096);
            end.id.accept(ConnParam::default()).unwrap();
            return end;
        }
        event.id.destroy();
    }
}

fn await_event(listens: &EventChannel, id: &Arc<Id>, kind: EventKind) -> Event {
    loop {
        let event = listens.get_event().unwrap();
        if Arc::ptr_eq(&event.id, id) {
            assert_eq!(event.kind, kind, "{event:?}");
            return event;
        }
    }
}

/// A Read Request for `size` octets.
fn read_request(size: u32, stag: u32, to: u64) -> Vec<u8> {
    let mut octets = vec![0, 46, 0x41, 0x41, 0, 0, 0, 0];
    // Queue 1, message 1, offset 0; the sink is nobody's.
    for word in [1u32, 1, 0, 7, 0, 0, size, stag] {
        octets.extend(word.to_be_bytes());
    }
    octets.extend(to.to_be_bytes());
    octets.extend([0; 4]);
    octets
}

/// Closing the stream sends RST.
fn cut(stream: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
}

#[test]
fn a_flood_of_silent_connections_is_bounded_and_shuts_nobody_out() {
    let _turn = turn();
    let (channel, id, four, six) = listener(1000);
    let before = raw::counts().totals.crowded_out;
    let mut flood = Vec::new();
    for _ in 0..6 {
        flood.extend((0..25).map(|_| raw::connect(four)));
        connect_well(six, &channel);
        // A place is given back before that is counted: of some looks the least.
        let looks = (0..10).map(|_| {
            std::thread::sleep(Duration::from_millis(1));
            raw::counts().totals.half_open
        });
        let held = looks.min().unwrap();
        assert!(held <= HALF_OPEN, "{held} connections are half open");
    }
    // The kernel has the rest, and they come as soon as the oldest have had their time.
    until("room is made", |counts| {
        counts.totals.crowded_out >= before + 25 && counts.totals.half_open <= HALF_OPEN
    });
    id.destroy();
}

#[test]
fn who_takes_the_last_place_pushes_nobody_out() {
    let _turn = turn();
    let (_channel, id, four, _) = listener(1000);
    let before = raw::counts().totals.crowded_out;
    let mut held: Vec<_> = (1..HALF_OPEN).map(|_| raw::connect(four)).collect();
    until("all but one place are taken", |counts| {
        counts.totals.half_open == HALF_OPEN - 1
    });
    // Now they are old enough to go for another.
    std::thread::sleep(Duration::from_millis(300));
    held.push(raw::connect(four));
    until("the last one is", |counts| {
        counts.totals.half_open == HALF_OPEN || counts.totals.crowded_out > before
    });
    for _ in 0..10 {
        assert_eq!(raw::counts().totals.crowded_out, before);
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(held);
    id.destroy();
}

/// Says that the test is over, also where it fails.
#[derive(Default)]
struct Over(Arc<AtomicBool>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Listeners that a flood holds full.
const FLOODED: usize = 4;

#[test]
fn a_flood_at_some_listeners_leaves_another_its_turn() {
    let _turn = turn();
    let flooded: Vec<_> = (0..FLOODED).map(|_| listener(1000)).collect();
    let (other_channel, other, other_four, _) = listener(1000);
    std::thread::spawn(move || serve(&other_channel, End::close));
    let honest = || {
        let begins = Instant::now();
        let (channel, end) = connect(other_four);
        expect(&channel, EventKind::Established);
        let took = begins.elapsed();
        end.id.disconnect().unwrap();
        expect(&channel, EventKind::Disconnected);
        end.close();
        took
    };
    let over = Over::default();
    let flood = std::thread::spawn({
        let over = over.0.clone();
        let ports: Vec<SocketAddr> = flooded.iter().map(|(_, _, four, _)| *four).collect();
        let open = |port| {
            let stream = raw::connect(port);
            stream.set_nonblocking(true).unwrap();
            stream
        };
        move || {
            let ports = ports.iter().copied().cycle();
            let mut held: Vec<_> = ports
                .take(2 * FLOODED * HALF_OPEN as usize)
                .map(|port| (port, open(port)))
                .collect();
            while !over.load(Ordering::Relaxed) {
                for (port, stream) in &mut held {
                    // Each that is closed is followed by another.
                    if !matches!(stream.read(&mut [0]), Err(e) if e.kind() == ErrorKind::WouldBlock)
                    {
                        *stream = open(*port);
                    }
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    until("all places are taken", |counts| {
        counts.totals.half_open == HALF_OPEN
    });
    let slowest = (0..12).map(|_| honest()).max().unwrap();
    // Whoever waited in front and is closed gives its turn up.
    for _ in 0..8 {
        let (_channel, short, short_four, _) = listener(1000);
        let _waits = raw::connect(short_four);
        std::thread::sleep(Duration::from_millis(5));
        short.destroy();
    }
    honest();
    drop(over);
    flood.join().unwrap();
    // A turn comes with the next place, and the youngest place is given up after a quarter of a second.
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    for (_channel, id, ..) in flooded {
        id.destroy();
    }
    other.destroy();
}

#[test]
fn a_listener_has_a_bound_of_its_own() {
    let _turn = turn();
    let (channel, id, four, six) = listener(4);
    let (other_channel, other, other_four, _) = listener(4);
    let before = raw::counts().totals.crowded_out;
    let flood: Vec<_> = (0..12).map(|_| raw::connect(four)).collect();
    until("the flood is there", |counts| {
        let held = counts.totals.half_open;
        assert!(held <= 8, "{held} connections are half open");
        held == 8
    });
    connect_well(other_four, &other_channel);
    connect_well(six, &channel);
    // It did not wait until the others' time was over.
    assert!(raw::counts().totals.crowded_out > before);
    drop(flood);
    id.destroy();
    other.destroy();
}

#[test]
fn a_flood_of_a_bring_up_port_is_bounded_too() {
    let _turn = turn();
    let (_pd, qp) = queue_pair();
    qp.listen_for_bring_up().unwrap();
    let port = SocketAddr::new(HERE, (qp.number() >> 8) as u16);
    let mut flood: Vec<_> = (0..40).map(|_| raw::connect(port)).collect();
    until("the flood is there", |counts| {
        counts.totals.half_open == HALF_OPEN
    });
    // Neither the silent nor the wrong ones are kept.
    for stream in &mut flood {
        stream
            .write_all(&raw::request(b"WEFTQP but no more"))
            .unwrap_or_default();
        raw::drain(stream);
    }
    until("its place is free", |counts| counts.totals.half_open == 0);
    qp.destroy();
}

#[test]
fn silent_connections_are_left_alone_while_nobody_waits_for_their_places() {
    let _turn = turn();
    // Two places.
    let (_channel, id, four, _) = listener(1);
    let mut first = raw::connect(four);
    until("it is taken", |counts| counts.totals.half_open == 1);
    // Old enough to give way.
    std::thread::sleep(Duration::from_millis(300));
    let mut second = raw::connect(four);
    until("it is taken too", |counts| counts.totals.half_open == 2);
    std::thread::sleep(Duration::from_millis(100));
    for stream in [&mut first, &mut second] {
        stream.set_nonblocking(true).unwrap();
        let error = stream.read(&mut [0]).expect_err("closed, or spoken to");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
    drop((first, second));
    until("their places are free", |counts| {
        counts.totals.half_open == 0
    });
    id.destroy();
}

/// A port whose queue of connections is full: the kernel drops what else comes.
#[test]
fn who_does_not_even_answer_a_connect_is_given_up() {
    use rustix::net::{bind, getsockname, listen, socket, AddressFamily, SocketType};
    let _turn = turn();
    let full = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&full, &SocketAddr::new(HERE, 0)).unwrap();
    listen(&full, 0).unwrap();
    let to = SocketAddr::try_from(getsockname(&full).unwrap()).unwrap();
    let moment = Duration::from_millis(200);
    let connects = || TcpStream::connect_timeout(&to, moment).ok();
    let queue: Vec<_> = std::iter::from_fn(connects).collect();
    let begun = Instant::now();
    let (channel, end) = connect(to);
    let event = expect(&channel, EventKind::Unreachable);
    assert_eq!(event.status, -110);
    assert!(begun.elapsed() >= START);
    end.close();
    drop(queue);
}

#[test]
fn a_slow_peer_has_no_more_time_than_others() {
    let _turn = turn();
    let (_channel, id, four, _) = listener(4);
    // Its time begins while it connects.
    let begun = Instant::now();
    let mut stream = raw::connect(four);
    let mut sent = 0;
    for octet in raw::request(&[0; 200]) {
        if stream.write_all(&[octet]).is_err() {
            break;
        }
        sent += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    raw::drain(&mut stream);
    assert!(begun.elapsed() >= START, "{:?}", begun.elapsed());
    assert!(sent < 224, "all of it was read");
    until("its place is free", |counts| counts.totals.half_open == 0);
    id.destroy();
}

#[test]
fn a_peer_that_keeps_its_ready_message_to_itself_keeps_no_queue_pair() {
    let _turn = turn();
    let (channel, id, four, _) = listener(4);
    // Up to the last octet of its header.
    for octets in [0, 1, 15] {
        let mut stream = raw::connect(four);
        stream.write_all(&raw::request(b"slow")).unwrap();
        let end = accept(&channel, b"slow");
        let mut reply = [0; raw::REPLY];
        stream.read_exact(&mut reply).unwrap();
        stream.write_all(&raw::READY[..octets]).unwrap();
        await_event(&channel, &end.id, EventKind::ConnectError);
        assert_eq!(end.qp.state(), QpState::Error);
        raw::drain(&mut stream);
        end.close();
    }
    id.destroy();
}

/// Where a connection is cut.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// Behind so many octets of the Request.
    InRequest(usize),
    /// Before the program answers.
    BeforeAnswer,
    /// The same, and the program answers although it knows.
    AtAnswer,
    /// Before the program, which closes the request without an answer, has done so.
    Unanswered,
    /// Behind the Reply and so many octets of the first FPDU.
    InReady(usize),
    /// Behind so many octets of a Write.
    InWrite(usize),
    /// While a Read is answered that nobody reads.
    InResponse,
}

#[test]
fn a_reset_at_any_place_leaves_nothing_behind() {
    let _turn = turn();
    let request = raw::request(b"cut").len();
    let write = raw::write_of_four(0, 0).len();
    let places = (0..request)
        .map(Place::InRequest)
        .chain([Place::BeforeAnswer; 10])
        .chain([Place::AtAnswer; 10])
        .chain([Place::Unanswered; 10])
        .chain((0..=raw::READY.len()).map(Place::InReady))
        .chain((0..=write).map(Place::InWrite))
        .chain([Place::InResponse; 3]);
    let (channel, id, four, _) = listener(4);
    connect_well(four, &channel);
    until("the first connection is gone", |counts| {
        counts.totals.connections == 0
    });
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    // A thread that handled the connection's end may hold its channel for a moment longer: of some looks the least.
    let looks = (0..10).map(|_| {
        std::thread::sleep(Duration::from_millis(5));
        descriptors()
    });
    let (before, start) = (looks.min().unwrap(), raw::counts().totals);
    for place in places {
        cut_at(place, four, &channel);
    }
    until("everything is gone", |counts| {
        let now = counts.totals;
        (now.half_open, now.connections) == (0, 0)
            && (now.queue_pairs, now.regions) == (start.queue_pairs, start.regions)
    });
    // More than the backlog were cut: each gave its place back.
    connect_well(four, &channel);
    until("no descriptor is left", |_| descriptors() <= before);
    id.destroy();
}

fn cut_at(place: Place, to: SocketAddr, channel: &Arc<EventChannel>) {
    let mut stream = raw::connect(to);
    let request = raw::request(b"cut");
    if let Place::InRequest(octets) = place {
        stream.write_all(&request[..octets]).unwrap();
        return cut(stream);
    }
    stream.write_all(&request).unwrap();
    let event = loop {
        let event = channel.get_event().unwrap();
        if event.kind == EventKind::ConnectRequest {
            break event;
        }
    };
    match place {
        Place::Unanswered => return event.id.destroy(),
        Place::BeforeAnswer => {
            cut(stream);
            await_event(channel, &event.id, EventKind::Rejected);
            return event.id.destroy();
        }
        _ => {}
    }
    let end = End::new(event.id, 4 << 20);
    if matches!(place, Place::AtAnswer) {
        // Whichever comes first, the answer or the reset: the answer may fail.
        let cutter = std::thread::spawn(|| cut(stream));
        let _ = end.id.accept(ConnParam::default());
        cutter.join().unwrap();
    } else {
        end.id.accept(ConnParam::default()).unwrap();
        let mut reply = [0; raw::REPLY];
        stream.read_exact(&mut reply).unwrap();
        let (stag, to) = (end.memory.stag().0, end.memory.memory().addr());
        let (octets, most) = match place {
            Place::InReady(most) => (raw::READY.to_vec(), most),
            Place::InWrite(most) => (raw::write_of_four(stag, to), most),
            _ => (read_request(4 << 20, stag, to), usize::MAX),
        };
        if !matches!(place, Place::InReady(_)) {
            stream.write_all(&raw::READY).unwrap();
            await_event(channel, &end.id, EventKind::Established);
        }
        stream.write_all(&octets[..most.min(octets.len())]).unwrap();
        if matches!(place, Place::InResponse) {
            stream.read_exact(&mut [0; 100_000]).unwrap();
        }
        cut(stream);
        loop {
            let event = channel.get_event().unwrap();
            let over = matches!(
                event.kind,
                EventKind::Disconnected | EventKind::ConnectError
            );
            if over && Arc::ptr_eq(&event.id, &end.id) {
                break;
            }
        }
    }
    end.close();
}

/// Objects lead to each other in circles.
#[test]
fn an_event_can_be_printed() {
    let _turn = turn();
    let (channel, id, four, _) = listener(4);
    let (_active_channel, active) = connect(four);
    let passive = accept(&channel, b"honest");
    let event = await_event(&channel, &passive.id, EventKind::Established);
    assert!(format!("{event:?}").contains("Established"));
    active.close();
    passive.close();
    id.destroy();
}
