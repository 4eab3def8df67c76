//! The segment whose payload is arriving, and what the messages before it left for it.

use weft_iwarp::{Header, Stag};

use super::immediate;

/// What a segment's payload goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// `(STag, TO)` of the next octet.
    Write { stag: Stag, to: u64 },
    /// The outstanding Read's scatter list.
    Read,
    /// The receive buffer's scatter list.
    Receive,
    /// The Send that is held and has not come whole.
    Held,
    /// Nothing.
    Lost,
}

/// A segment of which payload is outstanding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) target: Target,
    /// It is its message's last.
    pub(super) last: bool,
    pub(super) header: Header,
}

/// What Immediate Data is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Value {
    /// The next Send's: it is kept for that one.
    Joined,
    /// A message of its own.
    Own(u32),
    /// A message where the Send of the value before has to be.
    Misplaced,
}

/// State of arrival that outlives a pass.
#[derive(Debug, Default)]
pub(super) struct Arriving {
    open: Option<Open>,
    /// A Send is lost whose last segment is to come.
    losing_send: bool,
    /// An immediate value that the next Send of a Weft peer brings.
    joined: Option<u32>,
}

impl Arriving {
    /// A segment begins.
    #[inline]
    pub(super) fn begin(&mut self, target: Target, last: bool, header: Header) {
        debug_assert!(self.open.is_none(), "segments come one after the other");
        self.open = Some(Open {
            target,
            last,
            header,
        });
    }

    /// The segment of which payload is outstanding.
    #[inline]
    pub(super) fn open(&self) -> Option<&Open> {
        self.open.as_ref()
    }

    /// Octets of the open segment went where they belong; says where that was.
    #[inline]
    pub(super) fn advance(&mut self, octets: u32) -> Option<Target> {
        let target = &mut self.open.as_mut()?.target;
        if let Target::Write { to, .. } = target {
            *to = to.wrapping_add(u64::from(octets));
        }
        Some(*target)
    }

    /// The open segment's payload is there.
    #[inline]
    pub(super) fn close(&mut self) -> Option<Open> {
        let open = self.open.take()?;
        if open.last {
            match open.target {
                Target::Held => self.losing_send = false,
                // A Write that is lost says nothing of the Send around it.
                Target::Lost => self.losing_send &= matches!(open.header, Header::Tagged(_)),
                Target::Write { .. } | Target::Read | Target::Receive => {}
            }
        }
        Some(open)
    }

    /// Whether a segment has begun of the Send that is held and has not come whole.
    pub(super) fn is_held(&self) -> bool {
        self.open.is_some_and(|open| open.target == Target::Held)
    }

    /// A Send that was held has its receive: what is outstanding of its segment goes there.
    pub(super) fn receive_the_rest(&mut self) {
        if let Some(open) = self.open.as_mut().filter(|o| o.target == Target::Held) {
            open.target = Target::Receive;
        }
    }

    /// A Send that was held is lost, and what is to come of it.
    pub(super) fn lose_the_rest(&mut self) {
        self.losing_send = true;
        if let Some(open) = &mut self.open {
            open.target = Target::Lost;
        }
    }

    /// Whether the segments of a Send that are to come are lost.
    #[inline]
    pub(super) fn is_losing_send(&self) -> bool {
        self.losing_send
    }

    /// A Send finds no receive and is lost, with the value that came for it.
    pub(super) fn lose_send(&mut self) {
        self.joined = None;
        self.losing_send = true;
    }

    /// All that was held is lost; `in_part` says that segments of it are to come.
    pub(super) fn lose_held(&mut self, in_part: bool) {
        self.losing_send = in_part;
    }

    /// Immediate Data came.
    pub(super) fn take_immediate(&mut self, octets: u64, from_weft: bool) -> Value {
        let imm = immediate::value(octets);
        if self.joined.is_some() {
            return Value::Misplaced;
        }
        if from_weft && immediate::is_of_next_send(octets) {
            self.joined = Some(imm);
            return Value::Joined;
        }
        Value::Own(imm)
    }

