//! Datagrams on their way out: which gather, and when they leave.

use std::sync::atomic::{AtomicU64, Ordering};

use weft_datagram::batch::LONGEST;
use weft_datagram::destination::Destination;
use weft_datagram::sender::{Offer, Wire, MEMORY};
use weft_os::dgram::{self, NAME_LEN};
use weft_os::pages;
use weft_os::user::UserBuffers;
use weft_settings::datagrams::Direction;
use weft_udp_offload::{Pause, Sending};

use super::options::segments;
use super::record::{Outgoing, Record};
use super::Datagrams;
use crate::ends::ends;
use crate::verdict::Verdict;
use crate::Errno;

/// Flags of sends that carriers bring.
const FLAGS_CARRIED: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_CONFIRM;

/// The kernel as what takes datagrams.
pub(super) struct Socket<'a> {
    datagrams: &'a Datagrams,
    fd: i32,
    flags: i32,
    /// The kernel was called.
    sent: bool,
}

impl<'a> Socket<'a> {
    /// The socket behind `fd`, sent to with these flags.
    pub(super) fn new(datagrams: &'a Datagrams, fd: i32, flags: i32) -> Socket<'a> {
        Socket {
            datagrams,
            fd,
            flags,
            sent: false,
        }
    }
}

impl Wire for Socket<'_> {
    fn send(&mut self, to: &Destination, octets: &[u8], segment: Option<u16>) -> Result<(), Errno> {
        let flags = self.flags | libc::MSG_NOSIGNAL;
        self.sent = true;
        dgram::send(self.fd, to.name(), octets, segment, flags)?;
        let count = |counter: &AtomicU64, number| {
            counter.fetch_add(number, Ordering::Relaxed);
        };
        count(&self.datagrams.counts.sends, 1);
        let datagrams = segment.map_or(1, |size| octets.len().div_ceil(usize::from(size)));
        count(&self.datagrams.counts.gathered, datagrams as u64);
        Ok(())
    }
}

/// One send of the program's, which may be tried several times.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    fd: i32,
    to: Option<&'a [u8]>,
    data: &'a UserBuffers,
    flags: i32,
    /// When the program made it, once somebody has asked.
    since: Option<u64>,
    /// Whether its sends came thick then.
    is_busy: Option<bool>,
}

impl<'a> Call<'a> {
    /// The program sends `data` to `to` (nothing: the connected peer) with these `flags`, now.
    pub fn new(fd: i32, to: Option<&'a [u8]>, data: &'a UserBuffers, flags: i32) -> Call<'a> {
        Call {
            fd,
            to,
            data,
            flags,
            since: None,
            is_busy: None,
        }
    }

    /// Whether it asks for nothing but that its octets leave.
    #[inline]
    fn is_bare(&self) -> bool {
        self.flags & !(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) == 0
    }

    /// When the program made it.
    #[inline]
    fn since(&mut self) -> u64 {
        *self.since.get_or_insert_with(dgram::now)
    }

    /// It, as a carrier is asked.
    fn sending(&mut self, is_busy: bool) -> Sending<'a> {
        Sending {
            fd: self.fd,
            to: self.to.unwrap_or_default(),
            len: self.data.octets(),
            is_busy,
            dont_wait: self.flags & libc::MSG_DONTWAIT != 0,
            since: self.since(),
        }
    }
}

impl Datagrams {
    /// One try at a send of the program's. An error is how long to wait before the next: a pause of the caller's, which
    /// holds no lock then. No other thread that sends on the socket waits for this one's carrier.
    ///
    /// # Errors
    /// See above.
    #[inline(always)]
    pub fn send(
        &'static self,
        record: &'static Record,
        call: &mut Call<'_>,
    ) -> Result<Verdict, Pause> {
        if self.is_confined() {
            return Ok(Verdict::Kernel);
        }
        if record.tx_off.load(Ordering::Acquire) {
            return Ok(self.leave_to_kernel(record, call.fd, call.to));
        }
        let Some(mut tx) = record.outgoing() else {
            let sending = Sending {
                dont_wait: true,
                ..call.sending(false)
            };
            return Ok(self.send_amid_another(record, sending));
        };
        if let Some(errno) = tx.sender.take_pending() {
            return Ok(Verdict::Done(Err(errno)));
        }
        if record.sends_after_answer() {
            tx.sender.answered();
        } else if self.offload.is_none() && call.is_bare() {
            if let Some(verdict) = append_alike(&mut tx, call) {
                record.tx_fd.store(call.fd, Ordering::Relaxed);
                return Ok(verdict);
            }
        }
        self.send_unlike(record, &mut tx, call)
    }

