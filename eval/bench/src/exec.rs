//! Running a [`Job`] and collecting what its programs print.

use std::fs;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{kill_process_group, Pid, Signal};

use crate::job::{Invocation, Job, Side};
use crate::path::Place;
use crate::record::Failure;

/// How long a server may take to listen.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the other program may take to end after one has.
const PARTING: Duration = Duration::from_secs(2);
/// How often the bench looks; long enough not to disturb what runs on its cores.
const GLANCE: Duration = Duration::from_millis(10);
/// Lines of each program kept in a failure.
const TAIL: usize = 8;

/// Runs jobs. The one that starts processes is [`Processes`]; tests have one that only pretends.
pub trait Executor {
    /// What the client and the server printed, or why the job failed.
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

/// What a job's programs printed on their standard output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Client's.
    pub client: String,
    /// Server's.
    pub server: String,
}

/// Starts real processes, each in a process group of its own, and leaves none behind.
pub struct Processes {
    interrupted: Arc<AtomicBool>,
}

impl Processes {
    /// `interrupted` is set by the signal handler.
    pub fn new(interrupted: Arc<AtomicBool>) -> Self {
        Processes { interrupted }
    }

    fn wait_listening(&self, server: &mut Running, port: u16) -> Result<(), String> {
        let deadline = Instant::now() + LISTEN_TIMEOUT;
        loop {
            if listening(server.child.id(), port) {
                return Ok(());
            }
            if let Some(status) = server.status() {
                return Err(format!(
                    "the server ended before it listened: {}",
                    describe(status)
                ));
            }
            self.check(deadline, "the server did not listen in time")?;
            thread::sleep(GLANCE);
        }
    }

