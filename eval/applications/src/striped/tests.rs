//! The whole program with a thread for each process.

use std::net::TcpListener;
use std::thread;

use super::*;

/// Runs a manager, three servers and so many clients, each of which does `work` with the addresses of the others.
fn with_servers(clients: u32, stripe: u64, work: impl Fn(u32, SocketAddr, &[SocketAddr]) + Sync) {
    const SERVERS: usize = 3;
    let listeners: Vec<TcpListener> = (0..=SERVERS)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let at: Vec<SocketAddr> = listeners
        .iter()
        .map(|one| one.local_addr().unwrap())
        .collect();
    let layout = Layout::new(stripe, SERVERS as u64).unwrap();
    let folders: Vec<_> = (0..SERVERS).map(|_| tempfile::tempdir().unwrap()).collect();
    thread::scope(|scope| {
        let managing = scope.spawn(|| manager::serve(&listeners[0], clients, layout));
        let mut serving = Vec::new();
        for (listener, folder) in listeners[1..].iter().zip(&folders) {
            serving.push(scope.spawn(|| server::serve(listener, clients, folder.path())));
        }
        let working: Vec<_> = (0..clients)
            .map(|copy| {
                scope.spawn({
                    let (at, work) = (&at, &work);
                    move || work(copy, at[0], &at[1..])
                })
            })
            .collect();
        working.into_iter().for_each(|one| one.join().unwrap());
        for server in serving {
            assert!(server.join().unwrap().unwrap() > 0, "each has a part");
        }
        managing.join().unwrap().unwrap();
    });
    let is_empty =
        |folder: &tempfile::TempDir| std::fs::read_dir(folder.path()).unwrap().next().is_none();
    assert!(
        folders.iter().all(is_empty),
        "nothing stays where a server is killed, as nothing has a name"
    );
}

#[test]
fn what_is_read_is_what_was_written() {
    with_servers(1, 1000, |_, manager, servers| {
        let manager = Manager::reach(manager).unwrap();
        let mut client = Client::reach(servers).unwrap();
        let file = client.open(&manager, "one").unwrap();
        let octets: Vec<u8> = (0..20_000_000_u32).map(|i| (i / 7) as u8).collect();
        // Far more pieces, and more octets, than a request takes.
        let whole = Region {
            offset: 123,
            len: octets.len() as u64,
        };
        client.write(file, &[whole], &octets).unwrap();
        let mut room = vec![0; octets.len()];
        client.settle(file).unwrap();
        client.read(file, &[whole], &mut room).unwrap();
        assert!(room == octets);
        // Parts of it, in another order.
        let parts: Vec<Region> = (0..500)
            .map(|at| Region {
                offset: 123 + (499 - at) * 3001,
                len: 17,
            })
            .collect();
        let mut room = vec![0; 500 * 17];
        client.read(file, &parts, &mut room).unwrap();
        for (part, room) in parts.iter().zip(room.chunks(17)) {
            let at = part.offset as usize - 123;
            assert_eq!(room, &octets[at..at + 17]);
        }
        // Another file is another one, and ends where it ends.
        let other = client.open(&manager, "two").unwrap();
        let few = Region {
            offset: 0,
            len: 5000,
        };
        client.write(other, &[few], &[9; 5000]).unwrap();
        let mut room = vec![0; 5000];
        client.read(other, &[few], &mut room).unwrap();
        assert_eq!(room, [9; 5000]);
        let beyond = Region {
            offset: 4999,
            len: 1001,
        };
        let complaint = client
            .read(other, &[beyond], &mut room[..1001])
            .unwrap_err();
        assert!(complaint.to_string().contains("cannot read"), "{complaint}");
    });
}

#[test]
fn all_patterns_and_all_that_is_done_with_them() {
    for pattern in [Pattern::Row, Pattern::Tile] {
        for does in [Does::Write, Does::Read, Does::ReadCold] {
            with_servers(4, 64 << 10, |copy, manager, servers| {
                let figures = measure(&ClientArgs {
                    manager,
                    servers: servers.to_vec(),
                    share: Share { copy, copies: 4 },
                    pattern,
                    does,
                    row: 3 << 20,
                    request: 1 << 20,
                    seconds: 0,
                })
                .unwrap();
                assert!(figures.operations > 0);
            });
        }
    }
}

#[test]
fn nobody_waits_for_a_client_that_has_gone() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let layout = Layout::new(64, 1).unwrap();
    thread::scope(|scope| {
        let managing = scope.spawn(|| manager::serve(&listener, 2, layout));
        let (gone, stays) = (Manager::reach(at).unwrap(), Manager::reach(at).unwrap());
        gone.open(b"one").unwrap();
        drop(gone);
        let complaint = stays.meet().unwrap_err().to_string();
        assert!(complaint.contains("a client has gone"), "{complaint}");
        drop(stays);
        managing.join().unwrap().unwrap();
    });
}
