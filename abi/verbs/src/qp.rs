//! Queue pairs: made, changed, asked, ended. What a change of state comes to the engine decides
//! ([`weft_engine::QpModifier`]).

use std::mem::zeroed;
use std::sync::{Arc, Mutex};

use libc::{c_int, c_void};
use weft_engine::settings::Face;
use weft_engine::types::{QpCap, QpState};
use weft_engine::{QpAttrMask, QpInit, QpModifier, QpType};

use crate::attributes;
use crate::completion;
use crate::context;
use crate::entry::{code, invalid, pointer, unsupported, value, Outcome};
use crate::event_references::{self, lock};
use crate::handle::Handle;
use crate::layout::numbers::*;
use crate::layout::{
    ibv_context, ibv_ece, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr,
    ibv_qp_init_attr_ex,
};
use crate::memory::Pd;
use crate::query::PORT;
use crate::queue_pair::{Engine, Pair, Set};
use crate::request_builder::Builder;
use crate::srq::Srq;
use crate::wr;

/// Makes a queue pair, and writes the sizes it got into `init`. With `extended` it is one for
/// `ibv_wr_*`.
///
/// # Safety
/// `pd` and the objects that `init` names are ours or null.
pub unsafe fn create(
    pd: *mut ibv_pd,
    init: &mut ibv_qp_init_attr,
    extended: bool,
) -> Outcome<*mut ibv_qp> {
    // SAFETY: the caller promises: `pd` and the objects that `init` names are ours or null.
    let domain = unsafe { Handle::<Pd>::of(pd)? };
    let kind = i64::from(init.qp_type);
    // iWARP has reliable connections only (RFC 5040).
    let kinds: &[i64] = match Face::of_process() {
        Face::Infiniband => &[IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD],
        Face::Iwarp => &[IBV_QPT_RC],
    };
    if !kinds.contains(&kind) {
        return unsupported();
    }
    let srq = if init.srq.is_null() {
        None
    } else {
        // SAFETY: the caller promises: `pd` and the objects that `init` names are ours or null.
        Some(Arc::clone(&unsafe { Handle::<Srq>::of(init.srq)? }.engine))
    };
    let number = event_references::new_number();
    let kind_engine = match kind {
        IBV_QPT_RC => QpType::Rc,
        IBV_QPT_UC => QpType::Uc,
        _ => QpType::Ud,
    };
    let init_engine = QpInit {
        // SAFETY: the caller promises: `pd` and the objects that `init` names are ours or null.
        send_cq: unsafe { completion::engine_of(init.send_cq)? },
        // SAFETY: the caller promises: `pd` and the objects that `init` names are ours or null.
        recv_cq: unsafe { completion::engine_of(init.recv_cq)? },
        srq,
        cap: QpCap {
            max_send_wr: init.cap.max_send_wr,
            max_recv_wr: init.cap.max_recv_wr,
            max_send_sge: init.cap.max_send_sge,
            max_recv_sge: init.cap.max_recv_sge,
            max_inline_data: init.cap.max_inline_data,
        },
        sq_sig_all: init.sq_sig_all != 0,
        cookie: number,
    };
    // SAFETY: the caller promises: `pd` and the objects that `init` names are ours or null. Each begins with its
    // context's address.
    let context_of = |object: *mut c_void| unsafe { *object.cast::<*mut ibv_context>() };
    let named: [*mut c_void; 3] = [init.send_cq.cast(), init.recv_cq.cast(), init.srq.cast()];
    let of_another =
        |object: &*mut c_void| !object.is_null() && context_of(*object) != context_of(pd.cast());
    if named.iter().any(of_another) {
        // An RNIC's driver finds no such object in the context of the domain.
        return invalid();
    }
    let engine = match kind {
        IBV_QPT_UD => Engine::Datagrams(domain.engine.create_ud_qp(init_engine)?),
        _ => Engine::Connected(domain.engine.create_qp(init_engine)?),
    };
    if let (IBV_QPT_UC, Engine::Connected(qp)) = (kind, &engine) {
        qp.set_unreliable();
    }
    init.cap = cap(&engine);
    let qp_num = engine.number();
    // SAFETY: numbers, addresses, and a mutex and a condition whose initial value is zero.
    let mut whole: ibv_qp_ex = unsafe { zeroed() };
    if extended {
        wr::fill(&mut whole);
    }
    let public = &mut whole.qp_base;
    // SAFETY: a live domain's own field.
    public.context = unsafe { (*domain.public()).context };
    public.qp_context = init.qp_context;
    public.pd = pd;
    public.send_cq = init.send_cq;
    public.recv_cq = init.recv_cq;
    public.srq = init.srq;
    public.handle = qp_num;
    public.qp_num = qp_num;
    public.state = IBV_QPS_RESET as c_int;
    public.qp_type = init.qp_type;
    let acks = Arc::default();
    let private = Pair {
        engine,
        shared_receives: !init.srq.is_null(),
        number,
        acks: Arc::clone(&acks),
        set: Mutex::new(Set {
            modifier: QpModifier::new(kind_engine),
            attr: fresh_attributes(),
        }),
        init: *init,
        building: extended.then(Builder::default),
    };
    let qp = Handle::create(whole, private);
    event_references::enter(number, qp as usize, &acks);
    Ok(qp)
}

