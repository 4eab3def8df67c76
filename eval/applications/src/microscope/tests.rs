//! The whole program with a thread for each copy.

use std::net::{SocketAddr, TcpListener};
use std::thread;

use super::*;

fn address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// Looks at these views with two copies of each filter and units of this length.
fn looked(unit: u32, views: &[Query]) {
    let last = TcpListener::bind("127.0.0.1:0").unwrap();
    let end = last.local_addr().unwrap();
    let [readers, clips, subsamples] = [(); 3].map(|()| [address(), address()]);
    let joints = |listen, before, to: &[SocketAddr]| Joints {
        listen,
        before,
        to: to.to_vec(),
        window: 4,
    };
    let mut running = Vec::new();
    for at in subsamples {
        let joints = joints(at, 2, &[end]);
        running.push(thread::spawn(move || {
            filters::run(&mut Subsample::default(), &joints)
        }));
    }
    for at in clips {
        let joints = joints(at, 2, &subsamples);
        running.push(thread::spawn(move || {
            filters::run(&mut Clip::default(), &joints)
        }));
    }
    for (copy, at) in (0..).zip(readers) {
        let joints = joints(at, 1, &clips);
        let read = Read {
            unit,
            copy,
            copies: 2,
        };
        running.push(thread::spawn(move || {
            filters::run(&mut Reader::new(&read), &joints)
        }));
    }
    let mut group = Group::join(&last, &joints(end, 2, &readers)).unwrap();
    for query in views {
        see(&mut group, *query, &alone(*query)).unwrap();
    }
    let wrong = see(&mut group, views[0], &alone(Query::tour(9)[8])).unwrap_err();
    assert!(wrong.to_string().contains("shown wrongly"), "{wrong}");
    drop(group);
    for one in running {
        one.join().unwrap().unwrap();
    }
}

#[test]
fn each_view_is_what_one_process_computes() {
    for unit in [UNIT_MIN as u32, 16 << 10, 64 << 10, UNIT_MAX as u32] {
        looked(unit, &Query::tour(3));
    }
}

#[test]
fn the_largest_factor_and_the_edges_of_the_slide() {
    let edge = Rect {
        x: slide::SIZE.0 - 1000,
        y: slide::SIZE.1 - 504,
        width: 1000,
        height: 504,
    };
    let at = |factor| Query { rect: edge, factor };
    looked(32 << 10, &[at(1), at(8)]);
}
