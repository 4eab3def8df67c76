//! The listener's side of lookups: who may ask, what was asked already, and what is answered.
//!
//! The sender's address of a datagram can be anybody's word. So a request is nobody's until it repeats a cookie that
//! was sent to its address: before that nothing is kept of it, no program hears of it, and the challenge that it gets
//! is no longer than it was itself. The cookie is a keyed hash of what the request says and of the time, so that none
//! has to be remembered.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::hash::Hasher;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use core::time::Duration;

use siphasher::sip::SipHasher24;

use super::{Message, TooLong, Verdict, REPLY_OCTETS_MAX};

/// A cookie is good for this long, and up to twice that.
const COOKIE_LIFE: Duration = Duration::from_secs(8);
/// How long an answer is kept for a request that comes again.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// Answers that are kept at most.
const KEPT_MAX: usize = 1024;

/// Names a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RequestKey {
    /// The socket that asked.
    pub from: SocketAddr,
    /// The number it gave its request.
    pub lookup: u64,
}

/// What is to be done about a datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// It is no request: it is dropped and counted.
    Drop,
    /// Nothing: the program has not decided, or there is no room and the client asks again.
    Wait,
    /// These octets go back to the sender.
    Send(Vec<u8>),
    /// The program is told.
    Tell(RequestKey, Vec<u8>),
}

/// The requests of one listener.
#[derive(Debug)]
pub struct Responder {
    secret: [u8; 16],
    most: usize,
    /// By request: the answer, if the program has given it.
    requests: BTreeMap<RequestKey, Option<Vec<u8>>>,
    /// Those that have one, oldest first, and until when it is kept.
    answered: VecDeque<(Duration, RequestKey)>,
}

impl Responder {
    /// A listener at which at most `most` requests wait for the program. `secret` is random, and nobody else's.
    pub fn new(secret: [u8; 16], most: usize) -> Responder {
        Responder {
            secret,
            most: most.max(1),
            requests: BTreeMap::new(),
            answered: VecDeque::new(),
        }
    }

    /// A datagram came.
    pub fn handle_datagram(&mut self, octets: &[u8], from: SocketAddr, now: Duration) -> Action {
        let Some(Message::Request {
            lookup,
            cookie,
            private_data,
        }) = Message::parse(octets)
        else {
            return Action::Drop;
        };
        let key = RequestKey { from, lookup };
        if !self.is_right(cookie, &key, now) {
            let cookie = self.cookie(&key, self.period(now));
            return Action::Send(Message::Challenge { lookup, cookie }.encode());
        }
        self.forget_old(now);
        match self.requests.get(&key) {
            Some(Some(answer)) => Action::Send(answer.clone()),
            Some(None) => Action::Wait,
            None if !self.has_room_for(from.ip()) => Action::Wait,
            None => {
                self.requests.insert(key, None);
                Action::Tell(key, private_data.to_vec())
            }
        }
    }

    /// The program has decided about a request that it was told of: what is sent to the client, now and whenever it
    /// asks again.
    ///
    /// # Errors
    /// More private data than an answer has room for; the request waits on.
    pub fn answer(
        &mut self,
        key: RequestKey,
        verdict: Verdict,
        private_data: &[u8],
        now: Duration,
    ) -> Result<Vec<u8>, TooLong> {
        if private_data.len() > REPLY_OCTETS_MAX {
            return Err(TooLong);
        }
        let answer = Message::Reply {
            lookup: key.lookup,
            verdict,
            private_data,
        }
        .encode();
        self.forget_old(now);
        if self.answered.len() >= KEPT_MAX {
            self.forget_oldest();
        }
        self.requests.insert(key, Some(answer.clone()));
        self.answered.push_back((now + KEPT_FOR, key));
        Ok(answer)
    }

    /// Whether one more request of that address may wait. No address has more than half of the places, so that one that
    /// asks and asks does not keep the others out.
    fn has_room_for(&self, address: IpAddr) -> bool {
        let (mut all, mut own) = (0, 0);
        for (key, answer) in &self.requests {
            if answer.is_none() {
                all += 1;
                own += usize::from(network(key.from.ip()) == network(address));
            }
        }
        all < self.most && own < self.most.div_ceil(2)
    }

    fn forget_old(&mut self, now: Duration) {
        while self
            .answered
            .front()
            .is_some_and(|(until, _)| *until <= now)
        {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, key)) = self.answered.pop_front() {
            self.requests.remove(&key);
        }
    }

    // --- cookies

    fn period(&self, now: Duration) -> u64 {
        now.as_secs() / COOKIE_LIFE.as_secs()
    }

    fn is_right(&self, cookie: u64, key: &RequestKey, now: Duration) -> bool {
        let period = self.period(now);
        cookie == self.cookie(key, period) || period > 0 && cookie == self.cookie(key, period - 1)
    }

    /// Never 0, which is none.
    fn cookie(&self, key: &RequestKey, period: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        hasher.write_u64(period);
        hasher.write_u64(key.lookup);
        hasher.write(&v6(key.from.ip()).octets());
        hasher.write_u16(key.from.port());
        hasher.finish().max(1)
    }
}

fn v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// Of IPv6 the network of 64 bits counts, since whoever has one address of it has them all.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
    }
}
