//! A role that is being played, by a program of this machine or of a far end's.

use std::process::ExitStatus;

use super::running::Running;
use crate::far::Far;
use crate::job::{Invocation, Ready};
use crate::path::Host;

/// Whose program it is.
pub(super) enum Player {
    /// This machine's.
    Here { running: Box<Running>, ready: Ready },
    /// A far end's.
    There { far: Far, role: String },
}

impl Player {
    /// Starts `program` as the role of this name. `mark` is a variable by which what it leaves behind here is found.
    pub(super) fn start(
        role: &str,
        host: &Host,
        core: Option<usize>,
        program: &Invocation,
        ready: &Ready,
        mark: (&str, String),
    ) -> Result<Player, String> {
        match &host.far {
            Some(far) => {
                far.start(role, core, program, ready)?;
                Ok(Player::There {
                    far: far.clone(),
                    role: role.to_owned(),
                })
            }
            None => Ok(Player::Here {
                running: Box::new(Running::start(role, &host.side, core, program, mark)?),
                ready: ready.clone(),
            }),
        }
    }

    /// How it ended; nothing while it runs.
    pub(super) fn status(&mut self) -> Option<ExitStatus> {
        match self {
            Player::Here { running, .. } => running.status(),
            Player::There { far, role } => far.status(role),
        }
    }

    /// Whether those that are started behind it may be.
    pub(super) fn is_ready(&self) -> bool {
        match self {
            Player::Here { running, ready } => running.is_ready(ready),
            Player::There { far, role } => far.is_ready(role),
        }
    }

    /// An error where it does what no program has reason to, or its machine is gone.
    pub(super) fn check(&self) -> Result<(), String> {
        match self {
            Player::Here { running, .. } => running.check(),
            Player::There { far, role } => far.check(role),
        }
    }

    /// Tells it, and what it started, to end.
    pub(super) fn tell_to_end(&self) {
        match self {
            Player::Here { running, .. } => running.tell_to_end(),
            Player::There { far, role } => far.tell_to_end(role),
        }
    }
}
