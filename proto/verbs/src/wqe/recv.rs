//! Posted receives, and the queue that a queue pair has of its own.

use alloc::collections::VecDeque;

use crate::types::{octets_of, PostError, QpCap, RecvRequest, SgList};

/// A posted receive.
#[derive(Clone, Debug)]
pub struct RecvWqe {
    /// The program's identifier.
    pub wr_id: u64,
    /// Where the message goes.
    pub scatter: SgList,
    /// Sum of the scatter list, in octets.
    pub capacity: u64,
}

impl RecvWqe {
    /// What is put into a queue and filled.
    const VACANT: RecvWqe = RecvWqe {
        wr_id: 0,
        scatter: SgList::EMPTY,
        capacity: 0,
    };

    /// Checks a request and copies it to the end of a queue.
    ///
    /// # Errors
    /// [`PostError::TooLarge`] with more than `max_sge` elements.
    #[inline]
    pub(crate) fn push(
        queue: &mut VecDeque<RecvWqe>,
        request: &RecvRequest<'_>,
        max_sge: u32,
    ) -> Result<(), PostError> {
        if request.scatter.len() > max_sge as usize {
            return Err(PostError::TooLarge);
        }
        queue.push_back(RecvWqe::VACANT);
        if let Some(wqe) = queue.back_mut() {
            wqe.wr_id = request.wr_id;
            wqe.scatter.fill(request.scatter);
            wqe.capacity = octets_of(request.scatter);
        }
        Ok(())
    }
}

/// A queue pair's own receive queue.
#[derive(Debug)]
pub(crate) struct RecvQueue {
    wqes: VecDeque<RecvWqe>,
    depth: u32,
    max_sge: u32,
}

impl RecvQueue {
    pub(crate) fn new(cap: &QpCap) -> RecvQueue {
        RecvQueue {
            wqes: VecDeque::new(),
            depth: cap.max_recv_wr,
            max_sge: cap.max_recv_sge,
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        if self.wqes.len() >= self.depth as usize {
            return Err(PostError::QueueFull);
        }
        RecvWqe::push(&mut self.wqes, request, self.max_sge)
    }

    /// A receive that was taken and not used is the next one again.
    pub(crate) fn put_back(&mut self, wqe: RecvWqe) {
        self.wqes.push_front(wqe);
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<RecvWqe> {
        self.wqes.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Sge;

    #[test]
    fn a_receive_queue_is_bounded_and_its_scatter_lists_are() {
        let mut queue = RecvQueue::new(&QpCap {
            max_send_wr: 2,
            max_recv_wr: 2,
            max_send_sge: 3,
            max_recv_sge: 3,
            max_inline_data: 4,
        });
        let list = [Sge::default(); 4];
        let mut push = |n| {
            let scatter = &list[..n];
            queue.push(&RecvRequest { wr_id: 1, scatter })
        };
        assert_eq!(push(4), Err(PostError::TooLarge));
        assert_eq!(push(3), Ok(()));
        assert_eq!(push(3), Ok(()));
        assert_eq!(push(3), Err(PostError::QueueFull));
    }
}