    /// The value that came for the Send that begins.
    #[inline]
    pub(super) fn take_joined(&mut self) -> Option<u32> {
        self.joined.take()
    }

    /// The stream is gone, and what was arriving on it.
    pub(super) fn clear(&mut self) {
        *self = Arriving::default();
    }
}

#[cfg(test)]
mod tests {
    use super::super::receives::tests::segment;
    use super::*;
    use weft_iwarp::ddp::Tagged;
    use weft_iwarp::Opcode;

    fn send() -> Header {
        segment(0).header
    }

    fn write() -> Header {
        Header::Tagged(Tagged {
            last: true,
            opcode: Opcode::WRITE,
            stag: Stag(5),
            to: 0,
        })
    }

    #[test]
    fn a_write_moves_on_with_its_octets() {
        let at = |to| Target::Write { stag: Stag(5), to };
        let mut arriving = Arriving::default();
        assert_eq!(arriving.advance(1), None, "nothing is open");
        arriving.begin(at(u64::MAX), true, write());
        assert_eq!(arriving.advance(3), Some(at(2)));
        arriving.begin_again(Target::Read);
        assert_eq!(arriving.advance(3), Some(Target::Read));
        assert!(arriving.close().is_some() && arriving.close().is_none());
    }

    impl Arriving {
        fn begin_again(&mut self, target: Target) {
            self.close();
            self.begin(target, false, send());
        }
    }

    #[test]
    fn a_held_send_that_gets_its_receive_or_is_lost_takes_its_segment_along() {
        let mut arriving = Arriving::default();
        assert!(!arriving.is_held(), "nothing is open");
        arriving.begin(Target::Held, true, send());
        assert!(arriving.is_held());
        arriving.receive_the_rest();
        assert!(!arriving.is_held());
        assert_eq!(arriving.close().map(|o| o.target), Some(Target::Receive));
        arriving.begin(Target::Held, true, send());
        arriving.lose_the_rest();
        assert!(arriving.is_losing_send());
        assert_eq!(arriving.close().map(|o| o.target), Some(Target::Lost));
        assert!(!arriving.is_losing_send(), "that was its last");
        // What is open of another message stays where it belongs.
        arriving.begin(Target::Read, true, write());
        arriving.receive_the_rest();
        assert_eq!(arriving.open().map(|o| o.target), Some(Target::Read));
    }

    #[test]
    fn a_lost_send_is_over_with_its_last_segment_and_not_with_a_lost_write() {
        let mut arriving = Arriving::default();
        arriving.lose_send();
        arriving.begin(Target::Lost, false, send());
        arriving.close();
        assert!(arriving.is_losing_send());
        arriving.begin(Target::Lost, true, write());
        arriving.close();
        assert!(arriving.is_losing_send());
        arriving.begin(Target::Lost, true, send());
        arriving.close();
        assert!(!arriving.is_losing_send());
        arriving.lose_held(true);
        arriving.begin(Target::Held, true, send());
        arriving.close();
        assert!(!arriving.is_losing_send());
    }

    #[test]
    fn a_value_of_a_weft_peer_waits_for_its_send_and_nothing_comes_between() {
        let mut arriving = Arriving::default();
        let octets = immediate::of_next_send(7);
        assert_eq!(arriving.take_immediate(octets, false), Value::Own(7));
        assert_eq!(arriving.take_immediate(octets, true), Value::Joined);
        let other = immediate::of_write(8);
        assert_eq!(arriving.take_immediate(other, true), Value::Misplaced);
        assert_eq!(arriving.take_joined(), Some(7));
        assert_eq!(arriving.take_joined(), None);
        assert_eq!(arriving.take_immediate(other, true), Value::Own(8));
        arriving.take_immediate(octets, true);
        arriving.lose_send();
        assert_eq!(arriving.take_joined(), None, "it is lost with its Send");
    }
}
