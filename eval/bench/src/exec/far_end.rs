//! What runs on another machine in the bench's name: it starts programs that it is told to, over its standard input,
//! and tells what becomes of them on its standard output.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use weft_os::stdout::Reader;

use super::cast::Cast;
use super::player::Player;
use super::{left_behind, GLANCE};
use crate::far::{Ask, Tell, SILENCE};
use crate::job::{Invocation, Ready};
use crate::path::{here, this_host, Host};

/// How often it is looked whether somebody ends it while no program runs.
const IDLE: Duration = Duration::from_millis(200);

/// Does what it is asked until its standard input ends, or somebody ends it. Nothing that it has started stays.
///
/// # Errors
/// Nobody hears it, or it is asked what it does not understand.
pub fn serve() -> Result<()> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, ended.clone()).context("cannot handle signals")?;
    }
    left_behind::adopt();
    let mut tell = |tell: &Tell| -> Result<()> {
        let line = serde_json::to_string(tell)? + "\n";
        match weft_os::stdout::print(&line).context("cannot print")? {
            Reader::Listens => Ok(()),
            Reader::Gone => bail!("nobody hears this far end of weft bench"),
        }
    };
    tell(&Tell::Here(Box::new(here())))?;
    let mut end = FarEnd::new();
    let asks = asks(io::stdin());
    let mut heard_at = Instant::now();
    loop {
        let pause = match end.roles.is_empty() {
            true => IDLE,
            false => GLANCE,
        };
        match asks.recv_timeout(pause) {
            Ok(ask) => {
                heard_at = Instant::now();
                end.answer(ask?, &mut tell)?;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        end.look(&mut tell)?;
        if end.is_deserted(heard_at.elapsed()) {
            bail!("this far end of weft bench has heard nothing for {SILENCE:?}");
        }
        if ended.load(Ordering::Relaxed) {
            return Ok(());
        }
    }
}

/// What is asked, read by a thread of its own, to the end of the input.
fn asks(input: impl Read + Send + 'static) -> Receiver<Result<Ask>> {
    let (to, asks) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(input).lines() {
            let Ok(line) = line else { return };
            let ask = serde_json::from_str(&line)
                .with_context(|| format!("a far end of weft bench does not understand {line:?}"));
            if to.send(ask).is_err() {
                return;
            }
        }
    });
    asks
}

/// The programs of a job that run here.
struct FarEnd {
    host: Host,
    cast: Cast,
    roles: Vec<Role>,
}

/// What was told of a role.
struct Role {
    name: String,
    is_ready: bool,
    is_gone: bool,
    is_wrong: bool,
}

/// Tells the bench something.
type Teller<'a> = &'a mut dyn FnMut(&Tell) -> Result<()>;

impl FarEnd {
    fn new() -> FarEnd {
        FarEnd {
            host: this_host(),
            cast: Cast::new(),
            roles: Vec::new(),
        }
    }

    fn answer(&mut self, ask: Ask, tell: Teller<'_>) -> Result<()> {
        match ask {
            Ask::Start {
                role,
                core,
                program,
                ready,
            } => tell(&self.start(role, core, &program, &ready)),
            Ask::TellToEnd { role } => {
                let mut playing = self.roles.iter().zip(&self.cast.players);
                if let Some((_, player)) = playing.find(|(one, _)| one.name == role) {
                    player.tell_to_end();
                }
                Ok(())
            }
            Ask::StillHere => Ok(()),
            Ask::End => {
                self.roles.clear();
                let cast = std::mem::replace(&mut self.cast, Cast::new());
                tell(&Tell::Ended { roles: cast.end() })
            }
        }
    }

    fn start(
        &mut self,
        role: String,
        core: Option<usize>,
        program: &Invocation,
        ready: &Ready,
    ) -> Tell {
        match self.cast.start(&role, &self.host, core, program, ready) {
            Ok(()) => {
                self.roles.push(Role {
                    name: role.clone(),
                    is_ready: false,
                    is_gone: false,
                    is_wrong: false,
                });
                Tell::Started { role }
            }
            Err(why) => Tell::NotStarted { role, why },
        }
    }

