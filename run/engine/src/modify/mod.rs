//! Changing a queue pair's attributes and its state, as `ibv_modify_qp(3)` describes it.
//!
//! A program walks its queue pair through its states by itself, naming the other end at RTR; or the connection manager
//! brings it to RTS with the TCP connection in hand, and the changes that the program makes meanwhile (with what
//! `rdma_init_qp_attr(3)` gave it) are taken note of. [`QpModifier`] tells the two apart. Which attributes a change
//! needs and allows is in [`table`].

mod table;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bitflags::bitflags;
use weft_verbs::types::{Access, QpState, MAX_RD_ATOMIC};

use crate::bring_up::Destination;
use crate::device::PORT;
use crate::error::Error;
use crate::qp::Qp;
use crate::settings::Face;
use crate::ud::UdQp;

bitflags! {
    /// Attributes of a queue pair, with the numbers of `enum ibv_qp_attr_mask`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct QpAttrMask: u32 {
        /// The state to go to.
        const STATE = 1;
        /// The state it is in, which has to be so.
        const CUR_STATE = 1 << 1;
        /// Whether an event says when SQD is reached.
        const EN_SQD_ASYNC_NOTIFY = 1 << 2;
        /// What the peer may do.
        const ACCESS_FLAGS = 1 << 3;
        /// Index of the partition key.
        const PKEY_INDEX = 1 << 4;
        /// The port.
        const PORT = 1 << 5;
        /// What senders of datagrams have to know.
        const QKEY = 1 << 6;
        /// The path: the addresses of both ends.
        const AV = 1 << 7;
        /// The path's MTU.
        const PATH_MTU = 1 << 8;
        /// The local acknowledge timeout.
        const TIMEOUT = 1 << 9;
        /// How often a request is tried again that is not acknowledged.
        const RETRY_CNT = 1 << 10;
        /// How often a Send is tried again that finds no receive.
        const RNR_RETRY = 1 << 11;
        /// The first packet sequence number that is expected.
        const RQ_PSN = 1 << 12;
        /// Reads and atomics outstanding at the peer (ORD).
        const MAX_QP_RD_ATOMIC = 1 << 13;
        /// An alternative path.
        const ALT_PATH = 1 << 14;
        /// What a sender that finds no receive is told to wait.
        const MIN_RNR_TIMER = 1 << 15;
        /// The first packet sequence number that is sent.
        const SQ_PSN = 1 << 16;
        /// Reads and atomics of the peer outstanding here (IRD).
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// How far the change to the alternative path is.
        const PATH_MIG_STATE = 1 << 18;
        /// Sizes of the queues.
        const CAP = 1 << 19;
        /// The other end's number.
        const DEST_QPN = 1 << 20;
        /// Most octets a second.
        const RATE_LIMIT = 1 << 25;
    }
}

/// The type of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Datagrams.
    Ud,
}

/// Attributes of a queue pair: those that `named` names, and of the others what they were before.
#[derive(Clone, Copy, Debug)]
pub struct QpAttr {
    /// What is to change.
    pub named: QpAttrMask,
    /// The state to go to.
    pub state: QpState,
    /// The state it is said to be in.
    pub cur_state: QpState,
    /// Whether an event says when SQD is reached.
    pub en_sqd_async_notify: bool,
    /// What the peer may do.
    pub access: Access,
    /// Index of the partition key.
    pub pkey_index: u16,
    /// The port.
    pub port: u8,
    /// The port of the path.
    pub path_port: u8,
    /// The addresses of this end and the other; `None` where the path has none that could be reached.
    pub ends: Option<(IpAddr, IpAddr)>,
    /// The code of the path's MTU: 1 to 5 for 256 to 4096.
    pub path_mtu: i32,
    /// The code of the local acknowledge timeout: 4.096 µs times two to its power; 0 for none.
    pub timeout: u8,
    /// How often a request is tried again that is not acknowledged.
    pub retry_cnt: u8,
    /// How often a Send is tried again that finds no receive; 7 for without end.
    pub rnr_retry: u8,
    /// The code of what a sender that finds no receive is told to wait.
    pub min_rnr_timer: u8,
    /// Reads and atomics outstanding at the peer (ORD).
    pub max_rd_atomic: u8,
    /// Reads and atomics of the peer outstanding here (IRD).
    pub max_dest_rd_atomic: u8,
    /// The first packet sequence number that is expected.
    pub rq_psn: u32,
    /// The first packet sequence number that is sent.
    pub sq_psn: u32,
    /// The other end's number.
    pub dest_qp: u32,
    /// What senders of datagrams have to know.
    pub qkey: u32,
}

