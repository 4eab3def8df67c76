//! A message that finds no receive: held for a while, where the peer is Weft.
//!
//! On InfiniBand the receiver asks for patience (RNR) and the sender tries again; programs written
//! for it post their receives late. iWARP ends the connection. Between two Weft peers the message
//! is kept, with whatever is behind it and must not overtake it: Sends, Immediate Data, Read and
//! Atomic Requests. Writes are placed (RFC 5041 section 5.3 leaves their order free), Read and
//! Atomic Responses and Terminates are acted on, so nothing that this side waits for stands
//! behind what it has not made room for. How long is in `rnr`. Once a good deal is held the driver
//! should leave the rest in its TCP ([`RnrQueue::is_full`]), whose window then slows the peer down
//! as RNR would; how much is held at most is bounded here.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use weft_iwarp::Header;

use super::receives::{Immediate, SendSegment};
use super::responder::Request;

/// Octets of payload that are enough to hold.
const FULL_OCTETS: usize = 1024 * 1024;
/// Octets of payload that are held at most, should the driver not stop at enough.
const HELD_OCTETS_MAX: usize = 16 * 1024 * 1024;
/// What a message counts beside its payload, so that empty ones are bounded too.
const MESSAGE_OVERHEAD_OCTETS: usize = 256;

/// Where no more messages than this are held, debug builds look at all of them whenever one comes or goes.
const CHECKED_MESSAGES_MAX: usize = 32;

/// What is held, in order of arrival.
#[derive(Debug, Default)]
pub(super) struct RnrQueue {
    messages: VecDeque<Message>,
    /// What all messages count together, octets.
    weight: usize,
    /// How many messages were let go so far: names the one at the front.
    passed: u64,
    /// A message had not arrived whole when the stream ended.
    cut_off: bool,
}

/// A message that waits.
#[derive(Debug)]
pub(super) enum Message {
    Send(HeldSend),
    Immediate(Immediate, Header),
    Request(Request, Header),
}

/// A Send without a receive.
#[derive(Debug)]
pub(super) struct HeldSend {
    /// The first segment.
    pub(super) segment: SendSegment,
    pub(super) imm: Option<u32>,
    /// What has come of it.
    pub(super) octets: Vec<u8>,
    pub(super) is_complete: bool,
}

impl Message {
    fn weight(&self) -> usize {
        MESSAGE_OVERHEAD_OCTETS
            + match self {
                Message::Send(send) => send.octets.len(),
                Message::Immediate(..) | Message::Request(..) => 0,
            }
    }

    fn header(&self) -> Header {
        match self {
            Message::Send(send) => send.segment.header,
            Message::Immediate(_, header) | Message::Request(_, header) => *header,
        }
    }

    fn is_incomplete(&self) -> bool {
        matches!(self, Message::Send(send) if !send.is_complete)
    }
}

impl RnrQueue {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Names the message that waits for a receive, if one does: another number, another message.
    #[inline]
    pub(super) fn holding(&self) -> Option<u64> {
        (!self.messages.is_empty()).then_some(self.passed)
    }

