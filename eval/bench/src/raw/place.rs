//! Messages whose header says which of the receiver's places their payload belongs to, and three ways to get it there:
//! the header is read first and the payload straight to its place, or both are read into memory that was meant for the
//! next message whatever it is, or as much as is there is read into a buffer, and copied.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};

use super::content::{check, check_number, message, set_number};
use super::messages::LAST;
use super::programs::{Place, Way};
use crate::metric::{GOODPUT, MESSAGE_RATE, OPERATIONS};
use crate::record::Metrics;

/// Octets of a header: the message's number, its place, the octets of its payload.
const HEADER: usize = 16;
/// Places of the receiver.
const PLACES: u64 = 16;
/// Octets that are read at a time by who copies.
const READ_AHEAD: usize = 128 << 10;

/// What stands before a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    number: u64,
    place: u32,
    length: u32,
}

impl Header {
    /// Of a message and its payload: neighbours go to places that are no neighbours.
    fn of(number: u64, length: usize) -> Header {
        Header {
            number,
            place: (number.wrapping_mul(7).wrapping_add(3) % PLACES) as u32,
            length: length as u32,
        }
    }

    fn octets(self) -> [u8; HEADER] {
        let mut octets = [0; HEADER];
        octets[..8].copy_from_slice(&self.number.to_le_bytes());
        octets[8..12].copy_from_slice(&self.place.to_le_bytes());
        octets[12..].copy_from_slice(&self.length.to_le_bytes());
        octets
    }

    fn read(octets: &[u8; HEADER]) -> Header {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| octets[at + i]));
        Header {
            number: u64::from(word(0)) | u64::from(word(4)) << 32,
            place: word(8),
            length: word(12),
        }
    }
}

/// The receiver's places, and which message each has.
struct Places {
    size: usize,
    memory: Vec<Vec<u8>>,
    holds: Vec<Option<u64>>,
    /// How many messages have come.
    count: u64,
}

impl Places {
    /// Each with so much room before the payload.
    fn new(size: usize, before: usize) -> Places {
        Places {
            size,
            memory: (0..PLACES).map(|_| vec![0; before + size]).collect(),
            holds: vec![None; PLACES as usize],
            count: 0,
        }
    }

    /// Whether this header is the next message's; false for the one behind the last.
    fn expects(&self, header: Header) -> Result<bool> {
        if header.number == LAST {
            return Ok(false);
        }
        let wanted = Header::of(self.count, self.size);
        ensure!(header == wanted, "{header:?} came instead of {wanted:?}");
        Ok(true)
    }

    /// The payload of the next message is at this place, behind `before` octets.
    fn has(&mut self, place: usize, before: usize) -> Result<()> {
        check_number(&self.memory[place][before..], self.count)?;
        self.holds[place] = Some(self.count);
        self.count += 1;
        Ok(())
    }

    /// Each place has the whole payload that came there last.
    fn check_all(&self, before: usize) -> Result<()> {
        let held = self.memory.iter().zip(&self.holds);
        held.filter_map(|(memory, number)| Some((memory, (*number)?)))
            .try_for_each(|(memory, number)| check(&memory[before..], number))
    }
}

pub(super) fn serve(mut stream: &TcpStream, program: &Place) -> Result<()> {
    let (count, nanoseconds) = match program.way {
        Way::Pick => pick(stream, program.size)?,
        Way::Posted => take_posted(stream, program.size)?,
        Way::Copied => copy(stream, program.size)?,
    };
    stream.write_all(&[count.to_be_bytes(), nanoseconds.to_be_bytes()].concat())?;
    Ok(())
}

/// The first message opens the clock and does not count: it left before.
struct Clock(Option<Instant>);

impl Clock {
    fn message(&mut self) {
        self.0.get_or_insert_with(Instant::now);
    }

    fn nanoseconds(&self) -> Result<u64> {
        let first = self.0.context("no message came")?;
        Ok(first.elapsed().as_nanos() as u64)
    }
}

/// The header tells where its payload is to be read to.
fn pick(mut stream: &TcpStream, size: usize) -> Result<(u64, u64)> {
    let (mut places, mut clock) = (Places::new(size, 0), Clock(None));
    loop {
        let mut octets = [0; HEADER];
        stream.read_exact(&mut octets)?;
        let header = Header::read(&octets);
        if !places.expects(header)? {
            break;
        }
        let place = header.place as usize;
        stream.read_exact(&mut places.memory[place])?;
        places.has(place, 0)?;
        clock.message();
    }
    let nanoseconds = clock.nanoseconds()?;
    places.check_all(0)?;
    Ok((places.count, nanoseconds))
}

