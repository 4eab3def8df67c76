//! What a connection is told at its start.

use super::ack::AckPolicy;
use super::congestion::Algorithm;
use super::keepalive::KeepAlive;
use super::options::MAX_WINDOW_SCALE;
use super::segment::MIN_HEADER_LEN;
use core::net::IpAddr;
use core::time::Duration;

/// Settings of a connection. Every bound on its memory is here.
#[derive(Clone, Debug)]
pub struct Config {
    /// Octets of the largest IP packet the link takes.
    pub mtu: u32,
    /// Addresses are IPv6. An endpoint knows by the addresses and sets it; only who drives a single connection does.
    pub ipv6: bool,
    /// Octets the peer may send before the program takes any. Without window scaling no more than 65,535 are offered.
    pub receive_window: u64,
    /// Octets of data in the largest frame to emit; the device cuts it into segments. Less than two segments means that
    /// every segment is a frame.
    pub max_frame: u32,
    /// No segment holds the end of one cut and the beginning of another piece that does not fit into it whole: see
    /// [`super::Connection::cut`].
    pub aligned: bool,
    /// Congestion control.
    pub algorithm: Algorithm,
    /// Spread what the window allows over the round trip, where the algorithm has no rate of its own.
    pub pacing: bool,
    /// When to acknowledge.
    pub ack: AckPolicy,
    /// Send small segments at once (no Nagle algorithm, RFC 9293 section 3.7.4).
    pub no_delay: bool,
    /// Offer SACK.
    pub sack: bool,
    /// Offer timestamps.
    pub timestamps: bool,
    /// Offer window scaling.
    pub window_scaling: bool,
    /// Search for the path MTU by probing (RFC 4821).
    pub mtu_probing: bool,
    /// The least retransmission timeout.
    pub min_rto: Duration,
    /// SYNs sent again before an attempt ends.
    pub syn_retries: u32,
    /// How long data or probes may go unanswered before the connection ends (R2 of RFC 9293 section 3.8.3, user
    /// timeout). None: for ever.
    pub user_timeout: Option<Duration>,
    /// Probe an idle connection.
    pub keep_alive: Option<KeepAlive>,
    /// How long to wait in FIN-WAIT-2 for a peer's FIN when the program has gone.
    pub linger: Duration,
    /// Ranges kept behind holes; 0 means as many as full segments fit into the receive window, every second one
    /// missing.
    pub max_ranges: usize,
}

impl Default for Config {
    /// An Ethernet's MTU, IPv4, a window of 4 MB, CUBIC, no Nagle, MTU-sized frames.
    fn default() -> Config {
        Config {
            mtu: 1500,
            ipv6: false,
            receive_window: 4 << 20,
            max_frame: 0,
            aligned: false,
            algorithm: Algorithm::Cubic,
            pacing: false,
            ack: AckPolicy::default(),
            no_delay: true,
            sack: true,
            timestamps: true,
            window_scaling: true,
            mtu_probing: false,
            min_rto: Duration::from_millis(200),
            syn_retries: 6,
            user_timeout: Some(Duration::from_secs(120)),
            keep_alive: None,
            linger: Duration::from_secs(60),
            max_ranges: 0,
        }
    }
}

impl Config {
    /// The same for a connection of this address's version of IP.
    pub fn for_version_of(self, address: IpAddr) -> Config {
        Config {
            ipv6: address.is_ipv6(),
            ..self
        }
    }

    /// Octets of the IP header.
    pub fn ip_header(&self) -> u32 {
        if self.ipv6 {
            40
        } else {
            20
        }
    }

    /// The MSS to offer (RFC 9293 section 3.7.1; options are not counted, RFC 6691).
    pub fn mss(&self) -> u16 {
        let mss = self
            .mtu
            .saturating_sub(self.ip_header() + MIN_HEADER_LEN as u32);
        mss.clamp(1, 65_535) as u16
    }

    /// The shift that lets the field say the whole receive window (RFC 7323 section 2.3).
    pub fn window_shift(&self) -> u8 {
        shift_for(self.receive_window)
    }

    /// The receive window as far as it can be told.
    pub fn capacity(&self, scaled: bool) -> u64 {
        let most = 65_535u64 << if scaled { self.window_shift() } else { 0 };
        self.receive_window.min(most)
    }

    /// Ranges to keep behind holes.
    pub fn ranges(&self) -> usize {
        match self.max_ranges {
            0 => (self.receive_window / u64::from(self.mss()) / 2) as usize + 16,
            ranges => ranges,
        }
    }
}

/// The shift that lets the window field say so many octets.
pub(super) fn shift_for(octets: u64) -> u8 {
    (0..MAX_WINDOW_SCALE)
        .find(|shift| octets >> shift <= 65_535)
        .unwrap_or(MAX_WINDOW_SCALE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shift_fits_the_window() {
        let shift = |receive_window| {
            Config {
                receive_window,
                ..Config::default()
            }
            .window_shift()
        };
        assert_eq!(shift(65_535), 0);
        assert_eq!(shift(65_536), 1);
        assert_eq!(shift(1 << 30), 14);
        assert_eq!(shift(1 << 40), 14);
    }
}