    /// Whether the bench is gone, as nothing was heard of it for so long: the network may be, and then no end of the
    /// connection is seen.
    fn is_deserted(&self, silence: Duration) -> bool {
        !self.roles.is_empty() && silence > SILENCE
    }

    /// Tells what is new.
    fn look(&mut self, tell: Teller<'_>) -> Result<()> {
        for (role, player) in self.roles.iter_mut().zip(&mut self.cast.players) {
            role.look(player, tell)?;
        }
        Ok(())
    }
}

impl Role {
    fn look(&mut self, player: &mut Player, tell: Teller<'_>) -> Result<()> {
        let role = || self.name.clone();
        // Before the look at what it has printed, so that all of that is there if it has ended.
        let status = player.status();
        if !self.is_ready && player.is_ready() {
            tell(&Tell::Ready { role: role() })?;
            self.is_ready = true;
        }
        if let Some(why) = player.check().err().filter(|_| !self.is_wrong) {
            tell(&Tell::Wrong { role: role(), why })?;
            self.is_wrong = true;
        }
        if let Some(status) = status.filter(|_| !self.is_gone) {
            let status = status.into_raw();
            tell(&Tell::Gone {
                role: role(),
                status,
            })?;
            self.is_gone = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(end: &mut FarEnd, ask: Ask) -> Vec<Tell> {
        let mut told = Vec::new();
        let mut tell = |tell: &Tell| {
            told.push(tell.clone());
            Ok(())
        };
        end.answer(ask, &mut tell).unwrap();
        told
    }

    fn start(role: &str, program: &str, words: &[&str]) -> Ask {
        Ask::Start {
            role: role.to_owned(),
            core: None,
            program: Invocation::new(program, words),
            ready: Ready::AtOnce,
        }
    }

    #[test]
    fn a_far_end_is_deserted_by_who_says_nothing_while_its_programs_run() {
        let mut end = FarEnd::new();
        let long = SILENCE + Duration::from_secs(1);
        assert!(!end.is_deserted(long), "nothing runs");
        asked(&mut end, start("server", "sleep", &["60"]));
        assert!(!end.is_deserted(SILENCE / 2));
        assert!(end.is_deserted(long));
        asked(&mut end, Ask::End);
        assert!(!end.is_deserted(long));
    }

    #[test]
    fn what_is_told_of_a_program_is_told_once_and_what_it_came_to_with_the_job() {
        let mut end = FarEnd::new();
        let role = || "client".to_owned();
        let started = asked(&mut end, start("client", "sh", &["-c", "echo out; exit 3"]));
        assert_eq!(started, [Tell::Started { role: role() }]);
        let mut told = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(20);
        while told.len() < 2 && Instant::now() < deadline {
            let mut tell = |tell: &Tell| {
                told.push(tell.clone());
                Ok(())
            };
            end.look(&mut tell).unwrap();
        }
        let status = 3 << 8;
        let gone = Tell::Gone {
            role: role(),
            status,
        };
        assert_eq!(told, [Tell::Ready { role: role() }, gone]);
        end.look(&mut |tell: &Tell| panic!("{tell:?} once more"))
            .unwrap();
        let over = asked(&mut end, Ask::End);
        let [Tell::Ended { roles }] = &over[..] else {
            panic!("{over:?}");
        };
        assert_eq!((roles.len(), roles[0].out.as_str()), (1, "out\n"));
        assert_eq!(asked(&mut end, Ask::End), [Tell::Ended { roles: vec![] }]);
    }

    #[test]
    fn a_program_that_is_not_there_is_not_started() {
        let mut end = FarEnd::new();
        let told = asked(&mut end, start("client", "no-such-program-here", &[]));
        let [Tell::NotStarted { why, .. }] = &told[..] else {
            panic!("{told:?}");
        };
        assert!(why.contains("cannot start no-such-program-here"), "{why}");
    }
}
