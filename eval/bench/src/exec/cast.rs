//! The programs of a job, wherever they run, from the first one's start to the last one's end.

use super::left_behind::Mark;
use super::player::Player;
use super::running::Running;
use crate::ended::{nothing, Ended};
use crate::far::Far;
use crate::job::{Invocation, Ready};
use crate::path::Host;

/// Those that were started; killed with all that they started when this is dropped.
pub(super) struct Cast {
    mark: Mark,
    pub(super) players: Vec<Player>,
}

impl Cast {
    pub(super) fn new() -> Cast {
        Cast {
            mark: Mark::new(),
            players: Vec::new(),
        }
    }

    /// Starts a program as the role of this name.
    pub(super) fn start(
        &mut self,
        role: &str,
        host: &Host,
        core: Option<usize>,
        program: &Invocation,
        ready: &Ready,
    ) -> Result<(), String> {
        let mark = self.mark.of(role);
        let player = Player::start(role, host, core, program, ready, mark)?;
        self.players.push(player);
        Ok(())
    }

    /// Ends whatever still runs, what the programs left behind among it, and tells what all came to.
    pub(super) fn end(mut self) -> Vec<Ended> {
        let mut there = self.stop();
        let here = self.players.iter().filter_map(|player| match player {
            Player::Here { running, .. } => Some((running.pid(), running.name().to_owned())),
            Player::There { .. } => None,
        });
        let left = self.mark.reap(&here.collect::<Vec<_>>());
        let mut ended: Vec<Ended> = Vec::new();
        for player in std::mem::take(&mut self.players) {
            ended.push(match player {
                Player::Here { running, .. } => running.finish(),
                Player::There { role, .. } => match there.iter().position(|one| one.is(&role)) {
                    Some(at) => there.swap_remove(at),
                    // Its machine is gone.
                    None => Ended {
                        out: String::new(),
                        err: String::new(),
                        taken: nothing(&role),
                    },
                },
            });
        }
        for (role, usage) in left {
            if let Some(ended) = ended.iter_mut().find(|ended| ended.is(&role)) {
                ended.add(usage);
            }
        }
        ended
    }

    /// Kills whatever still runs, the last first: clients lose their server otherwise, and say so at length. Gives what
    /// those of far ends came to.
    fn stop(&mut self) -> Vec<Ended> {
        let mut ended = Vec::new();
        for player in self.players.iter_mut().rev() {
            match player {
                Player::Here { running, .. } => Running::kill(running),
                // All that run there end with the first of them.
                Player::There { far, .. } => ended.extend(Far::end(far)),
            }
        }
        ended
    }
}

impl Drop for Cast {
    fn drop(&mut self) {
        self.stop();
    }
}
