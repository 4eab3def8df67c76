//! Which UDP sockets are offloaded: rules, the first that fits decides.
//!
//! ```text
//! rules = rule *( ";" rule )
//! rule  = ( "gso" | "off" ) *( word "=" value )
//! ```
//!
//! The words are `program` (the name of the program's file), `direction` (`send` or `receive`),
//! `address` (an address, or a network as ADDRESS/BITS) and `port` (a port, or FIRST-LAST). Address and port fit
//! when either end of the socket or of the datagram has them. Where no rule fits nothing is offloaded.

use std::net::{IpAddr, SocketAddr};

/// The rules, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatagramRules {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rule {
    offload: bool,
    program: Option<String>,
    direction: Option<Direction>,
    network: Option<(IpAddr, u8)>,
    ports: Option<(u16, u16)>,
}

/// Which way datagrams go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Out of the program: gathered.
    Send,
    /// Into the program: split.
    Receive,
}

/// What [`DatagramRules::parse`] accepts, as a phrase.
pub const ACCEPTS: &str = "rules separated by semicolons, each gso or off and then any of \
                           program=NAME, direction=send or receive, address=ADDRESS or \
                           ADDRESS/BITS, port=N or N-M";

impl DatagramRules {
    /// Reads rules; nothing if they are not rules.
    pub fn parse(text: &str) -> Option<DatagramRules> {
        let rules = text.split(';').map(Rule::parse).collect::<Option<_>>()?;
        Some(DatagramRules { rules })
    }

    /// The rules that can fit for a program of this name.
    pub fn for_program(&self, name: &str) -> DatagramRules {
        let fits = |rule: &&Rule| rule.program.as_deref().is_none_or(|wanted| wanted == name);
        let rules = self.rules.iter().filter(fits).cloned();
        DatagramRules {
            rules: rules.collect(),
        }
    }

    /// Whether anything at all may be offloaded.
    pub fn any(&self) -> bool {
        self.rules.iter().any(|rule| rule.offload)
    }

    /// Whether addresses and ports make a difference.
    pub fn look_at_ends(&self) -> bool {
        let looks = |rule: &Rule| rule.network.is_some() || rule.ports.is_some();
        self.rules.iter().any(looks)
    }

    /// Whether datagrams that go in `direction` between `ends` are offloaded.
    pub fn decide(&self, direction: Direction, ends: &[SocketAddr]) -> bool {
        let first = self.rules.iter().find(|rule| rule.fits(direction, ends));
        first.is_some_and(|rule| rule.offload)
    }
}

impl Rule {
    fn parse(text: &str) -> Option<Rule> {
        let mut words = text.split_whitespace();
        let mut rule = Rule {
            offload: match words.next()? {
                "gso" => true,
                "off" => false,
                _ => return None,
            },
            ..Rule::default()
        };
        for word in words {
            let (name, value) = word.split_once('=')?;
            match name {
                "program" if !value.is_empty() => rule.program = Some(value.to_owned()),
                "direction" => rule.direction = Some(Direction::parse(value)?),
                "address" => rule.network = Some(network(value)?),
                "port" => rule.ports = Some(ports(value)?),
                _ => return None,
            }
        }
        Some(rule)
    }

    fn fits(&self, direction: Direction, ends: &[SocketAddr]) -> bool {
        let one_end = |end: &SocketAddr| {
            self.network
                .is_none_or(|network| contains(network, end.ip()))
                && self
                    .ports
                    .is_none_or(|(first, last)| (first..=last).contains(&end.port()))
        };
        let looks = self.network.is_some() || self.ports.is_some();
        self.direction.is_none_or(|wanted| wanted == direction)
            && (!looks || ends.iter().any(one_end))
    }
}

impl Direction {
    fn parse(text: &str) -> Option<Direction> {
        match text {
            "send" => Some(Direction::Send),
            "receive" => Some(Direction::Receive),
            _ => None,
        }
    }
}

fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.unwrap_or(most);
    (bits <= most).then_some((address, bits))
}

fn ports(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some((first, last))
}

/// Whether `address` is in the network; IPv4 addresses in IPv6 clothes are taken out of them.
fn contains((network, bits): (IpAddr, u8), address: IpAddr) -> bool {
    let leading = |of: u128, width: u32| of.checked_shr(width - u32::from(bits)).unwrap_or(0);
    match (network.to_canonical(), address.to_canonical()) {
        (IpAddr::V4(network), IpAddr::V4(address)) if bits <= 32 => {
            let number = |of: std::net::Ipv4Addr| leading(u128::from(u32::from(of)), 32);
            number(network) == number(address)
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            leading(network.into(), 128) == leading(address.into(), 128)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{Receive, Send};

    fn rules(text: &str) -> DatagramRules {
        DatagramRules::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    fn ends(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_word_alone_decides_everything() {
        let any = ends(&["10.0.0.1:1", "10.0.0.2:2"]);
        assert!(rules("gso").decide(Send, &any));
        assert!(rules("gso").decide(Receive, &[]));
        assert!(!rules("off").decide(Send, &any));
        assert!(rules("gso").any() && !rules("off").any());
        assert!(!DatagramRules::default().decide(Send, &any));
    }

    #[test]
    fn the_first_that_fits_decides() {
        let rules = rules("off port=53; gso direction=send address=10.0.0.0/8; off");
        assert!(!rules.decide(Send, &ends(&["10.1.1.1:53"])));
        assert!(rules.decide(Send, &ends(&["192.0.2.1:9", "10.1.1.1:54"])));
        assert!(!rules.decide(Receive, &ends(&["10.1.1.1:54"])));
        assert!(!rules.decide(Send, &ends(&["11.1.1.1:54"])));
        assert!(rules.look_at_ends());
    }

    #[test]
    fn one_end_must_have_both() {
        let rules = rules("gso address=10.0.0.1 port=5001-5010");
        assert!(rules.decide(Send, &ends(&["10.0.0.1:5010"])));
        assert!(!rules.decide(Send, &ends(&["10.0.0.1:1", "10.0.0.2:5001"])));
    }

    #[test]
    fn programs_pick_their_rules() {
        let all = rules("gso program=iperf3; off program=dig; off");
        assert!(all.for_program("iperf3").decide(Send, &[]));
        assert!(!all.for_program("dig").any());
        assert!(!all.for_program("other").any());
    }

    #[test]
    fn networks_of_every_width() {
        for (text, inside, outside) in [
            ("0.0.0.0/0", "9.9.9.9:1", "[2001:db8::1]:1"),
            ("::/0", "[2001:db8::1]:1", "9.9.9.9:1"),
            ("127.0.0.1", "[::ffff:127.0.0.1]:1", "127.0.0.2:1"),
            ("2001:db8::/32", "[2001:db8:9::1]:1", "[2001:db9::1]:1"),
            ("192.0.2.128/25", "192.0.2.200:1", "192.0.2.100:1"),
        ] {
            let rules = rules(&format!("gso address={text}"));
            assert!(rules.decide(Send, &ends(&[inside])), "{text}");
            assert!(!rules.decide(Send, &ends(&[outside])), "{text}");
        }
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in [
            "",
            "on",
            "gso;",
            "gso port",
            "gso port=",
            "gso port=5-4",
            "gso port=65536",
            "gso address=10.0.0.0/33",
            "gso address=host",
            "gso direction=both",
            "gso program=",
            "gso size=1",
        ] {
            assert_eq!(DatagramRules::parse(text), None, "{text}");
        }
    }
}
