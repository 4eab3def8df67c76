//! Several groups in one process: each copy is a thread, and the connections are real.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Result};

use super::frame::{head, Kind};
use super::groups::{Beside, Groups};
use super::merge::{Merge, Works};
use super::testing::{address, joints, side_by_side};
use super::{Filter, Output};

const UNIT: u32 = 16 << 10;
/// Units of the results of each unit of work.
const PARTS: u64 = 5;

/// Gives numbers that follow from the unit of work; rests before, or fails instead when the time has come.
struct Numbers {
    rests: Duration,
    fails_at: Option<u32>,
    begun: u32,
    work: u64,
}

impl Filter for Numbers {
    fn begin(&mut self, work: &[u8], _: &mut Output) -> Result<()> {
        self.work = u64::from_be_bytes(work.try_into()?);
        self.begun += 1;
        ensure!(self.fails_at != Some(self.begun), "this copy fails");
        Ok(())
    }

    fn take(&mut self, _: &[u8], _: &mut Output) -> Result<()> {
        anyhow::bail!("nothing is given to the first filter")
    }

    fn end(&mut self, output: &mut Output) -> Result<()> {
        thread::sleep(self.rests);
        (0..PARTS).try_for_each(|part| output.give(&(self.work * 100 + part).to_be_bytes(), &[]))
    }
}

/// Gives on what it takes.
struct Same;

impl Filter for Same {
    fn begin(&mut self, _: &[u8], _: &mut Output) -> Result<()> {
        Ok(())
    }
    fn take(&mut self, unit: &[u8], output: &mut Output) -> Result<()> {
        output.give(unit, &[])
    }
    fn end(&mut self, _: &mut Output) -> Result<()> {
        Ok(())
    }
}

/// Units of work of which each is compared, and noted when it is merged.
struct Noted {
    number: u64,
    merged: Mutex<Vec<u64>>,
}

impl Noted {
    fn new(number: u64) -> Noted {
        Noted {
            number,
            merged: Mutex::new(Vec::new()),
        }
    }
}

impl Works for Noted {
    type Whole = Vec<u64>;

    fn number(&self) -> u64 {
        self.number
    }
    fn order(&self, work: u64) -> Vec<u8> {
        work.to_be_bytes().to_vec()
    }
    fn begin(&self, _: u64) -> Vec<u64> {
        Vec::new()
    }
    fn take(&self, whole: &mut Vec<u64>, unit: &[u8]) -> Result<()> {
        whole.push(u64::from_be_bytes(unit.try_into()?));
        Ok(())
    }
    fn end(&self, work: u64, whole: Vec<u64>) -> Result<u64> {
        let wanted: Vec<u64> = (0..PARTS).map(|part| work * 100 + part).collect();
        ensure!(whole == wanted, "{whole:?} are not the numbers of {work}");
        self.merged.lock().unwrap().push(work);
        Ok(PARTS)
    }
}

/// Shares so many units of work among groups, of which the first rests so long for each; says how many each has ended.
fn shared(works: &Noted, window: u32, rests: &[Duration], count: u32) -> Vec<u64> {
    let (groups, made) = (rests.len() as u32, AtomicU32::new(0));
    let numbers = || {
        let group = made.fetch_add(1, Ordering::Relaxed) as usize;
        Box::new(Numbers {
            rests: rests[group],
            fails_at: None,
            begun: 0,
            work: 0,
        }) as Box<dyn Filter>
    };
    let mut ended = Vec::new();
    let copies = side_by_side(
        UNIT,
        groups,
        &|_| numbers(),
        &[&|| Box::new(Same)],
        |joints| {
            let beside = Beside {
                groups,
                works: window,
            };
            let mut merge = Merge::of(works, Groups::join(joints, &beside).unwrap());
            let handed = AtomicU32::new(0);
            let goes_on = || handed.fetch_add(1, Ordering::Relaxed) < count;
            merge.share(goes_on).unwrap();
            ended = merge.ended();
        },
    );
    copies.into_iter().for_each(|copy| copy.unwrap());
    ended
}

#[test]
fn results_are_merged_in_the_order_of_the_units_of_work() {
    let works = Noted::new(7);
    // The second group is ready long before the first one each time.
    let rests = [Duration::from_millis(5), Duration::ZERO, Duration::ZERO];
    let ended = shared(&works, 2, &rests, 400);
    let merged = works.merged.into_inner().unwrap();
    let wanted: Vec<u64> = (0..merged.len() as u64).map(|number| number % 7).collect();
    assert_eq!(merged, wanted);
    assert_eq!(ended.iter().sum::<u64>(), merged.len() as u64);
    assert!(ended.iter().all(|&ended| ended > 0), "{ended:?}");
}

#[test]
fn the_group_that_is_quicker_has_more() {
    let rests = [Duration::from_millis(20), Duration::ZERO];
    let mut ended = shared(&Noted::new(3), 2, &rests, 200);
    // Which of them is the slow one depends on which thread begins first.
    ended.sort_unstable();
    assert!(ended[0] >= 1 && ended[0] < 60, "{ended:?}");
}

#[test]
fn every_group_does_every_unit_of_work_before_the_time_is_taken() {
    let works = Noted::new(4);
    let same: &(dyn Fn() -> Box<dyn Filter> + Sync) = &|| Box::new(Same);
    let numbers = || Numbers {
        rests: Duration::ZERO,
        fails_at: None,
        begun: 0,
        work: 0,
    };
    let copies = side_by_side(UNIT, 3, &|_| Box::new(numbers()), &[same], |joints| {
        let beside = Beside {
            groups: 3,
            works: 1,
        };
        let mut merge = Merge::of(&works, Groups::join(joints, &beside).unwrap());
        merge.warm_up().unwrap();
        assert_eq!(merge.ended(), [4, 4, 4]);
    });
    copies.into_iter().for_each(|copy| copy.unwrap());
    let thrice: Vec<u64> = (0..12).map(|number| number % 4).collect();
    assert_eq!(works.merged.into_inner().unwrap(), thrice);
}

