//! The two interfaces, and why they may not be usable.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use thiserror::Error;
use weft_os::ifaces;
use weft_os::packet::{PacketInterface, PacketReceiver, PacketSender};

use crate::Settings;

/// Why a bridge cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Both ends are one interface.
    #[error("both ends are {0}")]
    Same(String),
    /// There is no interface of this name here.
    #[error("there is no interface {name} in this network namespace")]
    NoInterface {
        /// The name.
        name: String,
        /// Those that are here.
        present: Vec<String>,
    },
    /// The interface's frames are not Ethernet frames.
    #[error("{0} has no Ethernet frames")]
    NotEthernet(String),
    /// The interface is down.
    #[error("{0} is down")]
    Down(String),
    /// Packets that one interface takes are too large for the other.
    #[error("the MTU of {} is {}, that of {} is {}", names[0], mtus[0], names[1], mtus[1])]
    DifferentMtu {
        /// Names.
        names: [String; 2],
        /// Their MTUs in octets.
        mtus: [u32; 2],
    },
    /// This process may not open packet sockets in this network namespace.
    #[error("not allowed to open packet sockets in this network namespace")]
    NotAllowed,
    /// The capture cannot be written.
    #[error("{}: {error}", file.display())]
    Capture {
        /// The file.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file for holes cannot be written.
    #[error("{}: {error}", file.display())]
    Holes {
        /// The file.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The machine could not.
    #[error("{name}: {error}")]
    System {
        /// What, by the interface's name.
        name: String,
        /// Why.
        error: io::Error,
    },
}

impl OpenError {
    /// What the user can do about it.
    pub fn advice(&self) -> Option<String> {
        Some(match self {
            OpenError::Same(_) => {
                "name two: frames that arrive at the one leave by the other".to_owned()
            }
            OpenError::NoInterface { present, .. } => {
                format!("there are: {}", present.join(", "))
            }
            OpenError::NotEthernet(_) => {
                "use one end of a veth pair, a TAP device or a network card".to_owned()
            }
            OpenError::Down(name) => format!("ip link set {name} up"),
            OpenError::DifferentMtu {
                names: [a, b],
                mtus: [of_a, of_b],
            } => {
                let (least, larger) = if of_a < of_b { (of_a, b) } else { (of_b, a) };
                format!("ip link set {larger} mtu {least}, or --mtu {least}: a router between them")
            }
            OpenError::NotAllowed => {
                "it needs CAP_NET_RAW there: be root, or work in a namespace of your own, which \
                 `unshare -rn` starts a shell in"
                    .to_owned()
            }
            OpenError::Capture { .. } => "--pcap needs a file that can be written".to_owned(),
            OpenError::Holes { .. } => "--holes needs a file that can be written".to_owned(),
            OpenError::System { .. } => return None,
        })
    }
}

/// Looks both interfaces up and holds them against each other.
pub(crate) fn interfaces(
    a: &str,
    b: &str,
    settings: &Settings,
) -> Result<[PacketInterface; 2], OpenError> {
    if a == b {
        return Err(OpenError::Same(a.to_owned()));
    }
    let both = [find(a)?, find(b)?];
    for interface in &both {
        if !interface.ethernet {
            return Err(OpenError::NotEthernet(interface.name.clone()));
        }
        if !interface.up {
            return Err(OpenError::Down(interface.name.clone()));
        }
    }
    let mtus = both.each_ref().map(|interface| interface.mtu);
    // A router before the narrower interface makes everything fit there.
    let towards = [settings.b_to_a.mtu, settings.a_to_b.mtu];
    let fits =
        |end: usize| mtus[end] >= mtus[1 - end] || towards[end].is_some_and(|mtu| mtu <= mtus[end]);
    if !fits(0) || !fits(1) {
        let names = both.map(|interface| interface.name);
        return Err(OpenError::DifferentMtu { names, mtus });
    }
    Ok(both)
}

fn find(name: &str) -> Result<PacketInterface, OpenError> {
    PacketInterface::find(name).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NODEV) => OpenError::NoInterface {
            name: name.to_owned(),
            present: ifaces::interfaces()
                .into_iter()
                .map(|interface| interface.name)
                .collect(),
        },
        _ => failed(name, error),
    })
}

fn failed(name: &str, error: io::Error) -> OpenError {
    match Errno::from_io_error(&error) {
        Some(Errno::PERM | Errno::ACCESS) => OpenError::NotAllowed,
        _ => OpenError::System {
            name: name.to_owned(),
            error,
        },
    }
}

/// The sockets of one direction.
#[derive(Debug)]
pub(crate) struct Ends {
    /// Name of the interface where frames arrive.
    pub(crate) from: String,
    /// Name of the interface where they leave.
    pub(crate) to: String,
    /// MTU of that in octets.
    pub(crate) mtu: u32,
    /// Where frames arrive.
    pub(crate) receiver: PacketReceiver,
    /// Where they leave.
    pub(crate) out: PacketSender,
    /// Where answers go back to senders.
    pub(crate) back: PacketSender,
}

impl Ends {
    /// Opens the sockets.
    pub(crate) fn open(from: &PacketInterface, to: &PacketInterface) -> Result<Ends, OpenError> {
        let at = |interface: &PacketInterface| {
            let name = interface.name.clone();
            move |error| failed(&name, error)
        };
        Ok(Ends {
            from: from.name.clone(),
            to: to.name.clone(),
            mtu: to.mtu,
            receiver: PacketReceiver::open(from).map_err(at(from))?,
            out: PacketSender::open(to).map_err(at(to))?,
            back: PacketSender::open(from).map_err(at(from))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_interface_is_not_two() {
        let settings = Settings::default();
        let error = interfaces("lo", "lo", &settings).unwrap_err();
        assert!(matches!(error, OpenError::Same(_)));
    }

    #[test]
    fn a_missing_interface_is_named_with_those_that_are_there() {
        let settings = Settings::default();
        let error = interfaces("nobody0", "lo", &settings).unwrap_err();
        assert!(error.to_string().contains("nobody0"), "{error}");
        assert!(error.advice().unwrap().contains("lo"));
    }

    #[test]
    fn the_advice_on_mtus_names_the_larger_one() {
        let error = OpenError::DifferentMtu {
            names: ["a".into(), "b".into()],
            mtus: [9000, 1500],
        };
        assert!(error
            .advice()
            .unwrap()
            .starts_with("ip link set a mtu 1500"));
    }
}
