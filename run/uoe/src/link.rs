//! The octets of one carrier that are to leave: the program's sends put frames in, and whoever finds them enough, or is
//! about to sleep, gives them to the kernel's TCP. What leaves by the adapter the thread gives to it.

mod by_thread;
mod ending;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use weft_os::guarded::Guarded;
use weft_os::lock::{Guard, Lock, Locked};
use weft_os::net::{TcpStream, Transfer};
use weft_os::process;
use weft_uoe::gather::{Gather, GATHERED_OCTETS};
use weft_uoe::Control;

use crate::frames::Frames;
use crate::pause::Room;

/// How long TCP may take nothing of what waits before nobody waits for it any more.
const STALLED_AFTER: Duration = Duration::from_millis(250);

/// Which carrier: the place of its link, and a number that the place's next carrier does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkId {
    pub(crate) place: usize,
    pub(crate) generation: u32,
}

/// What came of putting a frame in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// It leaves with the next flush.
    Done,
    /// It is in, and TCP was given what waited, for want of room or as nothing is to follow soon: that takes long.
    Flushed,
    /// TCP takes no more now, and there is no room. `said`: what was to be said before it is. `made`: how often
    /// there was some until now, see [`Pause::for_room`](crate::pause::Pause::for_room).
    Full { said: bool, made: u32 },
    /// The carrier is gone.
    Gone,
}

/// A place for a carrier's octets.
#[derive(Debug)]
pub(crate) struct Link {
    outgoing: Lock<Outgoing>,
    /// The thread sends what waits, and is to be woken for it.
    by_thread: AtomicBool,
    /// Something was put in since the thread sent last.
    has_news: AtomicBool,
    /// Something waits to leave.
    waits: AtomicBool,
    /// Datagrams put in so far.
    sent: AtomicU64,
    /// Of these, that never left as the carrier was over, until the thread counts them.
    lost: AtomicU64,
    /// When TCP took something last, or there was nothing to take, in nanoseconds.
    moved_at: AtomicU64,
    /// When what waits began to, in nanoseconds.
    waits_since: AtomicU64,
    /// How often nothing was left behind a flush.
    emptied: AtomicU64,
    /// Room for more, for which sends sleep that found none. Only the thread tells of some.
    room: Room,
}

#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    /// The process whose carrier it is.
    process: u32,
    generation: u32,
    gather: Option<Gather<Vec<u8>>>,
    outlet: Option<Outlet>,
}

/// Where the octets of a carrier leave.
#[derive(Debug)]
pub(crate) enum Outlet {
    /// By this connection of the kernel's: whoever comes by sends.
    Kernel(Guarded<TcpStream>),
    /// By the adapter, which is the thread's alone.
    Thread(Frames),
}

/// How far a flush came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flushed {
    /// Nothing is left.
    All,
    /// TCP takes no more now, or it is the thread that sends.
    Waits,
    /// Nothing will ever leave any more.
    Over,
}

impl Link {
    pub(crate) fn new() -> Link {
        Link {
            outgoing: Lock::new(Outgoing::default()),
            by_thread: AtomicBool::new(false),
            has_news: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            moved_at: AtomicU64::new(0),
            waits_since: AtomicU64::new(0),
            emptied: AtomicU64::new(0),
            room: Room::new(),
        }
    }