/// Packet sequence numbers have 24 bits.
const PSN: u32 = 0x00FF_FFFF;
const PATH_MTU_CODES: std::ops::RangeInclusive<i32> = 1..=5;
const TIMEOUT_MAX: u8 = 31;
const RETRY_CNT_MAX: u8 = 7;
const MIN_RNR_TIMER_MAX: u8 = 31;
/// The unit of the local acknowledge timeout: 4.096 microseconds times two to its power.
const TIMEOUT_UNIT: Duration = Duration::from_nanos(4096);
/// A device may wait up to four times its timeout (InfiniBand 9.7.6.1.3), and this one, whose answers come from
/// programs that the kernel schedules, does.
const TIMEOUT_SLACK: u32 = 4;
const TIMEOUT_MIN: Duration = Duration::from_millis(500);

impl QpAttr {
    fn names(&self, what: QpAttrMask) -> bool {
        self.named.intersects(what)
    }

    /// Whether every value that is named is in its range.
    fn check_ranges(&self) -> Result<(), Error> {
        use QpAttrMask as A;
        let reads = u8::try_from(MAX_RD_ATOMIC).unwrap_or(u8::MAX);
        let wrong = self.names(A::PORT) && self.port != PORT
            || self.names(A::AV) && self.path_port != PORT
            || self.names(A::PKEY_INDEX) && self.pkey_index != 0
            || self.names(A::PATH_MTU) && !PATH_MTU_CODES.contains(&self.path_mtu)
            || self.names(A::TIMEOUT) && self.timeout > TIMEOUT_MAX
            || self.names(A::RETRY_CNT) && self.retry_cnt > RETRY_CNT_MAX
            || self.names(A::RNR_RETRY) && self.rnr_retry > RETRY_CNT_MAX
            || self.names(A::MIN_RNR_TIMER) && self.min_rnr_timer > MIN_RNR_TIMER_MAX
            || self.names(A::MAX_QP_RD_ATOMIC) && self.max_rd_atomic > reads
            || self.names(A::MAX_DEST_RD_ATOMIC) && self.max_dest_rd_atomic > reads;
        match wrong {
            true => Err(Error::Invalid("an attribute of the queue pair")),
            false => Ok(()),
        }
    }

    /// Whether all of these are named.
    fn require(&self, needed: QpAttrMask) -> Result<(), Error> {
        match self.named.contains(needed) {
            true => Ok(()),
            false => Err(Error::Invalid("an attribute is missing")),
        }
    }

    /// The other end, from what takes a queue pair to RTR. UC has no reads and no retries.
    fn destination(&self, kind: QpType) -> Result<Destination, Error> {
        self.require(table::to_rtr(kind))?;
        let (local, peer) = self.ends.ok_or(Error::Invalid("the path to the peer"))?;
        Ok(Destination {
            local,
            peer,
            peer_qp: self.dest_qp,
            rq_psn: self.rq_psn & PSN,
        })
    }

    /// How long a send waits for an answer before it ends in "retry exceeded"; `None` is for ever.
    fn retry_timeout(&self) -> Option<Duration> {
        let tries = u32::from(self.retry_cnt) + 1;
        let once = TIMEOUT_UNIT.checked_mul(1 << self.timeout)?;
        (self.timeout != 0).then(|| (once * tries * TIMEOUT_SLACK).max(TIMEOUT_MIN))
    }
}

/// A change of state that was found possible.
#[derive(Debug)]
enum Step {
    /// The queue pair makes it by itself.
    To(QpState),
    /// The connection manager makes it; the program is told that it is done.
    Noted,
    /// The program names the other end.
    Receive(Destination),
    /// The program says how to send: first packet sequence number, and timeout.
    Send(u32, Option<Duration>),
    /// The send queue comes to rest; whether an event says when.
    Drain(bool),
    /// It goes on.
    Resume,
}

/// Changes the attributes of one queue pair.
#[derive(Debug)]
pub struct QpModifier {
    kind: QpType,
    /// The state that was asked for last: ahead of the queue pair's while the connection manager makes its connection.
    asked: QpState,
}

impl QpModifier {
    /// For a queue pair of that type that was just made.
    pub fn new(kind: QpType) -> QpModifier {
        QpModifier {
            kind,
            asked: QpState::Reset,
        }
    }

