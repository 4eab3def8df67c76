//! Queue pairs of type UD (decision 0008): each message is a datagram of its own to a queue pair that
//! the work request names.
//!
//! The driver has the sockets. It takes what waits from [`UdQp::waiting`] on, sends it, and says so by
//! [`UdQp::sent`]; it hands in what came for this queue pair by [`UdQp::receive`]. Which queue pair a
//! datagram is for is told by its [`header`]; how much may be under way to one socket by its [`flow`].

pub mod flow;
pub mod grh;
pub mod header;
mod rnr_queue;
mod sending;

use alloc::collections::VecDeque;
use core::net::IpAddr;
use core::time::Duration;

use crate::host::{Host, Scope, Span};
use crate::qp::QpConfig;
use crate::scatter::pieces;
use crate::types::{
    Access, AsyncEventKind, Completion, PdId, PostError, QpCap, QpNumber, QpState, RecvRequest,
    Sge, Stag, WcOpcode, WcStatus,
};
use crate::wqe::{RecvQueue, RecvWqe, SendQueue};

use grh::GRH_LEN;
use header::Message;
pub use rnr_queue::Debt;
use rnr_queue::Held;
pub use sending::{Outgoing, Target};

/// Octets that a datagram carries at most: the path MTU that the port reports.
pub const MAX_DATAGRAM: usize = 4096;

/// A datagram for this queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Its header.
    pub message: Message,
    /// The address it came from.
    pub from: IpAddr,
    /// The address of this machine that it was sent to.
    pub to: IpAddr,
    /// What it carries.
    pub payload: &'a [u8],
    /// Where credit goes, if it is wanted.
    pub debt: Option<Debt>,
}

/// What became of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// A receive has it.
    Delivered,
    /// It waits for a receive. The credit that it asked for is due when it is let go.
    Held,
    /// It is lost.
    Dropped(Why),
}

impl Fate {
    /// Whether the credit that the datagram asked for is due now. Who has not the Q_Key of a queue pair that receives
    /// gets none: the silence is the same where there is no such queue pair, so that numbers cannot be found by
    /// asking.
    pub fn owes_credit(self) -> bool {
        match self {
            Fate::Delivered | Fate::Dropped(Why::NoReceive | Why::TooLong) => true,
            Fate::Held | Fate::Dropped(Why::State | Why::QKey) => false,
        }
    }
}

/// Why a datagram is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// The queue pair does not receive in its state.
    State,
    /// The Q_Key is another one.
    QKey,
    /// No receive is posted.
    NoReceive,
    /// It is longer than the receive, or than datagrams are.
    TooLong,
}

/// A queue pair of type UD.
#[derive(Debug)]
pub struct UdQp {
    number: QpNumber,
    pd: PdId,
    cap: QpCap,
    sq_sig_all: bool,
    shared_receive: bool,
    state: QpState,
    qkey: u32,
    sq: SendQueue,
    /// Where each request of the send queue goes.
    targets: VecDeque<Target>,
    rq: RecvQueue,
    held: Held,
    last_wqe_reported: bool,
}

impl UdQp {
    /// A queue pair in RESET.
    pub fn new(config: QpConfig) -> UdQp {
        UdQp {
            number: config.number,
            pd: config.pd,
            cap: config.cap,
            sq_sig_all: config.sq_sig_all,
            shared_receive: config.shared_receive,
            state: QpState::Reset,
            qkey: 0,
            sq: SendQueue::new(&config.cap),
            targets: VecDeque::new(),
            rq: RecvQueue::new(&config.cap),
            held: Held::default(),
            last_wqe_reported: false,
        }
    }

    /// Its number.
    pub fn number(&self) -> QpNumber {
        self.number
    }

    /// Its state.
    pub fn state(&self) -> QpState {
        self.state
    }

    /// What senders have to know.
    pub fn qkey(&self) -> u32 {
        self.qkey
    }

    /// Sets what senders have to know.
    pub fn set_qkey(&mut self, qkey: u32) {
        self.qkey = qkey;
    }

    fn scope(&self) -> Scope {
        Scope {
            pd: self.pd,
            qp: self.number,
        }
    }

    /// A state change that the program asks for.
    ///
    /// # Errors
    /// The transition does not exist.
    pub fn modify(&mut self, to: QpState, host: &mut impl Host) -> Result<(), PostError> {
        use QpState::{Error, Init, Reset, Rtr, Rts, Sqd, Sqe};
        match (self.state, to) {
            (_, Reset) => self.reset(),
            (_, Error) => self.enter_error(host),
            (Reset | Init, Init)
            | (Init, Rtr)
            | (Rtr | Rts | Sqd | Sqe, Rts)
            | (Rts | Sqd, Sqd) => self.state = to,
            _ => return Err(PostError::InvalidState),
        }
        Ok(())
    }

    fn reset(&mut self) {
        *self = UdQp::new(QpConfig {
            number: self.number,
            pd: self.pd,
            cap: self.cap,
            sq_sig_all: self.sq_sig_all,
            shared_receive: self.shared_receive,
        });
    }

    fn enter_error(&mut self, host: &mut impl Host) {
        self.state = QpState::Error;
        self.flush_sends(host);
        self.held.clear();
        self.flush_receives(host);
    }

