//! What a person can set, how it is read, and where Weft says what happens ([`log`]).
//!
//! [`SETTINGS`] is the one table. From it come the environment variables the
//! library reads, the flags and the `weft.toml` keys of `weft run`, and
//! `docs/settings.md`. The library never stops a program because of a bad
//! value: [`Settings::from_env`] hands back what it could not use as
//! [`Complaint`]s and keeps the default in its place.

#![forbid(unsafe_code)]

pub mod datagrams;
pub mod devices;
pub mod discovery;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod interfaces;
pub mod log;
pub mod program;
pub mod rules;
pub mod streams;
mod table;
pub mod transport;
mod words;

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use weft_os::fork::once;

use devices::Devices;
use interfaces::{Interface, InterfaceError};
use rules::RuleError;
use words::one_of;

pub use datagrams::DatagramRules;
pub use discovery::DiscoveryPort;
pub use streams::StreamRules;
pub use table::{find, SETTINGS};
pub use transport::TransportRules;
pub use words::nearest;

/// What every environment variable of Weft starts with.
pub const PREFIX: &str = "WEFT_";

/// The settings in force in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Leave everything to the machine's own libraries and kernel, as if Weft were not there.
    pub off: bool,
    /// Ask for (and, as responder, insist on) the MPA CRC (RFC 5044 section 4.4).
    pub crc: bool,
    /// MPA revision to start with: 1 (RFC 5044) or 2 (RFC 6581).
    pub mpa_revision: u8,
    /// Offer the peer-to-peer set-up of RFC 6581, with its ready-to-receive message.
    pub peer_to_peer: bool,
    /// Which ready-to-receive messages are offered and taken.
    pub ready_to_receive: ReadyToReceive,
    /// Let a responder send before the initiator's first FPDU where none is promised (against RFC 5044 section 7.1.2).
    pub speak_first: bool,
    /// Require markers in what the peer sends (RFC 5044 section 4.3).
    pub markers: bool,
    /// How large FPDUs are made.
    pub fpdu: FpduSize,
    /// What the device says it is.
    pub face: Face,
    /// Which interfaces have a device of their own.
    pub devices: Devices,
    /// Whose TCP connections go over.
    pub adapter: Adapter,
    /// The interfaces of the adapter.
    pub interfaces: Vec<Interface>,
    /// What of a stream that comes by the adapter is placed before what precedes it has arrived.
    pub place: Place,
    /// How connections of the adapter's TCP send.
    pub tcp: TransportRules,
    /// Lines on standard error up to this level.
    pub log: LogLevel,
    /// Show the machine's own RDMA devices beside `weft0`.
    pub real_devices: bool,
    /// Longest wait for the TCP connection of `rdma_connect`.
    pub connect_timeout: Duration,
    /// Longest wait for the peer's MPA start-up frame (RFC 5044 section 7.1).
    pub start_timeout: Duration,
    /// Writes of queue pairs brought up by GID complete when they are placed (decision 0009).
    pub acknowledge: bool,
    /// How long a message waits for a receive between Weft peers; zero ends the connection at once.
    pub receive_wait: Duration,
    /// Most connections that were accepted and have not sent their MPA Request.
    pub half_open_limit: usize,
    /// Refused accesses of an address that cost it nothing; 0 for any number.
    pub refused_access_limit: u32,
    /// Two ends of one user on one machine share memory instead of sending octets through TCP (decision 0035).
    pub same_host: bool,
    /// The folder in which such ends of two network namespaces meet.
    pub same_host_dir: Option<PathBuf>,
    /// Compute and check the CRC of octets that go through such memory, too.
    pub same_host_crc: bool,
    /// Keep statistics where `weft stat` finds them.
    pub stat: bool,
    /// How often the serving thread looks at connections nobody polls.
    pub serve_tick: Duration,
    /// How long a thread that waits for an event looks for it before it sleeps.
    pub busy_poll: Duration,
    /// Octets for each kernel socket buffer; `None` leaves the kernel's autotuning on.
    pub socket_buffer: Option<usize>,
    /// Which UDP sockets get segmentation offload.
    pub udp: DatagramRules,
    /// Longest time a gathered datagram waits.
    pub udp_hold: Duration,
    /// Quick calls in a row that make a UDP socket a busy one.
    pub udp_busy_after: u32,
    /// Which TCP sockets carry their octets as DDP.
    pub ddp: StreamRules,
    /// FPDUs of TCP sockets over DDP carry a CRC.
    pub ddp_crc: bool,
    /// The UDP port at which Weft processes are asked whether they are Weft.
    pub discovery_port: DiscoveryPort,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            off: false,
            crc: true,
            mpa_revision: 2,
            peer_to_peer: true,
            ready_to_receive: ReadyToReceive::Any,
            speak_first: false,
            markers: false,
            fpdu: FpduSize::Auto,
            face: Face::Infiniband,
            devices: Devices::One,
            adapter: Adapter::Off,
            interfaces: Vec::new(),
            place: Place::Safe,
            tcp: TransportRules::default(),
            log: LogLevel::Warn,
            real_devices: false,
            connect_timeout: Duration::from_millis(10_000),
            start_timeout: Duration::from_millis(10_000),
            acknowledge: true,
            receive_wait: Duration::from_millis(4000),
            half_open_limit: 1024,
            refused_access_limit: 16,
            same_host: true,
            same_host_dir: None,
            same_host_crc: false,
            stat: true,
            serve_tick: Duration::from_micros(200),
            busy_poll: Duration::from_micros(50),
            socket_buffer: None,
            udp: DatagramRules::parse(table::UDP_DEFAULT).unwrap_or_default(),
            udp_hold: Duration::from_micros(200),
            udp_busy_after: 4,
            ddp: StreamRules::default(),
            ddp_crc: false,
            discovery_port: DiscoveryPort::default(),
        }
    }
}

