//! Interfaces of an adapter: a device each, addresses, gateways.

use std::fmt;
use std::net::IpAddr;

/// A device that an adapter's frames go by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceName {
    /// A packet socket on the interface of this name.
    Packet(String),
    /// The TAP of this name.
    Tap(String),
}

/// An interface of an adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its device.
    pub device: DeviceName,
    /// The adapter's addresses there, each with the bits of its network: one at least.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Neighbours that lead to everything beyond, one for each version of IP.
    pub gateways: Vec<IpAddr>,
}

/// What is wrong with a text that should name interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceError {
    /// What stands first is no device.
    Device(String),
    /// A word is neither an address nor a gateway.
    Word(String),
    /// No address with the bits of its network.
    Address(String),
    /// No address.
    Gateway(String),
    /// The gateway is in none of the interface's networks.
    Unreachable(IpAddr),
    /// An interface without addresses.
    Unaddressed(DeviceName),
    /// An address that stands twice.
    Twice(IpAddr),
}

impl DeviceName {
    /// The name of the network interface.
    pub fn name(&self) -> &str {
        match self {
            DeviceName::Packet(name) | DeviceName::Tap(name) => name,
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceName::Packet(name) => write!(f, "packet:{name}"),
            DeviceName::Tap(name) => write!(f, "tap:{name}"),
        }
    }
}

impl fmt::Display for InterfaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InterfaceError::Device(text) => write!(
                f,
                "{text} is no device: give packet:NAME for an interface, such as packet:veth1, or tap:NAME for a TAP"
            ),
            InterfaceError::Word(text) => write!(
                f,
                "{text} is not understood: give address=ADDRESS/BITS or gateway=ADDRESS"
            ),
            InterfaceError::Address(text) => write!(
                f,
                "{text} is no address with the bits of its network: give one such as 10.1.0.2/24 or fd00::2/64"
            ),
            InterfaceError::Gateway(text) => write!(
                f,
                "{text} is no address of a gateway: give one such as 10.1.0.254"
            ),
            InterfaceError::Unreachable(gateway) => write!(
                f,
                "the gateway {gateway} is in no network of its interface's addresses: give one that is"
            ),
            InterfaceError::Unaddressed(device) => write!(
                f,
                "{device} has no address: give one behind it, such as --address 10.1.0.2/24"
            ),
            InterfaceError::Twice(address) => {
                write!(f, "{address} is given twice: each interface has its own")
            }
        }
    }
}

/// What stands for no interface.
pub const NONE: &str = "none";

/// What is accepted, as a phrase.
pub fn accepts() -> String {
    "interfaces separated by semicolons, each packet:NAME or tap:NAME and then address=ADDRESS/BITS, once or more, and \
     gateway=ADDRESS; or none"
        .to_owned()
}

/// Reads interfaces.
///
/// # Errors
/// Every mistake in the text, in its order.
pub fn parse(text: &str) -> Result<Vec<Interface>, Vec<InterfaceError>> {
    let mut errors = Vec::new();
    let parts = text.split(';').map(str::trim);
    let parts = parts.filter(|part| !part.is_empty() && *part != NONE);
    let all: Vec<Interface> = parts
        .filter_map(|part| interface(part, &mut errors))
        .collect();
    let addresses: Vec<IpAddr> = all
        .iter()
        .flat_map(|one| one.addresses.iter().map(|(address, _)| *address))
        .collect();
    let twice = addresses
        .iter()
        .enumerate()
        .filter(|(at, address)| addresses[..*at].contains(address));
    errors.extend(twice.map(|(_, address)| InterfaceError::Twice(*address)));
    match errors.is_empty() {
        true => Ok(all),
        false => Err(errors),
    }
}

fn interface(text: &str, errors: &mut Vec<InterfaceError>) -> Option<Interface> {
    let mut words = text.split_whitespace();
    let device = match device(words.next().unwrap_or_default()) {
        Ok(device) => device,
        Err(error) => {
            errors.push(error);
            return None;
        }
    };
    let (mut addresses, mut gateways) = (Vec::new(), Vec::new());
    let before = errors.len();
    for word in words {
        let outcome = match word.split_once('=') {
            Some(("address", text)) => address(text).map(|address| addresses.push(address)),
            Some(("gateway", text)) => gateway(text).map(|gateway| gateways.push(gateway)),
            _ => Err(InterfaceError::Word(word.to_owned())),
        };
        errors.extend(outcome.err());
    }
    if errors.len() == before {
        let near = |gateway: &IpAddr| addresses.iter().any(|own| is_near(*own, *gateway));
        let far = gateways.iter().filter(|gateway| !near(gateway));
        errors.extend(far.map(|gateway| InterfaceError::Unreachable(*gateway)));
        if addresses.is_empty() {
            errors.push(InterfaceError::Unaddressed(device.clone()));
        }
    }
    Some(Interface {
        device,
        addresses,
        gateways,
    })
}

