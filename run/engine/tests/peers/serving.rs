//! A program that serves honest ends and strangers alike.

use std::sync::Arc;

use weft_engine::cm::{ConnParam, EventChannel, EventKind};

use crate::end::End;

/// A program that accepts whoever comes, and gives each end whose connection is over to `over`.
pub fn serve(events: &EventChannel, over: impl Fn(End)) {
    let mut ends: Vec<End> = Vec::new();
    loop {
        let event = events.get_event().unwrap();
        let known = ends.iter().position(|end| Arc::ptr_eq(&end.id, &event.id));
        match (event.kind, known) {
            (EventKind::ConnectRequest, _) => {
                let end = End::new(event.id, 4096);
                match end.id.accept(ConnParam::default()) {
                    Ok(()) => ends.push(end),
                    Err(_) => end.close(),
                }
            }
            (EventKind::Disconnected | EventKind::ConnectError, Some(known)) => {
                over(ends.remove(known));
            }
            _ => {}
        }
    }
}
