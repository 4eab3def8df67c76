//! Where a Weft process is asked whether it is Weft (decision 0030).

use std::fmt;

/// The UDP port that questions go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveryPort {
    /// This one, whatever is asked about.
    Agreed(u16),
    /// The one whose number is that of the TCP port that is asked about.
    Same,
}

/// The port that is agreed where nobody says otherwise: `WF` in ASCII, below the ports that Linux hands out by itself.
const DEFAULT: u16 = 22342;
const SAME: &str = "same";

impl DiscoveryPort {
    /// Reads a port or `same`.
    pub fn parse(text: &str) -> Option<DiscoveryPort> {
        if text.eq_ignore_ascii_case(SAME) {
            return Some(DiscoveryPort::Same);
        }
        let port = text.parse().ok().filter(|port| *port != 0)?;
        Some(DiscoveryPort::Agreed(port))
    }

    /// The UDP port to ask at about this TCP port.
    pub fn of(self, port: u16) -> u16 {
        match self {
            DiscoveryPort::Agreed(agreed) => agreed,
            DiscoveryPort::Same => port,
        }
    }
}

impl Default for DiscoveryPort {
    fn default() -> DiscoveryPort {
        DiscoveryPort::Agreed(DEFAULT)
    }
}

impl fmt::Display for DiscoveryPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiscoveryPort::Agreed(port) => port.fmt(f),
            DiscoveryPort::Same => f.write_str(SAME),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_port_or_that_of_the_connection() {
        for (text, port) in [
            ("22342", 22342),
            ("1", 1),
            ("65535", 65535),
            ("same", 80),
            ("SAME", 80),
        ] {
            assert_eq!(DiscoveryPort::parse(text).unwrap().of(80), port, "{text}");
        }
        for text in ["", "0", "65536", "-1", "sam", "80 same"] {
            assert_eq!(DiscoveryPort::parse(text), None, "{text}");
        }
    }

    #[test]
    fn it_is_shown_as_it_is_read() {
        for port in [DiscoveryPort::default(), DiscoveryPort::Same] {
            assert_eq!(DiscoveryPort::parse(&port.to_string()), Some(port));
        }
    }
}
