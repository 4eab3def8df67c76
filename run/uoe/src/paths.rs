//! Where one socket's datagrams go: which destinations have a channel, and whether the next datagram takes it.

use std::time::Duration;

use weft_os::process;
use weft_uoe::admission::Policy;
use weft_uoe::greeting::Nonce;
use weft_uoe::queue::{Limits, Queue};
use weft_uoe::way::Chooser;
use weft_uoe::End;

use crate::link::LinkId;

/// Channels of one socket at most; other destinations stay plain.
pub(crate) const PATHS_MAX: usize = 1024;

/// A channel to one destination, or what waits for one.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) to: End,
    pub(crate) link: LinkId,
    pub(crate) channel: u16,
    /// What marks behind plain datagrams have.
    pub(crate) mark: Nonce,
    /// Octets of a datagram that fits one packet there.
    pub(crate) packet: usize,
    pub(crate) chooser: Chooser,
    /// Nothing where datagrams may go plainly.
    pub(crate) required: Option<Required>,
}

/// What a destination has whose datagrams never go plainly.
#[derive(Debug)]
pub(crate) struct Required {
    pub(crate) policy: Policy,
    /// The channel may be used.
    pub(crate) is_up: bool,
    /// Datagrams that wait for a channel, or for room on it.
    pub(crate) queue: Queue<Vec<u8>>,
    /// Datagrams dropped by the queue that were told of.
    dropped_told: u64,
    /// When the program sent there last.
    pub(crate) used_at: Duration,
}

impl Path {
    /// Whether a rule requires a channel and there is none.
    fn is_unreached(&self) -> bool {
        self.required
            .as_ref()
            .is_some_and(|required| !required.is_up)
    }
}

impl Required {
    /// Nothing waits yet.
    pub(crate) fn new(policy: Policy, limits: Limits, memory: usize, now: Duration) -> Required {
        Required {
            policy,
            is_up: false,
            queue: Queue::new(vec![0; memory], limits),
            dropped_told: 0,
            used_at: now,
        }
    }

    /// Datagrams that were dropped since this was asked last, for want of room or for their age.
    pub(crate) fn newly_dropped(&mut self) -> u64 {
        let dropped = self.queue.dropped().sum();
        dropped - std::mem::replace(&mut self.dropped_told, dropped)
    }
}

/// The channels of one socket. The thread adds and removes them, calls look them up.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    /// The process that they are of.
    process: u32,
    paths: Vec<Path>,
    /// Which was asked for last.
    last: usize,
    /// The end that the socket is connected to, once it was looked up.
    pub(crate) peer: Option<End>,
    /// The last destination that the rules were asked about and do not require a channel for.
    pub(crate) not_required: Option<End>,
    /// When the thread is told again that a channel is wanted, in nanoseconds.
    pub(crate) wanted_at: u64,
}

impl Paths {
    pub(crate) const fn new() -> Paths {
        Paths {
            process: 0,
            paths: Vec::new(),
            last: 0,
            peer: None,
            not_required: None,
            wanted_at: 0,
        }
    }

    /// A child has none of its parent's.
    pub(crate) fn enter_process(&mut self) {
        if self.process == process::id() {
            return;
        }
        self.process = process::id();
        // What a parent has in it stays where it is: to free it may hang on a lock that a thread of the parent held.
        std::mem::forget(std::mem::take(&mut self.paths));
        self.end();
    }

    /// None is found any more. Frees no memory.
    pub(crate) fn end(&mut self) {
        for path in &mut self.paths {
            path.to = NOWHERE;
            path.chooser.handle_lost();
            if let Some(required) = &mut path.required {
                required.queue.clear();
            }
        }
        self.peer = None;
        self.not_required = None;
        self.wanted_at = 0;
    }

    /// Datagrams that wait.
    pub(crate) fn queued(&self) -> u64 {
        let required = self.paths.iter().filter_map(|path| path.required.as_ref());
        required.map(|required| required.queue.len() as u64).sum()
    }

    /// For where some wait. By the thread.
    pub(crate) fn queued_to(&mut self) -> Vec<End> {
        let is_queued = |required: &Required| !required.queue.is_empty();
        let paths = self.paths.iter();
        let queued = paths.filter(|path| path.required.as_ref().is_some_and(is_queued));
        queued.map(|path| path.to).collect()
    }

    /// The channel to this destination.
    #[inline]
    pub(crate) fn find(&mut self, to: End) -> Option<&mut Path> {
        let is_last = self.paths.get(self.last).is_some_and(|path| path.to == to);
        if !is_last {
            self.last = self.paths.iter().position(|path| path.to == to)?;
        }
        self.paths.get_mut(self.last)
    }

    /// The destination has this channel from now on, or this queue; false where there are too many. By the thread.
    pub(crate) fn put(&mut self, path: Path) -> bool {
        self.tidy();
        if let Some(there) = self.find(path.to) {
            let required = there.required.take().or(path.required);
            *there = Path { required, ..path };
            return true;
        }
        let has_room = self.paths.len() < PATHS_MAX;
        if has_room {
            self.paths.push(path);
        }
        has_room
    }

    /// Whether another destination may be required: there is room, or one without a channel that can make some.
    pub(crate) fn may_require(&self) -> bool {
        let makes_room = |path: &Path| path.to == NOWHERE || path.is_unreached();
        self.paths.len() < PATHS_MAX || self.paths.iter().any(makes_room)
    }

