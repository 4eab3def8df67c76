//! A carrier's octets that leave by the adapter: the thread sends them, and makes room.

use std::sync::atomic::Ordering;
use std::time::Duration;

use weft_uoe::gather::GATHERED_OCTETS;

use super::{clock, Link, Outgoing, Outlet};
use crate::frames::Frames;
use crate::pause::Pause;

impl Link {
    /// Whether something waits for a flush. What leaves by the adapter waits for the thread alone.
    #[inline]
    pub(crate) fn is_to_be_flushed(&self) -> bool {
        self.waits() && !self.by_thread.load(Ordering::Relaxed)
    }

    /// Whether the thread is to be woken for what was put in.
    #[inline]
    pub(crate) fn is_for_thread(&self) -> bool {
        self.by_thread.load(Ordering::Relaxed) && self.has_news()
    }

    /// Sends what waits, if that is for the thread to do: `send` is given octets and the lengths of the frames in them,
    /// and says how many octets were taken, or nothing where none ever will be. By the thread.
    pub(crate) fn send_by_thread(
        &self,
        generation: u32,
        segment: usize,
        mut send: impl FnMut(&[u8], &Frames) -> Option<usize>,
    ) {
        self.has_news.store(false, Ordering::SeqCst);
        let Some(mut outgoing) = self.outgoing() else {
            return;
        };
        if outgoing.generation != generation {
            return;
        }
        let Outgoing { gather, outlet, .. } = &mut *outgoing;
        let (Some(to_send), Some(Outlet::Thread(frames))) = (&mut *gather, outlet) else {
            return;
        };
        frames.set_segment(segment);
        let (before, mut is_over) = (to_send.octets().len(), false);
        while !to_send.is_empty() {
            let Some(taken) = send(to_send.octets(), frames) else {
                is_over = true;
                break;
            };
            to_send.handle_taken(taken);
            frames.handle_taken(taken);
            if taken == 0 {
                break;
            }
        }
        let left = to_send.octets().len();
        if is_over {
            self.give_up(gather);
        }
        if is_over || left == 0 {
            self.waits.store(false, Ordering::Release);
        }
        if before == 0 || left < before {
            self.moved_at.store(clock(), Ordering::Relaxed);
        }
        // Who waits is not woken for each datagram, nor while it would wait for the lock.
        let has_room = is_over || left <= GATHERED_OCTETS / 2;
        drop(outgoing);
        if has_room {
            self.room.make();
        }
    }

    /// A sleep until there is room, `most` at the longest; `made` is of [`Put::Full`].
    pub(crate) fn pause(&'static self, made: u32, most: Duration) -> Pause {
        Pause::for_room(&self.room, made, most)
    }
}
