//! What the thread does with questions: looks for the connection, asks who will take it, and answers.

use std::time::Duration;

use weft_discovery_proto::answering::{Ignored, Inquiry};
use weft_discovery_proto::message::MESSAGE_OCTETS_MAX;
use weft_discovery_proto::{About, Connection};
use weft_os::guarded::Guarded;
use weft_os::lists::Gather;
use weft_os::sock_diag::State;

use super::colleagues::{Accepted, Caller, Says, Vote, Wants};
use super::counts::count;
use super::serving::Serving;
use super::Answering;
use crate::now;

/// Datagrams that are taken in one go, before anything else is looked at.
const DATAGRAMS_MAX: usize = 64;
/// Datagrams, and connections of other users, that are ignored in one [`FLOOD_WINDOW`], after which nothing is received
/// until its end: beyond, the kernel drops them, which costs less.
const IGNORED_MAX: u32 = 256;
const FLOOD_WINDOW: Duration = Duration::from_millis(10);
/// Questions about which other processes are being asked, at a time.
const VOTES_MAX: usize = 16;
/// Other processes that have connected and not said what they want, at a time.
const CALLERS_MAX: usize = 16;

impl Serving {
    /// Takes in what clients ask.
    pub(super) fn receive(&mut self) {
        // One octet more than a message has, so that a longer one shows.
        let mut octets = [0; MESSAGE_OCTETS_MAX + 1];
        for at in 0..self.ports.ports.len() {
            if !self.ready[1 + at] {
                continue;
            }
            for _ in 0..DATAGRAMS_MAX {
                let Some(socket) = self.ports.ports[at].socket.get() else {
                    self.is_told = true;
                    break;
                };
                let Ok(received) = socket.receive(&mut octets) else {
                    break;
                };
                let datagram = octets.get(..received.octets).unwrap_or_default();
                let handled = self.inquiries.handle_datagram(
                    datagram,
                    received.from,
                    received.to,
                    received.interface,
                    now(),
                );
                self.handle(self.ports.ports[at].number, handled);
            }
        }
    }

    /// What came to one of the ports.
    fn handle(&mut self, port: u16, handled: Result<Inquiry, Ignored>) {
        let (counts, asked_at) = (&self.answering.counts, self.answering.port);
        count(&counts.datagrams);
        match handled {
            Ok(inquiry) if asked_at.of(inquiry.question.connection.server.port()) == port => {
                self.look_into(inquiry);
            }
            Ok(_) => count(&counts.unknown),
            Err(why) => {
                self.ignored += 1;
                count(match why {
                    Ignored::NoQuestion(_) => &counts.no_questions,
                    Ignored::Limited => &counts.limited,
                    Ignored::Translated => &counts.translated,
                });
            }
        }
    }

    /// Sleeps where more was ignored than is worth receiving.
    pub(super) fn sit_floods_out(&mut self) {
        let elapsed = now().saturating_sub(self.window_since);
        if elapsed < FLOOD_WINDOW && self.ignored < IGNORED_MAX {
            return;
        }
        if self.ignored >= IGNORED_MAX {
            std::thread::sleep(FLOOD_WINDOW.saturating_sub(elapsed));
        }
        (self.ignored, self.window_since) = (0, now());
    }

    /// Looks for connections again that were not there.
    pub(super) fn look_again(&mut self) {
        while let Some(inquiry) = self.inquiries.poll_inquiry(now()) {
            self.look_into(inquiry);
        }
    }

    /// Looks whether this machine has the connection, and who will take it.
    fn look_into(&mut self, inquiry: Inquiry) {
        if !self.has_connection(&inquiry) {
            let given_up = self.inquiries.counts().unconnected;
            self.inquiries.handle_unconnected(inquiry, now());
            if self.inquiries.counts().unconnected != given_up {
                count(&self.answering.counts.unconnected);
            }
            return;
        }
        let connection = inquiry.question.connection;
        let own = says(self.answering, &connection);
        let (about, port) = (connection.about, connection.server.port());
        let spoken_for = match own {
            // Another of the family may have it, and a listener of its own.
            Says::NotMine => 0,
            // One speaks for all who share its promises.
            _ => self.answering.claims.indexes_of(about, port),
        };
        if own == Says::No || self.votes.len() >= VOTES_MAX {
            return count(&self.answering.counts.refused);
        }
        let vote = Vote::begin(inquiry, own, spoken_for, now());
        match vote {
            Ok(vote) => self.votes.push(vote),
            Err(_) => count(&self.answering.counts.refused),
        }
        // Mostly there is nobody else to ask.
        self.count_votes();
    }

