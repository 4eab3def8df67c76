use super::*;
use crate::job::Seat;
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
        pinned: false,
        timeout: Duration::from_secs(60),
        ..Job::pair(sh(server), sh(client), port, 1)
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
    assert_eq!((output.client(), output.server()), ("c\n", "s\n"));
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

/// Two roles that say when they are ready, and one that measures them.
fn cast_of_three(first: &str, second: &str, last: &str) -> Job {
    let role = |name: &str, script: &str, ready, measures| Role {
        name: name.to_owned(),
        host: 0,
        seat: Seat::Server,
        program: Invocation::new("sh", ["-c", script]),
        ready,
        measures,
        told_to_end: false,
    };
    let says = || Ready::Says("ready".to_owned());
    Job {
        roles: vec![
            role("first", first, says(), false),
            role("second", second, says(), false),
            role("last", last, Ready::AtOnce, true),
        ],
        pinned: false,
        timeout: Duration::from_secs(60),
    }
}

#[test]
fn each_role_starts_when_those_before_it_have_said_that_they_are_ready() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().display();
    // Each leaves a file before it is ready, and looks for that of the one before it.
    let job = cast_of_three(
        &format!("touch {here}/1; echo ready; sleep 60"),
        &format!(
            "echo not ready; test -e {here}/1 || exit 1; touch {here}/2; echo ready; sleep 60"
        ),
        &format!("test -e {here}/2 && echo done"),
    );
    let output = processes().execute(&job, &place()).unwrap();
    assert_eq!(output.role("last"), "done\n");
    assert_eq!(output.role("second"), "not ready\nready\n");
    let names: Vec<_> = output.roles.iter().map(|r| r.taken.role.as_str()).collect();
    assert_eq!(names, ["first", "second", "last"]);
}

#[test]
fn a_role_is_told_to_end_and_says_what_it_has_to_say() {
    let waits = "trap 'echo told; exit 3' TERM; echo ready >&2; while :; do sleep 0.01; done";
    let mut job = cast_of_three(waits, "echo ready; sleep 60", "true");
    job.roles[0].told_to_end = true;
    let output = processes().execute(&job, &place()).unwrap();
    assert_eq!(output.role("first"), "told\n");
}

#[test]
fn a_server_that_fails_behind_its_client_fails_the_job() {
    // Before the client has ended, and after that.
    for [server, client] in [["0.2", "sleep 1.2"], ["1", "true"]] {
        let server = format!("echo ready; sleep {server}; echo wrong octets >&2; exit 3");
        let failure = processes()
            .execute(
                &cast_of_three("echo ready; sleep 60", &server, client),
                &place(),
            )
            .unwrap_err();
        assert_eq!(
            failure.reason,
            "the second failed, of which the others did not notice: exit status 3"
        );
        assert!(failure.tail.contains(&"second: wrong octets".to_owned()));
    }
}

#[test]
fn a_role_that_is_to_be_told_to_end_and_fails_before_that_fails_the_job() {
    let mut job = cast_of_three(
        "echo ready; sleep 0.2; exit 3",
        "echo ready; sleep 60",
        "sleep 1.2",
    );
    job.roles[0].told_to_end = true;
    let failure = processes().execute(&job, &place()).unwrap_err();
    assert!(
        failure.reason.starts_with("the first failed"),
        "{failure:?}"
    );
}

#[test]
fn a_role_that_never_says_it_is_named() {
    let job = cast_of_three("echo ready; sleep 60", "echo no; exit 4", "true");
    let failure = processes().execute(&job, &place()).unwrap_err();
    assert_eq!(
        failure.reason,
        "the second ended before it was ready: exit status 4"
    );
    assert!(
        failure.tail.contains(&"second: no".to_owned()),
        "{failure:?}"
    );
}

#[test]
fn a_program_that_prints_without_end_is_ended() {
    let (_listener, port) = listener();
    let failure = processes()
        .execute(&job("sleep 60", "yes nonsense", port), &place())
        .unwrap_err();
    assert!(
        failure.reason.starts_with("the client printed more than"),
        "{failure:?}"
    );
    assert_eq!(failure.tail[0], "client: nonsense");
}

