//! The bodies of the fuzz targets, to be run by the fuzzer and, over the committed corpora, by the tests.
//!
//! Each takes any octets and panics when the code under test breaks a promise.

use std::boxed::Box;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use zerocopy::FromZeros;

use crate::answering::{Answering, Ignored};
use crate::connection::{About, Connection, End};
use crate::expected::{Expected, First, PROMISED, SETTLED};
use crate::limits::Limits;
use crate::message::{Answer, Question, TakesCarriers, MESSAGE_OCTETS_MAX, QUESTION_LEN};

const START: Duration = Duration::from_secs(1000);

/// Target `discovery`: an even first octet reads the rest as a question, an odd one as the answer to one, about a
/// stream or (3, 7, 11 ...) about datagrams.
pub fn discovery(data: &[u8]) {
    let Some((kind, octets)) = data.split_first() else {
        return;
    };
    match kind % 4 {
        1 => return answer(octets),
        3 => return answer_about_datagrams(octets),
        _ => {}
    }
    let Ok(question) = Question::parse(octets) else {
        assert!(ask(octets, &None).is_err());
        return;
    };
    assert!(question.connection.is_possible());
    assert_eq!(Question::parse(&question.to_octets()), Ok(question));
    assert!(question.yes().len() <= octets.len());
    let takes = TakesCarriers {
        port: 1,
        instance: 2,
        adapter: Some(question.connection.server),
    };
    match question.connection.about {
        About::Stream => assert_eq!(question.answer(&question.yes()), Some(Answer::Yes)),
        About::Datagrams => {
            let answer = question.answer(&question.yes_to_datagrams(&takes));
            assert_eq!(answer, Some(Answer::TakesCarriers(takes)));
        }
    }
    assert_eq!(question.answer(octets), None, "a question is no answer");
    assert!(ask(octets, &Some(question)).is_ok());
}

/// Only the header's 23 octets that are looked at make an answer, whatever follows.
fn answer(octets: &[u8]) {
    let question = asked_about(About::Stream);
    let mut yes = question.yes().to_vec();
    let is_yes = octets.len() >= yes.len() && octets.len() <= MESSAGE_OCTETS_MAX && {
        yes[7] = octets[7];
        octets.starts_with(&yes)
    };
    assert_eq!(question.answer(octets).is_some(), is_yes);
}

/// The same, and the port, the instance and the adapter's end that follow, as they are read is as they are written.
fn answer_about_datagrams(octets: &[u8]) {
    let question = asked_about(About::Datagrams);
    match question.answer(octets) {
        Some(Answer::TakesCarriers(takes)) => {
            assert!(takes.port != 0 && octets.len() <= MESSAGE_OCTETS_MAX);
            let mut yes = question.yes_to_datagrams(&takes);
            yes[7] = octets[7];
            let read = takes.adapter.map_or(34, |_| yes.len());
            assert!(octets.starts_with(&yes[..read]));
        }
        Some(Answer::Yes) => panic!("a yes about a stream, which was not asked about"),
        None => {}
    }
}

fn asked_about(about: About) -> Question {
    let end = |port| End::new([192, 0, 2, 1].into(), port);
    let connection = Connection {
        about,
        client: end(1),
        server: end(2),
    };
    let nonce = *b"sixteen octets!!";
    Question { connection, nonce }
}

/// A server that gets it, from where it names if it is a question.
fn ask(octets: &[u8], question: &Option<Question>) -> Result<(), Ignored> {
    let mut answering = Answering::new(Limits::new_zeroed());
    let anybody = SocketAddr::from(([192, 0, 2, 1], 5000));
    let (from, to): (SocketAddr, IpAddr) = question.map_or((anybody, anybody.ip()), |question| {
        let Connection { client, server, .. } = question.connection;
        (client.to_socket_addr(), server.address())
    });
    let first = answering.handle_datagram(octets, from, to, 1, START);
    if let Ok(inquiry) = first {
        answering.handle_unconnected(inquiry, START);
        assert!(answering.deadline().is_some());
    }
    first.map(drop)
}

/// Target `discovery_expected`: the seed; then steps of what happens (promise, take, settle, time), whose address, and
/// which port. Compared with a model: what was promised is held, and what was settled is not promised.
pub fn discovery_expected(data: &[u8]) {
    let Some((seed, steps)) = data.split_first() else {
        return;
    };
    let mut expected = Box::new(Expected::new_zeroed());
    expected.set_seed((*seed).into());
    let mut model = Model {
        expected,
        promised: BTreeMap::new(),
        settled: BTreeMap::new(),
        now: START,
    };
    for step in steps.as_chunks::<3>().0 {
        model.step(step[0], step[1], step[2]);
    }
}

struct Model {
    expected: Box<Expected>,
    promised: BTreeMap<(u8, u8), Duration>,
    settled: BTreeMap<(u8, u8), Duration>,
    now: Duration,
}

impl Model {
    fn step(&mut self, what: u8, host: u8, port: u8) {
        if what % 4 == 3 {
            self.now += Duration::from_micros(1 << (host % 22));
            return;
        }
        let (name, now) = ((host, port), self.now);
        let connection = Connection {
            about: About::Stream,
            client: End::new([10, 0, 0, host].into(), 1 + u16::from(port)),
            server: End::new([10, 1, 0, 1].into(), 80),
        };
        let promised = self.promised.get(&name).copied();
        let promised = promised.filter(|at| now < *at + PROMISED);
        let settled = self
            .settled
            .get(&name)
            .is_some_and(|at| now < *at + SETTLED);
        match what % 4 {
            0 => match self.expected.promise(&connection, now) {
                Ok(()) => {
                    assert!(!settled, "promised behind first octets");
                    self.promised.insert(name, promised.unwrap_or(now));
                }
                Err(_) => assert_eq!(promised, None, "promised once, and refused now"),
            },
            1 => {
                assert_eq!(self.expected.take(&connection, now), promised);
                self.promised.remove(&name);
            }
            _ => {
                let first = self.expected.settle(&connection, now);
                assert_eq!(first, promised.map_or(First::Leave, First::Held));
                self.promised.remove(&name);
                if first == First::Leave && !settled {
                    self.settled.insert(name, now);
                }
            }
        }
    }
}

const _: () = assert!(QUESTION_LEN <= MESSAGE_OCTETS_MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;

    /// Runs every file of a committed corpus; gives how many there were.
    fn replay(target: &str, run: fn(&[u8])) -> usize {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../fuzz/corpus")
            .join(target);
        let files = fs::read_dir(corpus).expect("corpus folder");
        files
            .map(|file| run(&fs::read(file.expect("entry").path()).expect("file")))
            .count()
    }

    #[test]
    fn corpora() {
        assert!(replay("discovery", discovery) >= 8);
        assert!(replay("discovery_expected", discovery_expected) >= 4);
    }

    proptest! {
        /// What the fuzzer does without end, for a moment: few connections, so that steps meet.
        #[test]
        fn promises_and_settlements_agree(
            seed: u8,
            steps in prop::collection::vec((0u8..4, 0u8..22, 0u8..3), 0..400),
        ) {
            let mut data = std::vec![seed];
            data.extend(steps.iter().flat_map(|(what, host, port)| [*what, *host, *port]));
            discovery_expected(&data);
        }
    }
}
