//! Ids: made, ended, moved between channels; and the wait of synchronous ones.

use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use libc::{c_int, c_void};
use weft_engine::cm::{EventKind, Id};
use weft_engine::settings::Face;

use super::devices::shared;
use super::{address, channel};
use crate::device;
use crate::entry::{invalid, status, unsupported, Errno, Outcome};
use crate::event_references::{self, lock, Acks};
use crate::handle::{Handle, Object};
use crate::layout::numbers::*;
use crate::layout::{ibv_qp_init_attr, rdma_cm_event, rdma_cm_id, rdma_event_channel};
use crate::query::PORT;
use crate::unsupported::in_words;

/// An id.
pub struct CmId {
    /// The engine's side of it.
    pub engine: Arc<Id>,
    number: u64,
    acks: Arc<Acks>,
    state: Mutex<State>,
}

/// What of an id is neither public nor the engine's.
pub struct State {
    /// Calls on it wait for their event, on a channel of its own.
    pub synchronous: bool,
    /// The queue pair that the engine's id has because it stood on this one, by address; 0 is none.
    pub shown_qp: usize,
    /// For a listener: what queue pairs of connect requests are made with.
    pub qp_init: Option<ibv_qp_init_attr>,
    /// What the peer asked for in its connect request, or what was used to connect.
    pub responder_resources: u8,
    /// The same for the other direction.
    pub initiator_depth: u8,
    /// The connection's end was reported.
    pub ended: bool,
}

impl Object for CmId {
    type Public = rdma_cm_id;
    type Pointee = rdma_cm_id;
    const MAGIC: u32 = 0x6964_3030;
}

impl CmId {
    /// The guarded part.
    pub fn state(&self) -> std::sync::MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// An id of ours behind an address that may be null.
///
/// # Safety
/// `id` is null or an id of ours that stays for `'a`.
pub unsafe fn of<'a>(id: *mut rdma_cm_id) -> Outcome<&'a Handle<CmId>> {
    // SAFETY: the caller promises: `id` is null or an id of ours that stays for `'a`.
    unsafe { Handle::of(id) }
}

impl Handle<CmId> {
    /// Binds the id to the device that has its local address, for programs to see.
    pub fn bind_to_device(&self) -> Outcome<()> {
        let local = self.engine.local_addr().map(|local| local.ip());
        let (context, pd) = shared(device::for_address(local)?)?;
        let id = self.public();
        // SAFETY: a live id; these fields are ours to write until the program has the event or
        // the call's result that tells of them.
        unsafe {
            if (*id).verbs.is_null() {
                (*id).verbs = context;
                (*id).port_num = PORT;
            }
            if (*id).pd.is_null() {
                (*id).pd = pd;
            }
        }
        Ok(())
    }

    /// Copies the engine's idea of both ends to where programs look.
    pub fn refresh_addresses(&self) {
        let addr = self.addresses();
        // SAFETY: a live id; see `bind_to_device`.
        unsafe {
            if let Some(local) = self.engine.local_addr() {
                (*addr).src_addr = address::storage(local);
            }
            if let Some(peer) = self.engine.peer_addr() {
                (*addr).dst_addr = address::storage(peer);
            }
        }
    }

