//! Queue pairs: made, moved through their states, asked, ended.
//!
//! Either the connection manager brings a queue pair to RTS with the TCP connection in hand, and RTR
//! and RTS that come from `rdma_init_qp_attr` are taken note of; or the program walks it there with
//! the other end's GID and number, and the engine finds the other end ([`weft_engine::bring_up`]).

use std::mem::zeroed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use libc::{c_int, c_void};
use weft_engine::bring_up::Destination;
use weft_engine::settings::Face;
use weft_engine::types::{Access, QpCap, QpState};
use weft_engine::{QpInit, UdQp};

use crate::acks::{self, lock, Acks};
use crate::attributes;
use crate::completion;
use crate::entry::{code, invalid, pointer, unsupported, value, Answer};
use crate::handle::{Handle, Object};
use crate::layout::numbers::*;
use crate::layout::{
    ibv_context, ibv_ece, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr,
    ibv_qp_init_attr_ex,
};
use crate::memory::Pd;
use crate::query::PORT;
use crate::srq::Srq;
use crate::transitions;
use crate::wr::{self, Builder};

/// The engine's side of a queue pair.
pub enum Engine {
    /// RC and UC.
    Connected(Arc<weft_engine::Qp>),
    /// UD.
    Datagrams(Arc<UdQp>),
}

impl Engine {
    fn number(&self) -> u32 {
        match self {
            Engine::Connected(qp) => qp.number(),
            Engine::Datagrams(qp) => qp.number(),
        }
    }

    fn state(&self) -> QpState {
        match self {
            Engine::Connected(qp) => qp.state(),
            Engine::Datagrams(qp) => qp.state(),
        }
    }

    fn cap(&self) -> QpCap {
        match self {
            Engine::Connected(qp) => qp.cap(),
            Engine::Datagrams(qp) => qp.cap(),
        }
    }

    fn destroy(&self) {
        match self {
            Engine::Connected(qp) => qp.destroy(),
            Engine::Datagrams(qp) => qp.destroy(),
        }
    }
}

/// A queue pair.
pub struct Pair {
    /// The engine's side of it.
    pub engine: Engine,
    /// Receives come from a shared queue.
    pub shared_receives: bool,
    number: u64,
    acks: Arc<Acks>,
    set: Mutex<Set>,
    /// What it was made with.
    init: ibv_qp_init_attr,
    /// Requests that are being built through `ibv_wr_*`, if it was made for them.
    pub building: Option<Builder>,
}

/// What the program set and may ask for again.
struct Set {
    /// The state it asked for last: ahead of the engine's while the connection is being made.
    asked: i64,
    attr: ibv_qp_attr,
}

impl Object for Pair {
    type Public = ibv_qp_ex;
    type Pointee = ibv_qp;
    const MAGIC: u32 = 0x7170_3030;
}

impl Pair {
    /// Acknowledges an event of the queue pair.
    pub fn acknowledge(&self) {
        self.acks.acknowledge(1);
    }

    /// The engine's queue pair of one that is connected.
    ///
    /// # Errors
    /// `EINVAL`: it sends datagrams.
    #[inline]
    pub fn connected(&self) -> Answer<&Arc<weft_engine::Qp>> {
        match &self.engine {
            Engine::Connected(qp) => Ok(qp),
            Engine::Datagrams(_) => invalid(),
        }
    }
}

impl Handle<Pair> {
    /// The part that every queue pair has.
    fn base(&self) -> *mut ibv_qp {
        self.public().cast()
    }
}

