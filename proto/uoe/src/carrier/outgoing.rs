//! The channels that this end opened.

use core::time::Duration;

use super::channels::Channels;
use super::PROOF_TIMEOUT;
use crate::end::End;
use crate::fault::Fault;
use crate::greeting::Nonce;
use crate::proof::Proof;

/// A proof is sent again so long after the last one.
const PROOF_AGAIN: Duration = Duration::from_millis(300);

/// Random bits of one channel that this end opens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Secrets {
    /// Told to the peer on the connection. It proves the target when it comes from there by UDP.
    pub nonce: Nonce,
    /// Sent by UDP to the target alone, which repeats it on the connection.
    pub challenge: Nonce,
}

#[derive(Clone, Debug)]
struct Channel {
    source: End,
    target: End,
    /// What proves the target.
    secrets: Secrets,
    /// What proves the source, once the receiver has said it.
    own_proof: Option<Nonce>,
    is_accepted: bool,
    is_proven: bool,
    /// It was told that it may be used.
    is_told: bool,
    /// This end closed it. Its number is free when the receiver has said so too: what that said before may be under
    /// way.
    is_closing: bool,
    again_at: Duration,
    late_at: Duration,
}

impl Channel {
    fn is_open(&self) -> bool {
        self.is_accepted && self.is_proven && !self.is_closing
    }

    fn is_opening(&self) -> bool {
        !self.is_told && !self.is_closing
    }

    /// The proof of its source, once the receiver wants one: what it is, from where and to where.
    fn proof(&self) -> Option<(Proof, End, End)> {
        let proof = Proof {
            challenge: self.secrets.challenge,
            ..Proof::new(self.own_proof?, 0)
        };
        Some((proof, self.source, self.target))
    }
}

/// The channels that this end opened.
#[derive(Clone, Debug, Default)]
pub(super) struct Outgoing {
    channels: Channels<Channel>,
    /// How many are not open yet, so that those that are cost no look.
    opening: usize,
}

impl Outgoing {
    pub(super) fn open(
        &mut self,
        source: End,
        target: End,
        secrets: Secrets,
        now: Duration,
    ) -> Option<u16> {
        let number = self.channels.free()?;
        let late_at = now.saturating_add(PROOF_TIMEOUT);
        let channel = Channel {
            source,
            target,
            secrets,
            own_proof: None,
            is_accepted: false,
            is_proven: false,
            is_told: false,
            is_closing: false,
            again_at: late_at,
            late_at,
        };
        self.channels.put(number, channel)?;
        self.opening += 1;
        Some(number)
    }

    /// The receiver wants the source proven: gives the proof, and from where to where it goes.
    pub(super) fn handle_prove(
        &mut self,
        number: u16,
        nonce: Nonce,
        now: Duration,
    ) -> Result<Option<(Proof, End, End)>, Fault> {
        let Some(channel) = self.channels.get_mut(number) else {
            return self.was(number).map(|()| None);
        };
        if channel.own_proof.is_some() || channel.is_accepted {
            return Err(Fault::Channel(number));
        }
        if channel.is_closing {
            return Ok(None);
        }
        channel.own_proof = Some(nonce);
        channel.again_at = now.saturating_add(PROOF_AGAIN);
        Ok(channel.proof())
    }

    pub(super) fn handle_accept(
        &mut self,
        number: u16,
        challenge: Nonce,
        without_udp: bool,
    ) -> Result<(), Fault> {
        let Some(channel) = self.channels.get_mut(number) else {
            return self.was(number);
        };
        // Who accepts without a proof may do so only where both ends said that there is none.
        if channel.is_accepted || channel.own_proof.is_none() && !without_udp {
            return Err(Fault::Channel(number));
        }
        // Whoever does not receive at the target cannot repeat what went there: the target is not his.
        if !without_udp && challenge != channel.secrets.challenge {
            return Err(Fault::Challenge(number));
        }
        channel.is_accepted = true;
        channel.is_proven |= without_udp;
        Ok(())
    }

    fn was(&self, number: u16) -> Result<(), Fault> {
        match self.channels.was(number) {
            true => Ok(()),
            false => Err(Fault::Channel(number)),
        }
    }

    /// Whether it is the proof of a target.
    pub(super) fn handle_proof(&mut self, proof: Proof, to: End, from: End) -> bool {
        let is_it = |channel: &Channel| {
            channel.secrets.nonce == proof.nonce && channel.source == to && channel.target == from
        };
        let mut all = self.channels.iter_mut();
        let Some((_, channel)) = all.find(|(_, channel)| proof.number == 0 && is_it(channel))
        else {
            return false;
        };
        channel.is_proven = true;
        true
    }

    /// A channel that may be used, once.
    pub(super) fn poll_opened(&mut self) -> Option<u16> {
        let mut all = self.channels.iter_mut();
        let (number, channel) = all.find(|(_, channel)| channel.is_open() && !channel.is_told)?;
        channel.is_told = true;
        self.opening -= 1;
        Some(number)
    }

    pub(super) fn is_open(&self, number: u16) -> bool {
        self.channels.get(number).is_some_and(Channel::is_open)
    }

    pub(super) fn proof_of_source(&self, number: u16) -> Option<Nonce> {
        self.channels.get(number)?.own_proof
    }

    /// What a bell has, and between which ends it goes, where the channel is open.
    pub(super) fn bell(&self, number: u16) -> Option<(Nonce, End, End)> {
        let channel = self.channels.get(number)?;
        let nonce = channel.own_proof.filter(|_| channel.is_open())?;
        Some((nonce, channel.source, channel.target))
    }

    /// This end closes it. Says whether it was open or opening.
    pub(super) fn close(&mut self, number: u16) -> bool {
        let channel = self.channels.get_mut(number);
        let Some(channel) = channel.filter(|channel| !channel.is_closing) else {
            return false;
        };
        self.opening -= usize::from(channel.is_opening());
        channel.is_closing = true;
        true
    }

    /// The receiver says that it is closed. Says whether this end did not know.
    pub(super) fn handle_refuse(&mut self, number: u16) -> Result<bool, Fault> {
        let was_open = self.close(number);
        let channel = self.channels.take(number);
        channel.map(|_| was_open).ok_or(Fault::Channel(number))
    }

    /// Closes any that is not, for good.
    pub(super) fn close_any(&mut self) -> Option<u16> {
        let is_open = |(_, channel): &(u16, &Channel)| !channel.is_closing;
        let number = self.channels.iter().find(is_open)?.0;
        self.close(number).then_some(number)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    fn opening(&self) -> impl Iterator<Item = (u16, &Channel)> {
        let all = (self.opening > 0).then(|| self.channels.iter());
        all.into_iter()
            .flatten()
            .filter(|(_, channel)| channel.is_opening())
    }

    /// A proof that is to be sent once more, as it may be lost: what, from where and to where.
    pub(super) fn poll_again(&mut self, now: Duration) -> Option<(Proof, End, End)> {
        let is_due = |channel: &Channel| now >= channel.again_at && now < channel.late_at;
        let (number, _) = self.opening().find(|(_, channel)| is_due(channel))?;
        let channel = self.channels.get_mut(number)?;
        channel.again_at = now.saturating_add(PROOF_AGAIN);
        channel.proof()
    }

    /// A channel that has waited too long.
    pub(super) fn poll_late(&mut self, now: Duration) -> Option<u16> {
        let mut opening = self.opening();
        Some(opening.find(|(_, channel)| now >= channel.late_at)?.0)
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        let due = |(_, channel): (u16, &Channel)| channel.again_at.min(channel.late_at);
        self.opening().map(due).min()
    }
}
