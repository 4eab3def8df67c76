//! Datagrams from a carrier into the queues of sockets.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use weft_os::lock::Guard;
use weft_uoe::deframer::Next;
use weft_uoe::frame::CONTROL;
use weft_uoe::Fault;

use super::any_order::AnyOrder;
use super::channels::PeerChannel;
use super::side::{Phase, Side};
use super::Service;
use crate::counts::{count, Counts};
use crate::inlet::{Inlet, PutIn};
use crate::offload::now;
use crate::port::Held;

/// Reads of one carrier before others have their turn.
const READS_MAX: usize = 4;
/// Datagrams that are put into one socket's queue before its lock is given back.
const RUN_MAX: u32 = 32;
/// How long what came on a channel may wait for plain datagrams that the program does not take.
pub(super) const BEHIND_WITHIN: Duration = Duration::from_secs(1);
/// Octets of a carrier that wait behind marks at most: 20 ms of 1.6 Gb/s, and of more the rest is lost.
pub(super) const BEHIND_MAX: usize = 4 << 20;
/// What is counted for each datagram that waits there, beside its octets: empty ones take memory too.
const BEHIND_EACH: usize = 64;

/// What a datagram that waits behind a mark counts.
pub(super) fn behind_cost(octets: &[u8]) -> usize {
    BEHIND_EACH + octets.len()
}

/// A socket's queue that is held for several datagrams.
struct Run {
    port: Held,
    inlet: Guard<'static, Inlet>,
    left: u32,
}

/// Datagrams that are being put into queues.
struct Delivering<'a> {
    counts: &'a Counts,
    run: Option<Run>,
    /// Sockets to ring for, and the channel that something came on.
    rings: Vec<(Held, u16)>,
    now: Duration,
}

/// Whether the carrier goes on.
#[derive(PartialEq)]
enum Delivered {
    GoesOn,
    /// The socket has no room, and its program is at work on making some.
    HeldUp,
}

impl Service {
    /// Takes in what came on a carrier.
    pub(super) fn read_side(&mut self, at: usize, now: Duration) {
        // Whoever waits is woken once for all that comes meanwhile: each time costs as much as many datagrams.
        let mut rings = Vec::new();
        for _ in 0..READS_MAX {
            let side = &mut self.sides[at];
            if !side.held_up.is_empty() {
                break;
            }
            let may_be_more = side.read();
            if side.phase == Phase::Greeting && !self.read_greeting(at, now) {
                break;
            }
            rings.extend(self.deliver_read(at, now));
            let side = &self.sides[at];
            if !may_be_more || side.phase == Phase::Gone {
                break;
            }
            if let Some(adapter) = self.adapter.as_mut().filter(|_| side.wire.is_adapters()) {
                // That it is gone shows in the next turn.
                adapter.run();
            }
        }
        self.ring_for(at, rings);
    }

    /// Marks that are late while plain datagrams wait at the socket are among those, and are waited for longer: what
    /// came on the channel is not to overtake what was sent before it.
    pub(super) fn keep_order(&mut self, at: usize, now: Duration) {
        let offload = self.offload;
        let Side {
            carrier,
            peer_channels,
            ..
        } = &mut self.sides[at];
        for (number, channel) in peer_channels.iter() {
            let is_worth_it = now < channel.behind_since + BEHIND_WITHIN;
            if channel.behind.is_empty() || !is_worth_it || !carrier.is_mark_late(*number, now) {
                continue;
            }
            let has_plain = |fd| offload.has_plain(channel.port.port, fd);
            if channel.port.with_fd(has_plain) == Some(true) {
                carrier.wait_for_late_mark(*number, now);
            }
        }
    }

    /// Goes on with what was held up, or came behind a mark.
    pub(super) fn deliver_held(&mut self, at: usize, now: Duration) {
        let (side, counts) = (&mut self.sides[at], &self.offload.counts);
        let mut delivering = Delivering::new(counts, now);
        delivering.put_behind(side);
        while let Some((channel, octets)) = side.held_up.pop_front() {
            if delivering.put(side, channel, &octets) == Delivered::HeldUp {
                side.held_up.push_front((channel, octets));
                break;
            }
        }
        let goes_on = side.held_up.is_empty();
        self.ring_for(at, delivering.finish());
        if goes_on {
            let rings = self.deliver_read(at, now);
            self.ring_for(at, rings);
        }
    }