/// Reads `packet:NAME` or `tap:NAME`.
///
/// # Errors
/// [`InterfaceError::Device`].
pub fn device(text: &str) -> Result<DeviceName, InterfaceError> {
    let named = |name: &str| (!name.is_empty()).then(|| name.to_owned());
    let device = match text.split_once(':') {
        Some(("packet", name)) => named(name).map(DeviceName::Packet),
        Some(("tap", name)) => named(name).map(DeviceName::Tap),
        _ => None,
    };
    device.ok_or_else(|| InterfaceError::Device(text.to_owned()))
}

/// Reads `ADDRESS/BITS`.
///
/// # Errors
/// [`InterfaceError::Address`].
pub fn address(text: &str) -> Result<(IpAddr, u8), InterfaceError> {
    let parsed = text.split_once('/').and_then(|(address, bits)| {
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits: u8 = bits.parse().ok().filter(|bits| *bits <= most)?;
        let usable = !address.is_unspecified() && !address.is_multicast() && !address.is_loopback();
        usable.then_some((address, bits))
    });
    parsed.ok_or_else(|| InterfaceError::Address(text.to_owned()))
}

/// Reads the address of a gateway.
///
/// # Errors
/// [`InterfaceError::Gateway`].
pub fn gateway(text: &str) -> Result<IpAddr, InterfaceError> {
    let parsed = text.parse();
    parsed.map_err(|_| InterfaceError::Gateway(text.to_owned()))
}

/// The two are in one network.
fn is_near((own, bits): (IpAddr, u8), other: IpAddr) -> bool {
    let differ = match (own, other) {
        (IpAddr::V4(own), IpAddr::V4(other)) => u128::from(u32::from(own) ^ u32::from(other)) << 96,
        (IpAddr::V6(own), IpAddr::V6(other)) => u128::from(own) ^ u128::from(other),
        _ => return false,
    };
    differ.leading_zeros() >= u32::from(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> Vec<InterfaceError> {
        parse(text).unwrap_err()
    }

    #[test]
    fn interfaces_have_devices_addresses_and_gateways() {
        let text = "packet:veth1 address=10.1.0.2/24 address=fd00::2/64 gateway=10.1.0.254; tap:t0 address=10.2.0.1/16";
        let interfaces = parse(text).unwrap();
        assert_eq!(interfaces.len(), 2);
        assert_eq!(interfaces[0].device.to_string(), "packet:veth1");
        assert_eq!(
            interfaces[0].addresses,
            [
                ("10.1.0.2".parse().unwrap(), 24),
                ("fd00::2".parse().unwrap(), 64)
            ]
        );
        assert_eq!(
            interfaces[0].gateways,
            ["10.1.0.254".parse::<IpAddr>().unwrap()]
        );
        assert_eq!(interfaces[1].device, DeviceName::Tap("t0".to_owned()));
        for none in ["", "none", " none ; "] {
            assert_eq!(parse(none), Ok(Vec::new()), "{none:?}");
        }
    }

    #[test]
    fn every_mistake_is_told() {
        assert_eq!(
            wrong("veth1 address=10.1.0.2/24; tap: ; packet:a address=10.1.0.2 gateway=x b"),
            [
                InterfaceError::Device("veth1".to_owned()),
                InterfaceError::Device("tap:".to_owned()),
                InterfaceError::Address("10.1.0.2".to_owned()),
                InterfaceError::Gateway("x".to_owned()),
                InterfaceError::Word("b".to_owned()),
            ]
        );
        for text in [
            "10.1.0.2/33",
            "fd00::1/129",
            "0.0.0.0/0",
            "127.0.0.1/8",
            "224.0.0.1/4",
        ] {
            let error = InterfaceError::Address(text.to_owned());
            assert_eq!(wrong(&format!("tap:a address={text}")), [error]);
        }
    }

    #[test]
    fn an_interface_needs_an_address_and_a_gateway_a_network() {
        let device = DeviceName::Tap("a".to_owned());
        assert_eq!(wrong("tap:a"), [InterfaceError::Unaddressed(device)]);
        let far: IpAddr = "10.2.0.1".parse().unwrap();
        assert_eq!(
            wrong("tap:a address=10.1.0.2/24 gateway=10.2.0.1"),
            [InterfaceError::Unreachable(far)]
        );
        assert!(parse("tap:a address=10.1.0.2/8 gateway=10.2.0.1").is_ok());
        assert!(parse("tap:a address=10.1.0.2/0 gateway=192.0.2.1").is_ok());
        let again: IpAddr = "10.1.0.2".parse().unwrap();
        assert_eq!(
            wrong("tap:a address=10.1.0.2/24; tap:b address=10.1.0.2/16"),
            [InterfaceError::Twice(again)]
        );
    }
}
