//! A device's memory as one queue pair reaches it, with a judge: whatever is read or written has to have been granted.

use std::time::Duration;

use weft_verbs::cq::CompletionQueue;
use weft_verbs::host::{AtomicFault, Host, MemoryFault, RegionFault, Scope, Span};
use weft_verbs::iwarp::AtomicOperation;
use weft_verbs::simulated::Device;
use weft_verbs::types::{Access, AsyncEventKind, Bind, Completion, Stag};
use weft_verbs::wqe::RecvWqe;

/// The address that every region is registered under.
pub const BASE: u64 = 1 << 20;

/// What a range may be used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// The device reads it: a send's source.
    Source,
    /// The device writes it: a receive's or a Read's target.
    Sink,
    /// The peer reads, writes and works on it.
    Peer,
    /// The peer reads it.
    PeerReads,
    /// The peer writes it.
    PeerWrites,
    /// The peer works on it atomically.
    PeerWorks,
}

impl Use {
    /// Whether what it is granted for changes it.
    pub fn changes(self) -> bool {
        !matches!(self, Use::Source | Use::PeerReads)
    }
}

/// A range that may be used, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    pub stag: Stag,
    pub offset: u64,
    pub len: u64,
    pub what: Use,
    /// The work request with which it ends; `None` for what ends with its region.
    pub wr_id: Option<u64>,
}

/// Every range that may be used at the moment.
#[derive(Default)]
pub struct Grants {
    pub list: Vec<Grant>,
    /// Rights that the queue pair itself does not give its peer, whatever its memory does.
    pub withheld: Access,
    /// What windows were bound to, in order.
    pub bound: Vec<Bind>,
    /// What was ever opened to the peer, and so may be invalidated by it.
    pub opened: Vec<Stag>,
    /// What the program itself ever asked to be invalidated.
    pub given_up: Vec<Stag>,
}

impl Grants {
    /// Whether a grant is of use to who has only this queue pair.
    pub fn holds(&self, grant: &Grant) -> bool {
        let right = match grant.what {
            Use::Source | Use::Sink | Use::Peer => return true,
            Use::PeerReads => Access::REMOTE_READ,
            Use::PeerWrites => Access::REMOTE_WRITE,
            Use::PeerWorks => Access::REMOTE_ATOMIC,
        };
        !self.withheld.contains(right)
    }

    fn allows(&self, span: Span, what: &[Use]) -> bool {
        self.list.iter().any(|grant| {
            grant.stag == span.stag
                && self.holds(grant)
                && what.contains(&grant.what)
                && grant.offset <= span.offset
                && span.offset + u64::from(span.len) <= grant.offset + grant.len
        })
    }

    /// What a region or window of `len` octets lets the peer do.
    pub fn grant_to_the_peer(&mut self, stag: Stag, len: u64, access: Access) {
        let rights = [
            (Access::REMOTE_READ, Use::PeerReads),
            (Access::REMOTE_WRITE, Use::PeerWrites),
            (Access::REMOTE_ATOMIC, Use::PeerWorks),
        ];
        if rights.iter().any(|(right, _)| access.contains(*right)) {
            self.opened.push(stag);
        }
        for (_, what) in rights.iter().filter(|(right, _)| access.contains(*right)) {
            self.list.push(Grant {
                stag,
                offset: 0,
                len,
                what: *what,
                wr_id: None,
            });
        }
    }

    pub fn end_with(&mut self, wr_id: u64) {
        self.list.retain(|grant| grant.wr_id != Some(wr_id));
    }

    pub fn end_of_region(&mut self, stag: Stag) {
        self.list.retain(|grant| grant.stag != stag);
    }
}

/// Memory, completion queue and judge of one device, for one of its queue pairs.
pub struct Port<'a> {
    pub device: &'a mut Device,
    pub cq: &'a mut CompletionQueue,
    /// Of the queue pair.
    pub grants: &'a mut Grants,
    /// Of the shared receive queue.
    pub shared: &'a mut Grants,
    /// Places in the send queue whose completions were polled.
    pub polled: u64,
    pub now: Duration,
}

