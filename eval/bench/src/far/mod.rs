//! A machine that a remote shell leads to, as the bench has it: programs are started there by a far end of the bench's
//! (`weft bench far-end`), which speaks over the shell's standard input and output.
//!
//! While programs run nothing is said but what becomes of them, and each ten seconds that the bench is still there, so
//! that the shell's octets do not disturb what is measured on the same network. The far end ends with its standard
//! input, and when it hears nothing any more, and kills what it has started: whatever becomes of the bench or of the
//! network, nothing stays there.

mod listening;
mod messages;

use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, Result};

use crate::ended::Ended;
use crate::job::{Invocation, Ready};
use listening::{shown, Heard};
pub use messages::{Ask, Here, Interface, Tell, PROTOCOL};

/// How long a remote shell may take to the far end's first line: some ask a name server, and log in slowly.
const GREETING: Duration = Duration::from_secs(30);
/// How long a far end may take to do what it is asked.
const ANSWER: Duration = Duration::from_secs(20);
/// How often a far end hears that the bench is still there.
const STILL_HERE: Duration = Duration::from_secs(10);
/// How long a far end whose programs run may hear nothing before it takes the bench for gone.
pub const SILENCE: Duration = Duration::from_secs(60);
/// How long the remote shell may take to end once its input has.
const LEAVING: Duration = Duration::from_secs(2);
/// How often it is looked whether something was heard.
const GLANCE: Duration = Duration::from_millis(2);

/// A far end. Copies are the same one; it ends with the last of them.
#[derive(Clone, Debug)]
pub struct Far(Arc<Connection>);

/// The connection to it.
#[derive(Debug)]
struct Connection {
    /// The machine, as the user names it.
    host: String,
    shell: Mutex<Child>,
    input: Mutex<Option<ChildStdin>>,
    /// When it was last asked something.
    asked: Mutex<Instant>,
    heard: Arc<Mutex<Heard>>,
}

impl PartialEq for Far {
    fn eq(&self, other: &Far) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Far {}

impl Far {
    /// Has `words`, a remote shell's, start the far end at `host`, and waits for what it says of itself.
    ///
    /// # Errors
    /// Why there is none, with what the shell said.
    pub fn connect(host: &str, words: &[String]) -> Result<(Far, Here)> {
        let (shell, words) = words.split_first().expect("a remote shell has a name");
        let mut command = Command::new(shell);
        command
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is the bench's, which has the far end tell what its programs came to.
            .process_group(0);
        let mut child = command
            .spawn()
            .map_err(|error| anyhow!("cannot run {shell}: {error}"))?;
        let heard = listening::begin(child.stdout.take(), child.stderr.take());
        let far = Far(Arc::new(Connection {
            host: host.to_owned(),
            input: Mutex::new(child.stdin.take()),
            asked: Mutex::new(Instant::now()),
            shell: Mutex::new(child),
            heard,
        }));
        let deadline = Instant::now() + GREETING;
        loop {
            let (here, gone, said) = {
                let heard = far.heard();
                (heard.here.clone(), heard.is_over, heard.said())
            };
            match here {
                Some(here) => return far.checked(*here),
                None if gone => bail!("{host}: there is no far end: {said}"),
                None if Instant::now() > deadline => {
                    bail!("{host}: no far end has answered in {GREETING:?}: {said}")
                }
                None => thread::sleep(GLANCE),
            }
        }
    }

    fn checked(self, here: Here) -> Result<(Far, Here)> {
        let host = &self.0.host;
        let own = env!("CARGO_PKG_VERSION");
        if here.protocol != PROTOCOL {
            bail!(
                "{host} has weft {}, whose far end does not understand this one's ({own}): install the same on both",
                shown(&here.version)
            );
        }
        Ok((self, here))
    }

    /// Starts a program as a role of the job.
    ///
    /// # Errors
    /// Why it does not run.
    pub fn start(
        &self,
        role: &str,
        core: Option<usize>,
        program: &Invocation,
        ready: &Ready,
    ) -> Result<(), String> {
        self.heard().begin(role);
        self.ask(&Ask::Start {
            role: role.to_owned(),
            core,
            program: program.clone(),
            ready: ready.clone(),
        })?;
        let deadline = Instant::now() + ANSWER;
        loop {
            if let Some(started) = self
                .heard()
                .role(role)
                .and_then(|role| role.started.clone())
            {
                return started.map_err(|why| format!("{}: {why}", self.0.host));
            }
            self.check(role)?;
            if Instant::now() > deadline {
                return Err(format!("{} does not answer", self.0.host));
            }
            thread::sleep(GLANCE);
        }
    }

    /// Whether the role is ready.
    pub fn is_ready(&self, role: &str) -> bool {
        self.heard().role(role).is_some_and(|role| role.is_ready)
    }

    /// How the role's program ended; nothing while it runs. Of one whose machine is gone nothing is known but that.
    pub fn status(&self, role: &str) -> Option<ExitStatus> {
        let heard = self.heard();
        let told = heard.role(role).and_then(|role| role.status);
        told.or(heard.is_over.then_some(0xff00))
            .map(ExitStatus::from_raw)
    }

    /// An error where the role's program does what none has reason to, or its machine is gone. Who waits for a program
    /// asks again and again: so the far end hears that the bench is still there.
    ///
    /// # Errors
    /// So it is.
    pub fn check(&self, role: &str) -> Result<(), String> {
        let heard = self.heard();
        if let Some(why) = heard.role(role).and_then(|role| role.wrong.clone()) {
            return Err(why);
        }
        if heard.is_over {
            return Err(format!("{} is gone: {}", self.0.host, heard.said()));
        }
        drop(heard);
        let asked = *lock(&self.0.asked);
        match asked.elapsed() > STILL_HERE {
            true => self.ask(&Ask::StillHere),
            false => Ok(()),
        }
    }

    /// Tells the role's program, and what it started, to end.
    pub fn tell_to_end(&self, role: &str) {
        let role = role.to_owned();
        // Where the machine is gone, so is the program.
        let _ = self.ask(&Ask::TellToEnd { role });
    }

    /// Ends what runs there of the job, and tells what its programs came to: nothing where none was started, or the
    /// machine is gone.
    pub fn end(&self) -> Vec<Ended> {
        if !self.heard().has_roles() || self.ask(&Ask::End).is_err() {
            return Vec::new();
        }
        let deadline = Instant::now() + ANSWER;
        loop {
            let mut heard = self.heard();
            if let Some(roles) = heard.ended.take() {
                heard.forget();
                return roles;
            }
            // One that does not answer is no use any more, and a late answer would be taken for the next job's.
            heard.is_over |= Instant::now() > deadline;
            if heard.is_over {
                heard.forget();
                return Vec::new();
            }
            drop(heard);
            thread::sleep(GLANCE);
        }
    }

    fn ask(&self, ask: &Ask) -> Result<(), String> {
        let line = serde_json::to_string(ask).map_err(|error| error.to_string())? + "\n";
        *lock(&self.0.asked) = Instant::now();
        let mut input = lock(&self.0.input);
        let sent = input.as_mut().map(|input| {
            input
                .write_all(line.as_bytes())
                .and_then(|()| input.flush())
        });
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(format!("{} is gone: {}", self.0.host, self.heard().said())),
        }
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        lock(&self.0.heard)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The far end ends with its input, and the shell with it.
        drop(lock(&self.input).take());
        let mut shell = lock(&self.shell);
        let deadline = Instant::now() + LEAVING;
        while matches!(shell.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = shell.kill();
                let _ = shell.wait();
                return;
            }
            thread::sleep(GLANCE);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