fn cap(engine: &Engine) -> ibv_qp_cap {
    let cap = engine.cap();
    ibv_qp_cap {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

/// Behind the inline `ibv_create_qp_ex(3)`, which itself takes the plain case to `ibv_create_qp`.
pub unsafe extern "C" fn create_qp_ex(
    _context: *mut ibv_context,
    init: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the program's structure.
    pointer(|| unsafe { create_extended(init) })
}

/// Makes a queue pair from extended attributes.
///
/// # Safety
/// `init` and the objects it names are null or valid.
pub unsafe fn create_extended(init: *mut ibv_qp_init_attr_ex) -> Outcome<*mut ibv_qp> {
    if init.is_null() {
        return invalid();
    }
    // SAFETY: the program's structure, which nobody else uses during the call.
    let (mask, flags, pd) = unsafe { ((*init).comp_mask, (*init).create_flags, (*init).pd) };
    // SAFETY: as above.
    let operations = unsafe { (*init).send_ops_flags };
    let mask = i64::from(mask);
    if mask & IBV_QP_INIT_ATTR_PD == 0 {
        return invalid();
    }
    let known =
        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    let flagged = mask & IBV_QP_INIT_ATTR_CREATE_FLAGS != 0 && flags != 0;
    let extended = mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0;
    // SAFETY: as above.
    let served = match i64::from(unsafe { (*init).qp_type }) {
        IBV_QPT_UD => wr::SERVED_BY_DATAGRAMS,
        _ => wr::SERVED,
    };
    let unserved = extended && operations & !served != 0;
    if mask & !known != 0 || flagged || unserved {
        return unsupported();
    }
    // SAFETY: as above; the extended structure begins with the plain one.
    unsafe { create(pd, &mut *init.cast::<ibv_qp_init_attr>(), extended) }
}

/// Ends a queue pair, after its events were acknowledged.
///
/// # Safety
/// `qp` is a queue pair of ours or null, and given up unless this fails.
pub unsafe fn destroy(qp: *mut ibv_qp) -> Outcome<()> {
    // SAFETY: the caller promises: `qp` is a queue pair of ours or null, and given up unless this fails.
    unsafe {
        let pair = Handle::<Pair>::of(qp)?;
        pair.engine.destroy();
        event_references::leave(pair.number);
        Handle::<Pair>::retire(qp);
    }
    Ok(())
}

/// Changes attributes; nothing is changed if anything is wrong.
///
/// # Safety
/// `qp` and `attr` are null or valid.
pub unsafe fn modify(qp: *mut ibv_qp, attr: *const ibv_qp_attr, mask: i64) -> Outcome<()> {
    // SAFETY: the caller promises: `qp` and `attr` are null or valid.
    let pair = unsafe { Handle::<Pair>::of(qp)? };
    let named = u32::try_from(mask).ok().and_then(QpAttrMask::from_bits);
    let (false, Some(named)) = (attr.is_null(), named) else {
        return invalid();
    };
    let mut set = lock(&pair.set);
    let mut wanted = set.attr;
    // SAFETY: the caller promises: `qp` and `attr` are null or valid.
    unsafe { attributes::take_over(&mut wanted, attr, mask) };
    // SAFETY: a live queue pair's own field.
    let device = unsafe { context::device_of((*pair.base()).context)? };
    let changed = attributes::of_engine(device, &wanted, named)?;
    match &pair.engine {
        Engine::Connected(qp) => set.modifier.modify(qp, &changed)?,
        Engine::Datagrams(qp) => set.modifier.modify_datagrams(qp, &changed)?,
    }
    if named.contains(QpAttrMask::STATE) {
        // SAFETY: a live queue pair; libibverbs keeps this field too.
        unsafe { (*pair.base()).state = wanted.qp_state };
        if changed.state == QpState::Reset {
            wanted = fresh_attributes();
        }
    }
    set.attr = wanted;
    Ok(())
}

/// The attributes of a queue pair that nobody has changed yet.
fn fresh_attributes() -> ibv_qp_attr {
    // SAFETY: numbers, for which zero is a value.
    let mut attr: ibv_qp_attr = unsafe { zeroed() };
    attr.path_mtu = IBV_MTU_4096 as c_int;
    attr.path_mig_state = IBV_MIG_MIGRATED as c_int;
    attr.port_num = PORT;
    attr.ah_attr.port_num = PORT;
    attr
}

/// Answers everything, whatever the mask asks for, as the man page allows.
///
/// # Safety
/// `qp` is null or a queue pair of ours; the others are null or may be written.
unsafe fn query(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    init: *mut ibv_qp_init_attr,
) -> Outcome<()> {
    // SAFETY: the caller promises: `qp` is null or a queue pair of ours; the others are null or may be written.
    let pair = unsafe { Handle::<Pair>::of(qp)? };
    if attr.is_null() || init.is_null() {
        return invalid();
    }
    let state = attributes::state_number(pair.engine.state()) as c_int;
    let mut answer = lock(&pair.set).attr;
    answer.qp_state = state;
    answer.cur_qp_state = state;
    answer.cap = cap(&pair.engine);
    answer.sq_draining = match &pair.engine {
        Engine::Connected(qp) => qp.is_draining().into(),
        Engine::Datagrams(_) => 0,
    };
    // SAFETY: the caller promises: `qp` is null or a queue pair of ours; the others are null or may be written;
    // libibverbs keeps the state in the queue pair too.
    unsafe {
        *attr = answer;
        *init = pair.init;
        (*init).cap = answer.cap;
        (*pair.base()).state = state;
    }
    Ok(())
}

export! {
    /// `ibv_create_qp(3)`.
    fn ibv_create_qp(
        pd: *mut ibv_pd,
        init: *mut ibv_qp_init_attr,
    ) -> *mut ibv_qp, of object(pd) {
        pointer(|| {
            if init.is_null() {
                return invalid();
            }
            // SAFETY: objects of ours or null; the program's structure, which nobody else uses
            // during the call.
            unsafe { create(pd, &mut *init, false) }
        })
    }

    /// `ibv_modify_qp(3)`.
    fn ibv_modify_qp(
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        mask: c_int,
    ) -> c_int, of object(qp) {
        // SAFETY: a queue pair of ours or null, and the program's structure.
        code(|| unsafe { modify(qp, attr, mask.into()) })
    }

    /// `ibv_query_qp(3)`.
    fn ibv_query_qp(
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        _mask: c_int,
        init: *mut ibv_qp_init_attr,
    ) -> c_int, of object(qp) {
        // SAFETY: a queue pair of ours or null, and the program's structures.
        code(|| unsafe { query(qp, attr, init) })
    }

    /// `ibv_destroy_qp(3)`; waits for unacknowledged events.
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int, of object(qp) {
        // SAFETY: a queue pair of ours or null; the program gives it up unless this fails.
        code(|| unsafe { destroy(qp) })
    }

    /// The queue pair as one for `ibv_wr_*`; null unless it was made with `send_ops_flags`.
    fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut c_void, of object(qp) {
        value(std::ptr::null_mut(), || {
            // SAFETY: a queue pair of ours, or null.
            let pair = unsafe { Handle::<Pair>::of(qp)? };
            Ok(match pair.building {
                Some(_) => qp.cast(),
                None => std::ptr::null_mut(),
            })
        })
    }

    /// `ibv_query_qp_data_in_order(3)`: 0, since octets are placed as segments arrive.
    fn ibv_query_qp_data_in_order(
        qp: *mut ibv_qp,
        _operation: c_int,
        _flags: u32,
    ) -> c_int, of object(qp) {
        0
    }

    /// `ibv_set_ece(3)`: `EOPNOTSUPP`.
    fn ibv_set_ece(qp: *mut ibv_qp, _ece: *mut ibv_ece) -> c_int, of object(qp) {
        code(unsupported)
    }

    /// `ibv_query_ece(3)`: `EOPNOTSUPP`.
    fn ibv_query_ece(qp: *mut ibv_qp, _ece: *mut ibv_ece) -> c_int, of object(qp) {
        code(unsupported)
    }
}
