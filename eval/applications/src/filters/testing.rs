//! For tests of programs: the whole of one in a process, with a thread for each copy.

use std::net::{SocketAddr, TcpListener};
use std::thread;

use super::{run, Filter, Group, Joints, Share};

/// Copies of each filter but the last.
const COPIES: u32 = 2;

/// Makes a copy of a filter, in its thread.
type Make<'a> = &'a (dyn Fn() -> Box<dyn Filter> + Sync);

/// An address of this machine's that nobody listens at for now.
pub(crate) fn address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// How a copy is joined to others, with units of this length.
pub(crate) fn joints(unit: u32, listen: SocketAddr, before: u32, to: &[SocketAddr]) -> Joints {
    Joints {
        listen,
        before,
        to: to.to_vec(),
        window: 4,
        unit,
    }
}

/// Has `look` use a group of two copies of each filter: `first`, which has a share of what is there, then the others in
/// their order. All end without an error afterwards.
pub(crate) fn joined(
    unit: u32,
    first: &(dyn Fn(&Share) -> Box<dyn Filter> + Sync),
    others: &[Make<'_>],
    look: impl FnOnce(&mut Group),
) {
    let last = TcpListener::bind("127.0.0.1:0").unwrap();
    let end = last.local_addr().unwrap();
    thread::scope(|scope| {
        let (mut running, mut behind) = (Vec::new(), vec![end]);
        for &make in others.iter().rev() {
            let stage: Vec<SocketAddr> = (0..COPIES).map(|_| address()).collect();
            for &at in &stage {
                let joints = joints(unit, at, COPIES, &behind);
                running.push(scope.spawn(move || run(make().as_mut(), &joints)));
            }
            behind = stage;
        }
        let firsts: Vec<SocketAddr> = (0..COPIES).map(|_| address()).collect();
        for (copy, &at) in (0..).zip(&firsts) {
            let joints = joints(unit, at, 1, &behind);
            let share = Share {
                copy,
                copies: COPIES,
            };
            running.push(scope.spawn(move || run(first(&share).as_mut(), &joints)));
        }
        let mut group = Group::join(&last, &joints(unit, end, COPIES, &firsts)).unwrap();
        look(&mut group);
        drop(group);
        for one in running {
            one.join().unwrap().unwrap();
        }
    });
}