#[test]
fn a_group_that_dies_fails_the_run_in_words() {
    for fails_at in [1, 5] {
        let (works, made) = (Noted::new(3), AtomicU32::new(0));
        let numbers = || {
            let is_first = made.fetch_add(1, Ordering::Relaxed) == 0;
            Box::new(Numbers {
                rests: Duration::ZERO,
                fails_at: is_first.then_some(fails_at),
                begun: 0,
                work: 0,
            }) as Box<dyn Filter>
        };
        let mut complaint = String::new();
        let copies = side_by_side(UNIT, 2, &|_| numbers(), &[&|| Box::new(Same)], |joints| {
            let beside = Beside {
                groups: 2,
                works: 2,
            };
            let mut merge = Merge::of(&works, Groups::join(joints, &beside).unwrap());
            // It would go on for ever.
            complaint = format!("{:#}", merge.share(|| true).unwrap_err());
        });
        assert!(complaint.contains("filter group "), "{complaint}");
        let fails = copies.iter().filter(|copy| match copy {
            Err(error) => error.to_string().contains("this copy fails"),
            Ok(()) => false,
        });
        assert_eq!(fails.count(), 1, "{copies:?}");
    }
}

/// Has the source hand out units of work while `goes_on`, to a group that is played: by what it is ordered, and what it
/// answers. Gives what the source came to.
fn played(goes_on: bool, play: impl FnOnce(TcpStream, TcpStream)) -> Result<()> {
    let (end, first) = (address(), address());
    let reader = TcpListener::bind(first).unwrap();
    thread::scope(|scope| {
        let source = scope.spawn(move || {
            let beside = Beside {
                groups: 1,
                works: 2,
            };
            let works = Noted::new(3);
            let mut merge = Merge::of(
                &works,
                Groups::join(&joints(UNIT, end, 1, &[first]), &beside)?,
            );
            merge.share(|| goes_on)
        });
        let last = loop {
            match TcpStream::connect(end) {
                Ok(stream) => break stream,
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        };
        let (ordered, _) = reader.accept().unwrap();
        play(ordered, last);
        source.join().unwrap()
    })
}

/// Octets that order a unit of work: its begin and its end.
const ORDER: usize = 12 + 8 + 12;

#[test]
fn a_window_bounds_the_units_of_work_of_a_group() {
    let ended = played(true, |mut ordered, mut last| {
        ordered.read_exact(&mut [0; 2 * ORDER]).unwrap();
        ordered
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        assert!(ordered.read(&mut [0]).is_err(), "a third one comes");
        ordered.set_read_timeout(None).unwrap();
        last.write_all(&head(Kind::Begin, 0, 0)).unwrap();
        for part in 0..PARTS {
            last.write_all(&head(Kind::Unit, 8, 0)).unwrap();
            last.write_all(&part.to_be_bytes()).unwrap();
        }
        last.write_all(&head(Kind::End, 0, 0)).unwrap();
        ordered.read_exact(&mut [0; ORDER]).unwrap();
    });
    assert!(ended.is_err(), "two of them were never ended");
}

/// What the source says of octets that come from the last copy of its only group, which then ends.
fn complaint(octets: &[u8]) -> String {
    let ended = played(false, |mut ordered, mut last| {
        ordered.read_exact(&mut [0; ORDER]).unwrap();
        last.write_all(octets).unwrap();
    });
    format!("{:#}", ended.unwrap_err())
}

#[test]
fn what_a_group_says_that_makes_no_sense_is_refused_in_words() {
    let [begin, unit, end] = [Kind::Begin, Kind::Unit, Kind::End].map(|kind| head(kind, 0, 0));
    for (octets, wanted) in [
        (vec![], "it has ended, and 1 of its units of work have not"),
        ([begin, end].concat(), "[] are not the numbers of 0"),
        (unit.to_vec(), "out of place"),
        (begin.to_vec(), "ended amid"),
        ([begin, unit].concat(), "could not convert slice"),
        (head(Kind::Begin, 0, 1).to_vec(), "work 1 amid work 0"),
        (b"GET / HTTP/1.1\r\n".to_vec(), "unknown kind"),
        (
            [&2_u32.to_be_bytes()[..], &[0xff; 8]].concat(),
            "4294967295 octets",
        ),
    ] {
        let complaint = complaint(&octets);
        assert!(complaint.contains(wanted), "{complaint}, not {wanted}");
    }
}

#[test]
fn copies_that_cannot_be_shared_out_are_refused() {
    let beside = Beside {
        groups: 2,
        works: 2,
    };
    let some = [address(), address(), address()];
    let complaint = match Groups::join(&joints(UNIT, address(), 1, &some), &beside) {
        Ok(_) => panic!("three copies in two groups"),
        Err(error) => error.to_string(),
    };
    assert!(
        complaint.contains("3 copies of the first filter"),
        "{complaint}"
    );
    let last = std::net::SocketAddr::new([127, 0, 0, 1].into(), u16::MAX);
    let complaint = format!("{:#}", super::groups::listens_at(last, 1).unwrap_err());
    assert!(
        complaint.contains("no port 65536 for filter group 2"),
        "{complaint}"
    );
}
