//! What a connection knows of its two directions, whole whenever a process that holds one is killed.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{compiler_fence, Ordering};

use weft_os::shared::Holding;
use weft_stream::connection_data::TARGETS;
use weft_stream::{Receiver, Sender, Target};
use zerocopy::FromBytes;

use super::counting::Marks;
use super::spans::{Spans, FRAMING_MAX};

/// How far the end of the sending direction is.
pub(super) mod shut_down {
    /// The program has not ended it.
    pub const OPEN: u32 = 0;
    /// It has, and the socket's direction is to end once the rest has gone.
    pub const WANTED: u32 = 1;
    /// The socket's has ended.
    pub const DONE: u32 = 2;
    /// The peer is told, and the socket's stays as it is.
    pub const TOLD: u32 = 3;
    /// The same, of the end of both directions.
    pub const TOLD_OF_BOTH: u32 = 4;
}

/// What the sending direction knows, that has to be whole whenever its holder dies.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes)]
pub(super) struct SendingCore {
    pub(super) sender: Sender,
    /// What is in `rest`: from here on, so many octets.
    pub(super) rest_at: u32,
    pub(super) rest_len: u32,
    /// Octets of the stream that wait in `rest` for the Reply.
    pub(super) early: u32,
    /// How far the end of this direction is, one of [`shut_down`].
    pub(super) shut_down: u32,
    /// Octets of the stream that the call under way was planned for; 0 where it sends the rest, or there is none.
    pub(super) planned: u32,
    /// Octets of the socket since counting began, those of the rest among them.
    pub(super) wire: u32,
    reserved: [u32; 2],
}

/// The sending direction.
pub(super) type Sending = Direction<SendingCore, BesideSending>;

/// What the sending direction has that need not be whole.
#[repr(C)]
#[derive(Debug, FromBytes)]
pub(super) struct BesideSending {
    /// Octets that the socket surely takes whole.
    pub(super) surely: u32,
    /// Octets of its segments, as they were when that was asked, where they are short; else 0.
    pub(super) segment: u32,
    /// Octets that the socket had taken when counting began, and whether it has.
    pub(super) base: u32,
    pub(super) is_counted: u32,
    reserved: u32,
    pub(super) marks: Marks,
}

/// What the receiving direction knows, likewise.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes)]
pub(super) struct ReceivingCore {
    pub(super) receiver: Receiver,
    /// What it was told for the sending direction, and could not pass on yet.
    pub(super) told: Told,
    /// Octets that were taken since counting began.
    pub(super) taken: u32,
    /// Up to which octet what is none of the stream's was acted on, counted likewise.
    pub(super) acted_to: u32,
    /// Up to which octet somebody has looked past those of the stream, likewise.
    pub(super) looked_to: u32,
    /// The peer asked, and sends an FPDU that says it is ready.
    pub(super) awaits_first: u32,
}

/// The receiving direction.
pub(super) type Receiving = Direction<ReceivingCore, BesideReceiving>;

/// What the receiving direction has that need not be whole.
#[repr(C)]
#[derive(Debug, FromBytes)]
pub(super) struct BesideReceiving {
    /// Octets that make the socket readable, as it was last told; 0 for what it has from the start.
    pub(super) mark: u32,
    /// Something was taken since, and the socket is to be told anew.
    pub(super) mark_is_due: u32,
    /// As of [`BesideSending`]: what the socket had given.
    pub(super) base: u32,
    pub(super) is_counted: u32,
    /// What this end said of itself: numbers of its memory.
    pub(super) own: Numbers,
    /// What the call under way takes, and where its framing goes.
    pub(super) spans: Spans,
    /// The call takes octets that nobody has looked at, all of them to where framing goes.
    pub(super) takes_unseen: u32,
    pub(super) scratch: [u8; FRAMING_MAX],
}

/// A direction, of which a core is kept twice: the one that holds, and the one that is being changed.
#[repr(C)]
#[derive(Debug, FromBytes)]
pub(super) struct Direction<C, B> {
    cores: [C; 2],
    /// Which of them holds.
    current: u32,
    padding: u32,
    beside: B,
}

/// A direction that is held: what is changed of its core counts from the next [`Held::commit`] on, or when it is let
/// go.
#[derive(Debug)]
pub(super) struct Held<'a, C: Copy, B> {
    direction: Holding<'a, Direction<C, B>>,
    /// The core as it is now: another than the one that holds, where it was changed.
    now: usize,
    is_changed: bool,
}

