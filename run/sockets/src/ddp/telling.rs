//! What the receiving direction was told for the sending one, and what the peer is told of the receiving one.

use std::ops::Range;

use weft_stream::{frame, Event, Target};

use super::directions::{Held, Receiving};
use super::Connection;
use crate::Errno;

impl Connection<'_> {
    /// Takes framing that is at this place of the scratch, and that began at this place of the socket.
    pub(super) fn take_framing(
        &self,
        receiving: &mut Held<'_, Receiving>,
        place: Range<usize>,
        mut behind: u32,
    ) -> Result<(), Errno> {
        let Range { start: mut at, end } = place;
        while at < end {
            let (core, beside) = receiving.split();
            let framing = core.receiver.take_framing(&beside.scratch[at..end]);
            let framing = framing.map_err(|fault| self.break_off(&fault))?;
            at += framing.taken;
            behind = behind.wrapping_add(framing.taken as u32);
            match framing.event {
                Some(Event::ReadRequest { stag, to }) => {
                    receiving.told.read = Target { to, stag, len: 1 };
                }
                Some(Event::Terminate(layer_and_type, code)) => {
                    let why = format_args!(
                        "the peer ended it: Terminate {layer_and_type:#04x}/{code:#04x}"
                    );
                    return Err(self.break_off(&why));
                }
                Some(event) => self.heed(receiving, event, behind),
                None if framing.taken == 0 => break,
                None => {}
            }
        }
        Ok(())
    }

    /// Takes note of what the peer gives or has mapped, which ends at this place of the socket, unless somebody has who
    /// looked that far.
    pub(super) fn heed(&self, receiving: &mut Held<'_, Receiving>, event: Event, behind: u32) {
        if receiving.was_acted_on(behind) {
            return;
        }
        match event {
            Event::Limit(limit) => receiving.told.limit = 1 << 16 | u32::from(limit),
            Event::Target(index, target) => {
                receiving.told.targets[index] = target;
                receiving.told.which |= 1 << index;
            }
            Event::Map(entry, map) => self.slot.told_maps.set(entry, &map),
            // They count where they stand.
            Event::ReadRequest { .. } | Event::End | Event::Disconnect | Event::Terminate(..) => {
                return
            }
        }
        receiving.acted_to = behind;
    }

    /// Tells the sending direction what the receiving one was told, and the peer what it has to be told. What cannot be
    /// told now is told with the next call.
    pub(super) fn pass_on(&self, receiving: &mut Held<'_, Receiving>) -> Result<(), Errno> {
        let renewal = receiving.receiver.renewal();
        let told = receiving.told;
        if renewal.is_none() && told.limit == 0 && told.which == 0 && told.read.len == 0 {
            return Ok(());
        }
        let mut sending = match self.take_sending() {
            Ok(sending) => sending,
            Err(libc::EINTR | libc::EAGAIN) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        if told.limit > 0 {
            sending.sender.set_limit(told.limit as u16);
        }
        for (index, target) in told.targets.iter().enumerate() {
            if told.which & 1 << index != 0 {
                sending.sender.set_target(index, *target);
            }
        }
        if told.read.len > 0 {
            let Target { stag, to, .. } = told.read;
            let answer = frame::empty_read_response(stag, to, sending.sender.has_crc());
            sending.count_framing(answer.len());
            self.queue(&mut sending, &answer)?;
        }
        receiving.told = Default::default();
        if let Some(renewal) = renewal {
            let (octets, len) = sending.sender.renew(&renewal);
            sending.count_framing(len);
            self.queue(&mut sending, &octets[..len])?;
            receiving.receiver.renewed(&renewal);
        }
        // A socket that takes nothing any more may have octets to be read: whoever sends, or reads to the end, is told.
        let _ = self.flush(&mut sending, 0);
        Ok(())
    }
}
