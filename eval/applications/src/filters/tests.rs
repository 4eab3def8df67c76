//! Pipelines in one process: each copy is a thread, and the connections are real.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::frame::{head, Kind};
use super::testing::address;
use super::*;

fn joints(listen: SocketAddr, before: u32, to: &[SocketAddr]) -> Joints {
    testing::joints(16 << 10, listen, before, to)
}

/// Gives the numbers that a unit of work asks for, of which each copy has its share.
struct Numbers {
    copy: u32,
    copies: u32,
    count: u32,
}

impl Filter for Numbers {
    fn begin(&mut self, work: &[u8], _: &mut Output) -> Result<()> {
        self.count = u32::from_be_bytes(work.try_into()?);
        Ok(())
    }

    fn take(&mut self, _: &[u8], _: &mut Output) -> Result<()> {
        anyhow::bail!("nothing is given to the first filter")
    }

    fn end(&mut self, output: &mut Output) -> Result<()> {
        let own = (0..self.count).filter(|number| number % self.copies == self.copy);
        own.into_iter()
            .try_for_each(|number| output.give(&number.to_be_bytes(), &[7; 1000]))
    }
}

/// Squares numbers, after a while, and says at the end of a unit of work how many it had.
struct Square {
    rests: Duration,
    had: u32,
}

impl Filter for Square {
    fn begin(&mut self, _: &[u8], _: &mut Output) -> Result<()> {
        self.had = 0;
        Ok(())
    }

    fn take(&mut self, unit: &[u8], output: &mut Output) -> Result<()> {
        assert_eq!(unit.len(), 1004);
        let number = u64::from(u32::from_be_bytes(unit[..4].try_into()?));
        thread::sleep(self.rests);
        self.had += 1;
        output.give(b"square", &(number * number).to_be_bytes())
    }

    fn end(&mut self, output: &mut Output) -> Result<()> {
        output.give(b"had   ", &u64::from(self.had).to_be_bytes())
    }
}

type Running = JoinHandle<Result<()>>;

/// Two copies of the first filter, and one of the second for each of `rests`, of which each rests so long per number.
fn pipeline(rests: &[Duration]) -> (Group, Vec<Running>) {
    let last = TcpListener::bind("127.0.0.1:0").unwrap();
    let end = last.local_addr().unwrap();
    let seconds: Vec<SocketAddr> = rests.iter().map(|_| address()).collect();
    let firsts = [address(), address()];
    let mut running = Vec::new();
    for (at, &rests) in seconds.iter().zip(rests) {
        let joints = joints(*at, 2, &[end]);
        running.push(thread::spawn(move || {
            run(&mut Square { rests, had: 0 }, &joints)
        }));
    }
    for (copy, at) in (0..).zip(firsts) {
        let joints = joints(at, 1, &seconds);
        let mut numbers = Numbers {
            copy,
            copies: 2,
            count: 0,
        };
        running.push(thread::spawn(move || run(&mut numbers, &joints)));
    }
    let joints = joints(end, rests.len() as u32, &firsts);
    (Group::join(&last, &joints).unwrap(), running)
}

/// The squares of the next unit of work, in order, and how many each copy had.
fn results(group: &mut Group) -> (Vec<u64>, Vec<u64>) {
    let (mut squares, mut had) = (Vec::new(), Vec::new());
    group
        .results(|unit| {
            let number = u64::from_be_bytes(unit[6..].try_into()?);
            match &unit[..6] {
                b"square" => squares.push(number),
                _ => had.push(number),
            }
            Ok(())
        })
        .unwrap();
    squares.sort_unstable();
    had.sort_unstable();
    (squares, had)
}

