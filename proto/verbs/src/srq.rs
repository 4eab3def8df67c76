//! Shared receive queues.

use alloc::collections::VecDeque;

use crate::types::{PostError, RecvRequest};
use crate::wqe::RecvWqe;

/// A receive queue that several queue pairs take from, with a low-water mark.
#[derive(Debug)]
pub struct SharedReceiveQueue {
    wqes: VecDeque<RecvWqe>,
    depth: u32,
    max_sge: u32,
    /// 0 when not armed: no queue is below that.
    limit: u32,
}

impl SharedReceiveQueue {
    /// A queue for `depth` receives of at most `max_sge` elements.
    pub fn new(depth: u32, max_sge: u32) -> SharedReceiveQueue {
        SharedReceiveQueue {
            wqes: VecDeque::new(),
            depth,
            max_sge,
            limit: 0,
        }
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// The queue is full, or the scatter list is longer than the queue was made for.
    pub fn push(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        if self.wqes.len() >= self.depth as usize {
            return Err(PostError::QueueFull);
        }
        RecvWqe::push(&mut self.wqes, request, self.max_sge)?;
        Ok(())
    }

    /// Takes the oldest receive. The second value is true when this take brought the queue
    /// below its limit: the limit event is due, and the limit is disarmed until set again.
    pub fn pop(&mut self) -> (Option<RecvWqe>, bool) {
        let wqe = self.wqes.pop_front();
        let reached = (self.wqes.len() as u64) < u64::from(self.limit);
        if reached {
            self.limit = 0;
        }
        (wqe, reached)
    }

    /// Arms the limit event: raised once when fewer than `limit` receives remain. 0 disarms.
    /// True when it is due at once.
    pub fn arm(&mut self, limit: u32) -> bool {
        let due = (self.wqes.len() as u64) < u64::from(limit);
        self.limit = if due { 0 } else { limit };
        due
    }

    /// The armed limit, 0 when none.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Receives the queue holds at most.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Elements a receive may have at most.
    pub fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// Changes the depth.
    ///
    /// # Errors
    /// More receives are posted than the new depth holds.
    pub fn resize(&mut self, depth: u32) -> Result<(), PostError> {
        if self.wqes.len() > depth as usize {
            return Err(PostError::TooLarge);
        }
        self.depth = depth;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue_with(n: u64) -> SharedReceiveQueue {
        let mut srq = SharedReceiveQueue::new(8, 1);
        for wr_id in 0..n {
            srq.push(&RecvRequest {
                wr_id,
                scatter: &[],
            })
            .unwrap();
        }
        srq
    }

    #[test]
    fn the_limit_event_comes_once_and_only_below_the_limit() {
        let mut srq = queue_with(4);
        assert!(!srq.arm(3));
        assert!(!srq.pop().1, "three remain: not below three");
        assert!(srq.pop().1, "two remain");
        assert!(!srq.pop().1, "disarmed after the event");
        assert!(srq.arm(5), "already below when armed");
        assert_eq!(srq.limit(), 0);
    }

    #[test]
    fn as_many_receives_as_the_limit_are_enough() {
        let mut srq = queue_with(3);
        assert!(!srq.arm(3));
        assert!(srq.pop().1);
        assert!(!srq.arm(0), "disarmed");
        assert!(!srq.pop().1);
    }

    #[test]
    fn a_full_queue_takes_no_more() {
        let mut srq = queue_with(8);
        let full = srq.push(&RecvRequest {
            wr_id: 9,
            scatter: &[],
        });
        assert_eq!(full, Err(PostError::QueueFull));
        assert_eq!(srq.resize(7), Err(PostError::TooLarge));
        assert_eq!(srq.resize(8), Ok(()));
        assert_eq!(srq.resize(16), Ok(()));
    }
}
