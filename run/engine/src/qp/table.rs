//! The process's queue pairs, by number.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use weft_verbs::types::QpNumber;

use super::Qp;

/// Keeps none of them alive.
#[derive(Debug, Default)]
pub(super) struct Table {
    queue_pairs: Mutex<HashMap<u32, Weak<Qp>>>,
}

impl Table {
    pub(super) fn insert(&self, qp: &Arc<Qp>) {
        let mut queue_pairs = self.queue_pairs.lock();
        queue_pairs.insert(qp.number(), Arc::downgrade(qp));
    }

    pub(super) fn remove(&self, number: QpNumber) {
        self.queue_pairs.lock().remove(&number.0);
    }

    pub(super) fn get(&self, number: u32) -> Option<Arc<Qp>> {
        self.queue_pairs.lock().get(&number)?.upgrade()
    }

    /// All of them; none where the table cannot be had within `timeout`.
    pub(super) fn living(&self, timeout: Duration) -> Vec<Arc<Qp>> {
        let queue_pairs = self.queue_pairs.try_lock_for(timeout);
        queue_pairs.map_or_else(Vec::new, |all| {
            all.values().filter_map(Weak::upgrade).collect()
        })
    }
}