#[test]
fn units_of_work_come_whole_and_one_after_the_other() {
    let (mut group, running) = pipeline(&[Duration::ZERO; 3]);
    // The second one is ordered before the first one's results are taken.
    let counts = [100_u32, 0, 7, 1000];
    group.order(&counts[0].to_be_bytes()).unwrap();
    for (at, &count) in counts.iter().enumerate() {
        if let Some(next) = counts.get(at + 1) {
            group.order(&next.to_be_bytes()).unwrap();
        }
        let (squares, had) = results(&mut group);
        let wanted: Vec<u64> = (0..u64::from(count))
            .map(|number| number * number)
            .collect();
        assert_eq!(squares, wanted);
        assert_eq!((had.len(), had.iter().sum()), (3, u64::from(count)));
    }
    drop(group);
    for one in running {
        one.join().unwrap().unwrap();
    }
}

#[test]
fn the_copy_that_is_quicker_has_more() {
    let (mut group, running) = pipeline(&[Duration::ZERO, Duration::from_millis(20)]);
    group.order(&200_u32.to_be_bytes()).unwrap();
    let (squares, had) = results(&mut group);
    assert_eq!(squares.len(), 200);
    assert!(
        had[0] >= 1 && had[0] < 60,
        "the slow one had {} of 200",
        had[0]
    );
    drop(group);
    for one in running {
        one.join().unwrap().unwrap();
    }
}

#[test]
fn a_window_bounds_what_is_under_way() {
    let behind = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = behind.local_addr().unwrap();
    let giving = thread::spawn(move || {
        let joints = joints(to, 1, &[to]);
        let mut output = Output::connect(&joints).unwrap();
        output.begin(b"").unwrap();
        (0..10).for_each(|_| output.give(&[1; 100], &[]).unwrap());
        let too_long = output.give(&[1; 16 << 10], &[1]).unwrap_err();
        assert!(too_long.to_string().contains("16385 octets"), "{too_long}");
    });
    let (mut stream, _) = behind.accept().unwrap();
    let mut came = vec![0; 12 + 4 * 112];
    stream.read_exact(&mut came).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    assert!(stream.read(&mut [0]).is_err(), "a fifth one comes");
    stream.set_read_timeout(None).unwrap();
    for _ in 4..10 {
        stream.write_all(&head(Kind::Taken, 0, 0)).unwrap();
        stream.read_exact(&mut [0; 112]).unwrap();
    }
    giving.join().unwrap();
}

/// What a copy says of octets that come from one before it, which then ends.
fn complaint(octets: &[u8]) -> Option<String> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut before = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut input = Input::accept(&listener, 1).unwrap();
    before.write_all(octets).unwrap();
    drop(before);
    loop {
        match input.next(|_| Ok(())) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => return Some(format!("{error:#}")),
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused_in_words() {
    let [begin, unit, end, taken] =
        [Kind::Begin, Kind::Unit, Kind::End, Kind::Taken].map(|kind| head(kind, 0, 0));
    assert_eq!(complaint(&[begin, unit, end].concat()), None);
    for (octets, wanted) in [
        (unit.to_vec(), "out of place"),
        ([begin, begin].concat(), "out of place"),
        ([begin, taken].concat(), "out of place"),
        (head(Kind::Begin, 0, 1).to_vec(), "work 1 amid work 0"),
        ([begin, unit].concat(), "ended amid"),
        (begin[..5].to_vec(), "ended amid"),
        (b"GET / HTTP/1.1\r\n".to_vec(), "unknown kind"),
    ] {
        let complaint = complaint(&octets).unwrap();
        assert!(complaint.contains(wanted), "{complaint}, not {wanted}");
    }
}

#[test]
fn a_copy_that_is_gone_while_others_go_on_is_missed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (gone, mut other) = (connect(), connect());
    let mut input = Input::accept(&listener, 2).unwrap();
    drop(gone);
    other.write_all(&head(Kind::Begin, 0, 0)).unwrap();
    other.write_all(&head(Kind::End, 0, 0)).unwrap();
    assert!(input.next(|_| Ok(())).unwrap(), "it begins");
    let complaint = input.next(|_| Ok(())).unwrap_err().to_string();
    assert!(complaint.contains("others go on"), "{complaint}");
}