/// The sending direction, held.
pub(super) type HeldSending<'a> = Held<'a, SendingCore, BesideSending>;
/// The receiving direction, held.
pub(super) type HeldReceiving<'a> = Held<'a, ReceivingCore, BesideReceiving>;

impl<'a, C: Copy, B> Held<'a, C, B> {
    #[inline]
    pub(super) fn new(direction: Holding<'a, Direction<C, B>>) -> Held<'a, C, B> {
        Held {
            now: (direction.current & 1) as usize,
            direction,
            is_changed: false,
        }
    }

    /// What was changed holds, whatever becomes of this thread. To be called before a call of the system that carries
    /// octets, and before it is noted what that call is to do: the kernel's counts then tell what became of it.
    #[inline]
    pub(super) fn commit(&mut self) {
        // Who dies before this has changed nothing of the core.
        compiler_fence(Ordering::SeqCst);
        if std::mem::take(&mut self.is_changed) {
            self.direction.current = self.now as u32;
            compiler_fence(Ordering::SeqCst);
        }
    }

    /// The core, to be changed, and what is beside it.
    #[inline]
    pub(super) fn split(&mut self) -> (&mut C, &mut B) {
        if !self.is_changed {
            self.begin_to_change();
        }
        let direction = &mut *self.direction;
        (&mut direction.cores[self.now & 1], &mut direction.beside)
    }

    /// From now on the other core is the one that is changed; it begins as the one that holds.
    fn begin_to_change(&mut self) {
        let (holds, other) = (self.now & 1, self.now & 1 ^ 1);
        self.direction.cores[other] = self.direction.cores[holds];
        (self.now, self.is_changed) = (other, true);
    }

    /// What is beside the core.
    #[inline]
    pub(super) fn beside(&mut self) -> &mut B {
        &mut self.direction.beside
    }
}

impl<C: Copy, B> Deref for Held<'_, C, B> {
    type Target = C;

    #[inline]
    fn deref(&self) -> &C {
        &self.direction.cores[self.now & 1]
    }
}

impl<C: Copy, B> DerefMut for Held<'_, C, B> {
    #[inline]
    fn deref_mut(&mut self) -> &mut C {
        self.split().0
    }
}

impl<C: Copy, B> Drop for Held<'_, C, B> {
    #[inline]
    fn drop(&mut self) {
        self.commit();
    }
}

impl HeldReceiving<'_> {
    /// A call is about to take what begins with these spans.
    #[inline]
    pub(super) fn begin_to_take(&mut self, spans: Spans) {
        // First: the spans that stand there are of the call before, and go with what it has taken until that counts.
        self.commit();
        self.beside().spans = spans;
        self.beside().takes_unseen = 0;
        compiler_fence(Ordering::SeqCst);
    }

    /// A call is about to take what nobody has looked at, all of it to the scratch.
    #[inline]
    pub(super) fn begin_to_take_unseen(&mut self) {
        self.commit();
        self.beside().takes_unseen = 1;
        compiler_fence(Ordering::SeqCst);
    }
}

impl HeldSending<'_> {
    /// So many octets of the socket carry so many of the stream.
    #[inline]
    pub(super) fn count(&mut self, stream: usize, wire: usize) {
        let (core, beside) = self.split();
        core.wire = core.wire.wrapping_add(wire as u32);
        beside.marks.add(stream, wire);
    }

    /// So many carry none.
    #[inline]
    pub(super) fn count_framing(&mut self, wire: usize) {
        let (core, beside) = self.split();
        core.wire = core.wire.wrapping_add(wire as u32);
        beside.marks.add_framing(wire);
    }
}

/// What a peer says that concerns this end's sending.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes)]
pub(super) struct Told {
    pub(super) targets: [Target; TARGETS],
    /// A Read Request for nothing, to be answered, where `len` is 1.
    pub(super) read: Target,
    /// Which of the targets, a bit each.
    pub(super) which: u32,
    /// Credit up to this message, and a bit above its 16 that says so.
    pub(super) limit: u32,
}

impl Told {
    /// Whether it was told anything.
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        self.limit > 0 || self.which != 0 || self.read.len > 0
    }
}

/// Numbers for memory that a peer may write to.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes)]
pub(super) struct Numbers {
    pub(super) to: u64,
    pub(super) list_to: u64,
    pub(super) stag: u32,
    pub(super) list_stag: u32,
}