    /// One that is not like the one before it, or that a carrier may bring. Not inlined: what it keeps in registers is
    /// not to be saved for those that are.
    #[inline(never)]
    fn send_unlike(
        &'static self,
        record: &'static Record,
        tx: &mut Outgoing,
        call: &mut Call<'_>,
    ) -> Result<Verdict, Pause> {
        let has_waited = call.is_busy.is_some();
        let is_busy = match call.is_busy {
            Some(is_busy) => is_busy,
            None => self.note_pace(tx, call),
        };
        call.is_busy = Some(is_busy);
        let is_bare = call.is_bare();
        if self.offload.is_some() {
            let sending = call.sending(is_busy);
            // That the neighbour is there says nothing to a connection.
            if is_bare || call.flags & !FLAGS_CARRIED == 0 {
                if let Some(verdict) =
                    self.send_offloaded(record, tx, sending, has_waited, call.data)?
                {
                    return Ok(verdict);
                }
            } else if let Verdict::Done(refused) = self.leave_to_kernel(record, call.fd, call.to) {
                return Ok(Verdict::Done(refused));
            }
        }
        Ok(self.send_plainly(record, tx, *call, is_bare && is_busy))
    }

    /// Whether the program is busy, this send of it included.
    #[inline]
    fn note_pace(&self, tx: &mut Outgoing, call: &mut Call<'_>) -> bool {
        // A carrier wants to know when it was made, whatever waits.
        if self.offload.is_none() && tx.sender.stays_busy(self.busy_after) {
            return true;
        }
        let len = call.data.octets();
        tx.sender.is_busy(call.since(), len, self.busy_after)
    }

    /// By the kernel: with others, where the program is busy.
    #[inline(always)]
    fn send_plainly(
        &'static self,
        record: &'static Record,
        tx: &mut Outgoing,
        call: Call<'_>,
        may_wait: bool,
    ) -> Verdict {
        let Call {
            fd,
            to,
            data,
            flags,
            ..
        } = call;
        let is_short = data.octets() <= LONGEST;
        let to = to.map_or(Some(Destination::CONNECTED), Destination::new);
        let verdict = match to {
            // Errors of a destination that never was one come at once.
            Some(to)
                if tx.try_first(&to)
                    && is_short
                    && may_wait
                    && self.may_gather(record, fd, tx, &to) =>
            {
                self.gather(record, tx, fd, &to, data, flags)
            }
            _ => self.make_way(tx, fd, flags),
        };
        record.tx_fd.store(fd, Ordering::Relaxed);
        self.note(record, tx);
        verdict
    }

    #[inline]
    fn gather(
        &self,
        record: &Record,
        tx: &mut Outgoing,
        fd: i32,
        to: &Destination,
        data: &UserBuffers,
        flags: i32,
    ) -> Verdict {
        // A plain send reports the pending error of the socket. Datagrams that gather do not reach the kernel, so it is
        // asked once for each batch, at its first datagram.
        if tx.sender.is_empty() {
            match dgram::get_int(fd, libc::SOL_SOCKET, libc::SO_ERROR) {
                Ok(0) | Err(_) => {}
                Ok(errno) => return Verdict::Done(Err(errno)),
            }
        }
        let was_empty = tx.sender.is_empty();
        let mut wire = Socket::new(self, fd, flags);
        let len = data.octets();
        let offer = tx.sender.offer(&mut wire, to, len, |place| {
            data.read(place).map_err(|_| libc::EFAULT)
        });
        if wire.sent {
            // A burst of long datagrams takes the kernel longer than the pause that makes a program idle.
            tx.sender.resume(dgram::now());
        }
        if was_empty || wire.sent && tx.sender.waits_alone() {
            let since = tx.sender.looked_at();
            record.gathers_since.store(since, Ordering::Relaxed);
        }
        match offer {
            Ok(Offer::Gathered) => Verdict::Done(Ok(len)),
            Ok(Offer::Plain) => Verdict::Kernel,
            Err(errno) => Verdict::Done(Err(errno)),
        }
    }