#[test]
fn a_child_that_left_its_group_and_its_parent_is_ended_and_counted() {
    let (_listener, port) = listener();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    // In a session of its own, with the pipe in its hands, and busy: a daemon as it should not be. Its parent ends at
    // once, as soon as the file says that it has begun.
    let script = format!(
        "setsid sh -c 'echo $$ > {0}; while :; do :; done' & while [ ! -s {0} ]; do sleep 0.01; done; sleep 0.3",
        file.display()
    );
    let started = Instant::now();
    let output = processes()
        .execute(&job("sleep 60", &script, port), &place())
        .unwrap();
    assert!(started.elapsed() < Duration::from_secs(30));
    let pid = std::fs::read_to_string(&file).unwrap();
    assert!(!std::path::Path::new(&format!("/proc/{}", pid.trim())).exists());
    let client = &output.roles[1].taken;
    assert!(client.user + client.system > 0.01, "{client:?}");
}

/// CPU seconds of a program that takes `share` of its time: it looks at its own clock of CPU time, so that a busy
/// machine changes how long it lives and not what it takes.
const BURN: &str = "import os, sys, time
seconds, share, children = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == 'child'
if children and os.fork():
    os.wait()
    sys.exit()
begin = time.process_time()
while time.process_time() - begin < seconds * share:
    turn = time.process_time() + 0.01 * share
    while time.process_time() < turn:
        pass
    time.sleep(0.01 * (1 - share))
";

#[test]
fn what_each_side_takes_is_what_a_program_of_known_share_takes() {
    if std::process::Command::new("python3")
        .arg("-V")
        .output()
        .is_err()
    {
        eprintln!("skipped: there is no python3");
        return;
    }
    let (_listener, port) = listener();
    let burn = |seconds: &str, share: &str, who: &str| {
        Invocation::new("python3", ["-c", BURN, seconds, share, who])
    };
    // What the interpreter takes to start, by one that burns nothing.
    let taken = |server: Invocation, client: Invocation| {
        let job = Job {
            pinned: false,
            timeout: Duration::from_secs(60),
            ..Job::pair(server, client, port, 1)
        };
        let output = processes().execute(&job, &place()).unwrap();
        let cpu = |at: usize| output.roles[at].taken.user + output.roles[at].taken.system;
        ([cpu(0), cpu(1)], output.machine.unwrap())
    };
    let (start, _) = taken(burn("0", "1", "own"), burn("0", "1", "child"));
    let (whole, machine) = taken(burn("1", "0.25", "own"), burn("1", "0.5", "child"));
    let [server, client] = [whole[0] - start[0], whole[1] - start[1]];
    assert!((0.2..0.35).contains(&server), "{server} of 0.25 s");
    assert!((0.45..0.6).contains(&client), "{client} of 0.5 s");
    // The cores were at least as busy as the two made them, to the hundredths in which the kernel counts them.
    let busy: f64 = machine.cores.iter().map(|core| core.busy).sum();
    let ticks = 0.02 * machine.cores.len() as f64;
    assert!(busy + ticks >= server + client, "{machine:?}");
    assert!(
        machine
            .cores
            .iter()
            .all(|c| c.busy <= machine.seconds + 0.03),
        "{machine:?}"
    );
}

#[test]
fn what_the_kernel_takes_in_a_programs_name_is_told_apart() {
    let (_listener, port) = listener();
    let copy = "dd if=/dev/zero of=/dev/null bs=1048576 count=3000 2>/dev/null";
    let output = processes()
        .execute(&job("sleep 60", copy, port), &place())
        .unwrap();
    let client = &output.roles[1].taken;
    assert!(
        client.system > 0.01 && client.system > client.user,
        "{client:?}"
    );
    assert!(client.lived >= client.system, "{client:?}");
}
