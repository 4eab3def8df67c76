//! Many connections that carry nothing: what each costs the process that has it.
//!
//! Each connection carries an octet there and back, so that both ends have done with its start. Then both processes
//! sleep in `epoll_wait` with all connections in the set.

use std::io::{Read, Result as IoResult, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use weft_os::as_programs::EpollSet;

use super::accept;
use super::clock::cpu_nanoseconds;
use super::programs::Idle;
use crate::metric::{IDLE_CPU, MEMORY};
use crate::record::Metrics;

/// Descriptors of a process that are no connections of this program's.
const OTHER_DESCRIPTORS: u64 = 256;

/// From the last connection until time is counted: what comes after a connection's start has come.
const SETTLING: Duration = Duration::from_millis(500);

/// What the client says on a connection.
const MORE_COME: u8 = 0;
const THE_LAST: u8 = 1;
const COUNT_FROM_NOW: u8 = 2;
const TELL: u8 = 3;

pub(super) fn serve(listener: &TcpListener) -> Result<()> {
    let mut crowd = Crowd::new(accept(listener)?)?;
    let mut said = hear(&crowd.first)?;
    answer(&crowd.first)?;
    let before = resident_octets()?;
    while said == MORE_COME {
        let stream = accept(listener)?;
        said = hear(&stream)?;
        answer(&stream)?;
        crowd.add(stream)?;
    }
    ensure!(crowd.wait_for_first(None)?, "another connection spoke");
    ensure!(hear(&crowd.first)? == COUNT_FROM_NOW, "the client is lost");
    let started = cpu_nanoseconds();
    ensure!(crowd.wait_for_first(None)?, "another connection spoke");
    let taken = Taken::since(started, before)?;
    ensure!(hear(&crowd.first)? == TELL, "the client is lost");
    taken.send(&crowd.first)?;
    Ok(())
}

pub(super) fn measure(server: SocketAddr, program: &Idle) -> Result<Metrics> {
    let connections = fitting(program.connections)?;
    let connect = || TcpStream::connect(server).context("cannot connect");
    let more = |made: u32| {
        if made < connections {
            MORE_COME
        } else {
            THE_LAST
        }
    };
    let mut crowd = Crowd::new(connect()?)?;
    ask(&crowd.first, more(1))?;
    let before = resident_octets()?;
    for number in 2..=connections {
        let stream = connect()?;
        ask(&stream, more(number))?;
        crowd.add(stream)?;
    }
    thread::sleep(SETTLING);
    (&crowd.first).write_all(&[COUNT_FROM_NOW])?;
    let started = cpu_nanoseconds();
    let window = Duration::from_secs(program.seconds.into());
    ensure!(!crowd.wait_for_first(Some(window))?, "the server spoke");
    let mine = Taken::since(started, before)?;
    (&crowd.first).write_all(&[TELL])?;
    let theirs = Taken::receive(&crowd.first)?;
    Ok(metrics(&mine, &theirs, connections, window))
}

/// The end that has more of it counts.
fn metrics(mine: &Taken, theirs: &Taken, connections: u32, window: Duration) -> Metrics {
    let octets = mine.octets.max(theirs.octets) as f64;
    let cpu = mine.cpu_nanoseconds.max(theirs.cpu_nanoseconds) as f64;
    // The first was there before anybody looked.
    let counted = f64::from(connections - 1).max(1.0);
    Metrics::from([
        (MEMORY.key.to_owned(), octets / counted),
        (
            IDLE_CPU.key.to_owned(),
            cpu / window.as_nanos() as f64 * 100.0,
        ),
        ("connections".to_owned(), f64::from(connections)),
    ])
}

/// As many as asked for, or as many as this process may have descriptors for.
fn fitting(asked: u32) -> Result<u32> {
    raise_descriptors()?;
    // Without a limit there is none to keep.
    let room = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let fitting = u64::from(asked).min(room.saturating_sub(OTHER_DESCRIPTORS));
    ensure!(
        fitting > 1,
        "the limit of {room} descriptors leaves no room (ulimit -n)"
    );
    Ok(u32::try_from(fitting)?)
}

fn raise_descriptors() -> IoResult<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// Connections that are waited for together.
struct Crowd {
    set: EpollSet,
    /// The one on which the two processes speak.
    first: TcpStream,
    others: Vec<TcpStream>,
}

impl Crowd {
    const FIRST: u64 = 0;

    fn new(first: TcpStream) -> IoResult<Crowd> {
        raise_descriptors()?;
        let set = EpollSet::new()?;
        set.add(&first, Self::FIRST)?;
        Ok(Crowd {
            set,
            first,
            others: Vec::new(),
        })
    }

    fn add(&mut self, stream: TcpStream) -> IoResult<()> {
        self.others.push(stream);
        let stream = &self.others[self.others.len() - 1];
        self.set.add(stream, self.others.len() as u64)
    }

    /// Whether the first spoke before this time was over.
    fn wait_for_first(&self, timeout: Option<Duration>) -> Result<bool> {
        let spoke = self.set.wait(timeout)?;
        ensure!(
            spoke.is_none_or(|token| token == Self::FIRST),
            "a connection ended"
        );
        Ok(spoke.is_some())
    }
}

/// What the connections took of a process.
struct Taken {
    /// Growth of its resident memory.
    octets: u64,
    cpu_nanoseconds: u64,
}

impl Taken {
    fn since(cpu: u64, octets: u64) -> Result<Taken> {
        // The clock first: the look at the memory takes time itself.
        let cpu_nanoseconds = cpu_nanoseconds() - cpu;
        Ok(Taken {
            octets: resident_octets()?.saturating_sub(octets),
            cpu_nanoseconds,
        })
    }

    fn send(&self, mut stream: &TcpStream) -> IoResult<()> {
        stream.write_all(&self.octets.to_be_bytes())?;
        stream.write_all(&self.cpu_nanoseconds.to_be_bytes())
    }

    fn receive(mut stream: &TcpStream) -> IoResult<Taken> {
        let mut words = [[0; 8]; 2];
        for word in &mut words {
            stream.read_exact(word)?;
        }
        let [octets, cpu_nanoseconds] = words.map(u64::from_be_bytes);
        Ok(Taken {
            octets,
            cpu_nanoseconds,
        })
    }
}

/// Says something on a connection and waits for the answer.
fn ask(mut stream: &TcpStream, what: u8) -> IoResult<()> {
    stream.write_all(&[what])?;
    hear(stream).map(drop)
}

fn answer(mut stream: &TcpStream) -> IoResult<()> {
    stream.write_all(&[0])
}

fn hear(mut stream: &TcpStream) -> IoResult<u8> {
    let mut octet = [0];
    stream.read_exact(&mut octet)?;
    Ok(octet[0])
}

/// Memory of this process that is there, shared memory included. `statm` would be off by what each core has not
/// counted in yet.
fn resident_octets() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup")
        .context("cannot tell the resident memory")?;
    resident_in(&text).context("/proc/self/smaps_rollup has no Rss")
}

fn resident_in(smaps_rollup: &str) -> Option<u64> {
    let mut lines = smaps_rollup.lines();
    let rest = lines.find_map(|line| line.strip_prefix("Rss:"))?;
    let kibibytes: u64 = rest.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resident_memory_stands_in_a_line_of_its_own() {
        let text =
            "55-7f ---p 00000000 00:00 0  [rollup]\nRss:        1904 kB\nPss:         500 kB\n";
        assert_eq!(resident_in(text), Some(1904 * 1024));
        assert_eq!(resident_in("Pss: 5 kB\n"), None);
        assert!(resident_octets().unwrap() > 1 << 16);
    }

    #[test]
    fn the_end_that_has_more_counts_and_the_first_connection_does_not() {
        let taken = |octets, cpu_nanoseconds| Taken {
            octets,
            cpu_nanoseconds,
        };
        let window = Duration::from_secs(2);
        let metrics = metrics(
            &taken(8000, 20_000_000),
            &taken(4000, 40_000_000),
            5,
            window,
        );
        assert_eq!(metrics["process_octets"], 2000.0);
        assert_eq!(metrics["idle_cpu_percent"], 2.0);
        assert_eq!(metrics["connections"], 5.0);
    }
}
