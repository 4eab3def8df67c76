//! Which way a datagram takes from one socket to one destination: plain UDP, or a channel on a carrier.
//!
//! An idle program's datagram is plain: on a carrier it would be later. A busy one's takes the carrier, but for one
//! that fits a single packet of a path with a large MTU. The two ways do not keep each other's order, so a change has a
//! price: from plain to carrier a mark leaves behind the plain datagrams, and the receiver waits for it; from carrier
//! to plain the sender waits until the receiver says that nothing is under way any more.

/// From so many octets on, a datagram that fits one packet is faster plain.
pub const PLAIN_OCTETS_MIN: usize = 16 * 1024;

/// How a datagram is to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Plain.
    Plain,
    /// On the channel.
    Channel,
    /// First a mark of this number, plain; then on the channel `Behind` with it; then the datagram there.
    ChannelBehind(u32),
    /// On the channel, and after it a `Barrier` of this number.
    ChannelBarrier(u32),
}

/// What is known of a datagram when it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Send {
    /// Octets of it.
    pub len: usize,
    /// The program's sends come thick.
    pub is_busy: bool,
    /// Octets of a datagram that fits one packet of the path, as far as that is known.
    pub packet: usize,
}

/// The way of one socket's datagrams to one destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Chooser {
    is_open: bool,
    on_channel: bool,
    /// Something was sent plainly since the last mark.
    is_plain_under_way: bool,
    mark: u32,
    barrier: u32,
    /// A barrier was sent that has no answer.
    is_barrier_under_way: bool,
    /// On the channel, since that barrier.
    was_sent_since: bool,
}

impl Chooser {
    /// The channel may be used. Its proof was behind all plain datagrams, but more may have followed.
    pub fn handle_opened(&mut self) {
        *self = Chooser {
            is_open: true,
            is_plain_under_way: true,
            ..Chooser::default()
        };
    }

    /// There is no channel any more: plain. Those that were under way on it may be lost.
    pub fn handle_lost(&mut self) {
        *self = Chooser::default();
    }

    /// Whether datagrams take the channel.
    pub fn is_on_channel(&self) -> bool {
        self.on_channel
    }

    /// A datagram is sent; says by which way. It leaves by that way, or is dropped.
    #[inline]
    pub fn choose(&mut self, send: Send) -> Way {
        let fits_packet = send.len >= PLAIN_OCTETS_MIN && send.len <= send.packet;
        let wants_channel = self.is_open && send.is_busy && !fits_packet;
        match (self.on_channel, wants_channel) {
            (false, false) => {
                self.is_plain_under_way = true;
                Way::Plain
            }
            (false, true) => {
                self.on_channel = true;
                if !core::mem::take(&mut self.is_plain_under_way) {
                    return Way::Channel;
                }
                self.mark += 1;
                Way::ChannelBehind(self.mark)
            }
            (true, false) if !self.is_barrier_under_way => {
                self.barrier += 1;
                self.is_barrier_under_way = true;
                self.was_sent_since = false;
                Way::ChannelBarrier(self.barrier)
            }
            (true, _) => {
                self.was_sent_since = true;
                Way::Channel
            }
        }
    }

    /// The datagram that a barrier was to follow could not be put into the stream at once, so the barrier was not sent:
    /// it would have overtaken the datagram.
    pub fn handle_barrier_not_sent(&mut self) {
        self.is_barrier_under_way = false;
    }

    /// The mark of [`Way::ChannelBehind`] could not be sent, or the channel could not be told of it: datagrams are
    /// plain until the next try, which has a number of its own, as this mark may have left.
    pub fn handle_mark_not_said(&mut self) {
        self.on_channel = false;
        self.is_plain_under_way = true;
    }

    /// The receiver says that all before a barrier is taken.
    pub fn handle_passed(&mut self, number: u32) {
        if !self.is_barrier_under_way || number != self.barrier {
            return;
        }
        self.is_barrier_under_way = false;
        if !self.was_sent_since {
            self.on_channel = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Send = Send {
        len: 100,
        is_busy: false,
        packet: 1472,
    };
    const BUSY: Send = Send {
        is_busy: true,
        ..IDLE
    };

    fn open() -> Chooser {
        let mut chooser = Chooser::default();
        chooser.handle_opened();
        chooser
    }

    #[test]
    fn without_a_channel_everything_is_plain() {
        let mut chooser = Chooser::default();
        assert_eq!(chooser.choose(BUSY), Way::Plain);
        chooser.handle_opened();
        assert_eq!(chooser.choose(BUSY), Way::ChannelBehind(1));
        chooser.handle_lost();
        assert_eq!(chooser.choose(BUSY), Way::Plain);
    }

    #[test]
    fn who_becomes_idle_is_plain_when_nothing_is_under_way() {
        let mut chooser = open();
        assert_eq!(chooser.choose(IDLE), Way::Plain);
        assert_eq!(chooser.choose(BUSY), Way::ChannelBehind(1));
        assert_eq!(chooser.choose(BUSY), Way::Channel);
        assert_eq!(chooser.choose(IDLE), Way::ChannelBarrier(1));
        assert_eq!(chooser.choose(IDLE), Way::Channel);
        chooser.handle_passed(1);
        assert_eq!(
            chooser.choose(IDLE),
            Way::ChannelBarrier(2),
            "one was sent since"
        );
        chooser.handle_passed(1);
        assert!(chooser.is_on_channel(), "the answer to another one");
        chooser.handle_passed(2);
        assert_eq!(chooser.choose(IDLE), Way::Plain);
        assert_eq!(chooser.choose(BUSY), Way::ChannelBehind(2));
    }

    #[test]
    fn a_barrier_that_was_not_sent_is_sent_with_the_next() {
        let mut chooser = open();
        chooser.choose(BUSY);
        assert_eq!(chooser.choose(IDLE), Way::ChannelBarrier(1));
        chooser.handle_barrier_not_sent();
        chooser.handle_passed(1);
        assert!(chooser.is_on_channel());
        assert_eq!(chooser.choose(IDLE), Way::ChannelBarrier(2));
    }

    #[test]
    fn a_mark_that_was_not_said_is_no_later_ones() {
        let mut chooser = open();
        assert_eq!(chooser.choose(BUSY), Way::ChannelBehind(1));
        chooser.handle_mark_not_said();
        assert!(!chooser.is_on_channel());
        assert_eq!(chooser.choose(IDLE), Way::Plain);
        assert_eq!(chooser.choose(BUSY), Way::ChannelBehind(2));
    }

    #[test]
    fn who_is_busy_again_without_a_plain_datagram_between_needs_no_mark() {
        let mut chooser = open();
        chooser.choose(BUSY);
        chooser.choose(IDLE);
        chooser.handle_passed(1);
        assert!(!chooser.is_on_channel());
        assert_eq!(chooser.choose(BUSY), Way::Channel);
    }

    #[test]
    fn a_datagram_that_fits_a_large_packet_is_plain() {
        for (len, packet, wanted) in [
            (16 * 1024, 65_507, Way::Plain),
            (16 * 1024 - 1, 65_507, Way::ChannelBehind(1)),
            (20_000, 19_999, Way::ChannelBehind(1)),
            (20_000, 20_000, Way::Plain),
        ] {
            let send = Send {
                len,
                packet,
                ..BUSY
            };
            assert_eq!(open().choose(send), wanted, "{len} {packet}");
        }
    }
}
