//! Programs in two mounts of one store. Every process is one, and all of them are in a mount namespace and a network
//! namespace of their own, where the tests run themselves once more.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Instant;

use clap::Parser;
use rustix::fs::{fcntl_lock, FlockOperation};
use rustix::io::Errno;
use rustix::process::{geteuid, kill_process, Pid, Signal};

use super::*;
use crate::striped::layout::Layout;
use crate::striped::{manager, StripedArgs};

/// Says that the test is in the namespaces.
const INSIDE: &str = "WEFT_TEST_INSIDE";
/// The words of a process of the store.
const WORDS: &str = "WEFT_TEST_WORDS";
const LOOKED_AT: &str = "all of it was looked at";
const SERVERS: u16 = 3;
/// How long anything may take that has to come.
const SOON: Duration = Duration::from_secs(30);

#[derive(Parser)]
struct Words {
    #[command(flatten)]
    args: StripedArgs,
}

fn this(test: &str) -> Vec<String> {
    let program = std::env::current_exe().unwrap().display().to_string();
    let name = format!("striped::mount::tests::{test}");
    [&program, "--exact", "--nocapture", &name]
        .map(str::to_owned)
        .to_vec()
}

/// Has a test run where mounts and ports are its own; says so where the machine has no such thing.
fn inside(test: &str, work: impl FnOnce(&Path)) {
    if std::env::var_os(INSIDE).is_some() {
        assert!(Command::new("ip")
            .args(["link", "set", "lo", "up"])
            .status()
            .unwrap()
            .success());
        let folder = tempfile::tempdir().unwrap();
        work(folder.path());
        println!("{LOOKED_AT}");
        return;
    }
    if let Err(error) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        return eprintln!("skipped, no mounts here: /dev/fuse: {error}");
    }
    let as_root: &[&str] = if geteuid().is_root() {
        &[]
    } else {
        &["-U", "-r"]
    };
    let namespaces = |words: &[String]| {
        let mut command = Command::new("unshare");
        command.args(as_root).args(["-m", "-n", "--"]).args(words);
        command.env(INSIDE, "1").output()
    };
    match namespaces(&["true".to_owned()]) {
        Ok(done) if done.status.success() => {}
        other => return eprintln!("skipped, no namespaces here: {other:?}"),
    }
    let done = namespaces(&this(test)).unwrap();
    let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.contains(LOOKED_AT), "{said}");
}

/// One process of the store, in the tests that start it as such.
#[test]
fn plays_a_process() {
    let Ok(words) = std::env::var(WORDS) else {
        return;
    };
    let words = Words::parse_from(["striped"].into_iter().chain(words.split(' ')));
    if let Err(error) = crate::striped::run(&words.args) {
        panic!("it says: {error:#}");
    }
}

/// A process of the store, with what it says about errors in a file.
struct Process {
    child: Child,
    out: Option<BufReader<ChildStdout>>,
    errors: PathBuf,
}

impl Process {
    fn start(folder: &Path, name: &str, words: &str) -> Process {
        let errors = folder.join(format!("{name}.err"));
        let program = this("plays_a_process");
        let child = Command::new(&program[0])
            .args(&program[1..])
            .env(WORDS, words)
            // A server that is killed leaves its stripes behind.
            .env("TMPDIR", folder)
            .stdout(Stdio::piped())
            .stderr(File::create(&errors).unwrap())
            .spawn();
        Process {
            child: child.unwrap(),
            out: None,
            errors,
        }
    }

    fn tell_to_end(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.errors).unwrap()
    }

    /// How it ended, which it has to before long.
    fn ended(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < SOON, "it does not end: {}", self.said());
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const fn port(server: u16) -> u16 {
    7000 + server
}

/// The manager, then the servers.
fn store(folder: &Path, clients: u32) -> Vec<Process> {
    let words = format!(
        "manager --listen=127.0.0.1:{} --clients={clients} --servers={SERVERS}",
        port(0)
    );
    let mut store = vec![Process::start(folder, "manager", &words)];
    for server in 1..=SERVERS {
        let words = format!(
            "server --listen=127.0.0.1:{} --clients={clients}",
            port(server)
        );
        store.push(Process::start(folder, &format!("server-{server}"), &words));
    }
    store
}

/// A mount that is there.
fn mounted(folder: &Path, name: &str) -> (Process, PathBuf) {
    let at = folder.join(name);
    let servers: Vec<String> = (1..=SERVERS)
        .map(|server| format!("127.0.0.1:{}", port(server)))
        .collect();
    let words = format!(
        "mount --manager=127.0.0.1:{} --servers={} --at={}",
        port(0),
        servers.join(","),
        at.display()
    );
    let mut process = Process::start(folder, name, &words);
    let mut out = BufReader::new(process.child.stdout.take().unwrap());
    let lines = out.by_ref().lines();
    let is_there = lines
        .map_while(Result::ok)
        .any(|line| line.ends_with("mounted"));
    assert!(is_there, "{}", process.said());
    // The harness would miss a reader as the process ends.
    process.out = Some(out);
    (process, at)
}

