//! One carrier between two processes: greetings, channels, proofs of addresses, and when it ends.
//!
//! Drive it like every state machine here: what came by [`Carrier::handle_greeting`], [`Carrier::handle_control`],
//! [`Carrier::handle_proof`] and [`Carrier::handle_datagram`], commands by methods named after them, time by
//! [`Carrier::handle_timeout`]. After each of these drain [`Carrier::poll_control`] and [`Carrier::poll_event`], then
//! wait until [`Carrier::deadline`]. Octets are the driver's: [`crate::gather`] makes frames of what is to leave,
//! [`crate::deframer`] and [`crate::segments`] find those that came.
//!
//! A channel goes one way, and is opened by who sends on it:
//!
//! 1. the sender says `Open` with both UDP ends and a nonce;
//! 2. the receiver, if a socket of its own is the target and wants them, says `Prove` with another nonce;
//! 3. the sender sends that nonce, and a challenge that it says nowhere else, as a UDP datagram from the source to the
//!    target ([`crate::proof`]);
//! 4. the receiver's socket gets it. Where it came from is the source from now on, whatever was claimed. It says
//!    `Accept` with the challenge, and sends the first nonce from the target to that source;
//! 5. the sender's socket gets that from the target, and `Accept` shows that the target got the challenge: the channel
//!    may be used. The first nonce alone proves nothing to a sender whose network lets sources be forged, as the
//!    connection has told it to whoever is at its other end.
//!
//! A channel ends with `Refuse`, said by the receiver of its own accord or in answer to `Close`, once for each `Open`:
//! then its number is free, and nothing that is still under way speaks of the old one.

mod channels;
mod controls;
mod event;
mod incoming;
mod outgoing;
#[cfg(test)]
mod tests;
mod timing;

use alloc::collections::VecDeque;
use core::net::IpAddr;
use core::time::Duration;

use crate::control::{Control, Why};
use crate::end::End;
use crate::fault::Fault;
use crate::frame::Key;
use crate::greeting::{Greeting, Instance, Nonce};
use crate::proof::Proof;
use incoming::Incoming;
use outgoing::Outgoing;

pub use channels::CHANNELS_MAX;
pub use event::Event;
pub use outgoing::Secrets;

/// How long the other end may take for its greeting: who connects and says nothing holds no place for longer.
pub const GREETING_TIMEOUT: Duration = Duration::from_secs(1);
/// Nothing came for so long after something was sent: a ping is.
pub const PING_AFTER: Duration = Duration::from_secs(10);
/// How long a ping may go without anything that comes.
pub const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a carrier may be without any channel whose ends were proven. A stranger that greets and no more, or asks
/// for channels in vain, holds a place for no longer.
pub const UNPROVEN_TIMEOUT: Duration = Duration::from_secs(5);
/// No datagram went either way for so long: the carrier ends.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the proof of an address may take, with four tries.
pub const PROOF_TIMEOUT: Duration = Duration::from_secs(1);
/// How long datagrams on a channel wait for the mark behind the plain ones: it may be lost.
pub const MARK_TIMEOUT: Duration = Duration::from_millis(20);
/// Control messages that wait to leave at most. A peer that asks faster than it takes answers ends its carrier.
pub const CONTROLS_MAX: usize = 4096;

/// How far a carrier is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The other end's greeting has to come until then.
    Greeting(Duration),
    /// It may be used.
    Up,
    /// No new channel; it ends with the last one.
    Draining(Why),
    Closed,
}

/// One carrier.
#[derive(Debug)]
pub struct Carrier {
    own: Greeting,
    peer: Option<Greeting>,
    /// Where the connection comes from.
    address: IpAddr,
    state: State,
    outgoing: Outgoing,
    incoming: Incoming,
    controls: VecDeque<Control>,
    events: VecDeque<Event>,
    /// When something came last, and when something was sent first since.
    heard_at: Duration,
    sent_at: Option<Duration>,
    /// A ping is under way since then.
    ping_at: Option<Duration>,
    pings: u32,
    used_at: Duration,
    /// Until then a channel has to be proven; nothing once one was.
    unproven_until: Option<Duration>,
}

/// Of two carriers between the same processes, which both of them connected: whether the one that `connected_by`
/// connected stays.
pub fn stays(connected_by: Instance, accepted_by: Instance) -> bool {
    connected_by <= accepted_by
}