    /// Its octets, of a carrier of this process; nothing where the calling thread has them already, or there is none.
    fn outgoing(&self) -> Option<Guard<'_, Outgoing>> {
        let held = match self.outgoing.lock() {
            Locked::Held(held) => held,
            // What a parent's thread held as the child was made is the parent's.
            Locked::Orphaned(_) | Locked::Again => return None,
        };
        (held.process == process::id()).then_some(held)
    }

    /// A carrier takes the place: frames go by `gather` to `outlet`. By the thread.
    pub(crate) fn begin(&self, generation: u32, gather: Gather<Vec<u8>>, outlet: Outlet) {
        let by_thread = matches!(outlet, Outlet::Thread(_));
        self.by_thread.store(by_thread, Ordering::Relaxed);
        if let Locked::Held(mut outgoing) | Locked::Orphaned(mut outgoing) = self.outgoing.lock() {
            let before = std::mem::replace(
                &mut *outgoing,
                Outgoing {
                    process: process::id(),
                    generation,
                    gather: Some(gather),
                    outlet: Some(outlet),
                },
            );
            self.moved_at.store(clock(), Ordering::Relaxed);
            // A parent's are the parent's.
            self.lost.store(0, Ordering::Relaxed);
            // A parent's memory stays as it is: its descriptors are none here.
            if before.process != process::id() {
                std::mem::forget(before);
            }
        }
    }

    /// The carrier is over. By the thread.
    pub(crate) fn end(&self, generation: u32) {
        if let Some(mut outgoing) = self.outgoing() {
            if outgoing.generation == generation {
                self.give_up(&mut outgoing.gather);
                outgoing.outlet = None;
                self.waits.store(false, Ordering::Release);
                // The thread does not sleep for what it will never send.
                self.has_news.store(false, Ordering::SeqCst);
                self.room.make();
            }
        }
    }

    /// What waits never leaves.
    fn give_up(&self, gather: &mut Option<Gather<Vec<u8>>>) {
        let lost = gather.take().map_or(0, |gather| gather.datagrams());
        self.lost.fetch_add(lost, Ordering::Relaxed);
    }

    /// Whether something waits to leave.
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        self.waits.load(Ordering::Acquire)
    }

    /// Whether something was put in that the thread has not tried to send.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.has_news.load(Ordering::SeqCst)
    }

    /// Whether TCP has taken nothing for so long that who sends does not wait for it: the other end is stopped, or the
    /// network is gone, and a program that sends to others, too, is not to be held up by it.
    pub(crate) fn is_stalled(&self) -> bool {
        let since = self.moved_at.load(Ordering::Relaxed);
        u128::from(clock().saturating_sub(since)) >= STALLED_AFTER.as_nanos()
    }

    /// Whether a good part of its room is free, or nothing takes any: half of it, so that who waits for it is not woken
    /// for each datagram.
    pub(crate) fn is_roomy(&self, generation: u32) -> bool {
        self.flush();
        self.outgoing().is_none_or(|outgoing| {
            outgoing.generation != generation || outgoing.waiting() <= GATHERED_OCTETS / 2
        })
    }

    /// When what waits began to, as [`weft_os::dgram::now`] counts.
    pub(crate) fn waits_since(&self) -> u64 {
        self.waits_since.load(Ordering::Relaxed)
    }

    /// How often nothing was left behind a flush, of all carriers that had the place.
    pub(crate) fn emptied(&self) -> u64 {
        self.emptied.load(Ordering::Relaxed)
    }

    /// Datagrams put in so far, of all carriers that had the place.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Puts a datagram in, which `fill` writes, behind `before`.
    ///
    /// # Errors
    /// What `fill` says; nothing of the datagram was put in then.
    #[inline]
    pub(crate) fn put<E>(
        &self,
        id: LinkId,
        channel: u16,
        len: usize,
        before: Option<Control>,
        mut fill: impl FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<Put, E> {
        let Some(mut outgoing) = self.outgoing() else {
            return Ok(Put::Gone);
        };
        if outgoing.generation != id.generation || outgoing.gather.is_none() {
            return Ok(Put::Gone);
        }
        let mut done = Put::Done;
        let mut said = before.is_none_or(|control| outgoing.say(&control));
        if !said || !outgoing.push(channel, len, &mut fill)? {
            self.flush_held(&mut outgoing);
            done = Put::Flushed;
            said = said || before.is_none_or(|control| outgoing.say(&control));
            if !said || !outgoing.push(channel, len, &mut fill)? {
                let made = self.room.made();
                return Ok(Put::Full { said, made });
            }
        }
        self.note_put();
        // Under the lock nobody else counts.
        let sent = self.sent.load(Ordering::Relaxed);
        self.sent.store(sent + 1, Ordering::Relaxed);
        Ok(done)
    }

    /// Puts a control message in; says whether there was room.
    pub(crate) fn say(&self, generation: u32, control: &Control) -> bool {
        let Some(mut outgoing) = self.outgoing() else {
            return false;
        };
        let said = outgoing.generation == generation && outgoing.say(control);
        if said {
            self.note_put();
        }
        said
    }

    #[inline]
    fn note_put(&self) {
        if !self.waits() {
            // Until now there was nothing to take.
            let now = clock();
            self.moved_at.store(now, Ordering::Relaxed);
            self.waits_since.store(now, Ordering::Relaxed);
            self.waits.store(true, Ordering::Release);
        }
        if self.by_thread.load(Ordering::Relaxed) {
            self.has_news.store(true, Ordering::SeqCst);
        }
    }

    /// Gives TCP what waits, as far as it takes it.
    pub(crate) fn flush(&self) {
        if self.waits() {
            if let Some(mut outgoing) = self.outgoing() {
                self.flush_held(&mut outgoing);
            }
        }
    }

    fn flush_held(&self, outgoing: &mut Outgoing) {
        let before = outgoing.waiting();
        let sent = outgoing.flush();
        if sent == Flushed::Over {
            self.give_up(&mut outgoing.gather);
        }
        if sent != Flushed::Waits {
            // Under the lock nobody else counts.
            let emptied = self.emptied.load(Ordering::Relaxed);
            self.emptied.store(emptied + 1, Ordering::Relaxed);
            self.waits.store(false, Ordering::Release);
        }
        if before == 0 || outgoing.waiting() < before {
            self.moved_at.store(clock(), Ordering::Relaxed);
        }
    }
}

