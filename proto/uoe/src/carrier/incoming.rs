//! The channels that the peer opened.

use core::net::IpAddr;
use core::time::Duration;

use super::channels::Channels;
use super::event::Event;
use super::{MARK_TIMEOUT, PROOF_TIMEOUT};
use crate::end::End;
use crate::fault::Fault;
use crate::greeting::Nonce;
use crate::proof::{Proof, BELL};

/// Proofs of one channel that are answered: what is sent again is, a replay for ever is not.
const PROOFS_MAX: u8 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The owner of the target has not said anything.
    Wanted,
    /// The source's proof has to come until then.
    Proving(Duration),
    /// Datagrams may come.
    Open,
}

#[derive(Clone, Debug)]
struct Channel {
    state: State,
    source: End,
    target: End,
    /// What proves the target to the peer.
    peer_nonce: Nonce,
    /// What proves the source, and what marks have.
    nonce: Option<Nonce>,
    proofs: u8,
    /// The last mark that was taken.
    marked: u32,
    /// Datagrams wait for this mark, until then.
    behind: Option<(u32, Duration)>,
}

/// What became of a datagram that looks like a proof.
pub(super) enum Taken {
    /// It is none of a channel here.
    No,
    /// A mark, a bell, or one proof too many.
    Mark,
    /// The proof came again: this is to be sent again.
    Again(Nonce),
    /// The channel is open: this is to be sent.
    Proven(u16, Nonce),
}

/// The channels that the peer opened.
#[derive(Clone, Debug, Default)]
pub(super) struct Incoming {
    channels: Channels<Channel>,
    /// How many are not open yet, or wait for a mark: others cost no look.
    waiting: usize,
}

impl Incoming {
    /// The peer wants a channel.
    pub(super) fn begin(
        &mut self,
        number: u16,
        source: End,
        target: End,
        peer_nonce: Nonce,
    ) -> Result<(), Fault> {
        let channel = Channel {
            state: State::Wanted,
            source,
            target,
            peer_nonce,
            nonce: None,
            proofs: 0,
            marked: 0,
            behind: None,
        };
        let put = self.channels.put(number, channel);
        self.waiting += usize::from(put.is_some());
        put.ok_or(Fault::Channel(number))
    }

    /// Says whether it was wanted.
    pub(super) fn admit(&mut self, number: u16, nonce: Nonce, now: Duration) -> bool {
        let channel = self.channels.get_mut(number);
        let Some(channel) = channel.filter(|channel| channel.state == State::Wanted) else {
            return false;
        };
        channel.state = State::Proving(now.saturating_add(PROOF_TIMEOUT));
        channel.nonce = Some(nonce);
        true
    }

    /// The same where there is no proof: the address is that of the carrier.
    pub(super) fn accept_unproven(&mut self, number: u16, address: IpAddr) -> Option<(End, End)> {
        let channel = self.channels.get_mut(number)?;
        if channel.state != State::Wanted {
            return None;
        }
        channel.state = State::Open;
        channel.source = End::new(address, channel.source.port());
        self.waiting -= 1;
        Some((channel.source, channel.target))
    }

    pub(super) fn handle_proof(&mut self, proof: Proof, to: End, from: End) -> Taken {
        let is_it = |channel: &Channel| channel.nonce == Some(proof.nonce) && channel.target == to;
        let mut all = self.channels.iter_mut();
        let Some((number, channel)) = all.find(|(_, channel)| is_it(channel)) else {
            return Taken::No;
        };
        let is_open = channel.state == State::Open;
        // Whoever has the nonce from elsewhere does not have the address: it is no proof of this channel.
        if is_open && channel.source != from || !is_open && proof.number != 0 {
            return Taken::No;
        }
        if proof.number == BELL {
            return Taken::Mark;
        }
        if proof.number != 0 {
            channel.marked = channel.marked.max(proof.number);
            let waits_no_more = |(wanted, _): &mut (u32, Duration)| *wanted <= proof.number;
            self.waiting -= usize::from(channel.behind.take_if(waits_no_more).is_some());
            return Taken::Mark;
        }
        channel.proofs = channel.proofs.saturating_add(1);
        let answer = channel.peer_nonce;
        if is_open {
            let is_too_many = channel.proofs > PROOFS_MAX;
            return if is_too_many {
                Taken::Mark
            } else {
                Taken::Again(answer)
            };
        }
        channel.state = State::Open;
        channel.source = from;
        self.waiting -= 1;
        Taken::Proven(number, answer)
    }

