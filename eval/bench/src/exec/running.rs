//! One program of a job, from its start to its end.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{kill_process_group, Pid, Signal};
use weft_os::usage::{reap, Usage};

use super::ready::{bound, listening};
use crate::ended::{micros, nothing, Ended};
use crate::job::{Invocation, Ready, Side};
use crate::record::RoleRecord;

/// Octets that a program may print on one of its streams.
const PRINTED_OCTETS: usize = 16 << 20;
/// How long the readers may take to the end of what was printed once the program has ended.
const READING: Duration = Duration::from_secs(1);

/// A started program; killed with its whole group when told to.
pub(super) struct Running {
    name: String,
    child: Child,
    out: Collected,
    err: Collected,
    started: Instant,
    ended: Option<(ExitStatus, Usage, Duration)>,
}

impl Running {
    /// Starts `invocation` as the role of this name. `mark` is a variable by which what it leaves behind is found.
    pub(super) fn start(
        name: &str,
        side: &Side,
        core: Option<usize>,
        invocation: &Invocation,
        mark: (&str, String),
    ) -> Result<Running, String> {
        let mut child = side
            .command(invocation, core)
            .env(mark.0, mark.1)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|e| format!("cannot start {}: {e}", invocation.program.display()))?;
        let out = Collected::of(child.stdout.take());
        let err = Collected::of(child.stderr.take());
        Ok(Running {
            name: name.to_owned(),
            child,
            out,
            err,
            started: Instant::now(),
            ended: None,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The process that was started, which leads its group.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended; nothing while it runs.
    pub(super) fn status(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            let found = match reap(self.pid()) {
                Ok(found) => found,
                // Nobody else reaps children here; if one did, the program has ended all the same.
                Err(_) => Some((ExitStatus::from_raw(0xff00), Usage::default())),
            };
            self.ended = found.map(|(status, usage)| (status, usage, self.started.elapsed()));
        }
        self.ended.map(|(status, ..)| status)
    }

    /// Whether it is ready in this sense.
    pub(super) fn is_ready(&self, ready: &Ready) -> bool {
        match ready {
            Ready::AtOnce => true,
            Ready::Listens(port) => listening(self.pid(), *port),
            Ready::Binds(port) => bound(self.pid(), *port),
            Ready::Says(line) => self.has_said(line),
        }
    }

    /// Whether it has printed this line.
    fn has_said(&self, line: &str) -> bool {
        [&self.out, &self.err].iter().any(|printed| {
            let printed = printed.octets();
            let mut lines = printed.split(|octet| *octet == b'\n');
            // What stands behind the last end of a line may be the beginning of one.
            lines.next_back();
            lines.any(|found| found == line.as_bytes())
        })
    }

    /// Tells the program, and what it started, to end.
    pub(super) fn tell_to_end(&self) {
        if let Some(group) = Pid::from_raw(self.pid() as i32) {
            // ESRCH when all of it has ended.
            let _ = kill_process_group(group, Signal::TERM);
        }
    }

    /// An error where it prints more than any program here has reason to.
    pub(super) fn check(&self) -> Result<(), String> {
        let too_much = [&self.out, &self.err]
            .iter()
            .any(|printed| printed.octets().len() >= PRINTED_OCTETS);
        match too_much {
            true => Err(format!(
                "the {} printed more than {PRINTED_OCTETS} octets",
                self.name
            )),
            false => Ok(()),
        }
    }

    /// The group is killed even when its leader has ended: `weft run` and shells have children.
    pub(super) fn kill(&mut self) {
        if let Some(group) = Pid::from_raw(self.pid() as i32) {
            // ESRCH when all of it has ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
        while self.status().is_none() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// What a program that has ended came to.
    pub(super) fn finish(mut self) -> Ended {
        self.kill();
        let (_, usage, lived) = self.ended.unwrap_or_default();
        let deadline = Instant::now() + READING;
        let mut ended = Ended {
            out: self.out.text(deadline),
            err: self.err.text(deadline),
            taken: RoleRecord {
                lived: micros(lived),
                ..nothing(&self.name)
            },
        };
        ended.add(usage);
        ended
    }
}

/// How a program ended, for people.
pub(super) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// What comes out of a pipe, read by a thread of its own.
struct Collected {
    octets: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Collected {
    fn of(pipe: Option<impl Read + Send + 'static>) -> Collected {
        let octets: Arc<Mutex<Vec<u8>>> = Arc::default();
        let into = octets.clone();
        let reader = pipe.map(|pipe| thread::spawn(move || collect(pipe, &into)));
        Collected { octets, reader }
    }

    fn octets(&self) -> MutexGuard<'_, Vec<u8>> {
        self.octets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of it, as soon as the pipe has ended; what there is by `deadline` where somebody holds it open.
    fn text(&self, deadline: Instant) -> String {
        let reading = || {
            self.reader
                .as_ref()
                .is_some_and(|reader| !reader.is_finished())
        };
        while reading() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        String::from_utf8_lossy(&self.octets()).into_owned()
    }
}

/// Reads to the end, as the program would wait for a reader otherwise, and keeps what a program has reason to print.
fn collect(mut pipe: impl Read, into: &Mutex<Vec<u8>>) {
    let mut buffer = vec![0; 64 << 10];
    // A read error ends the text early; what was read still counts.
    while let Ok(n @ 1..) = pipe.read(&mut buffer) {
        let mut kept = into.lock().unwrap_or_else(PoisonError::into_inner);
        let room = PRINTED_OCTETS - kept.len();
        kept.extend_from_slice(&buffer[..n.min(room)]);
    }
}