/// The time in nanoseconds.
fn clock() -> u64 {
    weft_os::dgram::now()
}

impl Outgoing {
    /// Octets that are to leave.
    fn waiting(&self) -> usize {
        let gather = self.gather.as_ref();
        gather.map_or(0, |gather| gather.octets().len())
    }

    #[inline]
    fn push<E>(
        &mut self,
        channel: u16,
        len: usize,
        fill: impl FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        match (&mut self.gather, &mut self.outlet) {
            (Some(gather), Some(Outlet::Thread(frames))) => frames.push(gather, channel, len, fill),
            (Some(gather), _) => gather.push(channel, len, fill),
            _ => Ok(false),
        }
    }

    fn say(&mut self, control: &Control) -> bool {
        let encoded = control.encode();
        let octets = encoded.octets();
        let fill = |room: &mut [u8]| {
            room.copy_from_slice(octets);
            Ok::<(), std::convert::Infallible>(())
        };
        let said = self.push(0, octets.len(), fill);
        said.unwrap_or_else(|never| match never {})
    }

    fn flush(&mut self) -> Flushed {
        let Outgoing { gather, outlet, .. } = self;
        let (Some(to_send), Some(outlet)) = (gather, outlet) else {
            return Flushed::All;
        };
        let Outlet::Kernel(stream) = outlet else {
            return match to_send.is_empty() {
                true => Flushed::All,
                false => Flushed::Waits,
            };
        };
        // The program may have closed the number and given it to a file of its own.
        let Some(stream) = stream.get() else {
            return Flushed::Over;
        };
        while !to_send.is_empty() {
            match stream.send(to_send.octets()) {
                Transfer::Octets(octets) => to_send.handle_taken(octets),
                Transfer::WouldBlock => return Flushed::Waits,
                Transfer::End | Transfer::Failed(_) => return Flushed::Over,
            }
        }
        Flushed::All
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;
    use weft_os::net::TcpListener;
    use weft_uoe::Key;

    const ID: LinkId = LinkId {
        place: 0,
        generation: 1,
    };

    fn put(link: &Link) -> Put {
        let fill = |room: &mut [u8]| {
            room.fill(7);
            Ok::<(), ()>(())
        };
        match link.put(ID, 1, 1000, None, fill).unwrap() {
            Put::Flushed => Put::Done,
            put => put,
        }
    }

    /// A connection of this machine's TCP, both of its ends.
    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::apart(0, 1).unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = TcpStream::connect_apart(None, ([127, 0, 0, 1], port).into()).unwrap();
        let begun = Instant::now();
        loop {
            if let Some(peer) = listener.accept_apart().unwrap() {
                return (stream, peer);
            }
            assert!(begun.elapsed().as_secs() < 10);
        }
    }

    /// Who looks now and then leaves it to the program to send what has begun to wait just now.
    #[test]
    fn it_is_known_since_when_something_waits_and_how_often_all_has_left() {
        process::watch();
        let (stream, _peer) = connection();
        let link = Link::new();
        let gather = Gather::new(vec![0; 65_536], Key::new(&[1; 16], &[2; 16]), 0);
        link.begin(1, gather, Outlet::Kernel(Guarded::new(stream)));
        let before = clock();
        assert_eq!(put(&link), Put::Done);
        let since = link.waits_since();
        assert!((before..=clock()).contains(&since));
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(put(&link), Put::Done);
        assert_eq!(
            (link.waits_since(), link.emptied()),
            (since, 0),
            "the first"
        );
        link.flush();
        link.flush();
        assert!(!link.waits() && link.emptied() == 1);
        assert_eq!(put(&link), Put::Done);
        assert!(link.waits_since() > since);
    }

