//! The settings of the section `[sockets]`.

use std::time::Duration;

use crate::{Kind, Setting};

/// What UDP sockets get when nobody sets anything: the kernel's own calls.
pub(crate) const UDP_DEFAULT: &str = "off";

pub(super) const UDP: Setting = Setting {
    name: "udp",
    env: "WEFT_UDP",
    key: "sockets.udp",
    kind: Kind::DatagramRules(|settings, rules| settings.udp = rules),
    default: UDP_DEFAULT,
    doc: "Which UDP sockets are offloaded. With `gso` a busy program's datagrams to \
          one destination leave many in one call, and what arrives is taken from the kernel \
          many at once; the datagrams on the wire and what the program sees stay the same. \
          With `uoe prefer` they take a connection of Weft's where the other end is Weft too, \
          with `uoe require` they take no other way; docs/uoe.md tells how. \
          Rules narrow it: `off port=53; gso program=iperf3 address=10.0.0.0/8`; the first \
          that fits decides, and where none fits nothing changes. docs/sockets.md tells more.",
};

pub(super) const UDP_HOLD_US: Setting = Setting {
    name: "udp-hold-us",
    env: "WEFT_UDP_HOLD_US",
    key: "sockets.udp-hold-us",
    kind: Kind::Integer {
        min: 20,
        max: 100_000,
        unit: "microseconds",
        set: |settings, us| settings.udp_hold = Duration::from_micros(us),
    },
    default: "200",
    doc: "The longest time a gathered datagram waits for company, even if the program never \
          calls again. Where more than four batches leave in that time, four times as long.",
};

pub(super) const UDP_BUSY_AFTER: Setting = Setting {
    name: "udp-busy-after",
    env: "WEFT_UDP_BUSY_AFTER",
    key: "sockets.udp-busy-after",
    kind: Kind::Integer {
        min: 0,
        max: 1_000_000,
        unit: "",
        set: |settings, calls| settings.udp_busy_after = calls as u32,
    },
    default: "4",
    doc: "How many sends (or receives) in quick succession make a UDP socket a busy one, \
          whose datagrams gather. 0: every socket is busy from its first call.",
};

pub(super) const DDP: Setting = Setting {
    name: "ddp",
    env: "WEFT_DDP",
    key: "sockets.ddp",
    kind: Kind::StreamRules(|settings, rules| settings.ddp = rules),
    default: "",
    doc: "TCP sockets whose octets go as DDP, as iWARP carries them, on the same connection. \
          `prefer`: where the other end can, else as TCP. `require`: or there is no connection. \
          `off`: as TCP. Rules narrow it: `prefer direction=connect address=10.0.0.0/8 \
          port=6379; require direction=listen port=6379`; the first that fits decides, and \
          where none fits nothing changes. With any rule, be it `off`, the program may also ask \
          for itself, socket by socket (weft/sockets.h). docs/sockets.md tells more.",
};

pub(super) const DDP_CRC: Setting = Setting {
    name: "ddp-crc",
    env: "WEFT_DDP_CRC",
    key: "sockets.ddp-crc",
    kind: Kind::Switch(|settings, on| settings.ddp_crc = on),
    default: "off",
    doc: "Protect every FPDU of a TCP socket over DDP by the CRC32c of MPA. It is used when either \
          side asks for it. Nothing is then received that was not checked, and octets are copied once \
          more on either side.",
};

pub(super) const DISCOVERY_PORT: Setting = Setting {
    name: "discovery-port",
    env: "WEFT_DISCOVERY_PORT",
    key: "sockets.discovery-port",
    kind: Kind::DiscoveryPort(|settings, port| settings.discovery_port = port),
    default: "22342",
    doc: "The UDP port at which a server is asked whether it is Weft, before anything is sent \
          that others would not understand; both ends need the same. `same`: the number of the \
          TCP port that is connected to, for hosts where several users have servers; a UDP \
          service of that number on a host without Weft gets the question. docs/discovery.md \
          tells more.",
};
