//! Completion queues.

use alloc::collections::VecDeque;

use crate::types::{Completion, QpNumber, WcStatus};

/// Which completion raises the next event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Armed {
    No,
    Solicited,
    Any,
}

/// What adding a completion led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pushed {
    /// A completion event is due on the queue's channel.
    pub notify: bool,
    /// The queue was full: the completion is lost and the queue is in error from here on.
    pub overflow: bool,
}

/// A completion queue: completions in order, and the arming of its event.
#[derive(Debug)]
pub struct CompletionQueue {
    entries: VecDeque<Completion>,
    capacity: u32,
    armed: Armed,
    overflowed: bool,
}

impl CompletionQueue {
    /// A queue for `capacity` completions.
    pub fn new(capacity: u32) -> CompletionQueue {
        CompletionQueue {
            entries: VecDeque::with_capacity(capacity.min(512) as usize),
            capacity,
            armed: Armed::No,
            overflowed: false,
        }
    }

    /// Adds a completion.
    #[inline]
    pub fn push(&mut self, completion: Completion) -> Pushed {
        if self.entries.len() >= self.capacity as usize {
            let first = !self.overflowed;
            self.overflowed = true;
            return Pushed {
                notify: false,
                overflow: first,
            };
        }
        let wanted = match self.armed {
            Armed::No => false,
            Armed::Any => true,
            Armed::Solicited => completion.solicited || completion.status != WcStatus::Success,
        };
        self.entries.push_back(completion);
        if wanted {
            self.armed = Armed::No;
        }
        Pushed {
            notify: wanted,
            overflow: false,
        }
    }

    /// Takes the oldest completion.
    #[inline]
    pub fn pop(&mut self) -> Option<Completion> {
        self.entries.pop_front()
    }

    /// Whether completions were lost.
    pub fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Whether the next completion, or the next solicited one, is to raise an event.
    pub fn is_armed(&self) -> bool {
        self.armed != Armed::No
    }

    /// Asks for one event on the next completion, or the next solicited or failed one. Arming
    /// for any completion is not weakened by a later arming for solicited ones.
    pub fn arm(&mut self, solicited_only: bool) {
        self.armed = match (self.armed, solicited_only) {
            (Armed::Any, _) | (_, false) => Armed::Any,
            (_, true) => Armed::Solicited,
        };
    }

    /// Completions waiting.
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Completions the queue holds at most.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Changes the capacity; false when more completions wait than that.
    pub fn resize(&mut self, capacity: u32) -> bool {
        let fits = self.entries.len() <= capacity as usize;
        if fits {
            self.capacity = capacity;
        }
        fits
    }

    /// Drops the completions of a queue pair that is destroyed.
    pub fn forget(&mut self, qp: QpNumber) {
        self.entries.retain(|c| c.qp != qp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::WcOpcode;

    fn completion(status: WcStatus, solicited: bool) -> Completion {
        Completion {
            wr_id: 1,
            status,
            opcode: WcOpcode::Recv,
            byte_len: 0,
            qp: QpNumber(7),
            slots: 0,
            invalidated: None,
            imm: None,
            solicited,
            source: None,
        }
    }

    #[test]
    fn armed_for_solicited_passes_over_plain_completions() {
        let mut cq = CompletionQueue::new(8);
        cq.arm(true);
        assert!(!cq.push(completion(WcStatus::Success, false)).notify);
        assert!(cq.push(completion(WcStatus::Success, true)).notify);
        assert!(
            !cq.push(completion(WcStatus::Success, true)).notify,
            "one event an arming"
        );
        cq.arm(true);
        assert!(
            cq.push(completion(WcStatus::Flushed, false)).notify,
            "errors count as solicited"
        );
    }

    #[test]
    fn arming_for_any_is_not_weakened() {
        let mut cq = CompletionQueue::new(8);
        cq.arm(false);
        cq.arm(true);
        assert!(cq.push(completion(WcStatus::Success, false)).notify);
    }

    #[test]
    fn overflow_is_reported_once_and_loses_nothing_that_was_there() {
        let mut cq = CompletionQueue::new(1);
        assert_eq!(
            cq.push(completion(WcStatus::Success, false)),
            Pushed::default()
        );
        assert!(!cq.overflowed());
        assert!(cq.push(completion(WcStatus::Success, false)).overflow);
        assert!(!cq.push(completion(WcStatus::Success, false)).overflow);
        assert!(cq.overflowed());
        assert_eq!(cq.len(), 1);
    }

    #[test]
    fn the_capacity_may_shrink_to_what_waits_and_no_further() {
        let mut cq = CompletionQueue::new(4);
        assert!(cq.is_empty());
        cq.push(completion(WcStatus::Success, false));
        cq.push(completion(WcStatus::Success, false));
        assert!(!cq.is_empty());
        assert!(!cq.resize(1));
        assert_eq!(cq.capacity(), 4, "as before");
        assert!(cq.resize(2));
        assert!(cq.push(completion(WcStatus::Success, false)).overflow);
    }

    #[test]
    fn a_destroyed_queue_pair_leaves_no_completion() {
        let mut cq = CompletionQueue::new(4);
        cq.push(completion(WcStatus::Success, false));
        cq.forget(QpNumber(8));
        assert_eq!(cq.len(), 1);
        cq.forget(QpNumber(7));
        assert!(cq.pop().is_none());
    }
}