/// Makes a queue pair, and writes the sizes it got into `init`. With `extended` it is one for
/// `ibv_wr_*`.
///
/// # Safety
/// `pd` and the objects that `init` names are ours or null.
pub unsafe fn create(
    pd: *mut ibv_pd,
    init: &mut ibv_qp_init_attr,
    extended: bool,
) -> Answer<*mut ibv_qp> {
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
    let number = acks::new_number();
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
            asked: IBV_QPS_RESET,
            attr: fresh_attributes(),
        }),
        init: *init,
        building: extended.then(Builder::default),
    };
    let qp = Handle::create(whole, private);
    acks::enter(number, qp as usize, &acks);
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
pub unsafe fn create_extended(init: *mut ibv_qp_init_attr_ex) -> Answer<*mut ibv_qp> {
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
pub unsafe fn destroy(qp: *mut ibv_qp) -> Answer<()> {
    // SAFETY: the caller promises: `qp` is a queue pair of ours or null, and given up unless this fails.
    unsafe {
        let pair = Handle::<Pair>::of(qp)?;
        pair.engine.destroy();
        acks::leave(pair.number);
        Handle::<Pair>::retire(qp);
    }
    Ok(())
}

/// The rights in a queue pair's access mask.
fn rights(mask: u32) -> Answer<Access> {
    let mask = i64::from(mask) & !IBV_ACCESS_OPTIONAL_RANGE;
    let known = IBV_ACCESS_LOCAL_WRITE
        | IBV_ACCESS_REMOTE_WRITE
        | IBV_ACCESS_REMOTE_READ
        | IBV_ACCESS_REMOTE_ATOMIC
        | IBV_ACCESS_MW_BIND;
    if mask & !known != 0 {
        return invalid();
    }
    Ok(Access(mask as u32))
}

/// A change of state that was found possible.
enum Step {
    /// The engine makes it.
    Engine(QpState),
    /// The connection manager makes it; the program is told that it is done.
    Noted,
    /// The program names the other end.
    Receive(Destination),
    /// The program says how to send: first packet sequence number, and patience.
    Send(Option<u32>, Option<Duration>),
    /// The send queue comes to rest; whether an event says when.
    Drain(bool),
    /// It goes on.
    Resume,
}

/// What a change of state asks for.
///
/// # Errors
/// `EINVAL`: not a state to ask for, not from here, or with an attribute missing.
fn step(
    pair: &Pair,
    engine: &weft_engine::Qp,
    asked_before: i64,
    wanted: i64,
    attr: &ibv_qp_attr,
    mask: i64,
) -> Answer<Step> {
    let now = engine.state();
    let reliable = i64::from(pair.init.qp_type) == IBV_QPT_RC;
    match wanted {
        IBV_QPS_RESET => Ok(Step::Engine(QpState::Reset)),
        IBV_QPS_INIT if now == QpState::Init => Ok(Step::Noted),
        IBV_QPS_INIT => Ok(Step::Engine(QpState::Init)),
        IBV_QPS_RTR if mask & (IBV_QP_AV | IBV_QP_DEST_QPN) != 0 => {
            let destination = attributes::destination(attr, mask, reliable)?;
            Ok(Step::Receive(destination))
        }
        IBV_QPS_RTS if engine.is_by_hand() && now == QpState::Rtr => {
            let (psn, patience) = attributes::sending(attr, mask, reliable)?;
            Ok(Step::Send(Some(psn), patience))
        }
        IBV_QPS_RTS if engine.is_by_hand() && now == QpState::Rts => {
            Ok(Step::Send(None, attributes::patience(attr)))
        }
        IBV_QPS_RTR if matches!(now, QpState::Init | QpState::Rtr | QpState::Rts) => {
            Ok(Step::Noted)
        }
        IBV_QPS_RTS if now == QpState::Rts => Ok(Step::Noted),
        IBV_QPS_RTS if asked_before == IBV_QPS_RTR && now != QpState::Error => Ok(Step::Noted),
        IBV_QPS_RTS if now == QpState::Sqd => Ok(Step::Resume),
        IBV_QPS_SQD if now == QpState::Sqd => Ok(Step::Noted),
        IBV_QPS_SQD if Face::of_process() == Face::Infiniband => {
            let notify = mask & IBV_QP_EN_SQD_ASYNC_NOTIFY != 0 && attr.en_sqd_async_notify != 0;
            Ok(Step::Drain(notify))
        }
        IBV_QPS_SQD => Ok(Step::Engine(QpState::Sqd)),
        IBV_QPS_ERR => Ok(Step::Engine(QpState::Error)),
        _ => invalid(),
    }
}

/// Compares the mask with the table of `ibv_modify_qp(3)`, where it is the program that walks the
/// queue pair: not on a device with iWARP's face, and not where the connection manager's
/// `rdma_init_qp_attr(3)` gave the mask.
fn check_mask(pair: &Pair, wanted: i64, mask: i64) -> Answer<()> {
    let kind = i64::from(pair.init.qp_type);
    let from = state_number(pair.engine.state());
    let to = match mask & IBV_QP_STATE {
        0 => from,
        _ => wanted,
    };
    let by_program = match &pair.engine {
        Engine::Datagrams(_) => true,
        Engine::Connected(qp) if Face::of_process() == Face::Infiniband => match to {
            IBV_QPS_RTR => mask & (IBV_QP_AV | IBV_QP_DEST_QPN) != 0,
            IBV_QPS_RTS => qp.is_by_hand() || from == IBV_QPS_SQD,
            _ => mask & IBV_QP_STATE != 0,
        },
        Engine::Connected(_) => false,
    };
    if by_program {
        transitions::check(kind, from, to, mask)?;
    }
    Ok(())
}

/// Changes attributes; nothing is changed if anything is wrong.
///
/// # Safety
/// `qp` and `attr` are null or valid.
pub unsafe fn modify(qp: *mut ibv_qp, attr: *const ibv_qp_attr, mask: i64) -> Answer<()> {
    // SAFETY: the caller promises: `qp` and `attr` are null or valid.
    let pair = unsafe { Handle::<Pair>::of(qp)? };
    let known = (IBV_QP_DEST_QPN << 1) - 1;
    if attr.is_null() || mask & !(known | IBV_QP_RATE_LIMIT) != 0 {
        return invalid();
    }
    // SAFETY: the caller promises: `qp` and `attr` are null or valid; the fields are read one by one, since programs
    // initialise only those that the mask names.
    let (state, current) =
        unsafe { (i64::from((*attr).qp_state), i64::from((*attr).cur_qp_state)) };
    let mut set = lock(&pair.set);
    let mut wanted = set.attr;
    // SAFETY: the caller promises: `qp` and `attr` are null or valid.
    unsafe { attributes::take_over(&mut wanted, attr, mask) };
    attributes::check(&wanted, mask)?;
    if mask & IBV_QP_CUR_STATE != 0 && current != state_number(pair.engine.state()) {
        return invalid();
    }
    check_mask(pair, state, mask)?;
    match &pair.engine {
        Engine::Connected(engine) => {
            change_connected(pair, engine, set.asked, state, &wanted, mask)?;
        }
        Engine::Datagrams(engine) => change_datagrams(engine, state, &wanted, mask)?,
    }
    if mask & IBV_QP_STATE != 0 {
        set.asked = state;
        if state == IBV_QPS_RESET {
            wanted = fresh_attributes();
        }
        // SAFETY: a live queue pair; libibverbs keeps this field too.
        unsafe { (*pair.base()).state = state as c_int };
    }
    set.attr = wanted;
    Ok(())
}

fn change_connected(
    pair: &Pair,
    engine: &Arc<weft_engine::Qp>,
    asked_before: i64,
    state: i64,
    wanted: &ibv_qp_attr,
    mask: i64,
) -> Answer<()> {
    let access = (mask & IBV_QP_ACCESS_FLAGS != 0)
        .then(|| rights(wanted.qp_access_flags))
        .transpose()?;
    if mask & IBV_QP_STATE != 0 {
        match step(pair, engine, asked_before, state, wanted, mask)? {
            Step::Engine(QpState::Init) => {
                engine.listen_for_bring_up()?;
                engine.modify_state(QpState::Init)?;
            }
            Step::Engine(state) => engine.modify_state(state)?,
            Step::Noted => {}
            Step::Receive(destination) => engine.ready_to_receive(destination)?,
            Step::Send(psn, patience) => engine.ready_to_send(psn, patience)?,
            Step::Drain(notify) => engine.drain(notify)?,
            Step::Resume => engine.resume()?,
        }
    }
    if mask & IBV_QP_RNR_RETRY != 0 && i64::from(pair.init.qp_type) == IBV_QPT_RC {
        engine.set_rnr_retry(wanted.rnr_retry);
    }
    if mask & IBV_QP_MIN_RNR_TIMER != 0 {
        engine.set_min_rnr_timer(wanted.min_rnr_timer);
    }
    if let Some(access) = access {
        engine.modify_access(access);
    }
    Ok(())
}

fn change_datagrams(engine: &Arc<UdQp>, state: i64, wanted: &ibv_qp_attr, mask: i64) -> Answer<()> {
    if mask & IBV_QP_STATE != 0 {
        engine.modify_state(match state {
            IBV_QPS_RESET => QpState::Reset,
            IBV_QPS_INIT => QpState::Init,
            IBV_QPS_RTR => QpState::Rtr,
            IBV_QPS_RTS => QpState::Rts,
            IBV_QPS_SQD => QpState::Sqd,
            IBV_QPS_ERR => QpState::Error,
            _ => return invalid(),
        })?;
    }
    if mask & IBV_QP_QKEY != 0 {
        engine.set_qkey(wanted.qkey);
    }
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

fn state_number(state: QpState) -> i64 {
    match state {
        QpState::Reset => IBV_QPS_RESET,
        QpState::Init => IBV_QPS_INIT,
        QpState::Rtr => IBV_QPS_RTR,
        QpState::Rts => IBV_QPS_RTS,
        QpState::Sqd => IBV_QPS_SQD,
        QpState::Sqe => IBV_QPS_SQE,
        QpState::Error => IBV_QPS_ERR,
    }
}

/// Answers everything, whatever the mask asks for, as the man page allows.
///
/// # Safety
/// `qp` is null or a queue pair of ours; the others are null or may be written.
unsafe fn query(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    init: *mut ibv_qp_init_attr,
) -> Answer<()> {
    // SAFETY: the caller promises: `qp` is null or a queue pair of ours; the others are null or may be written.
    let pair = unsafe { Handle::<Pair>::of(qp)? };
    if attr.is_null() || init.is_null() {
        return invalid();
    }
    let state = state_number(pair.engine.state()) as c_int;
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