    /// Waits for the client; a server that fails first gets the client [`PARTING`] to notice.
    fn wait_client(
        &self,
        client: &mut Running,
        server: &mut Running,
        mut deadline: Instant,
    ) -> Result<(), String> {
        let mut why = "timed out";
        loop {
            if let Some(status) = client.status() {
                return if status.success() {
                    Ok(())
                } else {
                    Err(format!("the client failed: {}", describe(status)))
                };
            }
            if server.status().is_some_and(|status| !status.success()) {
                deadline = deadline.min(Instant::now() + PARTING);
                why = "the server failed and the client did not end";
            }
            self.check(deadline, why)?;
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

    fn measure(&self, job: &Job, place: &Place, sides: &mut Sides) -> Result<(), String> {
        let deadline = Instant::now() + job.timeout;
        let server = sides
            .server
            .insert(Running::start(&place.server, &job.server, job.pinned)?);
        self.wait_listening(server, job.port)?;
        let client = sides
            .client
            .insert(Running::start(&place.client, &job.client, job.pinned)?);
        self.wait_client(client, server, deadline)?;
        let parting = Instant::now() + PARTING;
        while server.status().is_none() && Instant::now() < parting {
            thread::sleep(GLANCE);
        }
        Ok(())
    }
}

impl Executor for Processes {
    fn execute(&mut self, job: &Job, place: &Place) -> Result<Output, Failure> {
        let mut sides = Sides::default();
        let result = self.measure(job, place, &mut sides);
        let [client, server] =
            [sides.client, sides.server].map(|side| side.map(Running::finish).unwrap_or_default());
        match result {
            Ok(()) => Ok(Output {
                client: client.out,
                server: server.out,
            }),
            Err(reason) => {
                let tail = [("client", &client), ("server", &server)]
                    .iter()
                    .flat_map(|(who, p)| p.tail(who))
                    .collect();
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
        let failed = |reason, tail| Failure { reason, tail };
        let deadline = Instant::now() + timeout;
        let mut running = Running::start(&place.server, program, false)
            .map_err(|reason| failed(reason, Vec::new()))?;
        let status = loop {
            if let Some(status) = running.status() {
                break Ok(status);
            }
            if let Err(reason) = self.check(deadline, "timed out") {
                break Err(reason);
            }
            thread::sleep(GLANCE);
        };
        let printed = running.finish();
        match status {
            Ok(status) if status.success() => Ok(printed.out),
            Ok(status) => Err(failed(
                format!("the program failed: {}", describe(status)),
                printed.tail("program"),
            )),
            Err(reason) => Err(failed(reason, printed.tail("program"))),
        }
    }

    fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
struct Sides {
    server: Option<Running>,
    client: Option<Running>,
}

/// A started program; killed with its whole group when dropped.
struct Running {
    child: Child,
    out: Option<JoinHandle<String>>,
    err: Option<JoinHandle<String>>,
}

#[derive(Default)]
struct Printed {
    out: String,
    err: String,
}

impl Running {
    fn start(side: &Side, invocation: &Invocation, pinned: bool) -> Result<Running, String> {
        let mut child = side
            .command(invocation, pinned)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|e| format!("cannot start {}: {e}", invocation.program.display()))?;
        let out = child.stdout.take().map(collect);
        let err = child.stderr.take().map(collect);
        Ok(Running { child, out, err })
    }

    fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Ends the program if it has not ended, and returns what it printed.
    fn finish(mut self) -> Printed {
        self.kill();
        let text = |reader: Option<JoinHandle<String>>| {
            reader.and_then(|r| r.join().ok()).unwrap_or_default()
        };
        Printed {
            out: text(self.out.take()),
            err: text(self.err.take()),
        }
    }

    /// The group is killed even when its leader has ended: `weft run` and shells have children.
    fn kill(&mut self) {
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            // ESRCH when all of it has ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.out.is_some() || self.err.is_some() {
            self.kill();
        }
    }
}

impl Printed {
    fn tail(&self, who: &str) -> Vec<String> {
        let lines: Vec<&str> = self
            .out
            .lines()
            .chain(self.err.lines())
            .filter(|l| !l.trim().is_empty())
            .collect();
        lines[lines.len().saturating_sub(TAIL)..]
            .iter()
            .map(|line| format!("{who}: {line}"))
            .collect()
    }
}

fn collect(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut octets = Vec::new();
        // A read error ends the text early; what was read still counts.
        let _ = pipe.read_to_end(&mut octets);
        String::from_utf8_lossy(&octets).into_owned()
    })
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// Whether anything listens on this TCP port in the network namespace of the process. Read from
/// `/proc`, because a connection made to find out would be the one that the server serves.
fn listening(pid: u32, port: u16) -> bool {
    ["tcp", "tcp6"].iter().any(|table| {
        fs::read_to_string(format!("/proc/{pid}/net/{table}"))
            .is_ok_and(|text| table_lists_listener(&text, port))
    })
}

fn table_lists_listener(table: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let local = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        fields
            .next()
            .is_some_and(|address| address.ends_with(&local))
            && fields.nth(1) == Some(LISTEN)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn place() -> Place {
        Place::loopback(None)
    }

    fn processes() -> Processes {
        Processes::new(Arc::default())
    }

    fn job(server: &str, client: &str, port: u16) -> Job {
        let sh = |script: &str| Invocation::new("sh", ["-c", script]);
        Job {
            server: sh(server),
            client: sh(client),
            port,
            pinned: false,
            timeout: Duration::from_secs(60),
        }
    }

    /// Stands for a server that listens; jobs under test are shell scripts.
    fn listener() -> (TcpListener, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    /// A port that nobody listens on as long as the connection lasts. One that was listened on before may still be, or
    /// be another test's.
    fn silent() -> (TcpStream, u16) {
        let (_listener, port) = listener();
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let port = stream.local_addr().unwrap().port();
        (stream, port)
    }

    #[test]
    fn a_listening_port_is_seen_and_a_closed_one_is_not() {
        let (listener, port) = listener();
        assert!(listening(std::process::id(), port));
        drop(listener);
        // A child that another test has forked holds it too until it is the other program; and the port may be another
        // test's next.
        let deadline = Instant::now() + Duration::from_secs(20);
        while listening(std::process::id(), port) {
            assert!(Instant::now() < deadline, "still listening");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn both_outputs_come_back() {
        let (_listener, port) = listener();
        // Neither ends before the other has printed, however busy the machine is: a server that ends earlier than its
        // client is a failure, and one that ends much later is killed.
        let folder = tempfile::tempdir().unwrap();
        let until_both = |own: &str, other: &str| {
            let [own, other] = [own, other].map(|name| folder.path().join(name));
            let (own, other) = (own.display(), other.display());
            format!("touch '{own}'; while [ ! -e '{other}' ]; do sleep 0.01; done")
        };
        let server = format!("echo s; {}", until_both("server", "client"));
        let client = format!("echo c; {}", until_both("client", "server"));
        let output = processes()
            .execute(&job(&server, &client, port), &place())
            .unwrap();
        assert_eq!(
            output,
            Output {
                client: "c\n".into(),
                server: "s\n".into()
            }
        );
    }

    #[test]
    fn a_failing_client_leaves_its_status_and_last_lines() {
        let (_listener, port) = listener();
        let failure = processes()
            .execute(
                &job("sleep 60", "echo out; echo no device >&2; exit 3", port),
                &place(),
            )
            .unwrap_err();
        assert_eq!(failure.reason, "the client failed: exit status 3");
        assert_eq!(failure.tail, ["client: out", "client: no device"]);
    }

    #[test]
    fn a_server_that_never_listens_is_named() {
        let (_stream, port) = silent();
        let failure = processes()
            .execute(&job("echo refused; exit 1", "true", port), &place())
            .unwrap_err();
        assert_eq!(
            failure.reason,
            "the server ended before it listened: exit status 1"
        );
        assert_eq!(failure.tail, ["server: refused"]);
    }

    #[test]
    fn a_hanging_client_is_killed_with_its_children() {
        let (_listener, port) = listener();
        let started = Instant::now();
        // The grandchild holds the pipe: were it not killed, reading the output would last a
        // minute.
        let mut job = job("sleep 60", "sleep 60 & wait", port);
        job.timeout = Duration::from_secs(1);
        let failure = processes().execute(&job, &place()).unwrap_err();
        assert_eq!(failure.reason, "timed out");
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_program_alone_prints_fails_or_is_killed_in_time() {
        let alone = |script: &str, seconds| {
            let program = Invocation::new("sh", ["-c", script]);
            processes().execute_alone(&program, &place(), Duration::from_secs(seconds))
        };
        assert_eq!(alone("echo a; echo b >&2", 60).unwrap(), "a\n");
        let failure = alone("echo no device >&2; exit 3", 60).unwrap_err();
        assert_eq!(failure.reason, "the program failed: exit status 3");
        assert_eq!(failure.tail, ["program: no device"]);
        assert_eq!(alone("sleep 60 & wait", 1).unwrap_err().reason, "timed out");
    }

    #[test]
    fn an_interrupt_ends_the_job() {
        let (_listener, port) = listener();
        let mut processes = Processes::new(Arc::new(AtomicBool::new(true)));
        let failure = processes
            .execute(&job("sleep 60", "sleep 60", port), &place())
            .unwrap_err();
        assert_eq!(failure.reason, "interrupted");
    }
}