impl Settings {
    /// Reads the `WEFT_*` variables of this process.
    ///
    /// Always gives settings to work with; each complaint names a variable that
    /// was not used and what it would accept.
    pub fn from_env() -> (Settings, Vec<Complaint>) {
        Settings::from_pairs(std::env::vars_os())
    }

    /// [`Settings::from_env`] over any set of variables; names without the
    /// prefix `WEFT_` are passed over.
    pub fn from_pairs<I>(variables: I) -> (Settings, Vec<Complaint>)
    where
        I: IntoIterator<Item = (OsString, OsString)>,
    {
        let mut settings = Settings::default();
        let mut complaints = Vec::new();
        for (variable, value) in variables {
            let Some(variable) = variable.to_str().filter(|name| name.starts_with(PREFIX)) else {
                continue;
            };
            if let Err(complaint) = settings.take(variable, &value) {
                complaints.push(complaint);
            }
        }
        complaints.sort_by(|a, b| a.variable.cmp(&b.variable));
        (settings, complaints)
    }

    /// These settings without the rules that are for other programs than the one with these names.
    #[must_use]
    pub fn for_program(&self, names: &[&str]) -> Settings {
        Settings {
            udp: self.udp.for_program(names),
            ddp: self.ddp.for_program(names),
            tcp: self.tcp.for_program(names),
            ..self.clone()
        }
    }

    /// Whether any socket may be looked after: what `weft run` loads the socket hooks for, and without which they do
    /// nothing. A rule of `ddp` that says `off` counts, too: the program may ask for DDP itself, by the socket option.
    pub fn hooks_sockets(&self) -> bool {
        self.udp.any() || self.ddp.any()
    }

    fn take(&mut self, variable: &str, value: &OsString) -> Result<(), Complaint> {
        let text = value.to_string_lossy();
        let complain = |reason| Complaint {
            variable: variable.to_owned(),
            value: text.clone().into_owned(),
            reason,
        };
        let Some(setting) = SETTINGS.iter().find(|setting| setting.env == variable) else {
            let near = nearest(variable, SETTINGS.iter().map(|setting| setting.env));
            return Err(complain(Reason::UnknownName { near }));
        };
        setting.apply(self, text.trim()).map_err(complain)
    }
}

/// What the device says it is (decision 0007).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    /// Transport InfiniBand on an Ethernet link, a GID for each address.
    Infiniband,
    /// Transport iWARP, one GID made of the hardware address.
    Iwarp,
}

impl Face {
    /// Every value, in the order of the names in [`SETTINGS`].
    pub const ALL: [Face; 2] = [Face::Infiniband, Face::Iwarp];

