//! The server: which questions are looked into, and when again.
//!
//! What a question says is checked as far as the datagram itself shows it. Whether there is such a connection, the
//! kernel knows: the driver looks, and says here when there is none, as the SYN may come a little later than the
//! question.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use crate::connection::About;
use crate::limits::Limits;
use crate::message::{NoQuestion, Question};
use crate::places::neighbour;

/// Pauses before each further look for a connection that is not there.
pub const LOOK_AGAIN: [Duration; 4] = [
    Duration::from_micros(500),
    Duration::from_micros(1000),
    Duration::from_micros(2000),
    Duration::from_micros(4000),
];
/// Questions that wait for their connection at a time.
pub const WAITING_MAX: usize = 64;
/// The same of one address.
pub const WAITING_OF_ADDRESS_MAX: usize = 16;

/// A question, and how it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inquiry {
    /// What is asked.
    pub question: Question,
    /// Who asks, with scope: where the answer goes.
    pub from: SocketAddr,
    /// The address that was asked: where the answer comes from.
    pub to: IpAddr,
    /// The index of the interface that it came by.
    pub interface: u32,
    /// Looks for its connection that found none.
    looks: u8,
}

/// Why a datagram is not looked into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ignored {
    /// It is no question.
    NoQuestion(NoQuestion),
    /// Its sender, or all together, have asked too much of late.
    Limited,
    /// The addresses that it came from and to are not those that it names: there is a translator between, or it is
    /// forged. Of datagrams only the address that it came to counts.
    Translated,
}

/// What became of the datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Datagrams that came.
    pub datagrams: u64,
    /// Of those, ignored: no question.
    pub no_questions: u64,
    /// Ignored: too many.
    pub limited: u64,
    /// Ignored: not from where they say.
    pub translated: u64,
    /// Looked into, without a connection to be found.
    pub unconnected: u64,
}

/// The questions of one process.
#[derive(Debug)]
pub struct Answering {
    limits: Limits,
    waiting: [Option<(Duration, Inquiry)>; WAITING_MAX],
    counts: Counts,
}

impl Answering {
    /// No questions yet. `limits` are those of nobody.
    pub fn new(limits: Limits) -> Answering {
        Answering {
            limits,
            waiting: [None; WAITING_MAX],
            counts: Counts::default(),
        }
    }

    /// What became of the datagrams so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// A datagram came from `from`, was sent to this machine's address `to`, by the interface with this index. Gives
    /// the question to look into.
    ///
    /// # Errors
    /// It is to be ignored: nothing is answered.
    pub fn handle_datagram(
        &mut self,
        octets: &[u8],
        from: SocketAddr,
        to: IpAddr,
        interface: u32,
        now: Duration,
    ) -> Result<Inquiry, Ignored> {
        self.counts.datagrams += 1;
        let question = Question::parse(octets).map_err(|why| {
            self.counts.no_questions += 1;
            Ignored::NoQuestion(why)
        })?;
        if !self.limits.allow(from.ip(), now) {
            self.counts.limited += 1;
            return Err(Ignored::Limited);
        }
        let connection = question.connection;
        let is_same = |named: crate::End, seen: IpAddr| named.address() == seen.to_canonical();
        // Who asks about datagrams may be behind a translator: its address is proved later, by UDP itself.
        let is_from_whom_it_says =
            connection.about == About::Datagrams || is_same(connection.client, from.ip());
        if !is_from_whom_it_says || !is_same(connection.server, to) {
            self.counts.translated += 1;
            return Err(Ignored::Translated);
        }
        Ok(Inquiry {
            question,
            from,
            to,
            interface,
            looks: 0,
        })
    }

    /// There is no such connection, yet. It is looked for again a few times within milliseconds.
    pub fn handle_unconnected(&mut self, mut inquiry: Inquiry, now: Duration) {
        let of_address =
            |other: &Inquiry| neighbour(other.from.ip()) == neighbour(inquiry.from.ip());
        let waiting = self.waiting.iter().flatten();
        let has_room =
            waiting.filter(|(_, other)| of_address(other)).count() < WAITING_OF_ADDRESS_MAX;
        let pause = LOOK_AGAIN.get(usize::from(inquiry.looks));
        let place = self.waiting.iter_mut().find(|place| place.is_none());
        match (pause, place) {
            (Some(pause), Some(place)) if has_room => {
                inquiry.looks += 1;
                *place = Some((now.saturating_add(*pause), inquiry));
            }
            _ => self.counts.unconnected += 1,
        }
    }

    /// A question whose connection is to be looked for again now.
    pub fn poll_inquiry(&mut self, now: Duration) -> Option<Inquiry> {
        let is_due =
            |place: &&mut Option<(Duration, Inquiry)>| place.is_some_and(|(at, _)| at <= now);
        let (_, inquiry) = self.waiting.iter_mut().find(is_due)?.take()?;
        Some(inquiry)
    }