impl Port<'_> {
    fn judge(&self, span: Span, what: &[Use]) {
        let allowed =
            span.len == 0 || self.grants.allows(span, what) || self.shared.allows(span, what);
        assert!(allowed, "{span:?} was not granted as {what:?}");
    }

    /// The octets of a span that the transport takes straight from memory.
    pub fn octets_to_send(&self, span: Span) -> Option<&[u8]> {
        let octets = self.device.octets_of(span)?;
        self.judge(span, &[Use::Source, Use::Peer, Use::PeerReads]);
        Some(octets)
    }
}

impl Host for Port<'_> {
    fn now(&self) -> Duration {
        self.now
    }

    fn check(
        &self,
        stag: Stag,
        addr: u64,
        len: u32,
        access: Access,
        scope: Scope,
    ) -> Result<Span, RegionFault> {
        self.device.check(stag, addr, len, access, scope)
    }

    fn is_region(&self, stag: Stag) -> bool {
        self.device.is_region(stag)
    }

    fn read(&mut self, span: Span, out: &mut Vec<u8>) -> Result<(), MemoryFault> {
        self.device.read(span, out)?;
        self.judge(span, &[Use::Source, Use::Peer, Use::PeerReads]);
        Ok(())
    }

    fn write(&mut self, span: Span, octets: &[u8]) -> Result<(), MemoryFault> {
        self.device.write(span, octets)?;
        self.judge(span, &[Use::Sink, Use::Peer, Use::PeerWrites]);
        Ok(())
    }

    fn atomic(&mut self, span: Span, operation: &AtomicOperation) -> Result<u64, AtomicFault> {
        let original = self.device.atomic(span, operation)?;
        self.judge(span, &[Use::Peer, Use::PeerWorks]);
        Ok(original)
    }

    fn invalidate(&mut self, stag: Stag, scope: Scope) -> Result<(), RegionFault> {
        self.device.invalidate(stag, scope)?;
        let wanted = self.grants.given_up.contains(&stag) || self.grants.opened.contains(&stag);
        assert!(
            wanted,
            "{stag:?} was invalidated: the program did not ask for it, and the peer was never given it"
        );
        self.grants.end_of_region(stag);
        Ok(())
    }

    fn invalidate_for_peer(&mut self, stag: Stag, scope: Scope) -> Result<(), RegionFault> {
        self.device.invalidate_for_peer(stag, scope)?;
        let opened = self.grants.opened.contains(&stag);
        assert!(
            opened,
            "the peer invalidated {stag:?}, which was never opened to it"
        );
        self.grants.end_of_region(stag);
        Ok(())
    }

    fn bind(&mut self, bind: &Bind, scope: Scope) -> Result<(), RegionFault> {
        self.device.bind(bind, scope)?;
        // By whichever key it had before.
        let same = |grant: &Grant| grant.stag.index() == bind.rkey.index();
        self.grants.list.retain(|grant| !same(grant));
        self.grants
            .grant_to_the_peer(bind.rkey, bind.len, bind.access);
        self.grants.bound.push(*bind);
        self.grants.opened.push(bind.rkey);
        Ok(())
    }

    fn polled_slots(&self) -> u64 {
        self.polled
    }

    fn complete_send(&mut self, completion: Completion) {
        self.grants.end_with(completion.wr_id);
        let pushed = self.cq.push(completion);
        assert!(
            !pushed.overflow,
            "the completion queue has room for everything"
        );
    }

    fn complete_recv(&mut self, completion: Completion) {
        self.grants.end_with(completion.wr_id);
        self.shared.end_with(completion.wr_id);
        let pushed = self.cq.push(completion);
        assert!(
            !pushed.overflow,
            "the completion queue has room for everything"
        );
    }

    fn take_shared_recv(&mut self) -> Option<RecvWqe> {
        self.device.take_shared_recv()
    }

    fn async_event(&mut self, kind: AsyncEventKind) {
        self.device.async_event(kind);
    }
}