    /// Posts a receive. Datagrams that wait for one are delivered.
    ///
    /// # Errors
    /// See [`PostError`]. In the error state the request is taken and flushed at once.
    pub fn post_recv(
        &mut self,
        request: &RecvRequest<'_>,
        now: Duration,
        host: &mut impl Host,
    ) -> Result<(), PostError> {
        if self.shared_receive || self.state == QpState::Reset {
            return Err(PostError::InvalidState);
        }
        self.rq.push(request)?;
        self.held.note_receive();
        if self.state == QpState::Error {
            self.flush_receives(host);
        } else {
            self.let_go(now, host);
        }
        Ok(())
    }

    /// Delivers what is held, as far as there are receives.
    fn let_go(&mut self, now: Duration, host: &mut impl Host) {
        while self.receives() && !self.held.is_empty() {
            let Some(wqe) = self.rq.pop() else {
                return;
            };
            match self.held.next(now) {
                Some(datagram) => {
                    self.deliver(wqe, &datagram.arrival(), host);
                }
                None => self.rq.put_back(wqe),
            }
        }
    }

    fn receives(&self) -> bool {
        use QpState::{Rtr, Rts, Sqd, Sqe};
        matches!(self.state, Rtr | Rts | Sqd | Sqe)
    }

    /// Takes a datagram that names this queue pair.
    pub fn receive(&mut self, arrival: &Arrival<'_>, now: Duration, host: &mut impl Host) -> Fate {
        if !self.receives() {
            return Fate::Dropped(Why::State);
        }
        if arrival.message.qkey != self.qkey {
            return Fate::Dropped(Why::QKey);
        }
        if arrival.payload.len() > MAX_DATAGRAM {
            return Fate::Dropped(Why::TooLong);
        }
        let wqe = if self.shared_receive {
            host.take_shared_recv()
        } else {
            self.rq.pop()
        };
        let Some(wqe) = wqe else {
            let held = !self.shared_receive && self.held.push(arrival, now);
            return match held {
                true => Fate::Held,
                false => Fate::Dropped(Why::NoReceive),
            };
        };
        match self.deliver(wqe, arrival, host) {
            true => Fate::Delivered,
            false => Fate::Dropped(Why::TooLong),
        }
    }

    /// Credit that is due, because what asked for them waits no longer.
    pub fn take_debt(&mut self) -> Option<Debt> {
        self.held.take_debt()
    }

    /// Puts a datagram into a receive; false when it does not fit. The receive stays then, but for
    /// a shared one, which ends in a length error.
    fn deliver(&mut self, wqe: RecvWqe, arrival: &Arrival<'_>, host: &mut impl Host) -> bool {
        let len = GRH_LEN + arrival.payload.len();
        if len as u64 > wqe.capacity {
            match self.shared_receive {
                true => self.fail_receive(&wqe, WcStatus::LocalLength, host),
                false => self.rq.put_back(wqe),
            }
            return false;
        }
        let area = grh::grh(arrival.from, arrival.to, arrival.payload.len());
        let list = wqe.scatter.as_slice();
        let placed = self.place(list, 0, &area, host)
            && self.place(list, GRH_LEN as u32, arrival.payload, host);
        let status = match placed {
            true => WcStatus::Success,
            false => WcStatus::LocalProtection,
        };
        host.complete_recv(Completion {
            wr_id: wqe.wr_id,
            status,
            opcode: WcOpcode::Recv,
            byte_len: len as u32,
            qp: self.number,
            slots: 0,
            invalidated: None,
            imm: arrival.message.imm,
            solicited: arrival.message.solicited || !placed,
            source: Some(arrival.message.from),
        });
        if !placed {
            self.enter_error(host);
        }
        true
    }

    /// Copies octets into a scatter list from `offset` on.
    fn place(&self, list: &[Sge], offset: u32, octets: &[u8], host: &mut impl Host) -> bool {
        let mut rest = octets;
        for piece in pieces(list, offset, octets.len() as u32) {
            let (now, later) = rest.split_at(piece.length as usize);
            let placed = self
                .local(&piece, Access::LOCAL_WRITE, host)
                .is_some_and(|span| host.write(span, now).is_ok());
            if !placed {
                return false;
            }
            rest = later;
        }
        true
    }

    /// The span of an element of this side's lists, if the element may be used so.
    fn local(&self, sge: &Sge, access: Access, host: &impl Host) -> Option<Span> {
        let stag = Stag(sge.lkey);
        host.check(stag, sge.addr, sge.length, access, self.scope())
            .ok()
    }

    fn flush_receives(&mut self, host: &mut impl Host) {
        while let Some(wqe) = self.rq.pop() {
            self.fail_receive(&wqe, WcStatus::Flushed, host);
        }
        if self.shared_receive && !core::mem::replace(&mut self.last_wqe_reported, true) {
            host.async_event(AsyncEventKind::QpLastWqeReached);
        }
    }

    fn fail_receive(&self, wqe: &RecvWqe, status: WcStatus, host: &mut impl Host) {
        host.complete_recv(Completion {
            wr_id: wqe.wr_id,
            status,
            opcode: WcOpcode::Recv,
            byte_len: 0,
            qp: self.number,
            slots: 0,
            invalidated: None,
            imm: None,
            solicited: true,
            source: None,
        });
    }
}