    /// Sends what waits, so that the call that follows does not overtake it.
    #[inline]
    pub(super) fn make_way(&self, tx: &mut Outgoing, fd: i32, flags: i32) -> Verdict {
        match tx.sender.is_empty() {
            true => Verdict::Kernel,
            false => self.flush_before(tx, fd, flags),
        }
    }

    #[cold]
    fn flush_before(&self, tx: &mut Outgoing, fd: i32, flags: i32) -> Verdict {
        let flags = flags & libc::MSG_DONTWAIT;
        let mut wire = Socket::new(self, fd, flags);
        match tx.sender.flush(&mut wire) {
            Ok(()) => Verdict::Kernel,
            Err(errno) => Verdict::Done(Err(errno)),
        }
    }

    /// The program makes a call that the kernel will do, and that must not overtake what waits.
    pub fn before_plain_send(&self, record: &'static Record, fd: i32, flags: i32) -> Verdict {
        let Some(mut tx) = record.outgoing() else {
            return Verdict::Kernel;
        };
        if let Some(errno) = tx.sender.take_pending() {
            return Verdict::Done(Err(errno));
        }
        let verdict = self.make_way(&mut tx, fd, flags);
        self.note(record, &tx);
        verdict
    }

    #[inline(always)]
    fn note(&self, record: &Record, tx: &Outgoing) {
        if tx.sender.is_empty() {
            if self.waiting.contains(record.number) {
                self.waiting.remove(record.number);
            }
        } else {
            self.waiting.insert(record.number);
            self.flusher.wake();
        }
    }

    /// Whether datagrams to `to` may gather at all.
    #[inline]
    fn may_gather(
        &'static self,
        record: &Record,
        fd: i32,
        tx: &mut Outgoing,
        to: &Destination,
    ) -> bool {
        if !tx.examined && !self.examine(record, fd, tx) {
            return false;
        }
        // Without an address, on a socket that is not connected, every datagram is an error.
        let somewhere = !to.name().is_empty() || is_connected(fd, tx);
        if !self.flusher.is_running() {
            self.flusher.ensure(self);
        }
        somewhere && self.flusher.is_running() && self.ruled(fd, tx, to)
    }

    /// Looks at the socket once: whether anything may gather on it.
    #[cold]
    fn examine(&self, record: &Record, fd: i32, tx: &mut Outgoing) -> bool {
        tx.examined = true;
        let may = segments(fd) && self.give_memory(tx);
        if !may {
            record.tx_off.store(true, Ordering::Release);
        }
        may
    }

    fn give_memory(&self, tx: &mut Outgoing) -> bool {
        if !tx.sender.has_memory() {
            let Some(memory) = pages::octets(MEMORY) else {
                return false;
            };
            tx.sender.set_memory(memory);
        }
        true
    }

    #[inline]
    fn ruled(&self, fd: i32, tx: &mut Outgoing, to: &Destination) -> bool {
        if let Some((asked, allowed)) = tx.ruling {
            if !self.rules.look_at_ends() || asked == *to {
                return allowed;
            }
        }
        let allowed = if self.rules.look_at_ends() {
            let ends = ends(fd, to.name());
            self.rules.decide(Direction::Send, ends.as_slice())
        } else {
            self.rules.decide(Direction::Send, &[])
        };
        tx.ruling = Some((*to, allowed));
        allowed
    }
}

/// With the one before it, where it is like that one and that one still waits.
#[inline(always)]
fn append_alike(tx: &mut Outgoing, call: &Call<'_>) -> Option<Verdict> {
    let len = call.data.octets();
    let fill = |place: &mut [u8]| call.data.read(place).map_err(|_| libc::EFAULT);
    let taken = tx
        .sender
        .append_alike(call.to.unwrap_or_default(), len, fill)?;
    Some(Verdict::Done(taken.map(|()| len)))
}

