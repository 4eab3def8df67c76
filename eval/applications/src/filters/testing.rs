//! For tests of programs: the whole of one in a process, with a thread for each copy.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};

use super::groups::listens_at;
use super::{run, Filter, Group, Joints, Share};

/// Copies of each filter but the last.
const COPIES: u32 = 2;

/// Makes a copy of a filter, in its thread.
type Make<'a> = &'a (dyn Fn() -> Box<dyn Filter> + Sync);

/// An address of this machine's that nobody else listens at or connects from, nor at the hundred ports behind it: one
/// of the loopback network that no other call gives. A free port of 127.0.0.1 would be free for whoever binds or
/// connects next, too, in a test beside this one, and a copy that cannot listen leaves the others waiting.
pub(crate) fn address() -> SocketAddr {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    const HOSTS: u32 = 250;
    // Below the ports that the kernel gives connections.
    const PORT: u32 = 7000;
    let (process, call) = (std::process::id(), CALLS.fetch_add(1, Ordering::Relaxed));
    let host =
        [1 + process % HOSTS, process / HOSTS % 256, 1 + call % HOSTS].map(|octet| octet as u8);
    let address = Ipv4Addr::new(127, host[0], host[1], host[2]);
    SocketAddr::new(address.into(), (PORT + call / HOSTS * 100) as u16)
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

/// Makes a copy of the first filter, which has a share of what is there.
type MakeFirst<'a> = &'a (dyn Fn(&Share) -> Box<dyn Filter> + Sync);

type Running<'s> = ScopedJoinHandle<'s, anyhow::Result<()>>;

/// Starts a group of so many copies of each filter: `first`, then the others in their order, whose last give to `end`.
/// Gives where the copies of the first one listen.
fn group<'s>(
    scope: &'s Scope<'s, '_>,
    (unit, copies): (u32, u32),
    first: MakeFirst<'s>,
    others: &'s [Make<'s>],
    end: SocketAddr,
) -> (Vec<SocketAddr>, Vec<Running<'s>>) {
    let (mut running, mut behind) = (Vec::new(), vec![end]);
    for &make in others.iter().rev() {
        let stage: Vec<SocketAddr> = (0..copies).map(|_| address()).collect();
        for &at in &stage {
            let joints = joints(unit, at, copies, &behind);
            running.push(scope.spawn(move || run(make().as_mut(), &joints)));
        }
        behind = stage;
    }
    let firsts: Vec<SocketAddr> = (0..copies).map(|_| address()).collect();
    for (copy, &at) in (0..).zip(&firsts) {
        let joints = joints(unit, at, 1, &behind);
        let share = Share { copy, copies };
        running.push(scope.spawn(move || run(first(&share).as_mut(), &joints)));
    }
    (firsts, running)
}

/// Has `look` use a group of two copies of each filter: `first`, which has a share of what is there, then the others in
/// their order. All end without an error afterwards.
pub(crate) fn joined(
    unit: u32,
    first: MakeFirst<'_>,
    others: &[Make<'_>],
    look: impl FnOnce(&mut Group),
) {
    let last = TcpListener::bind("127.0.0.1:0").unwrap();
    let end = last.local_addr().unwrap();
    thread::scope(|scope| {
        let (firsts, running) = self::group(scope, (unit, COPIES), first, others, end);
        let mut group = Group::join(&last, &joints(unit, end, COPIES, &firsts)).unwrap();
        look(&mut group);
        drop(group);
        for one in running {
            one.join().unwrap().unwrap();
        }
    });
}

/// Has `share` use so many groups of one copy of each filter, of which each has everything. Gives what each copy came
/// to, group after group, the last filter first.
pub(crate) fn side_by_side(
    unit: u32,
    groups: u32,
    first: MakeFirst<'_>,
    others: &[Make<'_>],
    share: impl FnOnce(&Joints),
) -> Vec<anyhow::Result<()>> {
    let end = address();
    thread::scope(|scope| {
        let started = (0..groups).map(|number| {
            let end = listens_at(end, number).unwrap();
            self::group(scope, (unit, 1), first, others, end)
        });
        let (firsts, running): (Vec<_>, Vec<_>) = started.unzip();
        share(&joints(unit, end, 1, &firsts.concat()));
        let running = running.into_iter().flatten();
        running.map(|one| one.join().unwrap()).collect()
    })
}