/// Header and payload are read into the next memory, whatever the header says.
fn take_posted(mut stream: &TcpStream, size: usize) -> Result<(u64, u64)> {
    let (mut places, mut clock) = (Places::new(size, HEADER), Clock(None));
    loop {
        let next = (places.count % PLACES) as usize;
        let memory = &mut places.memory[next];
        stream.read_exact(memory)?;
        let header = Header::read(memory.first_chunk().context("there is no header")?);
        if !places.expects(header)? {
            break;
        }
        places.has(next, HEADER)?;
        clock.message();
    }
    let nanoseconds = clock.nanoseconds()?;
    places.holds[(places.count % PLACES) as usize] = None;
    places.check_all(HEADER)?;
    Ok((places.count, nanoseconds))
}

/// As much as is there is read at a time, and copied to where the headers in it say.
fn copy(mut stream: &TcpStream, size: usize) -> Result<(u64, u64)> {
    let (mut places, mut clock) = (Places::new(size, 0), Clock(None));
    let mut buffer = vec![0; READ_AHEAD];
    let (mut octets, mut header_has) = ([0; HEADER], 0);
    let mut payload_has = 0;
    loop {
        let came = stream.read(&mut buffer)?;
        ensure!(came > 0, "the sender went away");
        let mut rest = &buffer[..came];
        while !rest.is_empty() {
            if header_has < HEADER {
                let part = rest.len().min(HEADER - header_has);
                octets[header_has..header_has + part].copy_from_slice(&rest[..part]);
                (rest, header_has) = (&rest[part..], header_has + part);
                if header_has == HEADER && !places.expects(Header::read(&octets))? {
                    let nanoseconds = clock.nanoseconds()?;
                    places.check_all(0)?;
                    return Ok((places.count, nanoseconds));
                }
                continue;
            }
            let place = Header::read(&octets).place as usize;
            let part = rest.len().min(size - payload_has);
            places.memory[place][payload_has..payload_has + part].copy_from_slice(&rest[..part]);
            (rest, payload_has) = (&rest[part..], payload_has + part);
            if payload_has == size {
                places.has(place, 0)?;
                clock.message();
                (header_has, payload_has) = (0, 0);
            }
        }
    }
}

pub(super) fn measure(mut stream: &TcpStream, program: &Place) -> Result<Metrics> {
    stream.set_nodelay(true)?;
    let mut whole = [vec![0; HEADER], message(program.size, 0)].concat();
    let (start, time) = (Instant::now(), Duration::from_secs(program.seconds.into()));
    let mut sent = 0;
    while start.elapsed() < time || sent < 2 {
        whole[..HEADER].copy_from_slice(&Header::of(sent, program.size).octets());
        set_number(&mut whole[HEADER..], sent);
        stream.write_all(&whole)?;
        sent += 1;
    }
    whole[..HEADER].copy_from_slice(&Header::of(LAST, 0).octets());
    // Who has posted memory for a whole message waits for one.
    let last = match program.way {
        Way::Posted => whole.len(),
        Way::Pick | Way::Copied => HEADER,
    };
    stream.write_all(&whole[..last])?;
    let mut report = [0; 16];
    stream.read_exact(&mut report)?;
    let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| report[at + i]));
    metrics(sent, word(0), word(8), program.size)
}

fn metrics(sent: u64, received: u64, nanoseconds: u64, size: usize) -> Result<Metrics> {
    if received != sent {
        bail!("{received} of {sent} messages were received");
    }
    ensure!(nanoseconds > 0, "nothing was received in time");
    let rate = (received - 1) as f64 * 1e9 / nanoseconds as f64;
    Ok(Metrics::from([
        (GOODPUT.key.to_owned(), rate * size as f64 * 8.0 / 1e9),
        (MESSAGE_RATE.key.to_owned(), rate),
        (OPERATIONS.to_owned(), received as f64),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written_and_sixteen_have_sixteen_places() {
        let header = Header::of(0x1_0000_0002, 70_000);
        assert_eq!(Header::read(&header.octets()), header);
        let mut places: Vec<u32> = (0..PLACES).map(|n| Header::of(n, 1).place).collect();
        places.sort_unstable();
        assert!(places.iter().copied().eq(0..PLACES as u32));
    }

    #[test]
    fn what_is_missing_or_out_of_order_or_changed_is_an_error() {
        let error = metrics(5, 4, 1, 1).unwrap_err();
        assert_eq!(error.to_string(), "4 of 5 messages were received");

        let mut places = Places::new(100, 0);
        assert!(places.expects(Header::of(1, 100)).is_err());
        assert!(places.expects(Header::of(0, 99)).is_err());
        assert!(places.expects(Header::of(0, 100)).unwrap());
        assert!(!places.expects(Header::of(LAST, 0)).unwrap());
        places.memory[3] = message(100, 0);
        places.has(3, 0).unwrap();
        places.check_all(0).unwrap();
        places.memory[3][50] ^= 1;
        assert!(places.check_all(0).is_err());
    }
}
