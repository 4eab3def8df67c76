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
#[repr(C)]
#[derive(Debug, FromBytes)]
pub(super) struct Sending {
    cores: [SendingCore; 2],
    current: u32,
    /// Octets that the socket surely takes whole.
    pub(super) surely: u32,
    /// Octets of its segments, as they were when that was asked, where they are short; else 0.
    pub(super) segment: u32,
    /// Octets that the socket had taken when counting began, and whether it has.
    pub(super) base: u32,
    pub(super) is_counted: u32,
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
#[repr(C)]
#[derive(Debug, FromBytes)]
pub(super) struct Receiving {
    cores: [ReceivingCore; 2],
    current: u32,
    /// Octets that make the socket readable, as it was last told; 0 for what it has from the start.
    pub(super) mark: u32,
    /// Something was taken since, and the socket is to be told anew.
    pub(super) mark_is_due: u32,
    /// As of [`Sending`]: what the socket had given.
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

/// A direction, of which a core is kept twice: the one that holds, and the one that is being written.
pub(super) trait Direction: FromBytes {
    type Core: Copy;

    fn core(&self) -> &Self::Core;

    /// From now on it is this.
    fn set_core(&mut self, core: &Self::Core);
}

macro_rules! directions {
    ($($direction:ident: $core:ident),*) => {
        $(
            impl Direction for $direction {
                type Core = $core;

                #[inline]
                fn core(&self) -> &$core {
                    &self.cores[(self.current & 1) as usize]
                }

                #[inline]
                fn set_core(&mut self, core: &$core) {
                    let next = (self.current & 1) ^ 1;
                    self.cores[next as usize] = *core;
                    // Who dies before this has changed nothing.
                    compiler_fence(Ordering::SeqCst);
                    self.current = next;
                    compiler_fence(Ordering::SeqCst);
                }
            }
        )*
    };
}

directions!(Sending: SendingCore, Receiving: ReceivingCore);

/// A direction that is held: what is changed of its core counts from the next [`Held::commit`] on, or when it is let
/// go.
#[derive(Debug)]
pub(super) struct Held<'a, D: Direction> {
    direction: Holding<'a, D>,
    now: D::Core,
    /// `now` may differ from what the direction has.
    is_changed: bool,
}

impl<'a, D: Direction> Held<'a, D> {
    #[inline]
    pub(super) fn new(direction: Holding<'a, D>) -> Held<'a, D> {
        Held {
            now: *direction.core(),
            direction,
            is_changed: false,
        }
    }

    /// What was changed holds, whatever becomes of this thread. To be called before a call of the system that carries
    /// octets: the kernel's counts then tell what became of that.
    #[inline]
    pub(super) fn commit(&mut self) {
        // What is beside the core counts from here on, too.
        compiler_fence(Ordering::SeqCst);
        if std::mem::take(&mut self.is_changed) {
            self.direction.set_core(&self.now);
        }
    }

    /// The core, and what is beside it.
    #[inline]
    pub(super) fn split(&mut self) -> (&mut D::Core, &mut D) {
        self.is_changed = true;
        (&mut self.now, &mut self.direction)
    }

    /// What is beside the core.
    #[inline]
    pub(super) fn beside(&mut self) -> &mut D {
        &mut self.direction
    }
}

impl<D: Direction> Deref for Held<'_, D> {
    type Target = D::Core;

    #[inline]
    fn deref(&self) -> &D::Core {
        &self.now
    }
}

impl<D: Direction> DerefMut for Held<'_, D> {
    #[inline]
    fn deref_mut(&mut self) -> &mut D::Core {
        self.is_changed = true;
        &mut self.now
    }
}

impl<D: Direction> Drop for Held<'_, D> {
    #[inline]
    fn drop(&mut self) {
        self.commit();
    }
}

impl Held<'_, Receiving> {
    /// A call is about to take what begins with these spans.
    #[inline]
    pub(super) fn begin_to_take(&mut self, spans: Spans) {
        self.direction.spans = spans;
        self.direction.takes_unseen = 0;
        self.commit();
    }

    /// A call is about to take what nobody has looked at, all of it to the scratch.
    #[inline]
    pub(super) fn begin_to_take_unseen(&mut self) {
        self.direction.takes_unseen = 1;
        self.commit();
    }
}

impl Held<'_, Sending> {
    /// So many octets of the socket carry so many of the stream.
    #[inline]
    pub(super) fn count(&mut self, stream: usize, wire: usize) {
        self.is_changed = true;
        self.now.wire = self.now.wire.wrapping_add(wire as u32);
        self.direction.marks.add(stream, wire);
    }

    /// So many carry none.
    #[inline]
    pub(super) fn count_framing(&mut self, wire: usize) {
        self.is_changed = true;
        self.now.wire = self.now.wire.wrapping_add(wire as u32);
        self.direction.marks.add_framing(wire);
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