    #[test]
    fn what_the_thread_is_to_send_goes_with_its_carrier() {
        process::watch();
        let link = Link::new();
        let key = Key::new(&[1; 16], &[2; 16]);
        let gather = || Gather::new(vec![0; 65_536], key, 0);
        link.begin(1, gather(), Outlet::Thread(Frames::new(1400, false)));
        assert!(!link.is_for_thread());
        // Nothing was there to take for long.
        link.moved_at.store(1, Ordering::Relaxed);
        assert!(link.is_stalled());
        assert_eq!(put(&link), Put::Done);
        assert!(!link.is_stalled(), "it has had no time to");
        assert!(link.is_for_thread() && link.waits());
        link.flush();
        assert!(link.waits(), "that is the thread's");
        let mut takes = [100, 0].into_iter();
        link.send_by_thread(1, 1400, |octets, frames| {
            assert_eq!(frames.lengths().collect::<Vec<_>>(), [octets.len()]);
            takes.next()
        });
        assert!(link.waits() && !link.is_for_thread(), "it was tried");
        assert_eq!(put(&link), Put::Done);
        let mut lengths = Vec::new();
        link.send_by_thread(1, 1400, |octets, frames| {
            lengths.extend(frames.lengths());
            Some(octets.len())
        });
        assert_eq!(lengths, [908, 1008], "what was left, and the next");
        assert!(!link.waits());
        assert_eq!(put(&link), Put::Done);
        link.end(1);
        assert!(!link.is_for_thread() && !link.waits());
        assert_eq!((link.take_lost(), link.take_lost()), (1, 0), "the last one");
    }

    #[test]
    fn who_finds_it_full_is_told_of_room_once_half_of_it_is_free_or_the_carrier_is_over() {
        process::watch();
        let link = Link::new();
        let gather = Gather::new(vec![0; GATHERED_OCTETS], Key::new(&[1; 16], &[2; 16]), 0);
        link.begin(1, gather, Outlet::Thread(Frames::new(1400, false)));
        let full = loop {
            match put(&link) {
                Put::Done => {}
                Put::Full { made, .. } => break made,
                other => panic!("{other:?}"),
            }
        };
        let send = |octets: usize| {
            let mut takes = [octets, 0].into_iter();
            link.send_by_thread(1, 1400, |_, _| takes.next());
            link.room.made() != full
        };
        assert!(!send(GATHERED_OCTETS / 2 - 2000), "that is too little");
        assert!(send(4000));
        let before = link.room.made();
        link.end(1);
        assert_ne!(link.room.made(), before);
    }

    #[test]
    fn what_waits_as_the_process_ends_is_lost_and_nothing_more_is_put_in() {
        process::watch();
        let link = Link::new();
        let gather = Gather::new(vec![0; 65_536], Key::new(&[1; 16], &[2; 16]), 0);
        link.begin(1, gather, Outlet::Thread(Frames::new(1400, false)));
        link.end_with_process();
        assert_eq!(
            (put(&link), put(&link)),
            (Put::Done, Put::Done),
            "nothing waited"
        );
        link.end_with_process();
        assert_eq!((put(&link), link.take_lost()), (Put::Gone, 2));
    }

    #[test]
    fn who_takes_nothing_for_long_is_waited_for_no_more() {
        process::watch();
        let begun = Instant::now();
        let (stream, peer) = connection();
        let link = Link::new();
        assert_eq!(put(&link), Put::Gone, "there is no carrier yet");
        let key = Key::new(&[1; 16], &[2; 16]);
        let outlet = Outlet::Kernel(Guarded::new(stream));
        link.begin(1, Gather::new(vec![0; 65_536], key, 0), outlet);
        let fill = |room: &mut [u8]| {
            room.fill(7);
            Ok::<(), ()>(())
        };
        let some = || link.put(ID, 1, 1000, None, fill).unwrap();
        let first: Vec<Put> = (0..66).map(|_| some()).collect();
        let full = first.iter().position(|put| *put == Put::Flushed);
        assert_eq!(full, Some(65), "65 of 1,008 octets find room in 65,536");
        while put(&link) == Put::Done {}
        assert!(
            link.waits() && !link.is_stalled(),
            "it took something just now"
        );
        // TCP makes room for a while.
        while !link.is_stalled() {
            while put(&link) == Put::Done {}
            std::thread::sleep(Duration::from_millis(20));
            assert!(begun.elapsed().as_secs() < 20);
        }
        assert_eq!(
            put(&link),
            Put::Full {
                said: true,
                made: 0
            }
        );
        assert!(link.is_stalled());
        let mut room = vec![0; 1 << 20];
        while link.is_stalled() {
            peer.recv(&mut room);
            link.flush();
            assert!(begun.elapsed().as_secs() < 20, "it takes something again");
        }
        assert_eq!(put(&link), Put::Done);
    }
}