    /// Makes room for one more where there is none: of the required destinations without a channel the one that the
    /// program has sent to least lately goes. Gives how many datagrams that waited for it are lost. By the thread.
    pub(crate) fn make_room(&mut self) -> u64 {
        self.tidy();
        if self.paths.len() < PATHS_MAX {
            return 0;
        }
        let used_at = |(_, path): &(usize, &Path)| path.required.as_ref().map(|it| it.used_at);
        let unreached = self.paths.iter().enumerate();
        let unreached = unreached.filter(|(_, path)| path.is_unreached());
        let Some((at, _)) = unreached.min_by_key(used_at) else {
            return 0;
        };
        let gone = self.paths.swap_remove(at).required;
        gone.map_or(0, |mut gone| {
            gone.queue.clear();
            gone.newly_dropped()
        })
    }

    /// It has the channel no more. By the thread.
    pub(crate) fn remove(&mut self, link: LinkId, channel: u16) {
        let is_it = |path: &Path| path.link == link && path.channel == channel;
        for path in self.paths.iter_mut().filter(|path| is_it(path)) {
            path.chooser.handle_lost();
            if let Some(required) = &mut path.required {
                required.is_up = false;
            }
        }
        self.paths
            .retain(|path| !is_it(path) || path.required.is_some());
        self.last = 0;
    }

    /// Gives back the memory of those that have ended. By the thread.
    pub(crate) fn tidy(&mut self) {
        self.paths.retain(|path| path.to != NOWHERE);
        self.last = 0;
    }

    /// Nothing is known of the destination any more. By the thread.
    pub(crate) fn forget(&mut self, to: End) {
        self.paths.retain(|path| path.to != to);
        self.last = 0;
    }
}

/// No destination of a datagram.
const NOWHERE: End = End::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

#[cfg(test)]
mod tests {
    use super::*;
    use weft_uoe::queue::Drop;
    use weft_uoe::way::{Send, Way};

    fn path(number: u16, channel: u16) -> Path {
        Path {
            to: End::new([192, 0, 2, 1].into(), number),
            link: LinkId {
                place: 0,
                generation: 1,
            },
            channel,
            mark: [0; 16],
            packet: 1472,
            chooser: Chooser::default(),
            required: None,
        }
    }

    fn required(number: u16) -> Path {
        let limits = Limits {
            octets: 1000,
            drop: Drop::Newest,
            age: None,
        };
        let required = Required::new(Policy::Buffer, limits, 1000, Duration::ZERO);
        Path {
            required: Some(required),
            ..path(number, 0)
        }
    }

    #[test]
    fn a_destination_has_the_channel_that_was_put_last() {
        let mut paths = Paths::new();
        assert!(paths.put(path(1, 1)) && paths.put(path(2, 2)) && paths.put(path(1, 3)));
        let mut channel = |number| paths.find(path(number, 0).to).map(|path| path.channel);
        assert_eq!(
            [channel(1), channel(2), channel(3)],
            [Some(3), Some(2), None]
        );
        paths.remove(path(1, 3).link, 3);
        assert!(paths.find(path(1, 0).to).is_none());
        assert!(paths.find(path(2, 0).to).is_some());
    }

    #[test]
    fn there_are_so_many_and_no_more() {
        let mut paths = Paths::new();
        let put = (1..2000).filter(|number| paths.put(path(*number, *number)));
        assert_eq!(put.count(), PATHS_MAX);
        assert!(paths.put(path(1, 7)), "one that is there is changed");
        paths.end();
        assert!(paths.find(path(1, 0).to).is_none());
        assert!(paths.put(path(2000, 1)), "those that ended make room");
    }

    #[test]
    fn who_has_no_channel_makes_room_and_what_waits_is_told_of() {
        let mut paths = Paths::new();
        for number in 1..=PATHS_MAX as u16 {
            assert!(paths.may_require());
            assert_eq!(paths.make_room(), 0);
            let mut path = required(number);
            let there = path.required.as_mut().unwrap();
            there.used_at = Duration::from_secs((number ^ 1).into());
            // All but three have channels.
            there.is_up = ![5, 9, 300].contains(&number);
            let put = there.queue.push(3, 0, Duration::ZERO, |room| {
                room.fill(1);
                Ok::<(), ()>(())
            });
            assert_eq!((put, paths.put(path)), (Ok(true), true));
        }
        for (number, gone) in [(2001, 5), (2002, 9), (2003, 300)] {
            assert!(paths.may_require());
            assert_eq!(paths.make_room(), 1);
            assert!(paths.find(path(gone, 0).to).is_none(), "{gone}");
            let mut new = required(number);
            new.required.as_mut().unwrap().is_up = true;
            assert!(paths.put(new));
        }
        assert!(!paths.may_require(), "all have channels");
        assert_eq!((paths.make_room(), paths.put(required(2004))), (0, false));
    }

    #[test]
    fn what_waits_for_a_channel_outlives_it() {
        let mut paths = Paths::new();
        paths.enter_process();
        assert!(paths.put(required(1)));
        let to = path(1, 0).to;
        let queue = &mut paths.find(to).unwrap().required.as_mut().unwrap().queue;
        let put = queue.push(3, 0, Duration::ZERO, |room| {
            room.copy_from_slice(b"one");
            Ok::<(), ()>(())
        });
        assert_eq!(put, Ok(true));
        assert!(paths.put(path(1, 5)));
        let there = paths.find(to).unwrap();
        there.chooser.handle_opened();
        there.required.as_mut().unwrap().is_up = true;
        assert_eq!(there.required.as_ref().unwrap().queue.len(), 1);
        paths.remove(path(1, 5).link, 5);
        let there = paths.find(to).unwrap();
        let send = Send {
            len: 3,
            is_busy: true,
            packet: 0,
        };
        assert_eq!(
            there.chooser.choose(send),
            Way::Plain,
            "the channel is gone"
        );
        let required = there.required.as_ref().unwrap();
        assert_eq!((required.is_up, required.queue.len()), (false, 1));
        paths.forget(to);
        assert!(paths.find(to).is_none());
    }
}
