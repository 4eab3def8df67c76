//! A host that keeps what is written in order from the memory of FPDUs whose turn has not come: they stand behind it in
//! the stream, so they stay.

use alloc::vec::Vec;
use core::time::Duration;

use weft_iwarp::{AtomicOperation, Stag};

use super::targets::Targets;
use crate::host::{AtomicFault, Host, MemoryFault, RegionFault, Scope, Span};
use crate::types::{Access, AsyncEventKind, Bind, Completion};
use crate::wqe::RecvWqe;

/// The driver's host, for octets in order.
pub(super) struct Sparing<'a, H> {
    host: &'a mut H,
    targets: &'a Targets,
}

impl<'a, H> Sparing<'a, H> {
    pub(super) fn new(host: &'a mut H, targets: &'a Targets) -> Sparing<'a, H> {
        Sparing { host, targets }
    }
}

impl<H: Host> Host for Sparing<'_, H> {
    #[inline]
    fn write(&mut self, span: Span, octets: &[u8]) -> Result<(), MemoryFault> {
        if self.targets.is_empty() {
            return self.host.write(span, octets);
        }
        let mut from = 0;
        while let Some(run) = self.targets.next_free(span, from) {
            let part = span.skip(run.start).first(run.end - run.start);
            self.host
                .write(part, &octets[run.start as usize..run.end as usize])?;
            from = run.end;
        }
        Ok(())
    }

    fn now(&self) -> Duration {
        self.host.now()
    }

    #[inline]
    fn check(
        &self,
        stag: Stag,
        addr: u64,
        len: u32,
        access: Access,
        scope: Scope,
    ) -> Result<Span, RegionFault> {
        self.host.check(stag, addr, len, access, scope)
    }

    fn is_region(&self, stag: Stag) -> bool {
        self.host.is_region(stag)
    }

    fn read(&mut self, span: Span, out: &mut Vec<u8>) -> Result<(), MemoryFault> {
        self.host.read(span, out)
    }

    fn atomic(&mut self, span: Span, operation: &AtomicOperation) -> Result<u64, AtomicFault> {
        self.host.atomic(span, operation)
    }

    fn invalidate(&mut self, stag: Stag, scope: Scope) -> Result<(), RegionFault> {
        self.host.invalidate(stag, scope)
    }

    fn invalidate_for_peer(&mut self, stag: Stag, scope: Scope) -> Result<(), RegionFault> {
        self.host.invalidate_for_peer(stag, scope)
    }

    fn bind(&mut self, bind: &Bind, scope: Scope) -> Result<(), RegionFault> {
        self.host.bind(bind, scope)
    }

    fn polled_slots(&self) -> u64 {
        self.host.polled_slots()
    }

    fn complete_send(&mut self, completion: Completion) {
        self.host.complete_send(completion);
    }

    fn complete_recv(&mut self, completion: Completion) {
        self.host.complete_recv(completion);
    }

    fn take_shared_recv(&mut self) -> Option<RecvWqe> {
        self.host.take_shared_recv()
    }

    fn async_event(&mut self, kind: AsyncEventKind) {
        self.host.async_event(kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::{draws, Device, PD};
    use crate::types::WindowKind;

    #[test]
    fn it_tells_a_region_from_a_window_as_the_driver_does() {
        let mut device = Device::default();
        let region = device.region(8, 0, Access::LOCAL_WRITE, 0x100);
        let window = device
            .regions
            .insert_window(WindowKind::Two, PD, draws(0x300))
            .expect("a window");
        let targets = Targets::default();
        let host = Sparing::new(&mut device, &targets);
        assert!(host.is_region(region) && !host.is_region(window));
    }
}
