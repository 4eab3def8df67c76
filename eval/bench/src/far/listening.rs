//! What is heard of a far end, by threads that read what its remote shell prints.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::messages::{Here, Tell};
use crate::ended::Ended;

/// Octets of a line: what programs have printed is in one.
const LINE_OCTETS: u64 = 256 << 20;
/// Octets of what a shell says beside it that are kept, the last ones.
const SAID_OCTETS: usize = 4 << 10;
/// Lines of it that are told.
const SAID_LINES: usize = 4;
/// How long a shell's last words may take to be read.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// So far.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// The far end's first line.
    pub(super) here: Option<Box<Here>>,
    /// What the roles of the job that is under way came to.
    pub(super) ended: Option<Vec<Ended>>,
    /// Nothing more will be heard.
    pub(super) is_over: bool,
    roles: BTreeMap<String, Role>,
    /// What the shell said that is no far end's: why it does not get there, or a machine's greeting.
    beside: Vec<u8>,
}

/// A role of the job.
#[derive(Debug, Default)]
pub(super) struct Role {
    /// Whether its program runs, once that is known.
    pub(super) started: Option<Result<(), String>>,
    pub(super) is_ready: bool,
    /// How it ended.
    pub(super) status: Option<i32>,
    /// What no program has reason to do.
    pub(super) wrong: Option<String>,
}

impl Heard {
    /// A role is to be played.
    pub(super) fn begin(&mut self, role: &str) {
        self.roles.insert(role.to_owned(), Role::default());
    }

    pub(super) fn role(&self, role: &str) -> Option<&Role> {
        self.roles.get(role)
    }

    pub(super) fn has_roles(&self) -> bool {
        !self.roles.is_empty()
    }

    /// The job is over.
    pub(super) fn forget(&mut self) {
        self.roles.clear();
        self.ended = None;
    }

    /// What the shell said beside the far end's lines, in a line.
    pub(super) fn said(&self) -> String {
        let text = String::from_utf8_lossy(&self.beside);
        let text = shown(&text);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let said: Vec<&str> = lines.take(SAID_LINES).collect();
        match said.join("; ").as_str() {
            "" => "its remote shell said nothing".to_owned(),
            said => format!("its remote shell said: {said}"),
        }
    }

    fn told(&mut self, tell: Tell) {
        match tell {
            Tell::Here(here) => self.here = Some(here),
            Tell::Ended { roles } => self.ended = Some(roles),
            Tell::Started { role } => self.with(&role, |role| role.started = Some(Ok(()))),
            Tell::NotStarted { role, why } => {
                self.with(&role, |role| role.started = Some(Err(shown(&why))));
            }
            Tell::Ready { role } => self.with(&role, |role| role.is_ready = true),
            Tell::Gone { role, status } => self.with(&role, |role| role.status = Some(status)),
            Tell::Wrong { role, why } => self.with(&role, |role| role.wrong = Some(shown(&why))),
        }
    }

    /// A role that the job does not have is one of a job before, which is over.
    fn with(&mut self, role: &str, change: impl FnOnce(&mut Role)) {
        if let Some(role) = self.roles.get_mut(role) {
            change(role);
        }
    }

    fn said_beside(&mut self, octets: &[u8]) {
        self.beside.extend_from_slice(octets);
        let over = self.beside.len().saturating_sub(SAID_OCTETS);
        self.beside.drain(..over);
    }
}

/// What another machine says, as it may be shown on a terminal: without what would command it.
pub(super) fn shown(text: &str) -> String {
    let is_shown = |c: &char| *c == '\n' || !c.is_control();
    text.chars().filter(is_shown).collect()
}

/// Begins to listen to what a remote shell prints on its two streams.
pub(super) fn begin(
    out: Option<impl Read + Send + 'static>,
    err: Option<impl Read + Send + 'static>,
) -> Arc<Mutex<Heard>> {
    let heard: Arc<Mutex<Heard>> = Arc::default();
    let beside = heard.clone();
    let errors = err.map(|err| thread::spawn(move || listen_beside(err, &beside)));
    let told = heard.clone();
    thread::spawn(move || {
        if let Some(out) = out {
            listen(out, &told);
        }
        // What the shell says last is why it has ended. It may leave somebody behind who keeps the stream open.
        let deadline = Instant::now() + LAST_WORDS;
        while errors.as_ref().is_some_and(|errors| !errors.is_finished())
            && Instant::now() < deadline
        {
            thread::sleep(Duration::from_millis(1));
        }
        with(&told, |heard| heard.is_over = true);
    });
    heard
}

/// Takes in the far end's lines. Others are the machine's own: profiles of shells print, too.
fn listen(out: impl Read, heard: &Mutex<Heard>) {
    let mut out = BufReader::new(out);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut out).take(LINE_OCTETS).read_until(b'\n', &mut line) {
            Ok(1..) if line.ends_with(b"\n") => {}
            // Its end, or a line that no far end sends.
            _ => return,
        }
        match serde_json::from_slice(&line) {
            Ok(tell) => with(heard, |heard| heard.told(tell)),
            Err(_) => with(heard, |heard| heard.said_beside(&line)),
        }
    }
}

fn listen_beside(mut err: impl Read, heard: &Mutex<Heard>) {
    let mut buffer = [0; 1024];
    while let Ok(octets @ 1..) = err.read(&mut buffer) {
        with(heard, |heard| heard.said_beside(&buffer[..octets]));
    }
}

fn with(heard: &Mutex<Heard>, change: impl FnOnce(&mut Heard)) {
    change(&mut heard.lock().unwrap_or_else(PoisonError::into_inner));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_says_commands_no_terminal() {
        let mut heard = Heard::default();
        heard.begin("server");
        heard.told(Tell::NotStarted {
            role: "server".to_owned(),
            why: "no\u{1b}[2J such\u{9b}1m program".to_owned(),
        });
        let why = heard.role("server").and_then(|role| role.started.clone());
        assert_eq!(why, Some(Err("no[2J such1m program".to_owned())));
        heard.said_beside(b"\x1b]0;x\x07first\n\n second\r\n");
        assert_eq!(heard.said(), "its remote shell said: ]0;xfirst; second");
    }

    #[test]
    fn what_is_told_of_a_job_before_is_not_taken_for_this_ones() {
        let mut heard = Heard::default();
        heard.told(Tell::Ready {
            role: "server".to_owned(),
        });
        assert!(heard.role("server").is_none());
        heard.begin("server");
        assert!(heard.role("server").is_some_and(|role| !role.is_ready));
    }
}