    fn has_connection(&mut self, inquiry: &Inquiry) -> bool {
        let Connection {
            about,
            client,
            server,
        } = inquiry.question.connection;
        if about == About::Datagrams {
            // There is nothing to look for: whose socket it is knows.
            return true;
        }
        let Some(diag) = self.ports.diag.as_mut().and_then(Guarded::get) else {
            self.is_told = true;
            return false;
        };
        let (local, remote) = (server.to_socket_addr(), client.to_socket_addr());
        let found = diag.connection(local, remote, inquiry.interface);
        let state = found.ok().flatten().map(|found| found.state);
        matches!(state, Some(State::SynReceived | State::Established))
    }

    /// Says yes where all have agreed.
    pub(super) fn count_votes(&mut self) {
        let mut at = 0;
        while at < self.votes.len() {
            let Some(decided) = self.votes[at].poll(now()) else {
                at += 1;
                continue;
            };
            let vote = self.votes.swap_remove(at);
            let counts = &self.answering.counts;
            match decided {
                Some(yes) => self.answer(&vote.inquiry, yes),
                None if vote.is_objected() => count(&counts.refused),
                None => count(&counts.unknown),
            }
        }
    }

    fn answer(&mut self, inquiry: &Inquiry, says: Says) {
        let question = &inquiry.question;
        let (plain, with_carriers);
        let yes: &[u8] = match (question.connection.about, says) {
            (About::Datagrams, Says::TakesCarriers(takes)) => {
                with_carriers = question.yes_to_datagrams(&takes);
                &with_carriers
            }
            (About::Stream, Says::Yes) => {
                plain = question.yes();
                &plain
            }
            // A colleague that answers something else than it was asked.
            _ => return count(&self.answering.counts.refused),
        };
        let mut list = Gather::default();
        let port = self
            .answering
            .port
            .of(inquiry.question.connection.server.port());
        let socket = self.ports.socket(port).filter(|_| list.push(yes));
        let sent = socket.map(|socket| socket.send(&list, inquiry.to, inquiry.from, None));
        if matches!(sent, Some(Ok(()))) {
            count(&self.answering.counts.answered);
        }
    }

    /// Answers other processes.
    pub(super) fn answer_callers(&mut self) {
        let ready = &self.ready[1 + self.ports.ports.len()..];
        let names = self.ports.names.iter_mut().zip(ready);
        for (name, _) in names.filter(|(_, is_ready)| **is_ready) {
            let Some(listener) = name.listener.get() else {
                self.is_told = true;
                continue;
            };
            for _ in 0..CALLERS_MAX {
                match Caller::accept(listener, now()) {
                    Accepted::Caller(caller) if self.callers.len() < CALLERS_MAX => {
                        self.callers.push(caller);
                    }
                    // Who is not answered says no.
                    Accepted::Caller(_) | Accepted::Stranger => self.ignored += 1,
                    Accepted::Nobody => break,
                    Accepted::Failed => {
                        self.ignored = IGNORED_MAX;
                        break;
                    }
                }
            }
        }
        let answering = self.answering;
        self.callers.retain_mut(|caller| match caller.wants(now()) {
            Wants::Waits => true,
            Wants::Nothing => false,
            Wants::ToKnow(connection) => {
                count(&answering.counts.colleagues);
                caller.say(says(answering, &connection));
                false
            }
        });
    }
}

/// What this process says of a connection that this machine has, or of datagrams that come to it.
fn says(answering: &Answering, connection: &Connection) -> Says {
    let (about, server) = (connection.about, connection.server);
    let is_ours = answering
        .shared()
        .is_some_and(|shared| shared.listeners.take(about, server));
    if !is_ours {
        return Says::NotMine;
    }
    if !answering.owner.promise(connection, now()) {
        return match about {
            About::Stream => Says::No,
            // Another process that has the socket may take them.
            About::Datagrams => Says::NotMine,
        };
    }
    match about {
        About::Stream => Says::Yes,
        About::Datagrams => match answering.owner.carriers() {
            Some(takes) => Says::TakesCarriers(takes),
            None => Says::No,
        },
    }
}