    /// A channel is over, and what came on it last waits for nothing any more. `by`: its carrier's generation, and its
    /// number.
    pub(super) fn deliver_rest(&mut self, by: (u32, u16), channel: &PeerChannel) {
        let mut delivering = Delivering::new(&self.offload.counts, now());
        for octets in &channel.behind {
            delivering.put_in(channel, by.1, false, octets);
        }
        let rings = delivering.finish();
        for (port, _) in rings {
            self.ring(port, by);
        }
    }

    /// Puts what was read into the queues; those to ring for.
    fn deliver_read(&mut self, at: usize, now: Duration) -> Vec<(Held, u16)> {
        let (side, counts) = (&mut self.sides[at], &self.offload.counts);
        let mut delivering = Delivering::new(counts, now);
        let fault = delivering.read(side).err();
        let rings = delivering.finish();
        if fault.is_some() {
            side.fault = fault;
        }
        rings
    }

    fn ring_for(&mut self, at: usize, rings: Vec<(Held, u16)>) {
        let generation = self.sides[at].generation();
        for (port, channel) in rings {
            self.ring(port, (generation, channel));
        }
    }
}

impl Delivering<'_> {
    fn new(counts: &Counts, now: Duration) -> Delivering<'_> {
        Delivering {
            counts,
            run: None,
            rings: Vec::new(),
            now,
        }
    }

    /// Gives the locks back; those to ring for.
    fn finish(self) -> Vec<(Held, u16)> {
        self.rings
    }

    /// Every frame that is there whole.
    fn read(&mut self, side: &mut Side) -> Result<(), Fault> {
        if let Some(mut any_order) = side.any_order.take() {
            let dropped = any_order.dropped();
            let given = self.read_any_order(side, &mut any_order);
            let dropped = any_order.dropped() - dropped;
            self.counts.dropped_received.fetch_add(dropped, Relaxed);
            side.any_order = Some(any_order);
            return given;
        }
        let Some(mut deframer) = side.deframer.take() else {
            return Ok(());
        };
        let room = std::mem::take(&mut side.room);
        let read = self.read_frames(side, &mut deframer, &room);
        (side.deframer, side.room) = (Some(deframer), room);
        read
    }

    /// Every frame that came, whatever is missing before it; and what is missing for too long is waited for no more.
    fn read_any_order(&mut self, side: &mut Side, any_order: &mut AnyOrder) -> Result<(), Fault> {
        let now = self.now;
        any_order.give(now, |channel, payload| {
            self.handle_frame(side, channel, payload)
        })?;
        if any_order.deadline().is_none_or(|at| now < at) {
            return Ok(());
        }
        let round_trip = side.wire.round_trip();
        let forgiven = any_order.forgive(now, round_trip, |channel, payload| {
            self.handle_frame(side, channel, payload)
        })?;
        if let Some(forgiven) = forgiven {
            side.wire.forgive(forgiven.before);
            self.counts.forgiven.fetch_add(forgiven.octets, Relaxed);
        }
        Ok(())
    }

    fn read_frames(
        &mut self,
        side: &mut Side,
        deframer: &mut weft_uoe::Deframer,
        room: &[u8],
    ) -> Result<(), Fault> {
        while side.held_up.is_empty() {
            let octets = &room[side.start..side.end];
            let Next::Frame(head, range) = deframer.next(octets)? else {
                return Ok(());
            };
            side.start += head.frame_len();
            if head.is_part {
                // This end takes segments in order alone, and nobody cuts datagrams for it.
                return Err(Fault::Channel(head.channel));
            }
            self.handle_frame(side, head.channel, &octets[range])?;
        }
        Ok(())
    }

    /// What a frame has in it: a control message, or a datagram.
    #[inline]
    fn handle_frame(&mut self, side: &mut Side, channel: u16, payload: &[u8]) -> Result<(), Fault> {
        if channel == CONTROL {
            return side.carrier.handle_control(payload, self.now);
        }
        if side.carrier.handle_datagram(channel, self.now)?.is_none() {
            count(&self.counts.dropped_received);
            return Ok(());
        }
        // Those behind one that is held up stay behind it.
        let is_behind = !side.held_up.is_empty();
        if is_behind || self.put(side, channel, payload) == Delivered::HeldUp {
            side.held_up.push_back((channel, payload.to_vec()));
        }
        Ok(())
    }

    /// One datagram.
    fn put(&mut self, side: &mut Side, number: u16, octets: &[u8]) -> Delivered {
        let is_behind = side.carrier.is_behind(number, self.now);
        let channel = side.peer_channels.get_mut(&number);
        let Some(channel) = channel.filter(|channel| channel.port.is_alive()) else {
            count(&self.counts.dropped_received);
            return Delivered::GoesOn;
        };
        if is_behind || !channel.behind.is_empty() {
            if channel.behind.is_empty() {
                channel.behind_since = self.now;
            }
            match side.behind_octets + behind_cost(octets) <= BEHIND_MAX {
                true => {
                    side.behind_octets += behind_cost(octets);
                    channel.behind.push_back(octets.to_vec());
                }
                false => count(&self.counts.dropped_received),
            }
            return Delivered::GoesOn;
        }
        self.put_in(channel, number, side.is_for_one, octets)
    }

    /// Datagrams whose mark has come, or did not come in time.
    fn put_behind(&mut self, side: &mut Side) {
        let Side {
            carrier,
            peer_channels,
            behind_octets,
            is_for_one,
            ..
        } = side;
        for (number, channel) in peer_channels.iter_mut() {
            if channel.behind.is_empty() || carrier.is_behind(*number, self.now) {
                continue;
            }

            while let Some(octets) = channel.behind.front() {
                if self.put_in(channel, *number, *is_for_one, octets) == Delivered::HeldUp {
                    break;
                }
                *behind_octets -= behind_cost(octets);
                channel.behind.pop_front();
            }
        }
    }

    /// Puts a datagram into the socket's queue. Where that has no room and its program is at work, the carrier may be
    /// held up, if nothing on it is for another socket.
    #[inline]
    fn put_in(
        &mut self,
        channel: &PeerChannel,
        number: u16,
        may_hold_up: bool,
        octets: &[u8],
    ) -> Delivered {
        let (now, port) = (self.now, channel.port);
        let (Some((_, source)), Some(run)) = (channel.source, self.run(port)) else {
            count(&self.counts.dropped_received);
            return Delivered::GoesOn;
        };
        if may_hold_up && !run.inlet.has_room(octets.len(), now) && Service::is_busy(port) {
            port.port.wait_for();
            self.run = None;
            return Delivered::HeldUp;
        }
        let mut is_untold = false;
        match run.inlet.put_in(octets, source, now) {
            PutIn::Waits => {}
            PutIn::WaitsUntold => is_untold = true,
            PutIn::Dropped => {}
        }
        let dropped = run.inlet.newly_dropped();
        if dropped > 0 {
            self.counts.dropped_received.fetch_add(dropped, Relaxed);
        }
        if is_untold {
            self.rings.push((port, number));
        }
        Delivered::GoesOn
    }

    /// The socket's queue, held.
    fn run(&mut self, port: Held) -> Option<&mut Run> {
        // The queue of a socket that is closed meanwhile may be another one's when its lock is had the next time.
        let goes_on = |run: &Run| run.port == port && run.left > 0;
        if !self.run.as_ref().is_some_and(goes_on) {
            self.run = None;
            self.run = Some(Run {
                port,
                inlet: port.inlet()?,
                left: RUN_MAX,
            });
        }
        let run = self.run.as_mut()?;
        run.left -= 1;
        Some(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::greeting::{greeting, Use};
    use crate::service::wire::Wire;
    use crate::Port;
    use std::collections::VecDeque;
    use std::sync::atomic::Ordering;
    use weft_os::dgram::NAME_LEN;
    use weft_os::net::{TcpListener, TcpStream};
    use weft_uoe::greeting::Instance;
    use weft_uoe::{Control, End};

    /// A channel to a socket whose program is at work, whatever the clock says.
    fn channel() -> PeerChannel {
        weft_os::process::watch();
        let port: &'static Port = Box::leak(Box::default());
        port.begin(false, None);
        port.taken_at.store(u64::MAX, Ordering::Relaxed);
        let from = End::new([192, 0, 2, 1].into(), 4000);
        let source = crate::inlet::Source {
            name: [0; NAME_LEN],
            len: 16,
        };
        let mut inlet = port.inlet().unwrap();
        inlet.open(0, None, false);
        let number = inlet.source(source).unwrap();
        PeerChannel {
            port: port.held(),
            target: from,
            nonce: [0; 16],
            source: Some((from, number)),
            age: None,
            behind: VecDeque::new(),
            behind_since: Duration::ZERO,
            barrier: None,
        }
    }

    #[test]
    fn a_full_queue_holds_its_carrier_up_or_loses() {
        let (counts, channel) = (Counts::default(), channel());
        let mut delivering = Delivering::new(&counts, now());
        let long = [7; 1000];
        let mut put = 0;
        while delivering.put_in(&channel, 1, true, &long) == Delivered::GoesOn {
            put += 1;
            assert!(put < 1000, "it has bounds");
        }
        let dropped = || counts.dropped_received.load(Ordering::Relaxed);
        assert_eq!(dropped(), 0);
        assert!(delivering.put_in(&channel, 1, false, &long) == Delivered::GoesOn);
        assert_eq!(dropped(), 1);
        channel.port.port.taken_at.store(0, Ordering::Relaxed);
        assert!(delivering.put_in(&channel, 1, true, &long) == Delivered::GoesOn);
        assert_eq!(dropped(), 2, "its program is not at work");
    }

    const WITHOUT_UDP: Use = Use {
        bound: None,
        without_udp: true,
        over_adapter: false,
        forgives: false,
        is_rated: false,
    };

    /// A carrier between two ends that say that UDP does not pass.
    fn carrier() -> Side {
        let listener = TcpListener::apart(0, 1).unwrap();
        let port = listener.local_addr().unwrap().port();
        let _client = TcpStream::connect_apart(None, ([127, 0, 0, 1], port).into()).unwrap();
        let begun = std::time::Instant::now();
        let stream = loop {
            if let Some(stream) = listener.accept_apart().unwrap() {
                break stream;
            }
            assert!(begun.elapsed().as_secs() < 10);
        };
        let own = greeting(Instance(1), None, WITHOUT_UDP);
        Side::accepted(Wire::of_kernel(stream), own, now()).unwrap()
    }

    #[test]
    fn what_waits_behind_a_mark_is_bounded_however_short_it_is() {
        let (counts, now) = (Counts::default(), now());
        let mut side = carrier();
        let peer = greeting(Instance(2), None, WITHOUT_UDP);
        side.carrier.handle_greeting(peer, now);
        let (from, number) = (End::new([127, 0, 0, 1].into(), 4000), 1);
        let open = Control::Open {
            channel: 1,
            source: from,
            target: from,
            nonce: [1; 16],
        };
        let behind = Control::Behind { channel: 1, number };
        let said = side.carrier.handle_control(open.encode().octets(), now);
        assert_eq!(said, Ok(()));
        side.carrier.admit(1, [2; 16], now);
        let said = side.carrier.handle_control(behind.encode().octets(), now);
        assert_eq!(said, Ok(()));
        side.add_peer_channel(1, channel());
        let mut delivering = Delivering::new(&counts, now);
        for _ in 0..200_000 {
            assert!(delivering.put(&mut side, 1, &[]) == Delivered::GoesOn);
        }
        let waits = side.peer_channels[&1].behind.len();
        // What keeps one takes more than the three words that say where it is.
        let octets = waits * 3 * size_of::<usize>();
        assert!((1000..BEHIND_MAX).contains(&octets), "{waits} wait");
        let dropped = counts.dropped_received.load(Ordering::Relaxed);
        assert_eq!(waits as u64 + dropped, 200_000);
        side.remove_peer_channel(1);
        assert_eq!(side.behind_octets, 0);
    }

    #[test]
    fn a_carrier_is_for_one_socket_or_for_several() {
        let mut side = carrier();
        let (first, second) = (channel(), channel());
        let again = PeerChannel {
            port: first.port,
            ..channel()
        };
        side.add_peer_channel(1, first);
        side.add_peer_channel(2, again);
        assert!(side.is_for_one);
        side.add_peer_channel(3, second);
        assert!(!side.is_for_one);
        side.remove_peer_channel(3);
        assert!(side.is_for_one);
    }
}
