//! More clients at once than a listener's backlog: they wait, as a kernel lets TCP connections wait.

#[path = "peers/end.rs"]
mod end;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use end::{connect, expect, listener, End};
use weft_engine::cm::{ConnParam, EventChannel, EventKind};

const BACKLOG: i32 = 3;
const CLIENTS: usize = 30;
/// What the program takes for each.
const MOMENT: Duration = Duration::from_millis(15);

/// A program that needs a moment for each request. Gives how many it was told of, and its ends.
fn serve(events: &EventChannel, wanted: usize) -> (usize, Vec<End>) {
    let (mut told, mut ends) = (0, Vec::new());
    while ends.len() < wanted {
        let event = events.get_event().unwrap();
        if event.kind != EventKind::ConnectRequest {
            continue;
        }
        told += 1;
        std::thread::sleep(MOMENT);
        let end = End::new(event.id, 4096);
        match end.id.accept(ConnParam::default()) {
            Ok(()) if event.private_data == b"honest" => ends.push(end),
            _ => end.close(),
        }
    }
    (told, ends)
}

/// A connection that sends its Request and no more.
fn ask(to: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(to).unwrap();
    let request = b"MPA ID Req Frame\x10\x02\0\x04\x80\x04\x80\x04";
    stream.write_all(request).unwrap();
    stream
}

fn burst(to: SocketAddr) {
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            std::thread::spawn(move || {
                let (channel, end) = connect(to);
                expect(&channel, EventKind::Established);
                end
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap().close();
    }
}

#[test]
fn who_comes_beyond_the_backlog_waits_and_is_not_refused() {
    let (channel, id, four, _) = listener(BACKLOG);
    let server = std::thread::spawn({
        let channel: Arc<EventChannel> = channel.clone();
        move || serve(&channel, CLIENTS)
    });
    burst(four);
    let (told, ends) = server.join().unwrap();
    assert_eq!(told, CLIENTS);
    ends.into_iter().for_each(End::close);

    // Those who give up while they wait are not what the program spends its time on. The listener is full of the first.
    let mut asked: Vec<_> = (0..100).map(|_| ask(four)).collect();
    let gone = asked.split_off(2 * BACKLOG as usize);
    drop(gone);
    drop(asked);
    let server = std::thread::spawn(move || serve(&channel, CLIENTS));
    burst(four);
    let (told, ends) = server.join().unwrap();
    let most = CLIENTS + 2 * BACKLOG as usize;
    assert!(told <= most, "{told} requests");
    ends.into_iter().for_each(End::close);
    id.destroy();
}
