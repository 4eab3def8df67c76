//! Sends gathered datagrams that no later send takes along: when they have waited long enough, before the program
//! waits, and before their socket changes or goes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use weft_os::dgram;
use weft_os::lock::Guard;
use weft_udp_offload::Offload;

use super::outgoing::Socket;
use super::record::{Outgoing, Record};
use super::Datagrams;
use crate::Errno;

/// A batch that is younger than this share of a tick is left to its program: that of one which sends so many that its
/// batches fill in less. To send it would take the socket's lock from the program for the length of a call, and a batch
/// that is not full costs the kernel as much as a full one.
const YOUNG_SHARE: u32 = 4;
/// More batches than these that left since the last look are a flood: the program fills one after the other.
const FLOOD_SENDS: u64 = 4;
/// Ticks between two looks during a flood. Each look takes a core from the program, in a virtual machine for 15 µs;
/// adapters moderate their interrupts in bulk likewise. A socket that begins to gather meanwhile waits as long, too.
const FLOOD_TICKS: u32 = 4;

impl Datagrams {
    /// Sends what waits, but for what has begun to wait just now.
    pub(super) fn flush_aged(&self) {
        let now = dgram::now();
        if let Some(offload) = self.offload {
            offload.flush_aged(|since| self.is_young(now, since));
        }
        for record in self.waiting.iter().filter_map(|number| self.record(number)) {
            if !self.is_young(now, record.gathers_since.load(Ordering::Relaxed)) {
                self.flush_record(record);
            }
        }
    }

    /// When somebody has to look at what waits again, if it is not after a tick.
    pub(super) fn next_look(&self) -> Option<Duration> {
        let (now, tick) = (dgram::now(), self.flusher.tick());
        let emptied = self.offload.map_or(0, Offload::emptied);
        let sends = emptied + self.counts.sends.load(Ordering::Relaxed);
        let before = self.looked_at_sends.swap(sends, Ordering::Relaxed);
        let left = sends.saturating_sub(before);
        // Who has filled one batch after the other fills this one as soon.
        let is_flood = left > FLOOD_SENDS;
        let records = self.waiting.iter().filter_map(|number| self.record(number));
        let gather = records.map(|record| record.gathers_since.load(Ordering::Relaxed));
        let carried = self.offload.into_iter().flat_map(Offload::waiting_since);
        let looks = gather.chain(carried).map(|since| {
            let age = Duration::from_nanos(now.saturating_sub(since));
            match is_flood && self.is_young(now, since) {
                true => tick * FLOOD_TICKS,
                // What the socket does not take has been due for long.
                false => tick.checked_sub(age).unwrap_or(tick),
            }
        });
        looks.min()
    }

    /// Whether a batch that began to gather then is to be left to its program.
    fn is_young(&self, now: u64, since: u64) -> bool {
        let age = Duration::from_nanos(now.saturating_sub(since));
        age < self.flusher.tick() / YOUNG_SHARE
    }

    /// Sends what waits in `record`, as far as the kernel takes it at once.
    pub fn flush_record(&self, record: &'static Record) {
        if !self.waiting.contains(record.number) {
            return;
        }
        if let Some(mut tx) = record.outgoing() {
            self.flush_locked(record, &mut tx);
        }
    }

    fn flush_locked(&self, record: &'static Record, tx: &mut Guard<'_, Outgoing>) {
        let fd = record.tx_fd.load(Ordering::Relaxed);
        let mut wire = Socket::new(self, fd, libc::MSG_DONTWAIT);
        // What the socket does not take now waits for the next call or the next tick.
        let _ = tx.sender.flush(&mut wire);
        if tx.sender.is_empty() {
            self.waiting.remove(record.number);
        }
    }

    /// Sends what waits in `record` before its socket goes away; waits a while for room.
    pub(super) fn flush_for_good(&self, record: &'static Record) {
        const TRIES: usize = 10;
        const WAIT_MS: i32 = 100;
        if !self.waiting.contains(record.number) {
            return;
        }
        let Some(mut tx) = record.outgoing() else {
            return;
        };
        for _ in 0..TRIES {
            self.flush_locked(record, &mut tx);
            if tx.sender.is_empty() {
                return;
            }
            let fd = record.tx_fd.load(Ordering::Relaxed);
            dgram::ready(fd, libc::POLLOUT, WAIT_MS);
        }
        tx.sender.abandon();
        self.waiting.remove(record.number);
    }

    /// The socket is shut down: sends fail from now on, and the kernel says how.
    pub fn shutting_down(&self, record: &'static Record) {
        self.flush_record(record);
        record.is_shut.store(true, Ordering::Release);
        record.tx_off.store(true, Ordering::Release);
    }

    /// The socket is about to be connected elsewhere.
    pub fn connecting(&self, record: &'static Record) {
        self.flush_record(record);
        self.offload_anew(record);
        if let Some(mut tx) = record.outgoing() {
            tx.sender.forget_path();
            tx.forget_destinations();
        }
    }

    /// The error that `SO_ERROR` is to give before the kernel's own.
    pub fn take_error(&self, record: &'static Record) -> Option<Errno> {
        self.flush_record(record);
        if let Some(errno) = record.port.take_pending() {
            return Some(errno);
        }
        record.outgoing()?.sender.take_pending()
    }
}
