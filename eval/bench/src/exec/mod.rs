//! Running a [`Job`] and collecting what its programs print and take.

mod cast;
mod cores;
mod far_end;
mod left_behind;
mod player;
mod ready;
mod running;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::ended::{nothing, Ended};
use crate::job::{Invocation, Job, Ready, Role, CLIENT, SERVER};
use crate::path::Place;
use crate::record::{Failure, MachineRecord, RoleRecord};
use cast::Cast;
use cores::Watch;
pub use far_end::serve;
use running::describe;

/// How long a role may take to be ready.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the other programs may take to end after those that measure have.
const PARTING: Duration = Duration::from_secs(2);
/// How often the bench looks; long enough not to disturb what runs on its cores.
const GLANCE: Duration = Duration::from_millis(10);

/// Runs jobs. The one that starts processes is [`Processes`]; tests have one that only pretends.
pub trait Executor {
    /// What the roles printed and took, or why the job failed.
    fn execute(&mut self, job: &Job, place: &Place) -> Result<Output, Failure>;

    /// What one program printed on the server's side of the path, or why it failed.
    fn execute_alone(
        &mut self,
        program: &Invocation,
        place: &Place,
        timeout: Duration,
    ) -> Result<String, Failure>;

    /// Whether the user wants no more.
    fn interrupted(&self) -> bool;
}

/// What a job came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// Its roles, in the order of their start.
    pub roles: Vec<Played>,
    /// What the cores did meanwhile; none where nobody looked.
    pub machine: Option<MachineRecord>,
}

/// What a role came to, whose job did not fail.
#[derive(Clone, Debug, PartialEq)]
pub struct Played {
    /// What it printed on its standard output.
    pub out: String,
    /// What it took; its name is there as well.
    pub taken: RoleRecord,
}

impl Played {
    fn of(ended: Ended) -> Played {
        Played {
            out: ended.out,
            taken: ended.taken,
        }
    }
}

impl Output {
    /// What these roles printed, as if they had taken nothing.
    pub fn of(printed: &[(&str, &str)]) -> Output {
        let played = |&(role, out): &(&str, &str)| Played {
            out: out.to_owned(),
            taken: nothing(role),
        };
        Output {
            roles: printed.iter().map(played).collect(),
            machine: None,
        }
    }

    /// What a client printed, and no other role.
    pub fn of_client(out: &str) -> Output {
        Output::of(&[(CLIENT, out)])
    }

    /// What the role of this name printed; nothing where there is no such role.
    pub fn role(&self, name: &str) -> &str {
        let role = self.roles.iter().find(|role| role.taken.role == name);
        role.map_or("", |role| &role.out)
    }

    /// What the client printed.
    pub fn client(&self) -> &str {
        self.role(CLIENT)
    }

    /// What the server printed.
    pub fn server(&self) -> &str {
        self.role(SERVER)
    }
}

/// Starts real processes, each in a process group of its own, and leaves none behind.
pub struct Processes {
    interrupted: Arc<AtomicBool>,
}

impl Processes {
    /// `interrupted` is set by the signal handler.
    pub fn new(interrupted: Arc<AtomicBool>) -> Self {
        left_behind::adopt();
        Processes { interrupted }
    }

    fn measure(&self, job: &Job, place: &Place, cast: &mut Cast) -> Result<(), String> {
        let deadline = Instant::now() + job.timeout;
        for role in &job.roles {
            let core = if job.pinned {
                place.core(role.seat)
            } else {
                None
            };
            let host = place
                .hosts
                .get(role.host)
                .ok_or_else(|| format!("the path has no host for the {}", role.name))?;
            cast.start(&role.name, host, core, &role.program, &role.ready)?;
            self.wait_ready(role, cast)?;
        }
        self.wait_measured(job, cast, deadline)?;
        part(job, cast)
    }