fn done(program: &str, words: &[&Path]) {
    let output = Command::new(program).args(words).output().unwrap();
    assert!(output.status.success(), "{program}: {output:?}");
}

/// Octets of which no two stripes are the same.
fn octets(len: u32) -> Vec<u8> {
    (0..len)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

/// Whether a file is this, by the length it says and by what is in it.
fn is(file: &Path, wanted: &[u8]) -> bool {
    fs::metadata(file).unwrap().len() == wanted.len() as u64 && fs::read(file).unwrap() == wanted
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn what_one_host_writes_another_one_reads() {
    inside("what_one_host_writes_another_one_reads", |folder| {
        let mut store = store(folder, 2);
        let ((mut one, a), (mut other, b)) = (mounted(folder, "a"), mounted(folder, "b"));
        let (plain, [at_a, at_b]) = (folder.join("plain"), [&a, &b].map(|at| at.join("file")));
        let mut wanted = octets(5_000_003);
        fs::write(&plain, &wanted).unwrap();
        done("cp", &[&plain, &at_a]);
        done("cmp", &[&plain, &at_b]);
        done("cp", &[&at_b, &folder.join("back")]);
        done("cmp", &[&plain, &folder.join("back")]);

        // Both have looked at it, and the kernel has kept nothing of that.
        let writer = OpenOptions::new().write(true).open(&at_b).unwrap();
        writer.write_all_at(&[7; 300_000], 100_001).unwrap();
        wanted[100_001..400_001].fill(7);
        assert!(is(&at_a, &wanted));
        writer.sync_all().unwrap();
        for len in [70_001, 200_000, 0, 65_536 * 3 + 1] {
            OpenOptions::new()
                .write(true)
                .open(&at_a)
                .unwrap()
                .set_len(len as u64)
                .unwrap();
            wanted.resize(len, 0);
            assert!(is(&at_b, &wanted), "{len}");
        }
        writer.write_all_at(b"behind a hole", 1_000_000).unwrap();
        wanted.resize(1_000_000, 0);
        wanted.extend(b"behind a hole");
        assert!(is(&at_a, &wanted));
        let mut end = OpenOptions::new().append(true).open(&at_a).unwrap();
        end.write_all(b", and more").unwrap();
        wanted.extend(b", and more");
        assert!(is(&at_b, &wanted));
        fs::write(&at_b, b"short").unwrap();
        assert!(is(&at_a, b"short"));

        names_come_and_go(&a, &b);
        what_it_does_not_have_is_refused(&at_a);
        assert_eq!(
            one.said() + &other.said(),
            "striped mount: cannot lock part of a file: there are none \
            (MPI-IO: romio_ds_write=disable)\n"
        );

        drop((writer, end));
        one.tell_to_end();
        assert!(one.ended().success(), "{}", one.said());
        assert_eq!(names(&a), [""; 0], "it is a folder again");
        unmount(&b, UnmountFlags::empty()).unwrap();
        assert!(other.ended().success(), "{}", other.said());
        for process in &mut store {
            assert!(process.ended().success(), "{}", process.said());
        }
    });
}

fn names_come_and_go(a: &Path, b: &Path) {
    let again = File::create_new(b.join("file")).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    // More than one answer of the manager's has.
    let many: Vec<String> = (0..400).map(|number| format!("{number:0200}")).collect();
    many.iter()
        .for_each(|name| drop(File::create_new(a.join(name)).unwrap()));
    let mut found = names(b);
    found.retain(|name| name != "file");
    assert_eq!(found, many, "in the order in which they were made");
    many.iter()
        .for_each(|name| fs::remove_file(b.join(name)).unwrap());
    assert_eq!(names(a), ["file"]);

    let mut open = File::open(a.join("file")).unwrap();
    fs::remove_file(a.join("file")).unwrap();
    assert_eq!(
        File::open(b.join("file")).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    let mut kept = String::new();
    open.read_to_string(&mut kept).unwrap();
    assert_eq!(kept, "short", "who has it open here has it still");
    drop(open);
    fs::write(b.join("file"), b"").unwrap();
    assert!(is(&a.join("file"), b""), "it is another one");
    assert_eq!(
        fs::remove_file(a.join("none")).unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

fn what_it_does_not_have_is_refused(file: &Path) {
    let open = OpenOptions::new()
        .read(true)
        .write(true)
        .open(file)
        .unwrap();
    assert_eq!(
        fcntl_lock(&open, FlockOperation::LockExclusive),
        Err(Errno::NOLCK)
    );
    let all = fs::Permissions::from_mode(0o777);
    let refused = fs::set_permissions(file, all).unwrap_err().raw_os_error();
    assert_eq!(refused, Some(Errno::OPNOTSUPP.raw_os_error()));
    assert!(fs::rename(file, file.with_extension("other")).is_err());
    assert!(fs::create_dir(file.with_extension("folder")).is_err());
    let too_long = open.set_len((1 << 40) + 1).unwrap_err().raw_os_error();
    assert_eq!(too_long, Some(Errno::FBIG.raw_os_error()));
    let too_far = open.write_at(b"x", 1 << 40).unwrap_err().raw_os_error();
    assert_eq!(too_far, Some(Errno::FBIG.raw_os_error()));
}

#[test]
fn a_server_that_is_gone_is_an_input_output_error() {
    inside("a_server_that_is_gone_is_an_input_output_error", |folder| {
        let mut store = store(folder, 1);
        let (mut mount, at) = mounted(folder, "a");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(at.join("file"));
        let file = file.unwrap();
        let whole = octets(1 << 20);
        file.write_all_at(&whole, 0).unwrap();
        store[2].child.kill().unwrap();
        store[2].ended();
        let mut room = vec![0; 1 << 20];
        let io = Some(Errno::IO.raw_os_error());
        for _ in 0..2 {
            assert_eq!(file.read_at(&mut room, 0).unwrap_err().raw_os_error(), io);
            assert_eq!(file.write_at(&whole, 0).unwrap_err().raw_os_error(), io);
        }
        assert_eq!(
            fs::metadata(at.join("file")).unwrap_err().raw_os_error(),
            io
        );
        // A stripe of a server that is still there.
        file.read_exact_at(&mut room[..65_536], 0).unwrap();
        assert!(room[..65_536] == whole[..65_536]);
        let said = mount.said();
        for part in [
            "cannot read: ",
            "cannot write: ",
            "the server at 127.0.0.1:7002 is gone",
        ] {
            assert!(said.contains(part), "{said}");
        }
        // Nor does a file that is open keep it.
        mount.tell_to_end();
        assert!(!mount.ended().success());
        assert!(
            mount.said().contains("it ends all the same"),
            "{}",
            mount.said()
        );
        assert!(file.read_at(&mut room, 0).is_err());
    });
}

#[test]
fn words_that_make_no_sense_are_refused() {
    let parsed = |words: &str| Words::try_parse_from(words.split(' ')).map(|words| words.args);
    for words in [
        "striped mount --manager=127.0.0.1:1 --servers=127.0.0.1:2",
        "striped mount --manager=127.0.0.1:1 --servers= --at=/tmp",
        "striped mount --manager=nowhere --servers=127.0.0.1:2 --at=/tmp",
        "striped mount --manager=127.0.0.1:1 --servers=127.0.0.1:2,127.0.0.1:99999 --at=/tmp",
        "striped mount --manager=127.0.0.1:1 --at=/tmp",
    ] {
        assert!(parsed(words).is_err(), "{words}");
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    for (at, wanted) in [
        ("file", "it is no folder"),
        ("none/folder", "No such file"),
        ("", "No such file"),
    ] {
        let at = if at.is_empty() {
            PathBuf::new()
        } else {
            folder.path().join(at)
        };
        let address = "127.0.0.1:1".parse().unwrap();
        let args = MountArgs {
            manager: address,
            servers: vec![address],
            at,
        };
        let complaint = format!("{:#}", run(&args).unwrap_err());
        assert!(
            complaint.contains("cannot mount at ") && complaint.contains(wanted),
            "{complaint}"
        );
    }
}

#[test]
fn other_servers_than_the_managers_are_refused() {
    let listeners: Vec<TcpListener> = (0..3)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let at: Vec<SocketAddr> = listeners
        .iter()
        .map(|one| one.local_addr().unwrap())
        .collect();
    let layout = Layout::new(64, 3).unwrap();
    thread::scope(|scope| {
        let serving = scope.spawn(|| manager::serve(&listeners[0], 1, layout));
        let (manager, client) = (Manager::reach(at[0]), Client::reach(&at[1..]));
        let refused = Mounted::new(manager.unwrap(), client.unwrap(), TIMEOUT);
        let complaint = refused.err().unwrap().to_string();
        assert!(
            complaint.contains("on 3 servers, and not on 2"),
            "{complaint}"
        );
        serving.join().unwrap().unwrap();
    });
}