    /// When one is.
    pub fn deadline(&self) -> Option<Duration> {
        self.waiting.iter().flatten().map(|(at, _)| *at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Connection;
    use crate::message::QUESTION_LEN;
    use std::vec::Vec;

    use zerocopy::FromZeros;

    const NOW: Duration = Duration::from_secs(1000);

    fn answering() -> Answering {
        Answering::new(Limits::new_zeroed())
    }

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn question(client: &str, server: &str) -> [u8; QUESTION_LEN] {
        let connection = Connection {
            about: About::Stream,
            client: addr(client).into(),
            server: addr(server).into(),
        };
        let nonce = [1; 16];
        Question { connection, nonce }.to_octets()
    }

    fn handle(
        answering: &mut Answering,
        octets: &[u8],
        from: &str,
        to: &str,
    ) -> Result<Inquiry, Ignored> {
        answering.handle_datagram(octets, addr(from), to.parse().unwrap(), 1, NOW)
    }

    #[test]
    fn a_question_is_looked_into_where_it_is_from_whom_it_says() {
        for (client, server, from, to) in [
            (
                "192.0.2.1:40000",
                "192.0.2.2:80",
                "192.0.2.1:5000",
                "192.0.2.2",
            ),
            (
                "192.0.2.1:40000",
                "192.0.2.2:80",
                "[::ffff:192.0.2.1]:5000",
                "::ffff:192.0.2.2",
            ),
            (
                "[2001:db8::1]:40000",
                "[2001:db8::2]:80",
                "[2001:db8::1]:5000",
                "2001:db8::2",
            ),
            (
                "[fe80::1]:40000",
                "[fe80::2]:80",
                "[fe80::1%3]:5000",
                "fe80::2",
            ),
        ] {
            let octets = question(client, server);
            let inquiry = handle(&mut answering(), &octets, from, to).unwrap();
            assert_eq!((inquiry.from, inquiry.interface), (addr(from), 1));
            assert_eq!(inquiry.question.connection.client, addr(client).into());
        }
        for (from, to) in [
            ("192.0.2.9:5000", "192.0.2.2"),
            ("192.0.2.1:5000", "192.0.2.9"),
            ("[2001:db8::1]:5000", "192.0.2.2"),
        ] {
            let octets = question("192.0.2.1:40000", "192.0.2.2:80");
            let mut answering = answering();
            assert_eq!(
                handle(&mut answering, &octets, from, to),
                Err(Ignored::Translated)
            );
            assert_eq!(answering.counts().translated, 1);
        }
    }

    #[test]
    fn about_datagrams_a_translator_before_the_asker_is_allowed() {
        let mut octets = question("10.0.0.1:5000", "192.0.2.2:5004");
        octets[6] = 2;
        let asked = handle(&mut answering(), &octets, "192.0.2.77:61000", "192.0.2.2");
        let inquiry = asked.unwrap();
        assert_eq!(
            inquiry.from,
            addr("192.0.2.77:61000"),
            "there the answer goes"
        );
        let other = handle(&mut answering(), &octets, "192.0.2.77:61000", "192.0.2.3");
        assert_eq!(
            other,
            Err(Ignored::Translated),
            "one before this end is not"
        );
        octets[6] = 1;
        let stream = handle(&mut answering(), &octets, "192.0.2.77:61000", "192.0.2.2");
        assert_eq!(stream, Err(Ignored::Translated));
    }

    #[test]
    fn what_is_no_question_is_counted() {
        let mut answering = answering();
        let garbage = handle(&mut answering, &[0; 300], "192.0.2.1:1", "192.0.2.2");
        assert_eq!(garbage, Err(Ignored::NoQuestion(NoQuestion::Foreign)));
        assert_eq!(answering.counts().no_questions, 1);
        assert_eq!(answering.counts().datagrams, 1);
    }

    #[test]
    fn a_connection_is_looked_for_again_and_then_given_up() {
        let mut answering = answering();
        let octets = question("192.0.2.1:40000", "192.0.2.2:80");
        let mut inquiry = handle(&mut answering, &octets, "192.0.2.1:1", "192.0.2.2").unwrap();
        let mut now = NOW;
        for pause in LOOK_AGAIN {
            answering.handle_unconnected(inquiry, now);
            assert_eq!(answering.deadline(), Some(now + pause));
            assert_eq!(answering.poll_inquiry(now), None);
            now += pause;
            inquiry = answering.poll_inquiry(now).unwrap();
        }
        answering.handle_unconnected(inquiry, now);
        assert_eq!(answering.deadline(), None);
        assert_eq!(answering.counts().unconnected, 1);
        assert!(now - NOW < Duration::from_millis(10));
    }

    #[test]
    fn those_that_wait_are_bounded_in_all_and_for_an_address() {
        let mut answering = answering();
        let wait = |answering: &mut Answering, host: u8| {
            let client = std::format!("192.0.2.{host}:40000");
            let octets = question(&client, "192.0.2.200:80");
            let inquiry = handle(answering, &octets, &client, "192.0.2.200").unwrap();
            answering.handle_unconnected(inquiry, NOW);
        };
        (0..100).for_each(|_| wait(&mut answering, 1));
        assert_eq!(answering.counts().unconnected, 84);
        (2..102).for_each(|host| wait(&mut answering, host));
        assert_eq!(answering.counts().unconnected, 84 + 52);
        let due: Vec<_> =
            std::iter::from_fn(|| answering.poll_inquiry(NOW + LOOK_AGAIN[0])).collect();
        assert_eq!(due.len(), WAITING_MAX);
    }

    #[test]
    fn a_flood_is_cut_off_before_anything_is_looked_up() {
        let mut answering = answering();
        let octets = question("192.0.2.1:40000", "192.0.2.2:80");
        let looked_into = (0..10_000)
            .filter(|_| handle(&mut answering, &octets, "192.0.2.1:1", "192.0.2.2").is_ok())
            .count();
        assert_eq!(looked_into, 1024);
        assert_eq!(answering.counts().limited, 10_000 - 1024);
    }
}