    /// Changes the attributes of a connected queue pair; nothing is changed if anything is wrong.
    ///
    /// # Errors
    /// [`Error::Invalid`]: a value out of its range, no such change from this state, an attribute missing or too many.
    /// And what the change itself fails with.
    pub fn modify(&mut self, qp: &Arc<Qp>, attr: &QpAttr) -> Result<(), Error> {
        let now = qp.state();
        check_before(attr, now)?;
        if walks_by_itself(qp, attr, now) {
            self.check_mask(attr, now)?;
        }
        if attr.names(QpAttrMask::STATE) {
            match self.step(qp, attr)? {
                Step::To(QpState::Init) => {
                    qp.listen_for_bring_up()?;
                    qp.modify_state(QpState::Init)?;
                }
                Step::To(state) => qp.modify_state(state)?,
                Step::Noted => {}
                Step::Receive(destination) => qp.ready_to_receive(destination)?,
                Step::Send(psn, timeout) => qp.ready_to_send(Some(psn), timeout)?,
                Step::Drain(notify) => qp.drain(notify)?,
                Step::Resume => qp.resume()?,
            }
            self.asked = attr.state;
        }
        if attr.names(QpAttrMask::RNR_RETRY) && self.kind == QpType::Rc {
            qp.set_rnr_retry(attr.rnr_retry);
        }
        if attr.names(QpAttrMask::MIN_RNR_TIMER) {
            qp.set_min_rnr_timer(attr.min_rnr_timer);
        }
        if attr.names(QpAttrMask::ACCESS_FLAGS) {
            qp.modify_access(attr.access);
        }
        Ok(())
    }

    /// The same for a queue pair that sends datagrams.
    ///
    /// # Errors
    /// As for [`QpModifier::modify`].
    pub fn modify_datagrams(&mut self, qp: &UdQp, attr: &QpAttr) -> Result<(), Error> {
        let now = qp.state();
        check_before(attr, now)?;
        self.check_mask(attr, now)?;
        if attr.names(QpAttrMask::STATE) {
            qp.modify_state(attr.state)?;
            self.asked = attr.state;
        }
        if attr.names(QpAttrMask::QKEY) {
            qp.set_qkey(attr.qkey);
        }
        Ok(())
    }

    /// Compares what is named with the table. Without a state in it, the queue pair stays in its own.
    fn check_mask(&self, attr: &QpAttr, now: QpState) -> Result<(), Error> {
        let to = match attr.names(QpAttrMask::STATE) {
            true => attr.state,
            false => now,
        };
        table::check(self.kind, now, to, attr.named)
    }

    /// What a change of state asks for.
    fn step(&self, qp: &Qp, attr: &QpAttr) -> Result<Step, Error> {
        use QpState::{Error as Failed, Init, Reset, Rtr, Rts, Sqd, Sqe};
        let now = qp.state();
        match attr.state {
            Reset => Ok(Step::To(Reset)),
            Init => Ok(Step::To(Init)),
            Rtr if names_peer(attr) => Ok(Step::Receive(attr.destination(self.kind)?)),
            // The connection manager knows no RTR: it goes from INIT to RTS.
            Rts if now == Rtr => {
                attr.require(table::to_rts(self.kind))?;
                Ok(Step::Send(attr.sq_psn & PSN, attr.retry_timeout()))
            }
            Rtr if matches!(now, Init | Rtr | Rts) => Ok(Step::Noted),
            Rts if now == Rts => Ok(Step::Noted),
            Rts if self.asked == Rtr && now != Failed => Ok(Step::Noted),
            // Refuses what is not in SQD.
            Rts => Ok(Step::Resume),
            Sqd if now == Sqd => Ok(Step::Noted),
            Sqd if Face::of_process() == Face::Infiniband => {
                let notify = attr.names(QpAttrMask::EN_SQD_ASYNC_NOTIFY);
                Ok(Step::Drain(notify && attr.en_sqd_async_notify))
            }
            Sqd => Ok(Step::To(Sqd)),
            Failed => Ok(Step::To(Failed)),
            Rtr | Sqe => Err(Error::Invalid("a state that cannot be asked for from here")),
        }
    }
}

fn check_before(attr: &QpAttr, now: QpState) -> Result<(), Error> {
    attr.check_ranges()?;
    if attr.names(QpAttrMask::CUR_STATE) && attr.cur_state != now {
        return Err(Error::Invalid(
            "the state that the queue pair is said to be in",
        ));
    }
    Ok(())
}

