//! Asynchronous events of queue pairs and queues.

use std::sync::Arc;

use libc::c_int;
use weft_engine::types::AsyncEventKind;
use weft_engine::AsyncObject;

use crate::completion::Queue;
use crate::context::Context;
use crate::entry::{invalid, status, value, Outcome};
use crate::event_references;
use crate::handle::Handle;
use crate::layout::numbers::*;
use crate::layout::{ibv_async_event, ibv_context};
use crate::queue_pair::Pair;
use crate::srq::Srq;

fn number(kind: AsyncEventKind) -> i64 {
    match kind {
        AsyncEventKind::CqError => IBV_EVENT_CQ_ERR,
        AsyncEventKind::QpFatal => IBV_EVENT_QP_FATAL,
        AsyncEventKind::QpRequestError => IBV_EVENT_QP_REQ_ERR,
        AsyncEventKind::QpAccessError => IBV_EVENT_QP_ACCESS_ERR,
        AsyncEventKind::CommEstablished => IBV_EVENT_COMM_EST,
        AsyncEventKind::SqDrained => IBV_EVENT_SQ_DRAINED,
        AsyncEventKind::SrqLimitReached => IBV_EVENT_SRQ_LIMIT_REACHED,
        AsyncEventKind::QpLastWqeReached => IBV_EVENT_QP_LAST_WQE_REACHED,
    }
}

/// The next event whose object is alive. Waits on the engine's context, not on the program's, which may be closed while
/// a thread waits.
fn next(context: &Handle<Context>) -> Outcome<ibv_async_event> {
    let context = Arc::clone(&context.engine);
    loop {
        let event = context.get_async_event()?;
        let (AsyncObject::Cq(object) | AsyncObject::Qp(object) | AsyncObject::Srq(object)) =
            event.object;
        if let Some(entry) = event_references::hand_out(object) {
            return Ok(ibv_async_event {
                element: entry.address,
                event_type: number(event.kind) as c_int,
            });
        }
    }
}

/// Acknowledges an event at the object it names.
///
/// # Safety
/// `event` came from `ibv_get_async_event`.
unsafe fn acknowledge(event: ibv_async_event) -> Outcome<()> {
    // SAFETY: the object is alive while the event is not acknowledged.
    unsafe {
        match i64::from(event.event_type) {
            IBV_EVENT_CQ_ERR => Handle::<Queue>::of(event.element as *mut _)?.acknowledge(1),
            IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => {
                Handle::<Srq>::of(event.element as *mut _)?.acknowledge();
            }
            IBV_EVENT_QP_FATAL..=IBV_EVENT_SQ_DRAINED | IBV_EVENT_QP_LAST_WQE_REACHED => {
                Handle::<Pair>::of(event.element as *mut _)?.acknowledge();
            }
            // Events of ports and of the device as a whole name no object.
            _ => {}
        }
    }
    Ok(())
}

export! {
    /// `ibv_get_async_event(3)`: blocks unless the context's descriptor is non-blocking.
    fn ibv_get_async_event(
        context: *mut ibv_context,
        event: *mut ibv_async_event,
    ) -> c_int, of context(context) {
        status(|| {
            // SAFETY: a context of ours, or null.
            let context = unsafe { Handle::<Context>::of(context)? };
            if event.is_null() {
                return invalid();
            }
            // SAFETY: the program gave the address for the answer.
            unsafe { *event = next(context)? };
            Ok(())
        })
    }

    /// `ibv_ack_async_event(3)`.
    fn ibv_ack_async_event(event: *mut ibv_async_event), of event(event) {
        value((), || {
            if event.is_null() {
                return invalid();
            }
            // SAFETY: the program's event.
            unsafe { acknowledge(*event) }
        })
    }
}
