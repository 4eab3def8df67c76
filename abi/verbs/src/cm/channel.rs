//! Event channels, and events on their way through the program.

use std::mem::zeroed;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use libc::c_int;
use weft_engine::cm::{Event, EventChannel, EventKind, UdPeer};
use weft_engine::types::QpState;

use super::id::{self, Kind};
use crate::ah;
use crate::context;
use crate::device;
use crate::entry::{invalid, pointer, status, Outcome};
use crate::event_references::{self, Acks, Entry};
use crate::handle::{Handle, Object, Side};
use crate::layout::numbers::*;
use crate::layout::{
    ibv_context, rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel, rdma_ud_param,
};

/// An event channel.
pub struct Channel {
    /// The engine's side of it.
    pub engine: Side<EventChannel>,
}

impl Object for Channel {
    type Public = rdma_event_channel;
    type Pointee = rdma_event_channel;
    const MAGIC: u32 = 0x6563_3030;
}

/// An event that the program holds.
pub struct Held {
    acks: Arc<Acks>,
    /// What the public part points to.
    _private_data: Vec<u8>,
}

impl Object for Held {
    type Public = rdma_cm_event;
    type Pointee = rdma_cm_event;
    const MAGIC: u32 = 0x6576_3030;
}

/// Makes an event channel.
///
/// # Errors
/// What the engine says, and those of [`device::claim`].
pub fn create() -> Outcome<*mut rdma_event_channel> {
    device::claim()?;
    let engine = EventChannel::new()?;
    let fd = engine.fd();
    Ok(Handle::create(
        rdma_event_channel { fd },
        Channel {
            engine: Side::new(engine),
        },
    ))
}

/// A channel of ours behind an address that may be null.
///
/// # Safety
/// `channel` is null or a channel of ours that stays for `'a`.
pub unsafe fn of<'a>(channel: *mut rdma_event_channel) -> Outcome<&'a Handle<Channel>> {
    // SAFETY: the caller promises: `channel` is null or a channel of ours that stays for `'a`.
    unsafe { Handle::of(channel) }
}

/// Ends an event channel.
///
/// # Safety
/// `channel` is a channel of ours and given up.
pub unsafe fn destroy(channel: *mut rdma_event_channel) {
    // SAFETY: the caller promises: `channel` is a channel of ours and given up.
    unsafe {
        if let Ok(ending) = of(channel) {
            ending.engine.let_go();
            Handle::<Channel>::retire(channel);
        }
    }
}

/// The next event whose id is alive. Waits on the engine's channel, not on the program's: some programs destroy theirs
/// while a thread waits, which then waits for good.
pub fn next(channel: &Handle<Channel>) -> Outcome<*mut rdma_cm_event> {
    let channel = channel.engine.get()?;
    loop {
        let event = channel.get_event()?;
        let of_request = event.kind == EventKind::ConnectRequest;
        // A connect request is the listener's event until the program answers it.
        let owner = match &event.listener {
            Some(listener) if of_request => listener,
            _ => &event.id,
        };
        let Some(owner) = event_references::hand_out(owner.cookie()) else {
            if of_request {
                event.id.destroy();
            }
            continue;
        };
        let acks = Arc::clone(&owner.acks);
        // SAFETY: the owner stays alive while the event is out.
        match unsafe { show(event, &owner) } {
            Ok(shown) => return Ok(shown),
            Err(errno) => {
                acks.acknowledge(1);
                return Err(errno);
            }
        }
    }
}

/// Makes what the program sees of an event.
///
/// # Safety
/// `owner` is the entry of a live id.
unsafe fn show(event: Event, owner: &Entry) -> Outcome<*mut rdma_cm_event> {
    let owner_id = owner.address as *mut rdma_cm_id;
    let (id, listen_id) = match event.kind {
        EventKind::ConnectRequest => {
            // SAFETY: the caller promises: `owner` is the entry of a live id.
            let new = unsafe { new_id(&event, owner_id) };
            let new = new.inspect_err(|_| event.id.destroy())?;
            (new, owner_id)
        }
        _ => (owner_id, null_mut()),
    };
    // SAFETY: a live id.
    let handle = unsafe { id::of(id)? };
    handle.note(event.kind)?;
    if event.kind == EventKind::Rejected {
        // Receives posted for a connection that will not be come back flushed.
        if let Some(qp) = event.id.qp() {
            let _ = qp.modify_state(QpState::Error);
        }
    }
    let mut private_data = event.private_data;
    private_data.truncate(usize::from(u8::MAX));
    // SAFETY: numbers and addresses, for which zero is a value.
    let mut public: rdma_cm_event = unsafe { zeroed() };
    public.id = id;
    public.listen_id = listen_id;
    public.event = number(event.kind) as c_int;
    public.status = event.status;
    let address = match private_data.as_slice() {
        [] => null(),
        data => data.as_ptr().cast(),
    };
    if event.id.is_for_datagrams() {
        // SAFETY: a live id's own field.
        let context = unsafe { (*id).verbs };
        let ud = ud_param(context, event.datagrams.as_ref()).unwrap_or_else(|errno| {
            // The way there went while the answer came.
            public.event = RDMA_CM_EVENT_ADDR_ERROR as c_int;
            public.status = -errno.0;
            no_ud_param()
        });
        public.param.ud = rdma_ud_param {
            private_data: address,
            private_data_len: private_data.len() as u8,
            ..ud
        };
    } else {
        public.param.conn = rdma_conn_param {
            private_data: address,
            private_data_len: private_data.len() as u8,
            responder_resources: event.responder_resources,
            initiator_depth: event.initiator_depth,
            flow_control: 0,
            retry_count: 0,
            rnr_retry_count: 0,
            srq: 0,
            qp_num: 0,
        };
    }
    let held = Held {
        acks: Arc::clone(&owner.acks),
        _private_data: private_data,
    };
    Ok(Handle::create(public, held))
}

