//! What tells a `gmond` of hosts and their metrics: the datagrams that `gmetric --spoof` sends (XDR, RFC 4506).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};

use super::report::{host_address, host_name, METRICS, VALUE};

/// The numbers of the two messages: what a metric is, and its value as text.
const METADATA: u32 = 128;
const TEXT: u32 = 133;
/// A slope that goes both ways.
const BOTH: u32 = 3;
/// Seconds until a next value of a metric is due, for who reads a report.
const DUE: u32 = 60;

/// Datagrams in a row, and the time after them in which the server takes them: more would not fit its buffer.
const BURST: usize = 32;
const PAUSE: Duration = Duration::from_millis(1);
/// How long the server has for what was sent last.
const SETTLING: Duration = Duration::from_millis(20);
/// How long telling may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Tells the monitor at this address of so many hosts until it `reports` all of them: datagrams may be lost.
pub(super) fn until_reported(
    server: SocketAddr,
    hosts: u32,
    mut reports: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).context("cannot make a UDP socket")?;
    let datagrams: Vec<Vec<u8>> = (0..hosts).flat_map(datagrams).collect();
    let deadline = Instant::now() + TIMEOUT;
    loop {
        for burst in datagrams.chunks(BURST) {
            for datagram in burst {
                socket
                    .send_to(datagram, server)
                    .with_context(|| format!("cannot send a datagram to {server}"))?;
            }
            thread::sleep(PAUSE);
        }
        thread::sleep(SETTLING);
        if reports()? {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "the monitor was told of {hosts} hosts for {} seconds and does not report all of them",
            TIMEOUT.as_secs()
        );
    }
}

/// What tells of one host: each metric, and its value.
fn datagrams(host: u32) -> impl Iterator<Item = Vec<u8>> {
    let spoof = format!("{}:{}", host_address(host), host_name(host));
    METRICS
        .iter()
        .flat_map(move |metric| [metadata(&spoof, metric), value(&spoof, metric)])
}

fn metadata(spoof: &str, metric: &str) -> Vec<u8> {
    let mut message = Xdr::of(METADATA, spoof, metric);
    message.text("float");
    message.text(metric);
    message.text("");
    for number in [BOTH, DUE, 0] {
        message.number(number);
    }
    // One more thing to tell.
    message.number(1);
    message.text("SPOOF_HOST");
    message.text(spoof);
    message.0
}

fn value(spoof: &str, metric: &str) -> Vec<u8> {
    let mut message = Xdr::of(TEXT, spoof, metric);
    message.text("%s");
    message.text(VALUE);
    message.0
}

/// A message as it is written.
struct Xdr(Vec<u8>);

impl Xdr {
    /// One of this number, of a metric of a host that is not its sender.
    fn of(message: u32, spoof: &str, metric: &str) -> Xdr {
        let mut written = Xdr(Vec::new());
        written.number(message);
        written.text(spoof);
        written.text(metric);
        written.number(1);
        written
    }

    fn number(&mut self, number: u32) {
        self.0.extend(number.to_be_bytes());
    }

    /// Its length, and as many octets as fill the last word.
    fn text(&mut self, text: &str) {
        self.number(text.len() as u32);
        self.0.extend(text.as_bytes());
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What gmetric 3.7.2 sent for the first of the two, but for the name of the host.
    #[test]
    fn a_value_is_a_number_three_texts_a_flag_and_a_format() {
        let octets = value("198.18.0.0:node-000", "cpu_idle");
        let expected = [
            &[0, 0, 0, 133, 0, 0, 0, 19][..],
            b"198.18.0.0:node-000\0",
            &[0, 0, 0, 8],
            b"cpu_idle",
            &[0, 0, 0, 1, 0, 0, 0, 2],
            b"%s\0\0",
            &[0, 0, 0, 4],
            b"0.50",
        ];
        assert_eq!(octets, expected.concat());
    }
}