impl Carrier {
    /// A connection that stands, to `address`. The greeting is what this end has sent, or is about to.
    pub fn new(own: Greeting, address: IpAddr, now: Duration) -> Carrier {
        Carrier {
            own,
            peer: None,
            address: address.to_canonical(),
            state: State::Greeting(now.saturating_add(GREETING_TIMEOUT)),
            outgoing: Outgoing::default(),
            incoming: Incoming::default(),
            controls: VecDeque::new(),
            events: VecDeque::new(),
            heard_at: now,
            sent_at: None,
            ping_at: None,
            pings: 0,
            used_at: now,
            unproven_until: None,
        }
    }

    /// What the other end said of itself.
    pub fn peer(&self) -> Option<&Greeting> {
        self.peer.as_ref()
    }

    /// The key of what this end sends, and that of what it receives. There is none before the greeting.
    pub fn keys(&self) -> Option<(Key, Key)> {
        let peer = self.peer.as_ref()?;
        Some((self.own.key_to(peer), peer.key_to(&self.own)))
    }

    /// Whether channels may be opened.
    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// Whether it is over.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// The other end's greeting came.
    pub fn handle_greeting(&mut self, peer: Greeting, now: Duration) {
        if matches!(self.state, State::Greeting(_)) {
            self.peer = Some(peer);
            self.state = State::Up;
            self.unproven_until = Some(now.saturating_add(UNPROVEN_TIMEOUT));
            self.events.push_back(Event::Up);
            self.hear(now);
        }
    }

    /// Both ends say that UDP does not pass.
    fn is_without_udp(&self) -> bool {
        self.own.without_udp && self.peer.is_some_and(|peer| peer.without_udp)
    }

    fn hear(&mut self, now: Duration) {
        self.heard_at = now;
        self.sent_at = None;
        self.ping_at = None;
    }