    /// Waits for the role that was started last.
    fn wait_ready(&self, role: &Role, cast: &mut Cast) -> Result<(), String> {
        let what = match &role.ready {
            Ready::AtOnce => return Ok(()),
            Ready::Listens(_) => "listened",
            Ready::Binds(_) => "had its port",
            Ready::Says(_) => "was ready",
        };
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            let player = cast.players.last_mut().expect("it was started");
            // Before the look at what it has printed, so that all of that is there if it has ended.
            let status = player.status();
            if player.is_ready() {
                return Ok(());
            }
            player.check()?;
            if let Some(status) = status {
                return Err(format!(
                    "the {} ended before it {what}: {}",
                    role.name,
                    describe(status)
                ));
            }
            self.check(
                deadline,
                &format!("the {} was not ready in time", role.name),
            )?;
            thread::sleep(GLANCE);
        }
    }

    /// Waits for the roles that measure; when another one fails first they get [`PARTING`] to notice.
    fn wait_measured(
        &self,
        job: &Job,
        cast: &mut Cast,
        mut deadline: Instant,
    ) -> Result<(), String> {
        let mut why = "timed out".to_owned();
        loop {
            let mut measuring = 0;
            for (role, player) in job.roles.iter().zip(&mut cast.players) {
                player.check()?;
                match (role.measures, player.status()) {
                    (true, Some(status)) if !status.success() => {
                        return Err(format!("the {} failed: {}", role.name, describe(status)));
                    }
                    (true, None) => measuring += 1,
                    (false, Some(status)) if !status.success() => {
                        deadline = deadline.min(Instant::now() + PARTING);
                        why = format!("the {} failed and the others did not end", role.name);
                    }
                    _ => {}
                }
            }
            if measuring == 0 {
                return Ok(());
            }
            self.check(deadline, &why)?;
            thread::sleep(GLANCE);
        }
    }

    fn check(&self, deadline: Instant, late: &str) -> Result<(), String> {
        if self.interrupted() {
            return Err("interrupted".to_owned());
        }
        if Instant::now() > deadline {
            return Err(late.to_owned());
        }
        Ok(())
    }
}

/// Has the roles end that do not measure. One that fails before it is told to end fails the job: what those that
/// measure say does not count where what they measured was not right.
fn part(job: &Job, cast: &mut Cast) -> Result<(), String> {
    none_failed(job, cast, |_| true)?;
    let last = job.roles.iter().zip(&cast.players);
    last.filter(|(role, _)| role.told_to_end)
        .for_each(|(_, player)| player.tell_to_end());
    let parting = Instant::now() + PARTING;
    while cast.players.iter_mut().any(|p| p.status().is_none()) && Instant::now() < parting {
        thread::sleep(GLANCE);
    }
    // Who was told may end as it likes, and who still runs is killed.
    none_failed(job, cast, |role| !role.told_to_end)
}

/// An error where one of these roles has ended other than well.
fn none_failed(job: &Job, cast: &mut Cast, which: impl Fn(&Role) -> bool) -> Result<(), String> {
    for (role, player) in job.roles.iter().zip(&mut cast.players) {
        match player.status().filter(|_| which(role)) {
            Some(status) if !status.success() => {
                let how = describe(status);
                return Err(format!(
                    "the {} failed, of which the others did not notice: {how}",
                    role.name
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

impl Executor for Processes {
    fn execute(&mut self, job: &Job, place: &Place) -> Result<Output, Failure> {
        let watch = Watch::begin();
        let mut cast = Cast::new();
        let result = self.measure(job, place, &mut cast);
        let ended = cast.end();
        // What the cores of this machine did says nothing where programs ran on others.
        let is_here = place.hosts.iter().all(|host| host.far.is_none());
        let machine = watch.and_then(Watch::end).filter(|_| is_here);
        match result {
            Ok(()) => Ok(Output {
                roles: ended.into_iter().map(Played::of).collect(),
                machine,
            }),
            Err(reason) => {
                // The clients' lines first: they are what the user would have seen.
                let tail = ended.iter().rev().flat_map(Ended::tail).collect();
                Err(Failure { reason, tail })
            }
        }
    }

    fn execute_alone(
        &mut self,
        program: &Invocation,
        place: &Place,
        timeout: Duration,
    ) -> Result<String, Failure> {
        const NAME: &str = "program";
        let mut cast = Cast::new();
        let deadline = Instant::now() + timeout;
        let server = place.server();
        let started = cast.start(NAME, server, None, program, &Ready::AtOnce);
        let result = started.and_then(|()| loop {
            let player = &mut cast.players[0];
            player.check()?;
            match player.status() {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("the program failed: {}", describe(status))),
                None => self.check(deadline, "timed out")?,
            }
            thread::sleep(GLANCE);
        });
        let mut ended = cast.end();
        match result {
            Ok(()) => Ok(ended.remove(0).out),
            Err(reason) => Err(Failure {
                reason,
                tail: ended.iter().flat_map(Ended::tail).collect(),
            }),
        }
    }

    fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