    /// What the environment says, asked once: a device does not change its face.
    pub fn of_process() -> Face {
        static FACE: std::sync::OnceLock<Face> = std::sync::OnceLock::new();
        *once(&FACE, || Settings::from_env().0.face)
    }
}

/// Whose TCP the connections of queue pairs go over (decision 0032).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adapter {
    /// The kernel's.
    Off,
    /// One of our own on the adapter's interfaces, inside the program; the kernel's for other addresses.
    Inline,
}

impl Adapter {
    /// Every value, in the order of the names in [`SETTINGS`].
    pub const ALL: [Adapter; 2] = [Adapter::Off, Adapter::Inline];
}

/// Which FPDUs that arrive behind a hole in the stream are placed at once (decision 0033).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// None.
    InOrder,
    /// All but the last segments of messages.
    Safe,
    /// Last segments too.
    Eager,
}

impl Place {
    /// Every value, in the order of the names in [`SETTINGS`].
    pub const ALL: [Place; 3] = [Place::InOrder, Place::Safe, Place::Eager];
}

/// Ready-to-receive messages of the peer-to-peer set-up (RFC 6581 section 9.2). A zero-length Send takes a
/// receive buffer of the peer's program, so it is no choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadyToReceive {
    /// A zero-length Write or Read, whichever suits the peer.
    Any,
    /// A zero-length Write alone.
    Write,
    /// A zero-length Read alone.
    Read,
}

impl ReadyToReceive {
    /// Every value, in the order of the names in [`SETTINGS`].
    pub const ALL: [ReadyToReceive; 3] = [
        ReadyToReceive::Any,
        ReadyToReceive::Write,
        ReadyToReceive::Read,
    ];
}

/// How large FPDUs are made (RFC 5044 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FpduSize {
    /// Large where the peer is known to be Weft, else to the EMSS.
    Auto,
    /// To the EMSS, as hardware RNICs expect.
    Emss,
    /// Large whatever the peer.
    Large,
}

impl FpduSize {
    /// Every value, in the order of the names in [`SETTINGS`].
    pub const ALL: [FpduSize; 3] = [FpduSize::Auto, FpduSize::Emss, FpduSize::Large];
}

/// How much is said on standard error; each level includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What ends a connection or makes a call fail for a reason of ours.
    Error,
    /// What a person should know and probably change.
    Warn,
    /// What is served and what is not, one line each.
    Info,
    /// Every connection's steps.
    Debug,
}

impl LogLevel {
    /// Every value, in the order of the names in [`SETTINGS`].
    pub const ALL: [LogLevel; 5] = [
        LogLevel::Off,
        LogLevel::Error,
        LogLevel::Warn,
        LogLevel::Info,
        LogLevel::Debug,
    ];
}

/// One row of [`SETTINGS`].
#[derive(Debug)]
pub struct Setting {
    /// The flag of `weft run` without its dashes, and the last part of [`Setting::key`].
    pub name: &'static str,
    /// The environment variable.
    pub env: &'static str,
    /// The key in `weft.toml`: section, dot, name.
    pub key: &'static str,
    /// What it accepts and where it goes.
    pub kind: Kind,
    /// The default as a person would write it; empty where there is none.
    pub default: &'static str,
    /// One paragraph: what it does, and when to change it.
    pub doc: &'static str,
}

/// Octets that the path of a folder may have: the address of a socket in it has 107 (unix(7)).
const FOLDER_OCTETS_MAX: usize = 80;

/// What a setting accepts, with the field of [`Settings`] it goes to.
#[derive(Debug)]
pub enum Kind {
    /// `on` or `off`.
    Switch(fn(&mut Settings, bool)),
    /// A switch that is off by default, and whose flag needs no value to turn it on.
    Flag(fn(&mut Settings, bool)),
    /// One of some names; the setter gets the index of the name.
    Choice(&'static [&'static str], fn(&mut Settings, usize)),
    /// A whole number.
    Integer {
        /// Least value accepted.
        min: u64,
        /// Greatest value accepted.
        max: u64,
        /// What is counted; empty where the number is only a number.
        unit: &'static str,
        /// Puts the number in its place.
        set: fn(&mut Settings, u64),
    },
    /// Rules about UDP sockets.
    DatagramRules(fn(&mut Settings, DatagramRules)),
    /// Rules about TCP sockets.
    StreamRules(fn(&mut Settings, StreamRules)),
    /// Rules about connections of the adapter's TCP.
    TransportRules(fn(&mut Settings, TransportRules)),
    /// A UDP port, or `same`.
    DiscoveryPort(fn(&mut Settings, DiscoveryPort)),
    /// Interfaces of the adapter.
    Interfaces(fn(&mut Settings, Vec<Interface>)),
    /// Interfaces that have devices.
    Devices(fn(&mut Settings, Devices)),
    /// A folder, by its whole path.
    Folder(fn(&mut Settings, PathBuf)),
    /// For `weft run` alone, one of some names: the library has nothing to set.
    LauncherChoice(&'static [&'static str]),
    /// For `weft run` alone, a folder.
    LauncherFolder,
}