fn names_peer(attr: &QpAttr) -> bool {
    attr.names(QpAttrMask::AV | QpAttrMask::DEST_QPN)
}

/// Whether it is the program that walks the queue pair, so that the table holds: not on a device with iWARP's face, and
/// not where the connection manager's `rdma_init_qp_attr(3)` gave the mask.
fn walks_by_itself(qp: &Qp, attr: &QpAttr, now: QpState) -> bool {
    if Face::of_process() != Face::Infiniband {
        return false;
    }
    let names_state = attr.names(QpAttrMask::STATE);
    let to = if names_state { attr.state } else { now };
    match to {
        QpState::Rtr => names_peer(attr),
        QpState::Rts => qp.is_out_of_band() || now == QpState::Sqd,
        _ => names_state,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(timeout: u8, retry_cnt: u8) -> QpAttr {
        QpAttr {
            named: QpAttrMask::empty(),
            state: QpState::Reset,
            cur_state: QpState::Reset,
            en_sqd_async_notify: false,
            access: Access::NONE,
            pkey_index: 0,
            port: PORT,
            path_port: PORT,
            ends: None,
            path_mtu: 5,
            timeout,
            retry_cnt,
            rnr_retry: 0,
            min_rnr_timer: 0,
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            rq_psn: 0,
            sq_psn: 0,
            dest_qp: 0,
            qkey: 0,
        }
    }

    #[test]
    fn timeout_is_four_times_what_the_attributes_say() {
        assert_eq!(
            attr(0, 0).retry_timeout(),
            None,
            "a timeout of 0 is for ever"
        );
        let eight_tries = Duration::from_nanos(4096 * 16_384 * 8 * 4);
        assert_eq!(attr(14, 7).retry_timeout(), Some(eight_tries));
        assert_eq!(attr(1, 7).retry_timeout(), Some(TIMEOUT_MIN));
        assert!(attr(31, 7).retry_timeout() > Some(Duration::from_secs(8000)));
    }

    #[test]
    fn values_out_of_their_range_are_refused_where_they_are_named() {
        type Change = fn(&mut QpAttr);
        let changes: [(QpAttrMask, Change); 10] = [
            (QpAttrMask::PORT, |a| a.port = 2),
            (QpAttrMask::AV, |a| a.path_port = 0),
            (QpAttrMask::PKEY_INDEX, |a| a.pkey_index = 1),
            (QpAttrMask::PATH_MTU, |a| a.path_mtu = 6),
            (QpAttrMask::TIMEOUT, |a| a.timeout = 32),
            (QpAttrMask::RETRY_CNT, |a| a.retry_cnt = 8),
            (QpAttrMask::RNR_RETRY, |a| a.rnr_retry = 8),
            (QpAttrMask::MIN_RNR_TIMER, |a| a.min_rnr_timer = 32),
            (QpAttrMask::MAX_QP_RD_ATOMIC, |a| a.max_rd_atomic = 255),
            (QpAttrMask::MAX_DEST_RD_ATOMIC, |a| {
                a.max_dest_rd_atomic = 255
            }),
        ];
        for (named, change) in changes {
            let mut attr = attr(14, 7);
            change(&mut attr);
            assert!(attr.check_ranges().is_ok(), "{named:?} is not named");
            attr.named = named;
            assert!(attr.check_ranges().is_err(), "{named:?}");
        }
        let reads = u8::try_from(MAX_RD_ATOMIC).unwrap();
        for path_mtu in [1, 5] {
            let highest = QpAttr {
                named: QpAttrMask::all(),
                path_mtu,
                rnr_retry: 7,
                min_rnr_timer: 31,
                max_rd_atomic: reads,
                max_dest_rd_atomic: reads,
                ..attr(31, 7)
            };
            assert!(highest.check_ranges().is_ok());
        }
    }

    #[test]
    fn a_peer_needs_a_path_and_every_attribute_of_its_type() {
        let mut attr = attr(14, 7);
        attr.dest_qp = 0x1234;
        attr.rq_psn = 0xFF00_0001;
        attr.named = table::to_rtr(QpType::Uc);
        assert!(attr.destination(QpType::Uc).is_err(), "no path");
        let ends = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        attr.ends = Some(ends);
        let to = attr.destination(QpType::Uc).expect("a destination");
        assert_eq!((to.local, to.peer), ends);
        assert_eq!((to.peer_qp, to.rq_psn), (0x1234, 1), "24 bits of it");
        assert!(attr.destination(QpType::Rc).is_err(), "RC needs more");
    }
}
