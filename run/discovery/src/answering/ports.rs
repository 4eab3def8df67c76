//! The sockets that the thread holds: the discovery port, and a name for each port of a listener.

use std::io;

use weft_discovery_proto::About;
use weft_os::guarded::Guarded;
use weft_os::process;
use weft_os::seqpacket::Listener;
use weft_os::sock_diag::SockDiag;
use weft_os::udp::UdpSocket;
use weft_settings::DiscoveryPort;

use super::claims::{Claim, Claims};
use super::colleagues::take_name;
use super::{Answering, Standing};

/// Octets of the receive buffer: a program's thousand connections ask at once. The kernel mostly allows less.
const RECEIVE_OCTETS: usize = 1 << 20;

/// A name by which other processes ask for a port.
#[derive(Debug)]
pub(super) struct Name {
    claim: Claim,
    pub(super) listener: Guarded<Listener>,
}

/// A UDP port at which clients ask.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) number: u16,
    pub(super) socket: Guarded<UdpSocket>,
}

/// The sockets.
#[derive(Debug, Default)]
pub(super) struct Ports {
    pub(super) diag: Option<Guarded<SockDiag>>,
    pub(super) ports: Vec<Port>,
    pub(super) names: Vec<Name>,
}

impl Ports {
    /// Closes what is not wanted any more and opens what is missing, for listeners of `wanted`.
    ///
    /// # Errors
    /// Why something could not be had; what could is there.
    pub(super) fn adapt(
        &mut self,
        answering: &Answering,
        wanted: &[(About, u16)],
    ) -> Result<(), Standing> {
        self.forget_lost(&answering.claims);
        let ports = wanted_ports(answering, wanted);
        self.ports.retain(|port| ports.contains(&port.number));
        self.names.retain(|name| {
            let is_wanted = wanted.contains(&(name.claim.about, name.claim.port));
            if !is_wanted {
                answering.claims.remove(name.claim);
            }
            is_wanted
        });
        if wanted.is_empty() {
            self.diag = None;
            return Ok(());
        }
        // Nothing is looked for of datagrams, and a kernel that does not tell of connections does not matter to them.
        let needs_diag = wanted.iter().any(|(about, _)| *about == About::Stream);
        if needs_diag && self.diag.is_none() {
            self.diag = Some(open_diag().map_err(|_| Standing::NoSockDiag)?);
        }
        let named = self.take_names(&answering.claims, wanted);
        let bound = self.bind(&ports);
        bound.and(named)
    }

    /// Whether there are ports whose names this process does not hold.
    pub(super) fn lacks_names(&self, wanted: &[(About, u16)]) -> bool {
        let holds = |(about, port): &(About, u16)| {
            let mut claims = self.names.iter().map(|name| name.claim);
            claims.any(|claim| claim.about == *about && claim.port == *port)
        };
        !wanted.iter().all(holds)
    }

    /// Lets all of them go.
    pub(super) fn close(&mut self, claims: &Claims) {
        for name in self.names.drain(..) {
            claims.remove(name.claim);
        }
        self.ports.clear();
        self.diag = None;
    }

    /// The socket of this port.
    pub(super) fn socket(&mut self, port: u16) -> Option<&mut UdpSocket> {
        let mut ports = self.ports.iter_mut();
        ports.find(|one| one.number == port)?.socket.get()
    }

    /// Drops what the program has closed.
    fn forget_lost(&mut self, claims: &Claims) {
        self.ports.retain(|port| port.socket.is_there());
        self.names.retain(|name| {
            let is_there = name.listener.is_there();
            if !is_there {
                claims.remove(name.claim);
            }
            is_there
        });
        if self.diag.as_ref().is_some_and(|diag| !diag.is_there()) {
            self.diag = None;
        }
    }

    fn bind(&mut self, ports: &[u16]) -> Result<(), Standing> {
        let mut outcome = Ok(());
        for number in ports {
            if self.ports.iter().any(|port| port.number == *number) {
                continue;
            }
            match UdpSocket::bind_shared(*number, RECEIVE_OCTETS) {
                Ok(socket) => self.ports.push(Port {
                    number: *number,
                    socket: Guarded::new(socket),
                }),
                Err(error) => {
                    outcome = Err(match error.kind() {
                        io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied => {
                            Standing::PortTaken
                        }
                        _ => Standing::Short,
                    });
                }
            }
        }
        outcome
    }

    /// Takes a name for each port for which nobody has one who speaks for this process.
    fn take_names(&mut self, claims: &Claims, wanted: &[(About, u16)]) -> Result<(), Standing> {
        for (about, port) in wanted {
            if claims.spoken_for(*about, *port).next().is_some() {
                continue;
            }
            let taken = take_name(*about, *port).map_err(|_| Standing::Short)?;
            if let Some((index, listener)) = taken {
                let claim = Claim {
                    about: *about,
                    port: *port,
                    index,
                    process: process::member(),
                };
                if claims.add(claim) {
                    self.names.push(Name { claim, listener });
                }
            }
        }
        Ok(())
    }
}

/// The UDP ports to hold for these listeners.
fn wanted_ports(answering: &Answering, wanted: &[(About, u16)]) -> Vec<u16> {
    let mut ports: Vec<u16> = match answering.port {
        DiscoveryPort::Agreed(port) if !wanted.is_empty() => vec![port],
        DiscoveryPort::Agreed(_) => Vec::new(),
        // A UDP socket of the program's own has that number.
        DiscoveryPort::Same => wanted
            .iter()
            .filter(|(about, _)| *about == About::Stream)
            .map(|(_, port)| *port)
            .collect(),
    };
    ports.sort_unstable();
    ports.dedup();
    ports.retain(|port| !answering.has_given_way(*port));
    ports
}

/// What asks the kernel for connections, if it answers.
fn open_diag() -> io::Result<Guarded<SockDiag>> {
    let mut diag = SockDiag::open()?;
    let nowhere = ([127, 0, 0, 1], 1).into();
    diag.connection(nowhere, nowhere, 0)?;
    Ok(Guarded::new(diag))
}