impl Setting {
    /// The section of `weft.toml` that it stands in.
    pub fn section(&self) -> &'static str {
        self.key.split_once('.').map_or("", |(section, _)| section)
    }

    /// Whether the library ignores it, because only `weft run` has a use for it.
    pub fn launcher_only(&self) -> bool {
        matches!(self.kind, Kind::LauncherChoice(_) | Kind::LauncherFolder)
    }

    /// Whether `text` is accepted, and if not why.
    ///
    /// # Errors
    /// [`Reason::NotAccepted`], which lists what would be, or one that says what is wrong where.
    pub fn check(&self, text: &str) -> Result<(), Reason> {
        self.apply(&mut Settings::default(), text)
    }

    /// What it accepts, as a phrase: "on or off", "a number from 1 to 2".
    pub fn accepts(&self) -> String {
        match &self.kind {
            Kind::Switch(_) | Kind::Flag(_) => "on or off".to_owned(),
            Kind::Choice(names, _) | Kind::LauncherChoice(names) => one_of(names),
            Kind::Integer {
                min, max, unit: "", ..
            } => {
                format!("a whole number from {min} to {max}")
            }
            Kind::Integer { min, max, unit, .. } => {
                format!("a whole number of {unit} from {min} to {max}")
            }
            Kind::DatagramRules(_) => datagrams::GRAMMAR.accepts(),
            Kind::StreamRules(_) => streams::GRAMMAR.accepts(),
            Kind::TransportRules(_) => transport::GRAMMAR.accepts(),
            Kind::DiscoveryPort(_) => "a port from 1 to 65535, or same".to_owned(),
            Kind::Interfaces(_) => interfaces::accepts(),
            Kind::Devices(_) => devices::ACCEPTS.to_owned(),
            Kind::Folder(_) => {
                format!("the whole path of a folder, of {FOLDER_OCTETS_MAX} octets at most")
            }
            Kind::LauncherFolder => "a folder".to_owned(),
        }
    }

    /// Sets it to what `text` says.
    ///
    /// # Errors
    /// `text` is none of its values.
    pub fn apply(&self, settings: &mut Settings, text: &str) -> Result<(), Reason> {
        let not_rules = |errors| Reason::NotRules {
            errors,
            default: self.default,
        };
        let accepted = match &self.kind {
            Kind::Switch(set) | Kind::Flag(set) => switch(text).map(|on| set(settings, on)),
            Kind::Choice(names, set) => index_of(names, text).map(|index| set(settings, index)),
            Kind::Integer { min, max, set, .. } => text
                .parse()
                .ok()
                .filter(|number| (min..=max).contains(&number))
                .map(|number| set(settings, number)),
            Kind::DatagramRules(set) => {
                set(settings, DatagramRules::parse(text).map_err(not_rules)?);
                Some(())
            }
            Kind::StreamRules(set) => {
                set(settings, StreamRules::parse(text).map_err(not_rules)?);
                Some(())
            }
            Kind::TransportRules(set) => {
                set(settings, TransportRules::parse(text).map_err(not_rules)?);
                Some(())
            }
            Kind::DiscoveryPort(set) => DiscoveryPort::parse(text).map(|port| set(settings, port)),
            Kind::Interfaces(set) => {
                let all = interfaces::parse(text).map_err(|errors| Reason::NotInterfaces {
                    errors,
                    default: self.default,
                })?;
                set(settings, all);
                Some(())
            }
            Kind::Devices(set) => Devices::parse(text).map(|devices| set(settings, devices)),
            Kind::Folder(set) => (text.starts_with('/') && text.len() <= FOLDER_OCTETS_MAX)
                .then(|| set(settings, PathBuf::from(text))),
            Kind::LauncherChoice(names) => index_of(names, text).map(|_| ()),
            Kind::LauncherFolder => (!text.is_empty()).then_some(()),
        };
        accepted.ok_or_else(|| Reason::NotAccepted {
            accepts: self.accepts(),
            default: self.default,
        })
    }
}