    /// Where the two ends' addresses are.
    pub fn addresses(&self) -> *mut crate::layout::rdma_addr {
        // SAFETY: the address of a field of a live id.
        unsafe { &raw mut (*self.public()).route.addr }
    }
}

/// What kind of id.
#[derive(Clone, Copy)]
pub struct Kind {
    /// `RDMA_PS_*`.
    pub port_space: c_int,
    /// `IBV_QPT_*`.
    pub qp_type: c_int,
}

/// Puts an engine's id where C can hold it. Without a channel it gets one of its own, and its calls
/// wait.
///
/// # Safety
/// `channel` is null or a channel of ours.
pub unsafe fn wrap(
    engine: Arc<Id>,
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    kind: Kind,
) -> Outcome<*mut rdma_cm_id> {
    let synchronous = channel.is_null();
    let channel = if synchronous {
        channel::create()?
    } else {
        channel
    };
    // SAFETY: the caller promises: `channel` is null or a channel of ours, or just made.
    engine.migrate(Some(&unsafe { channel::of(channel)?.engine.get()? }));
    let number = event_references::new_number();
    engine.set_cookie(number);
    // SAFETY: numbers and addresses, for which zero is a value.
    let mut public: rdma_cm_id = unsafe { zeroed() };
    public.channel = channel;
    public.context = context;
    public.ps = kind.port_space;
    public.qp_type = kind.qp_type;
    let acks = Arc::default();
    let private = CmId {
        engine,
        number,
        acks: Arc::clone(&acks),
        state: Mutex::new(State {
            synchronous,
            shown_qp: 0,
            qp_init: None,
            responder_resources: 0,
            initiator_depth: 0,
            ended: false,
        }),
    };
    let id = Handle::create(public, private);
    event_references::enter(number, id as usize, &acks);
    Ok(id)
}

/// Makes an id. A null channel makes it synchronous.
///
/// # Errors
/// `EOPNOTSUPP`: another port space than TCP's or UDP's, another queue pair type than goes with it, or datagrams on a
/// device with iWARP's face; `EINVAL`: no port space at all; `ENODEV`: Weft is off.
///
/// # Safety
/// `channel` is null or a channel of ours.
pub unsafe fn create(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    kind: Kind,
) -> Outcome<*mut rdma_cm_id> {
    device::claim()?;
    let face = Face::of_process();
    let engine = match (i64::from(kind.port_space), i64::from(kind.qp_type)) {
        (RDMA_PS_TCP, IBV_QPT_RC) => Id::new(None, 0)?,
        (RDMA_PS_UDP, IBV_QPT_UD) if face == Face::Infiniband => Id::for_datagrams(None, 0)?,
        (RDMA_PS_TCP | RDMA_PS_UDP, _) => return unsupported(),
        (RDMA_PS_IPOIB | RDMA_PS_IB, _) => {
            static SAID: AtomicBool = AtomicBool::new(false);
            return in_words(
                &SAID,
                "rdma_create_id: the port spaces RDMA_PS_IB and RDMA_PS_IPOIB are not served, as there is no InfiniBand \
                 behind the device: give it RDMA_PS_TCP or RDMA_PS_UDP",
            );
        }
        _ => return invalid(),
    };
    // SAFETY: the caller promises: `channel` is null or a channel of ours.
    unsafe { wrap(engine, channel, context, kind) }
}

/// Ends an id, after its events were acknowledged.
///
/// # Safety
/// `id` is an id of ours or null, and given up unless this fails.
pub unsafe fn destroy(id: *mut rdma_cm_id) -> Outcome<()> {
    // SAFETY: the caller promises: `id` is an id of ours or null, and given up unless this fails.
    unsafe {
        let handle = of(id)?;
        let moved = handle.state().shown_qp != (*id).qp as usize;
        if moved {
            // It is another id's now, and its connection goes on.
            handle.engine.detach_qp();
        }
        handle.engine.destroy();
        drop_event(handle);
        event_references::leave(handle.number);
        let own_channel = handle.state().synchronous.then_some((*id).channel);
        Handle::<CmId>::release(id);
        if let Some(channel) = own_channel {
            channel::destroy(channel);
        }
    }
    Ok(())
}

/// Acknowledges the event that a synchronous id shows.
///
/// # Safety
/// Only one thread calls on the id, as librdmacm asks.
pub unsafe fn drop_event(id: &Handle<CmId>) {
    // SAFETY: a live id; the event, if any, is one that was got and not acknowledged.
    unsafe {
        let event: *mut rdma_cm_event = (*id.public()).event;
        if !event.is_null() {
            (*id.public()).event = null_mut();
            channel::acknowledge(event);
        }
    }
}

/// On a synchronous id, waits for the event of the call that was just made, and shows it.
///
/// # Errors
/// What the event reports.
///
/// # Safety
/// As for [`drop_event`].
pub unsafe fn complete(id: &Handle<CmId>) -> Outcome<()> {
    if !id.state().synchronous {
        return Ok(());
    }
    // SAFETY: the caller promises: what `drop_event` asks for; the channel is the id's own.
    unsafe {
        drop_event(id);
        let event = channel::next(channel::of((*id.public()).channel)?)?;
        (*id.public()).event = event;
        match ((*event).event, (*event).status) {
            (_, 0) => Ok(()),
            (kind, _) if i64::from(kind) == RDMA_CM_EVENT_REJECTED => {
                Err(Errno(libc::ECONNREFUSED))
            }
            (_, status) => Err(Errno(status.abs())),
        }
    }
}

/// Moves an id to another channel, or to one of its own when `channel` is null.
///
/// # Safety
/// `id` and `channel` are null or of ours; nobody else calls on the id.
pub unsafe fn migrate(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> Outcome<()> {
    // SAFETY: the caller promises: `id` and `channel` are null or of ours; nobody else calls on the id.
    unsafe {
        let handle = of(id)?;
        let was_synchronous = handle.state().synchronous;
        if was_synchronous && channel.is_null() {
            return invalid();
        }
        let synchronous = channel.is_null();
        let target = if synchronous {
            channel::create()?
        } else {
            channel
        };
        handle
            .engine
            .migrate(Some(&channel::of(target)?.engine.get()?));
        if was_synchronous {
            drop_event(handle);
        }
        // Events got from the old channel come back before the id is seen on the new one.
        handle.acks.wait();
        if was_synchronous {
            channel::destroy((*id).channel);
        }
        (*id).channel = target;
        handle.state().synchronous = synchronous;
    }
    Ok(())
}

impl Handle<CmId> {
    /// Takes note of an event before the program sees it.
    pub fn note(&self, kind: EventKind) -> Outcome<()> {
        match kind {
            EventKind::AddrResolved => {
                self.bind_to_device()?;
                self.refresh_addresses();
            }
            EventKind::Established => self.refresh_addresses(),
            EventKind::Disconnected => self.state().ended = true,
            _ => {}
        }
        Ok(())
    }
}

export! {
    /// `rdma_create_id(3)`. A null `channel` makes a synchronous id.
    fn rdma_create_id(
        channel: *mut rdma_event_channel,
        id: *mut *mut rdma_cm_id,
        context: *mut c_void,
        port_space: c_int,
    ) -> c_int {
        status(|| {
            if id.is_null() {
                return invalid();
            }
            let qp_type = match i64::from(port_space) {
                RDMA_PS_UDP | RDMA_PS_IPOIB => IBV_QPT_UD,
                _ => IBV_QPT_RC,
            };
            let kind = Kind { port_space, qp_type: qp_type as c_int };
            // SAFETY: a channel of ours or null; the program gave the address for the answer.
            unsafe { *id = create(channel, context, kind)? };
            Ok(())
        })
    }

    /// `rdma_destroy_id(3)`; waits for unacknowledged events.
    fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
        // SAFETY: an id of ours or null; the program gives it up.
        status(|| unsafe { destroy(id) })
    }

    /// `rdma_migrate_id(3)`; waits for unacknowledged events.
    fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int {
        // SAFETY: objects of ours or null.
        status(|| unsafe { migrate(id, channel) })
    }

    /// `rdma_get_src_port(3)`: in network byte order; 0 for null and unbound ids.
    fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
        if id.is_null() {
            return 0;
        }
        // SAFETY: an id of ours.
        unsafe { address::port(&raw const (*id).route.addr.src_addr) }
    }

    /// `rdma_get_dst_port(3)`: in network byte order; 0 for null and ids without a peer.
    fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
        if id.is_null() {
            return 0;
        }
        // SAFETY: an id of ours.
        unsafe { address::port(&raw const (*id).route.addr.dst_addr) }
    }
}