    /// The ends of a channel that datagrams may come on; nothing if it was closed.
    #[inline]
    pub(super) fn ends(&self, number: u16) -> Result<Option<(End, End)>, Fault> {
        match self.channels.get(number) {
            Some(channel) if channel.state == State::Open => {
                Ok(Some((channel.source, channel.target)))
            }
            None if self.channels.was(number) => Ok(None),
            _ => Err(Fault::Channel(number)),
        }
    }

    /// What follows comes behind a mark.
    pub(super) fn handle_behind(
        &mut self,
        number: u16,
        mark: u32,
        now: Duration,
    ) -> Result<(), Fault> {
        if self.ends(number)?.is_none() {
            return Ok(());
        }
        if let Some(channel) = self.channels.get_mut(number) {
            let before = channel.behind.take();
            self.waiting -= usize::from(before.is_some());
            if channel.marked < mark {
                // Said again and again it would make datagrams wait, and be kept, for ever.
                let until = before.map_or(now.saturating_add(MARK_TIMEOUT), |(_, until)| until);
                channel.behind = Some((mark, until));
                self.waiting += 1;
            }
        }
        Ok(())
    }

    #[inline]
    pub(super) fn is_behind(&self, number: u16, now: Duration) -> bool {
        let channel = self.channels.get(number);
        let behind = channel.and_then(|channel| channel.behind);
        behind.is_some_and(|(_, until)| now < until)
    }

    pub(super) fn is_mark_late(&self, number: u16, now: Duration) -> bool {
        let channel = self.channels.get(number);
        let behind = channel.and_then(|channel| channel.behind);
        behind.is_some_and(|(_, until)| now >= until)
    }

    pub(super) fn wait_for_late_mark(&mut self, number: u16, now: Duration) {
        let channel = self.channels.get_mut(number);
        if let Some((_, until)) = channel.and_then(|channel| channel.behind.as_mut()) {
            *until = now.saturating_add(MARK_TIMEOUT);
        }
    }

    /// What the driver is told, if there was one.
    pub(super) fn finish(&mut self, number: u16) -> Option<Event> {
        let channel = self.channels.take(number)?;
        let is_waiting = channel.state != State::Open || channel.behind.is_some();
        self.waiting -= usize::from(is_waiting);
        Some(Event::Finished {
            channel: number,
            mark: channel.behind.map(|(mark, _)| mark),
        })
    }

    pub(super) fn finish_any(&mut self) -> Option<Event> {
        let number = self.channels.iter().next()?.0;
        self.finish(number)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    fn due(&self) -> impl Iterator<Item = (u16, Duration)> + '_ {
        let all = (self.waiting > 0).then(|| self.channels.iter());
        all.into_iter().flatten().filter_map(|(number, channel)| {
            match (channel.state, channel.behind) {
                (State::Proving(until), _) => Some((number, until)),
                (_, Some((_, until))) => Some((number, until)),
                _ => None,
            }
        })
    }

    /// A channel whose proof is late.
    pub(super) fn poll_late(&mut self, now: Duration) -> Option<u16> {
        let is_proving = |number: u16| {
            let channel = self.channels.get(number);
            channel.is_some_and(|channel| matches!(channel.state, State::Proving(_)))
        };
        let mut due = self.due().filter(|(_, until)| now >= *until);
        Some(due.find(|(number, _)| is_proving(*number))?.0)
    }

    /// Marks that did not come in time are waited for no more.
    pub(super) fn forget_marks(&mut self, now: Duration) {
        if self.waiting == 0 {
            return;
        }
        let mut forgotten = 0;
        for (_, channel) in self.channels.iter_mut() {
            forgotten += usize::from(channel.behind.take_if(|(_, until)| now >= *until).is_some());
        }
        self.waiting -= forgotten;
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        self.due().map(|(_, until)| until).min()
    }
}
