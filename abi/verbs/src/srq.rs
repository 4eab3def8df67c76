//! Shared receive queues.

use std::mem::zeroed;
use std::sync::Arc;

use libc::{c_int, c_void};

use crate::entry::{code, invalid, pointer, unsupported, Outcome};
use crate::event_references::{self, Acks};
use crate::handle::{Handle, Object};
use crate::layout::numbers::*;
use crate::layout::{
    ibv_context, ibv_pd, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex,
};
use crate::memory::Pd;

/// A shared receive queue.
pub struct Srq {
    /// The engine's side of it.
    pub engine: Arc<weft_engine::Srq>,
    number: u64,
    acks: Arc<Acks>,
}

impl Object for Srq {
    type Public = ibv_srq;
    type Pointee = ibv_srq;
    const MAGIC: u32 = 0x7372_7130;
}

impl Srq {
    /// Acknowledges an event of the queue.
    pub fn acknowledge(&self) {
        self.acks.acknowledge(1);
    }
}

/// Makes a shared receive queue, and writes the sizes it got into `attr`.
///
/// # Safety
/// `pd` is a domain of ours or null.
pub unsafe fn create(
    pd: *mut ibv_pd,
    srq_context: *mut c_void,
    attr: &mut ibv_srq_attr,
) -> Outcome<*mut ibv_srq> {
    // SAFETY: the caller promises: `pd` is a domain of ours or null.
    let domain = unsafe { Handle::<Pd>::of(pd)? };
    let number = event_references::new_number();
    let engine = domain
        .engine
        .create_srq(attr.max_wr, attr.max_sge, number)?;
    *attr = attributes(&engine);
    // SAFETY: numbers, addresses, and a mutex and a condition whose initial value is zero.
    let mut public: ibv_srq = unsafe { zeroed() };
    // SAFETY: a live domain's own field.
    public.context = unsafe { (*domain.public()).context };
    public.srq_context = srq_context;
    public.pd = pd;
    let acks = Arc::default();
    let private = Srq {
        engine,
        number,
        acks: Arc::clone(&acks),
    };
    let srq = Handle::create(public, private);
    event_references::enter(number, srq as usize, &acks);
    Ok(srq)
}

fn attributes(engine: &weft_engine::Srq) -> ibv_srq_attr {
    let (max_wr, max_sge, srq_limit) = engine.attributes();
    ibv_srq_attr {
        max_wr,
        max_sge,
        srq_limit,
    }
}

/// Behind the inline `ibv_create_srq_ex(3)`, which itself takes the plain cases to
/// `ibv_create_srq`. Only basic queues are served.
pub unsafe extern "C" fn create_srq_ex(
    _context: *mut ibv_context,
    init: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: the program's structure.
    pointer(|| unsafe { create_extended(init) })
}

/// Makes a shared receive queue from extended attributes.
///
/// # Safety
/// `init` and the domain it names are null or valid.
pub unsafe fn create_extended(init: *mut ibv_srq_init_attr_ex) -> Outcome<*mut ibv_srq> {
    if init.is_null() {
        return invalid();
    }
    // SAFETY: the program's structure, which nobody else uses during the call.
    let init = unsafe { &mut *init };
    let mask = i64::from(init.comp_mask);
    if mask & IBV_SRQ_INIT_ATTR_PD == 0 {
        return invalid();
    }
    let basic = mask & IBV_SRQ_INIT_ATTR_TYPE == 0 || i64::from(init.srq_type) == IBV_SRQT_BASIC;
    if !basic || mask & !(IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE) != 0 {
        return unsupported();
    }
    // SAFETY: a domain of ours, or null.
    unsafe { create(init.pd, init.srq_context, &mut init.attr) }
}

/// Changes size or limit; checks both before it changes either.
///
/// # Safety
/// `srq` and `attr` are null or valid.
unsafe fn modify(srq: *mut ibv_srq, attr: *const ibv_srq_attr, mask: i64) -> Outcome<()> {
    // SAFETY: the caller promises: `srq` and `attr` are null or valid.
    let queue = &unsafe { Handle::<Srq>::of(srq)? }.engine;
    if attr.is_null() || mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) != 0 {
        return invalid();
    }
    // SAFETY: the caller promises: `srq` and `attr` are null or valid.
    let wanted = unsafe { *attr };
    let (resize, limit) = (mask & IBV_SRQ_MAX_WR != 0, mask & IBV_SRQ_LIMIT != 0);
    let depth = if resize {
        wanted.max_wr
    } else {
        attributes(queue).max_wr
    };
    if limit && wanted.srq_limit > depth {
        return invalid();
    }
    if resize {
        queue.resize(wanted.max_wr)?;
    }
    if limit {
        queue.set_limit(wanted.srq_limit)?;
    }
    Ok(())
}

/// Ends a shared receive queue, after its events were acknowledged.
///
/// # Safety
/// `srq` is a queue of ours or null, and given up unless this fails.
pub unsafe fn destroy(srq: *mut ibv_srq) -> Outcome<()> {
    // SAFETY: the caller promises: `srq` is a queue of ours or null, and given up unless this fails.
    unsafe {
        let queue = Handle::<Srq>::of(srq)?;
        queue.engine.destroy()?;
        event_references::leave(queue.number);
        Handle::<Srq>::release(srq);
    }
    Ok(())
}

export! {
    /// `ibv_create_srq(3)`.
    fn ibv_create_srq(
        pd: *mut ibv_pd,
        init: *mut ibv_srq_init_attr,
    ) -> *mut ibv_srq, of object(pd) {
        pointer(|| {
            if init.is_null() {
                return invalid();
            }
            // SAFETY: a domain of ours or null, and the program's structure, which nobody else
            // uses during the call.
            unsafe { create(pd, (*init).srq_context, &mut (*init).attr) }
        })
    }

    /// `ibv_modify_srq(3)`.
    fn ibv_modify_srq(
        srq: *mut ibv_srq,
        attr: *mut ibv_srq_attr,
        mask: c_int,
    ) -> c_int, of object(srq) {
        // SAFETY: a queue of ours or null, and the program's structure.
        code(|| unsafe { modify(srq, attr, mask.into()) })
    }

    /// `ibv_query_srq(3)`.
    fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int, of object(srq) {
        code(|| {
            // SAFETY: a queue of ours, or null.
            let queue = unsafe { Handle::<Srq>::of(srq)? };
            if attr.is_null() {
                return invalid();
            }
            // SAFETY: the program gave the address for the answer.
            unsafe { *attr = attributes(&queue.engine) };
            Ok(())
        })
    }

    /// `ibv_destroy_srq(3)`: `EBUSY` while queue pairs use it; waits for unacknowledged events.
    fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int, of object(srq) {
        // SAFETY: a queue of ours or null; the program gives it up unless this fails.
        code(|| unsafe { destroy(srq) })
    }
}