    /// The next control message to send.
    pub fn poll_control(&mut self) -> Option<Control> {
        self.controls.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn say(&mut self, control: Control, now: Duration) {
        self.sent_at.get_or_insert(now);
        self.controls.push_back(control);
    }

    /// Opens a channel for datagrams from the socket at `source` to `target`; gives its number. The nonce and the
    /// challenge are random and this channel's alone. `None`: the carrier is not up, or has as many as it may have.
    pub fn open(
        &mut self,
        source: End,
        target: End,
        secrets: Secrets,
        now: Duration,
    ) -> Option<u16> {
        if !self.is_up() {
            return None;
        }
        let nonce = secrets.nonce;
        let channel = self.outgoing.open(source, target, secrets, now)?;
        let open = Control::Open {
            channel,
            source,
            target,
            nonce,
        };
        self.say(open, now);
        self.used_at = now;
        Some(channel)
    }

    /// Nothing more is sent on a channel that this end opened.
    pub fn close(&mut self, channel: u16, why: Why, now: Duration) {
        if self.outgoing.close(channel) {
            self.say(Control::Close { channel, why }, now);
        }
    }

    /// Datagrams on this channel of the peer's are wanted, as [`Event::Wanted`] asks. `nonce` is random and this
    /// channel's alone.
    pub fn admit(&mut self, channel: u16, nonce: Nonce, now: Duration) {
        if self.is_without_udp() {
            if let Some((source, target)) = self.incoming.accept_unproven(channel, self.address) {
                let challenge = [0; 16];
                self.say(Control::Accept { channel, challenge }, now);
                let incoming = Event::Incoming {
                    channel,
                    source,
                    target,
                };
                self.unproven_until = None;
                self.events.push_back(incoming);
            }
        } else if self.incoming.admit(channel, nonce, now) {
            self.say(Control::Prove { channel, nonce }, now);
        }
    }

    /// Datagrams on this channel of the peer's are not wanted, or not any more.
    pub fn refuse(&mut self, channel: u16, why: Why, now: Duration) {
        if self.incoming.finish(channel).is_some() {
            self.say(Control::Refuse { channel, why }, now);
            self.end_if_drained(now);
        }
    }

    /// All before this barrier of the peer's is taken.
    pub fn pass(&mut self, channel: u16, number: u32, now: Duration) {
        self.say(Control::Passed { channel, number }, now);
    }

    /// What was just sent on a channel that this end opened is followed by a barrier: [`Event::Passed`] answers.
    /// Control messages are to be put into the stream before the next datagram is.
    pub fn barrier(&mut self, channel: u16, number: u32, now: Duration) {
        self.say(Control::Barrier { channel, number }, now);
    }

    /// What is sent on a channel from now on comes behind the plain datagrams that the mark of this number followed.
    /// Gives the mark, which is to be sent by UDP from the channel's source to its target.
    pub fn behind(&mut self, channel: u16, number: u32, now: Duration) -> Option<Proof> {
        let nonce = self.outgoing.proof_of_source(channel)?;
        self.say(Control::Behind { channel, number }, now);
        Some(Proof::new(nonce, number))
    }

    /// The random bits that marks of a channel that this end opened have.
    pub fn mark_nonce(&self, channel: u16) -> Option<Nonce> {
        self.outgoing.proof_of_source(channel)
    }

    /// Datagrams of this channel of the peer's wait at a socket that only the peer's own can wake.
    pub fn ring(&mut self, channel: u16, now: Duration) {
        self.say(Control::Ring { channel }, now);
    }

    /// A datagram was sent on a channel.
    #[inline]
    pub fn handle_sent(&mut self, now: Duration) {
        self.used_at = now;
        self.sent_at.get_or_insert(now);
    }

    /// A datagram came on this channel. Gives the two ends that it goes between; nothing where the channel was closed
    /// while it was under way, and the datagram is lost.
    ///
    /// # Errors
    /// There was no such channel.
    #[inline]
    pub fn handle_datagram(
        &mut self,
        channel: u16,
        now: Duration,
    ) -> Result<Option<(End, End)>, Fault> {
        self.hear(now);
        self.used_at = now;
        self.incoming.ends(channel)
    }

    /// Whether datagrams on this channel still wait for a mark behind plain ones.
    #[inline]
    pub fn is_behind(&self, channel: u16, now: Duration) -> bool {
        self.incoming.is_behind(channel, now)
    }

    /// Whether datagrams on this channel wait for a mark whose time is over.
    pub fn is_mark_late(&self, channel: u16, now: Duration) -> bool {
        self.incoming.is_mark_late(channel, now)
    }

    /// The mark that datagrams on this channel wait for is late, and not lost: it may come for as long again. To be
    /// said before [`Carrier::handle_timeout`] gives it up.
    pub fn wait_for_late_mark(&mut self, channel: u16, now: Duration) {
        self.incoming.wait_for_late_mark(channel, now);
    }

    /// A datagram that looks like a proof came to the socket at `to` from `from`. Says whether it was one for a channel
    /// of this carrier: then the program does not see it.
    pub fn handle_proof(&mut self, proof: Proof, to: End, from: End, now: Duration) -> bool {
        if self.outgoing.handle_proof(proof, to, from) {
            self.tell_opened();
            return true;
        }
        match self.incoming.handle_proof(proof, to, from) {
            incoming::Taken::No => false,
            incoming::Taken::Mark => true,
            incoming::Taken::Again(nonce) => {
                self.prove(Proof::new(nonce, 0), to, from);
                true
            }
            incoming::Taken::Proven(channel, nonce) => {
                let challenge = proof.challenge;
                self.say(Control::Accept { channel, challenge }, now);
                self.prove(Proof::new(nonce, 0), to, from);
                self.unproven_until = None;
                self.events.push_back(Event::Incoming {
                    channel,
                    source: from,
                    target: to,
                });
                true
            }
        }
    }

    fn prove(&mut self, proof: Proof, from: End, to: End) {
        self.events.push_back(Event::Prove { proof, from, to });
    }

    fn tell_opened(&mut self) {
        while let Some(channel) = self.outgoing.poll_opened() {
            self.unproven_until = None;
            self.events.push_back(Event::Opened { channel });
        }
    }

    /// No new channel from now on; the carrier ends with the last one.
    pub fn drain(&mut self, why: Why, now: Duration) {
        if self.is_up() {
            self.state = State::Draining(why);
            self.end_if_drained(now);
        }
    }

    fn end_if_drained(&mut self, now: Duration) {
        if let State::Draining(why) = self.state {
            if self.outgoing.is_empty() && self.incoming.is_empty() {
                self.shut(why, now);
            }
        }
    }

    /// Ends the carrier and tells the peer.
    pub fn shut(&mut self, why: Why, now: Duration) {
        if !self.is_closed() {
            self.say(Control::Close { channel: 0, why }, now);
            self.end(why);
        }
    }

    /// The connection is gone, or the peer did something wrong.
    pub fn handle_gone(&mut self) {
        self.end(Why::Ends);
    }

    fn end(&mut self, why: Why) {
        if self.is_closed() {
            return;
        }
        self.state = State::Closed;
        while let Some(channel) = self.outgoing.close_any() {
            self.events.push_back(Event::Lost { channel, why });
        }
        while let Some(finished) = self.incoming.finish_any() {
            self.events.push_back(finished);
        }
        self.events.push_back(Event::Closed(why));
    }
}
