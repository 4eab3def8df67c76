//! Where one socket's datagrams go: which destinations have a channel, and whether the next datagram takes it.

use weft_os::process;
use weft_uoe::greeting::Nonce;
use weft_uoe::way::Chooser;
use weft_uoe::End;

use crate::link::LinkId;

/// Channels of one socket at most; other destinations stay plain.
pub(crate) const PATHS_MAX: usize = 1024;

/// A channel to one destination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) to: End,
    pub(crate) link: LinkId,
    pub(crate) channel: u16,
    /// What marks behind plain datagrams have.
    pub(crate) mark: Nonce,
    /// Octets of a datagram that fits one packet there.
    pub(crate) packet: usize,
    pub(crate) chooser: Chooser,
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
    /// When the thread was told last that a channel is wanted, in nanoseconds.
    pub(crate) wanted_at: u64,
}

impl Paths {
    pub(crate) const fn new() -> Paths {
        Paths {
            process: 0,
            paths: Vec::new(),
            last: 0,
            peer: None,
            wanted_at: 0,
        }
    }

    /// A child has none of its parent's.
    pub(crate) fn enter_process(&mut self) {
        if self.process != process::id() {
            self.process = process::id();
            self.clear();
        }
    }

    /// None any more. Frees no memory.
    pub(crate) fn clear(&mut self) {
        self.paths.clear();
        self.peer = None;
        self.wanted_at = 0;
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

    /// The destination has this channel from now on; false where there are too many.
    pub(crate) fn put(&mut self, path: Path) -> bool {
        if let Some(there) = self.find(path.to) {
            *there = path;
            return true;
        }
        let has_room = self.paths.len() < PATHS_MAX;
        if has_room {
            self.paths.push(path);
        }
        has_room
    }

    /// It has it no more.
    pub(crate) fn remove(&mut self, link: LinkId, channel: u16) {
        self.paths
            .retain(|path| path.link != link || path.channel != channel);
        self.last = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }
}
