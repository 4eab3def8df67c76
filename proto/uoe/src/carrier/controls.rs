//! What the peer says on channel 0.

use core::time::Duration;

use super::{Carrier, Event, CONTROLS_MAX};
use crate::control::{Control, Why};
use crate::end::End;
use crate::fault::Fault;
use crate::greeting::Nonce;
use crate::proof::{Proof, BELL};

impl Carrier {
    /// A control message came.
    ///
    /// # Errors
    /// It is none, or does not go with what was said before. The carrier is to be closed.
    pub fn handle_control(&mut self, octets: &[u8], now: Duration) -> Result<(), Fault> {
        if self.controls.len() >= CONTROLS_MAX {
            return Err(Fault::Controls(CONTROLS_MAX));
        }
        let control = Control::parse(octets)?;
        self.hear(now);
        match control {
            Control::Open {
                channel,
                source,
                target,
                nonce,
            } => self.handle_open(channel, [source, target], nonce, now)?,
            Control::Prove { channel, nonce } => {
                if let Some((proof, from, to)) = self.outgoing.handle_prove(channel, nonce, now)? {
                    self.prove(proof, from, to);
                }
            }
            Control::Accept { channel, challenge } => {
                let without_udp = self.is_without_udp();
                self.outgoing
                    .handle_accept(channel, challenge, without_udp)?;
                self.tell_opened();
            }
            Control::Refuse { channel, why } => {
                if self.outgoing.handle_refuse(channel)? {
                    self.events.push_back(Event::Lost { channel, why });
                }
                self.end_if_drained(now);
            }
            Control::Close { channel: 0, why } => self.end(why),
            Control::Close { channel, why } => self.handle_close(channel, why, now),
            Control::Ping { number } => self.say(Control::Pong { number }, now),
            Control::Pong { .. } => {}
            Control::Barrier { channel, number } => {
                self.incoming.ends(channel)?;
                self.events.push_back(Event::Barrier { channel, number });
            }
            Control::Passed { channel, number } => {
                if self.outgoing.is_open(channel) {
                    self.events.push_back(Event::Passed { channel, number });
                }
            }
            Control::Behind { channel, number } => {
                self.incoming.handle_behind(channel, number, now)?;
            }
            Control::Ring { channel } => {
                if let Some((nonce, from, to)) = self.outgoing.bell(channel) {
                    let proof = Proof::new(nonce, BELL);
                    self.events.push_back(Event::Prove { proof, from, to });
                }
            }
        }
        Ok(())
    }

    fn handle_open(
        &mut self,
        channel: u16,
        [source, target]: [End; 2],
        nonce: Nonce,
        now: Duration,
    ) -> Result<(), Fault> {
        self.incoming.begin(channel, source, target, nonce)?;
        if !self.is_up() {
            self.refuse(channel, Why::Ends, now);
            return Ok(());
        }
        self.used_at = now;
        self.events.push_back(Event::Wanted {
            channel,
            source,
            target,
        });
        Ok(())
    }

    fn handle_close(&mut self, channel: u16, why: Why, now: Duration) {
        // Where this end has refused it meanwhile, the peer knows already.
        if let Some(finished) = self.incoming.finish(channel) {
            self.say(Control::Refuse { channel, why }, now);
            self.events.push_back(finished);
            self.end_if_drained(now);
        }
    }
}