fn no_ud_param() -> rdma_ud_param {
    // SAFETY: numbers and an address, for which zero is a value.
    unsafe { zeroed() }
}

/// How datagrams reach whoever serves them, for an event that tells of somebody.
///
/// # Errors
/// `EINVAL`: this end's address is no longer the machine's.
fn ud_param(context: *mut ibv_context, peer: Option<&UdPeer>) -> Outcome<rdma_ud_param> {
    let mut ud = no_ud_param();
    if let Some(peer) = peer {
        // SAFETY: the context of a live id, which stays open, or null.
        let device = unsafe { context::device_of(context)? };
        ud.ah_attr = ah::path(device, peer.local, peer.peer)?;
        ud.ah_attr.grh.traffic_class = peer.tos;
        ud.qp_num = peer.number;
        ud.qkey = peer.qkey;
    }
    Ok(ud)
}

/// The id of a connect request, as the listener's child.
///
/// # Safety
/// `listener` is a live id of ours.
unsafe fn new_id(event: &Event, listener: *mut rdma_cm_id) -> Outcome<*mut rdma_cm_id> {
    // SAFETY: the caller promises: `listener` is a live id of ours; the channel outlives the listener.
    unsafe {
        let kind = Kind {
            port_space: (*listener).ps,
            qp_type: (*listener).qp_type,
        };
        let channel = if id::of(listener)?.state().synchronous {
            null_mut()
        } else {
            (*listener).channel
        };
        let new = id::wrap(event.id.clone(), channel, (*listener).context, kind)?;
        let handle = id::of(new)?;
        handle.bind_to_device()?;
        handle.refresh_addresses();
        let mut state = handle.state();
        state.responder_resources = event.responder_resources;
        state.initiator_depth = event.initiator_depth;
        Ok(new)
    }
}

fn number(kind: EventKind) -> i64 {
    match kind {
        EventKind::AddrResolved => RDMA_CM_EVENT_ADDR_RESOLVED,
        EventKind::AddrError => RDMA_CM_EVENT_ADDR_ERROR,
        EventKind::RouteResolved => RDMA_CM_EVENT_ROUTE_RESOLVED,
        EventKind::RouteError => RDMA_CM_EVENT_ROUTE_ERROR,
        EventKind::ConnectRequest => RDMA_CM_EVENT_CONNECT_REQUEST,
        EventKind::ConnectError => RDMA_CM_EVENT_CONNECT_ERROR,
        EventKind::Unreachable => RDMA_CM_EVENT_UNREACHABLE,
        EventKind::Rejected => RDMA_CM_EVENT_REJECTED,
        EventKind::Established => RDMA_CM_EVENT_ESTABLISHED,
        EventKind::Disconnected => RDMA_CM_EVENT_DISCONNECTED,
    }
}

/// Takes an event back from the program.
///
/// # Safety
/// `event` came from [`next`] and is given up.
pub unsafe fn acknowledge(event: *mut rdma_cm_event) {
    // SAFETY: the caller promises: `event` came from [`next`] and is given up.
    let held = unsafe { Handle::<Held>::release(event) };
    held.acks.acknowledge(1);
}

export! {
    /// `rdma_create_event_channel(3)`.
    fn rdma_create_event_channel() -> *mut rdma_event_channel {
        pointer(create)
    }

    /// `rdma_destroy_event_channel(3)`.
    fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
        let _ = status(|| {
            // SAFETY: a channel of ours or null; the program gives it up.
            unsafe {
                of(channel)?;
                destroy(channel);
            }
            Ok(())
        });
    }

    /// `rdma_get_cm_event(3)`: blocks unless the channel's descriptor is non-blocking.
    fn rdma_get_cm_event(
        channel: *mut rdma_event_channel,
        event: *mut *mut rdma_cm_event,
    ) -> c_int {
        status(|| {
            if event.is_null() {
                return invalid();
            }
            weft_engine::hold_while_leaving();
            // SAFETY: a channel of ours or null; the program gave the address for the answer.
            unsafe { *event = next(of(channel)?)? };
            Ok(())
        })
    }

    /// `rdma_ack_cm_event(3)`.
    fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
        status(|| {
            // SAFETY: an event of ours or null; the program gives it up.
            unsafe {
                Handle::<Held>::of(event)?;
                acknowledge(event);
            }
            Ok(())
        })
    }
}