/// Whether the socket is connected; looked up once for each connection.
#[inline]
fn is_connected(fd: i32, tx: &mut Outgoing) -> bool {
    if !tx.connected {
        tx.connected = dgram::peer_name(fd, &mut [0; NAME_LEN]) > 0;
    }
    tx.connected
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, UdpSocket};
    use std::os::fd::AsRawFd;
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};
    use weft_discovery::answering::Owner;
    use weft_discovery::{Answering, Connection, TakesCarriers};
    use weft_os::process;
    use weft_settings::datagrams::DatagramRules;
    use weft_settings::{DiscoveryPort, Settings};
    use weft_udp_offload::{Offload, Port, Use};

    use crate::kind::{Origin, Sockets};

    struct Process(&'static Offload);

    impl Owner for Process {
        fn promise(&self, _connection: &Connection, _now: Duration) -> bool {
            true
        }

        fn carriers(&self) -> Option<TakesCarriers> {
            self.0.takes_carriers()
        }
    }

    /// The carriers of a process; all those of this port find each other.
    fn carriers(discovery_port: u16) -> &'static Offload {
        let discovery_port = DiscoveryPort::Agreed(discovery_port);
        let offload = Offload::new(&Settings {
            udp: DatagramRules::parse("uoe prefer").unwrap(),
            discovery_port,
            stat: false,
            ..Settings::default()
        })
        .unwrap();
        let owner = Box::leak(Box::new(Process(offload)));
        let answering = Answering::new(discovery_port, owner).unwrap();
        offload.set_answering(Box::leak(Box::new(answering)));
        offload
    }

    /// A program that takes what comes until it is told to end.
    fn take_all(offload: &'static Offload, socket: &UdpSocket, is_over: &AtomicBool) {
        let port: &'static Port = Box::leak(Box::default());
        port.begin(false, None);
        let fd = socket.as_raw_fd();
        let (mut room, mut name) = (vec![0; 70_000], [0; dgram::NAME_LEN]);
        while !is_over.load(Ordering::Relaxed) {
            offload.receives(port, 1, fd, Use::Receives);
            while offload.take(port, fd, false, |_| ()).is_some() {}
            offload.take_head(port, fd, &mut room, &mut name);
            // Slower than its peer sends, which has to wait for room.
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether somebody has this UDP port.
    fn is_bound(port: u16) -> bool {
        let has_it = |table| {
            let table = std::fs::read_to_string(table).unwrap_or_default();
            table.contains(&format!(":{port:04X} "))
        };
        has_it("/proc/net/udp") || has_it("/proc/net/udp6")
    }

    /// What a full carrier takes of the program's time is no pause of the program's. An idle program's datagrams have
    /// words sent to and fro.
    #[test]
    fn who_fills_a_carrier_stays_busy() {
        assert!(process::watch());
        let discovery_port = {
            let free = UdpSocket::bind("127.0.0.1:0").unwrap();
            free.local_addr().unwrap().port()
        };
        let [sends, takes] = [(); 2].map(|()| carriers(discovery_port));
        let rules = DatagramRules::parse("uoe prefer").unwrap();
        let hold = Duration::from_micros(200);
        let datagrams = Datagrams::new(rules, 16, hold, Some(sends)).unwrap();
        let datagrams: &'static Datagrams = Box::leak(Box::new(datagrams));
        let number = datagrams.begin(1, Origin::Made).unwrap();
        let record = datagrams.record(number).unwrap();
        record.references.begin(1);
        let [from, to] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let SocketAddr::V4(at) = to.local_addr().unwrap() else {
            unreachable!("it is bound to one")
        };
        let (name, len) = weft_os::beside::socket_name(at.into(), false);
        let mut octets = [7; 1000];
        let data = weft_os::user::OwnBuffer::from(&mut octets[..]);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| take_all(takes, &to, &is_over));
            let (begun, mut sent, mut idle) = (Instant::now(), 0, 0);
            while takes.takes_carriers().is_none() || !is_bound(discovery_port) {
                assert!(begun.elapsed().as_secs() < 10, "it listens");
                std::thread::sleep(Duration::from_millis(1));
            }
            while sent < 40_000 && begun.elapsed().as_secs() < 20 {
                let mut call = Call::new(from.as_raw_fd(), Some(&name[..len]), &data, 0);
                let verdict = loop {
                    match datagrams.send(record, &mut call) {
                        Ok(verdict) => break verdict,
                        Err(pause) => pause.sleep(),
                    }
                };
                if verdict == Verdict::Kernel {
                    from.send_to(&[7; 1000], at).unwrap();
                } else {
                    sent += 1;
                    idle += usize::from(call.is_busy == Some(false));
                }
            }
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(sent, 40_000, "{:?}", sends.counted());
            assert!(
                idle < sent / 16,
                "{idle} of {sent} seemed to come after a pause"
            );
        });
    }
}