    /// Whether so much is held that no more should be received until some of it goes on.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.weight >= FULL_OCTETS
    }

    /// What all that is held counts, octets.
    #[inline]
    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    /// Whether another message may be held.
    pub(super) fn has_room(&self) -> bool {
        self.weight < HELD_OCTETS_MAX
    }

    /// Read and Atomic Requests among what is held: they count against the IRD.
    #[inline]
    pub(super) fn requests(&self) -> usize {
        let requests = |m: &&Message| matches!(m, Message::Request(..));
        self.messages.iter().filter(requests).count()
    }

    /// The header of the message that waits for a receive.
    pub(super) fn front_header(&self) -> Option<Header> {
        self.messages.front().map(Message::header)
    }

    /// A Send begins.
    pub(super) fn push_send(&mut self, segment: SendSegment, imm: Option<u32>) {
        debug_assert!(
            self.messages.len() > CHECKED_MESSAGES_MAX || !self.is_incomplete(),
            "Sends come one after the other"
        );
        self.push(Message::Send(HeldSend {
            segment,
            imm,
            octets: Vec::new(),
            is_complete: false,
        }));
    }

    pub(super) fn push_immediate(&mut self, immediate: Immediate, header: Header) {
        self.push(Message::Immediate(immediate, header));
    }

    pub(super) fn push_request(&mut self, request: Request, header: Header) {
        self.push(Message::Request(request, header));
    }

    fn push(&mut self, message: Message) {
        self.weight += message.weight();
        self.messages.push_back(message);
        self.check_weight();
    }

    /// Takes the message at the front.
    pub(super) fn pop(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        self.weight -= message.weight();
        self.passed += 1;
        self.check_weight();
        Some(message)
    }

    /// Takes the request at the front, which waits for no receive, if one is there.
    pub(super) fn pop_request(&mut self) -> Option<(Request, Header)> {
        let Message::Request(request, header) = *self.messages.front()? else {
            return None;
        };
        self.pop();
        Some((request, header))
    }

    /// More octets of the Send that has not come whole.
    ///
    /// # Errors
    /// The segment that began it, where more is held than may be.
    pub(super) fn append(&mut self, more: &[u8]) -> Result<(), SendSegment> {
        let Some(at) = self.incomplete() else {
            return Ok(());
        };
        let Some(Message::Send(send)) = self.messages.get_mut(at) else {
            return Ok(());
        };
        if self.weight > HELD_OCTETS_MAX {
            return Err(send.segment);
        }
        send.octets.extend_from_slice(more);
        self.weight += more.len();
        self.check_weight();
        Ok(())
    }

    /// The Send has come whole.
    pub(super) fn complete(&mut self) {
        let message = self.incomplete().and_then(|at| self.messages.get_mut(at));
        if let Some(Message::Send(send)) = message {
            send.is_complete = true;
        }
    }

    /// No more octets come: what has not arrived whole never will, and nobody waits for the answers to requests with no
    /// message behind them.
    pub(super) fn end_of_stream(&mut self) {
        while let Some(back) = self.messages.back() {
            if !back.is_incomplete() && !matches!(back, Message::Request(..)) {
                break;
            }
            self.cut_off |= back.is_incomplete();
            self.weight -= back.weight();
            self.messages.pop_back();
        }
        self.check_weight();
    }

    /// Whether a message had not arrived whole when the stream ended.
    pub(super) fn is_cut_off(&self) -> bool {
        self.cut_off
    }

    /// Whether a Send has not come whole.
    pub(super) fn is_incomplete(&self) -> bool {
        self.incomplete().is_some()
    }

    /// Where the Send is that has not come whole, if one has not. It is the last Send; requests that the peer sent
    /// between its segments stand behind it.
    fn incomplete(&self) -> Option<usize> {
        self.messages.iter().rposition(Message::is_incomplete)
    }

    /// The Send that has not come whole is not wanted any more.
    pub(super) fn drop_incomplete(&mut self) {
        let Some(at) = self.incomplete() else {
            return;
        };
        self.weight -= self.messages.remove(at).map_or(0, |m| m.weight());
        // Another message is at the front.
        self.passed += u64::from(at == 0);
        self.check_weight();
    }

    /// All that waits is lost. The stream goes on, or its end is still to come.
    pub(super) fn drop_all(&mut self) {
        self.messages = VecDeque::new();
        self.weight = 0;
        self.passed += 1;
    }

    /// The stream is gone.
    pub(super) fn clear(&mut self) {
        self.drop_all();
        self.cut_off = false;
    }

    fn check_weight(&self) {
        debug_assert!(
            self.messages.len() > CHECKED_MESSAGES_MAX
                || self.weight == self.messages.iter().map(Message::weight).sum::<usize>(),
            "what is held is counted"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::receives::tests::segment;
    use super::*;
    use weft_iwarp::{ReadRequest, Stag};

    fn send(queue: &mut RnrQueue, octets: &[u8]) {
        queue.push_send(segment(octets.len()), None);
        queue.append(octets).expect("room");
        queue.complete();
    }

    fn request(queue: &mut RnrQueue) {
        let read = ReadRequest {
            sink_stag: Stag(1),
            sink_to: 0,
            size: 8,
            source_stag: Stag(2),
            source_to: 0,
        };
        queue.push_request(Request::Read(read), segment(0).header);
    }

    fn immediate(queue: &mut RnrQueue) {
        let immediate = Immediate {
            imm: 1,
            octets: 2,
            solicited: false,
        };
        queue.push_immediate(immediate, segment(0).header);
    }

    #[test]
    fn messages_go_on_in_the_order_they_came_in() {
        let mut queue = RnrQueue::default();
        send(&mut queue, b"one");
        request(&mut queue);
        immediate(&mut queue);
        assert_eq!((queue.len(), queue.requests()), (3, 1));
        assert!(queue.pop_request().is_none(), "a Send is at the front");
        let Some(Message::Send(one)) = queue.pop() else {
            panic!("a Send");
        };
        assert!(one.is_complete && one.octets == b"one");
        assert!(queue.pop_request().is_some() && queue.requests() == 0);
        assert!(matches!(queue.pop(), Some(Message::Immediate(..))));
        assert!(queue.is_empty() && queue.weight == 0);
    }

    #[test]
    fn the_message_at_the_front_has_a_name_of_its_own() {
        let mut queue = RnrQueue::default();
        assert_eq!(queue.holding(), None);
        let mut names = Vec::new();
        for lose in [
            |queue: &mut RnrQueue| drop(queue.pop()),
            RnrQueue::drop_all,
            RnrQueue::clear,
            RnrQueue::drop_incomplete,
        ] {
            queue.push_send(segment(0), None);
            names.push(queue.holding().expect("a message"));
            lose(&mut queue);
            assert_eq!(queue.holding(), None);
        }
        assert!(names.is_sorted_by(|one, next| one < next), "{names:?}");
    }

    #[test]
    fn how_much_is_held_is_bounded_and_empty_messages_count_too() {
        let mut queue = RnrQueue::default();
        let most = HELD_OCTETS_MAX / MESSAGE_OVERHEAD_OCTETS;
        for held in 0..most {
            assert!(queue.has_room());
            assert_eq!(
                queue.is_full(),
                held * MESSAGE_OVERHEAD_OCTETS >= FULL_OCTETS
            );
            immediate(&mut queue);
        }
        assert!(!queue.has_room());
        queue.pop();
        queue.push_send(segment(0), None);
        assert!(
            queue.append(b"one more").is_ok(),
            "the bound is passed once"
        );
        assert!(queue.append(b"and no more").is_err());
        queue.drop_incomplete();
        assert_eq!(queue.len(), most - 1);
    }

    #[test]
    fn a_request_between_the_segments_of_a_send_leaves_it_the_octets() {
        let mut queue = RnrQueue::default();
        queue.push_send(segment(3), None);
        request(&mut queue);
        queue.append(b"abc").expect("room");
        assert!(queue.is_incomplete());
        queue.complete();
        assert!(!queue.is_incomplete());
        assert!(queue.append(b"nobody's").is_ok());
        let Some(Message::Send(send)) = queue.pop() else {
            panic!("a Send");
        };
        assert_eq!(send.octets, b"abc");
    }

    #[test]
    fn the_end_of_the_stream_takes_what_is_not_whole_and_requests_behind_the_rest() {
        let mut queue = RnrQueue::default();
        request(&mut queue);
        send(&mut queue, b"whole");
        request(&mut queue);
        queue.end_of_stream();
        assert!(queue.len() == 2 && !queue.is_cut_off());
        queue.push_send(segment(9), None);
        queue.append(b"half").expect("room");
        request(&mut queue);
        queue.end_of_stream();
        assert!(queue.len() == 2 && queue.is_cut_off());
        // That it was is known for as long as the stream's end is under way.
        queue.drop_all();
        assert!(queue.is_cut_off());
        queue.clear();
        assert!(!queue.is_cut_off());
    }
}
