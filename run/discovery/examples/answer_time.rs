//! How long an answer takes on loopback, and what an idle process that answers costs.
//!
//!     cargo run --release -p weft-discovery --example answer_time
//!
//! Prints medians and other quantiles of so many connects: the connect alone, the connect and the question until yes,
//! and the question alone.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use weft_discovery::{About, Answering, Asker, Outcome, Promises, Standing};
use weft_settings::DiscoveryPort;

const CONNECTS: usize = 1000;
const IDLE: Duration = Duration::from_secs(5);

fn main() {
    weft_os::process::watch();
    let promises: &'static Promises = Box::leak(Box::new(Promises::new().expect("memory")));
    let port = DiscoveryPort::Agreed(22_343);
    let answering = Answering::new(port, promises).expect("memory");
    let answering: &'static Answering = Box::leak(Box::new(answering));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let to = listener.local_addr().expect("an address");
    answering.listen(1, About::Stream, listener.as_raw_fd());
    while answering.standing() != Standing::Answers {
        std::thread::sleep(Duration::from_millis(1));
    }
    let asker = Asker::new(port).expect("memory");
    let (mut alone, mut asked, mut answered) = (Vec::new(), Vec::new(), 0);
    let mut both = Vec::new();
    for _ in 0..CONNECTS {
        let begun = Instant::now();
        let plain = TcpStream::connect(to).expect("a connection");
        alone.push(begun.elapsed());
        let begun = Instant::now();
        let stream = TcpStream::connect(to).expect("a connection");
        let connected = Instant::now();
        let ticket = asker
            .ask(About::Stream, stream.as_raw_fd(), to)
            .expect("a question");
        answered += usize::from(asker.wait(ticket) == Outcome::Yes);
        asked.push(connected.elapsed());
        both.push(begun.elapsed());
        drop((plain, stream, listener.accept(), listener.accept()));
    }
    println!("{answered} of {CONNECTS} answered yes");
    print("connect alone", &mut alone);
    print("question until yes", &mut asked);
    print("connect and question", &mut both);
    let before = cpu_ticks();
    std::thread::sleep(IDLE);
    println!(
        "idle for {IDLE:?}: {} ticks of CPU (10 ms each)",
        cpu_ticks() - before
    );
}

fn print(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let [p50, p99, p999] = [0.5, 0.99, 0.999].map(at);
    println!("{what}: p50 {p50:?}, p99 {p99:?}, p99.9 {p999:?}");
}

/// What this process has used, user and system.
fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("/proc");
    let behind_name = stat.rsplit(')').next().unwrap_or_default();
    let fields = behind_name.split_whitespace().skip(11).take(2);
    fields.filter_map(|field| field.parse::<u64>().ok()).sum()
}