/// A variable that was not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Its name, `WEFT_...`.
    pub variable: String,
    /// The value given; octets that are not UTF-8 replaced.
    pub value: String,
    /// What is wrong with it.
    pub reason: Reason,
}

impl Complaint {
    /// Whether it is about a setting in this section of `weft.toml`. A mistyped name is about the settings that it is
    /// near to, or begins with the same word as.
    pub fn is_about(&self, section: &str) -> bool {
        let near = match self.reason {
            Reason::UnknownName { near } => near,
            _ => None,
        };
        let mut settings = SETTINGS.iter().filter(|one| one.section() == section);
        settings
            .any(|one| near == Some(one.env) || first_word(one.env) == first_word(&self.variable))
    }
}

/// The word behind the prefix: `UDP` of `WEFT_UDP_HOLD_US`.
fn first_word(variable: &str) -> Option<&str> {
    variable.strip_prefix(PREFIX)?.split('_').next()
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Complaint {
            variable, value, ..
        } = self;
        match &self.reason {
            Reason::UnknownName { near: Some(near) } => {
                write!(
                    f,
                    "{variable} is not a setting of Weft; did you mean {near}?"
                )
            }
            Reason::UnknownName { near: None } => write!(
                f,
                "{variable} is not a setting of Weft; `weft run --help` lists them"
            ),
            Reason::NotAccepted { default, .. }
            | Reason::NotRules { default, .. }
            | Reason::NotInterfaces { default, .. } => {
                let wrong = self.reason.in_words().join("; ");
                write!(f, "{variable}={value} is not understood: {wrong}; ")?;
                match *default {
                    "" => write!(f, "it is left unset"),
                    default => write!(f, "the default, {default}, is used"),
                }
            }
        }
    }
}

/// Why a value cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No setting has this name.
    UnknownName {
        /// A name that differs by little.
        near: Option<&'static str>,
    },
    /// The setting does not take this value.
    NotAccepted {
        /// What it takes, as a phrase.
        accepts: String,
        /// What it is when nobody sets it.
        default: &'static str,
    },
    /// The setting takes rules, and this text is none.
    NotRules {
        /// Every mistake, in the order of the text.
        errors: Vec<RuleError>,
        /// What it is when nobody sets it.
        default: &'static str,
    },
    /// The setting takes interfaces, and this text names none.
    NotInterfaces {
        /// Every mistake, in the order of the text.
        errors: Vec<InterfaceError>,
        /// What it is when nobody sets it.
        default: &'static str,
    },
}

impl Reason {
    /// What is wrong with the value and what to do, one phrase for each mistake.
    pub fn in_words(&self) -> Vec<String> {
        match self {
            Reason::UnknownName { near: Some(near) } => vec![format!("did you mean {near}?")],
            Reason::UnknownName { near: None } => vec!["there is no such setting".to_owned()],
            Reason::NotAccepted { accepts, .. } => vec![format!("give {accepts}")],
            Reason::NotRules { errors, .. } => errors.iter().map(ToString::to_string).collect(),
            Reason::NotInterfaces { errors, .. } => {
                errors.iter().map(ToString::to_string).collect()
            }
        }
    }
}

/// What `text` means as the value of a [`Kind::Switch`].
pub fn switch(text: &str) -> Option<bool> {
    const ON: [&str; 4] = ["on", "true", "yes", "1"];
    const OFF: [&str; 4] = ["off", "false", "no", "0"];
    let is = |names: [&str; 4]| names.iter().any(|name| name.eq_ignore_ascii_case(text));
    match (is(ON), is(OFF)) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    }
}

fn index_of(names: &[&str], text: &str) -> Option<usize> {
    names
        .iter()
        .position(|name| name.eq_ignore_ascii_case(text))
}

#[cfg(test)]
mod tests;
