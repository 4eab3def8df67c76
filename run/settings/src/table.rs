//! The table of settings.

mod device;
mod sockets;

use std::time::Duration;

pub(crate) use sockets::UDP_DEFAULT;

use super::{interfaces, Adapter, FpduSize, Kind, LogLevel, Place, ReadyToReceive, Setting};

/// Milliseconds in an hour: the longest time anybody may wait.
const HOUR_MS: u64 = 3_600_000;

/// Every setting, in the order the documentation shows them.
///
/// Within a row the flag is `--name`, the variable is `WEFT_NAME` and the key
/// ends in `.name`, so that whoever knows one spelling knows the others.
pub const SETTINGS: &[Setting] = &[
    device::FACE,
    device::DEVICES,
    Setting {
        name: "crc",
        env: "WEFT_CRC",
        key: "iwarp.crc",
        kind: Kind::Switch(|settings, on| settings.crc = on),
        default: "on",
        doc: "Protect every FPDU by the CRC32c of MPA. It is used when either side asks for it, \
              so to go without, set it off on both. TCP's own checksum is weak and on one \
              machine absent; without the CRC payload goes straight between the socket and \
              registered memory, which is what makes `off` faster.",
    },
    Setting {
        name: "mpa-revision",
        env: "WEFT_MPA_REVISION",
        key: "iwarp.mpa-revision",
        kind: Kind::Integer {
            min: 1,
            max: 2,
            unit: "",
            set: |settings, revision| settings.mpa_revision = revision as u8,
        },
        default: "2",
        doc: "Revision of MPA start-up: 2 negotiates read depths (RFC 6581), 1 is the plain form \
              of RFC 5044 for peers that know no other.",
    },
    Setting {
        name: "peer-to-peer",
        env: "WEFT_PEER_TO_PEER",
        key: "iwarp.peer-to-peer",
        kind: Kind::Switch(|settings, on| settings.peer_to_peer = on),
        default: "on",
        doc: "Offer the peer-to-peer set-up of RFC 6581: the connecting side sends a \
              ready-to-receive message, so that the accepting side may send first. Only with \
              MPA revision 2. Turn it off for a peer that refuses it.",
    },
    Setting {
        name: "ready-to-receive",
        env: "WEFT_READY_TO_RECEIVE",
        key: "iwarp.ready-to-receive",
        kind: Kind::Choice(&["any", "write", "read"], |settings, index| {
            settings.ready_to_receive = ReadyToReceive::ALL[index];
        }),
        default: "any",
        doc: "Which ready-to-receive messages the peer-to-peer set-up may use: a zero-length RDMA \
              Write, a zero-length RDMA Read, or any of the two. Name one for an RNIC that is \
              configured for it and refuses the other.",
    },
    Setting {
        name: "speak-first",
        env: "WEFT_SPEAK_FIRST",
        key: "iwarp.speak-first",
        kind: Kind::Switch(|settings, on| settings.speak_first = on),
        default: "off",
        doc: "Let the accepting side send before it has heard from a connecting side that knows \
              no peer-to-peer set-up. RFC 5044 forbids it, since such a peer may not be ready \
              to receive, and a program whose server speaks first then waits for ever. Linux \
              siw is such a peer, unless its `peer_to_peer` is set, and can take it.",
    },
    Setting {
        name: "markers",
        env: "WEFT_MARKERS",
        key: "iwarp.markers",
        kind: Kind::Switch(|settings, on| settings.markers = on),
        default: "off",
        doc: "Require MPA markers in what the peer sends. They serve receivers that place \
              segments out of order; over kernel TCP they only cost. What the peer requires of \
              us is always done.",
    },
    Setting {
        name: "fpdu",
        env: "WEFT_FPDU",
        key: "iwarp.fpdu",
        kind: Kind::Choice(&["auto", "emss", "large"], |settings, index| {
            settings.fpdu = FpduSize::ALL[index];
        }),
        default: "auto",
        doc: "Size of FPDUs. `emss`: each fits one TCP segment, as RFC 5044 asks and hardware \
              RNICs expect. `large`: up to 64 KiB, less work per octet, for peers known to \
              take them. `auto`: large when the peer shows itself to be Weft, else emss.",
    },
    Setting {
        name: "start-timeout-ms",
        env: "WEFT_START_TIMEOUT_MS",
        key: "iwarp.start-timeout-ms",
        kind: Kind::Integer {
            min: 1,
            max: HOUR_MS,
            unit: "milliseconds",
            set: |settings, ms| settings.start_timeout = Duration::from_millis(ms),
        },
        default: "10000",
        doc: "How long to wait for the peer's MPA start-up frame once TCP is connected. A peer \
              that is silent for longer, for instance because it does not speak iWARP at all, \
              ends the attempt.",
    },
    Setting {
        name: "receive-wait-ms",
        env: "WEFT_RECEIVE_WAIT_MS",
        key: "verbs.receive-wait-ms",
        kind: Kind::Integer {
            min: 0,
            max: HOUR_MS,
            unit: "milliseconds",
            set: |settings, ms| settings.receive_wait = Duration::from_millis(ms),
        },
        default: "4000",
        doc: "How long a message that finds no posted receive waits for one, when the peer is \
              Weft too. Programs written for InfiniBand rely on its retries. After that, and at \
              once with other peers or with 0, the connection ends, as iWARP has it. Messages of a \
              peer that has disconnected wait as long, and the end is told behind them.",
    },
    Setting {
        name: "acknowledge",
        env: "WEFT_ACKNOWLEDGE",
        key: "verbs.acknowledge",
        kind: Kind::Switch(|settings, on| settings.acknowledge = on),
        default: "on",
        doc: "Complete a Write of a queue pair that the program brings up itself, by GID and \
              number, when it is placed at the peer, as InfiniBand does. When off, it is \
              complete when TCP has it, as iWARP does and as it is with the connection manager: \
              small Writes are two to three times as quick, and a program that tells the other \
              side by other means that they are there may be too early.",
    },
    Setting {
        name: "half-open-limit",
        env: "WEFT_HALF_OPEN_LIMIT",
        key: "verbs.half-open-limit",
        kind: Kind::Integer {
            min: 1,
            max: 1_000_000,
            unit: "connections",
            set: |settings, most| settings.half_open_limit = most as usize,
        },
        default: "1024",
        doc: "How many connections the process holds at once that were accepted and have not sent \
              their MPA Request yet. Each takes a descriptor, and no more than a quarter of those that \
              the process may have (`ulimit -Hn`) go to them. When there are so many, the oldest \
              one of the address that has the most is closed for the next that comes; one that is \
              younger than a quarter of a second is left alone, and the next waits in the kernel.",
    },
    Setting {
        name: "refused-access-limit",
        env: "WEFT_REFUSED_ACCESS_LIMIT",
        key: "verbs.refused-access-limit",
        kind: Kind::Integer {
            min: 0,
            max: 1_000_000,
            unit: "",
            set: |settings, most| settings.refused_access_limit = most as u32,
        },
        default: "16",
        doc: "How many times a peer may reach for memory that it was not given before new \
              connections from its address have to wait, as somebody's have to who guesses STags. \
              One time in ten seconds is forgotten. Beyond the limit the address gets one \
              connection at a time: once the one before has ended well, or 50 milliseconds after \
              it, twice that after each further time, and at most 5 seconds. What waits for longer \
              than 8 seconds is refused, and so is the seventeenth that waits. All addresses of \
              this machine count as one. Beyond 16 times the limit over all addresses new \
              connections take turns by the network they come from. \
              0: they are counted and nothing else happens. docs/hostile.md tells more.",
    },
    Setting {
        name: "same-host",
        env: "WEFT_SAME_HOST",
        key: "verbs.same-host",
        kind: Kind::Choice(&["auto", "off"], |settings, index| settings.same_host = index == 0),
        default: "auto",
        doc: "What carries a connection between two programs of one user on one machine. `auto`: \
              memory that both share, two rings of 256 KiB for each of some 250 connections of a process, where both \
              ends are Weft and in one network namespace; the TCP connection stays, for its beginning \
              and end and to wake who sleeps. `off`: TCP. `weft stat` shows which it is.",
    },
    Setting {
        name: "same-host-dir",
        env: "WEFT_SAME_HOST_DIR",
        key: "verbs.same-host-dir",
        kind: Kind::Folder(|settings, folder| settings.same_host_dir = Some(folder)),
        default: "",
        doc: "A folder by which two programs of one user on one machine share memory although they \
              are in two network namespaces, as containers are that share the folder: both have to \
              name it, each by its own path. They meet at a socket there that is gone with the \
              program; what a killed one leaves the next one removes. Without it programs of one \
              network namespace find each other, and no others.",
    },
    Setting {
        name: "same-host-crc",
        env: "WEFT_SAME_HOST_CRC",
        key: "verbs.same-host-crc",
        kind: Kind::Switch(|settings, on| settings.same_host_crc = on),
        default: "off",
        doc: "Compute and check the CRC of what goes through shared memory, too, where `crc` asks for \
              it. Such octets do not leave the machine. On if either end has it on.",
    },
    Setting {
        name: "real-devices",
        env: "WEFT_REAL_DEVICES",
        key: "verbs.real-devices",
        kind: Kind::Switch(|settings, on| settings.real_devices = on),
        default: "off",
        doc: "Show the machine's own RDMA devices beside `weft0`. Off, a program finds `weft0` \
              alone and cannot pick a device that happens to be there.",
    },
    Setting {
        name: "connect-timeout-ms",
        env: "WEFT_CONNECT_TIMEOUT_MS",
        key: "verbs.connect-timeout-ms",
        kind: Kind::Integer {
            min: 1,
            max: HOUR_MS,
            unit: "milliseconds",
            set: |settings, ms| settings.connect_timeout = Duration::from_millis(ms),
        },
        default: "10000",
        doc: "How long `rdma_connect` waits for TCP to connect, or for a datagram service to \
              answer, before it reports that the peer is unreachable.",
    },
    Setting {
        name: "adapter",
        env: "WEFT_ADAPTER",
        key: "network.adapter",
        kind: Kind::Choice(&["off", "inline"], |settings, index| {
            settings.adapter = Adapter::ALL[index];
        }),
        default: "off",
        doc: "Whose TCP the connections of queue pairs go over. `off`: the kernel's. `inline`: a TCP of Weft's own inside \
              the program, on the interfaces that --interface names, for their addresses and all that these lead to; \
              the kernel's for all other addresses. Plain sockets stay the kernel's. docs/adapter.md \
              tells more.",
    },
    Setting {
        name: "interface",
        env: "WEFT_INTERFACE",
        key: "network.interface",
        kind: Kind::Interfaces(|settings, interfaces| settings.interfaces = interfaces),
        default: interfaces::NONE,
        doc: "The interfaces of --adapter inline. `packet:NAME` is a network interface by a packet socket, `tap:NAME` a \
              TAP. Each has an address or more of the adapter's own, which the kernel must not have, and maybe a \
              gateway. As flags these follow their interface: `--interface packet:veth1 --address 10.1.0.2/24 --gateway \
              10.1.0.1`; elsewhere they stand behind it: `packet:veth1 address=10.1.0.2/24 gateway=10.1.0.1`. Several \
              interfaces are several flags, or separated by semicolons, or in weft.toml a list.",
    },
    Setting {
        name: "place",
        env: "WEFT_PLACE",
        key: "network.place",
        kind: Kind::Choice(&["in-order", "safe", "eager"], |settings, index| {
            settings.place = Place::ALL[index];
        }),
        default: "safe",
        doc: "What of a stream that comes by the adapter goes to its memory before what precedes it has arrived, where a \
              frame was lost. `safe`: all but the last segments of messages, so that a program that waits for the last \
              octet of a message never sees it first. `eager`: those too. `in-order`: nothing. With `safe` and `eager` \
              FPDUs fit the segments of the connection, so that the other end can do the same, unless --fpdu large says \
              otherwise.",
    },
    Setting {
        name: "tcp",
        env: "WEFT_TCP",
        key: "network.tcp",
        kind: Kind::TransportRules(|settings, rules| settings.tcp = rules),
        default: "",
        doc: "How connections of the adapter's TCP send. `cubic` and `reno` are congestion controls, `none` sends \
              whatever the peer's window takes, `rate=1Gbit` so much in each second, whatever is lost: the last two are \
              for links of the program's own. Behind each may stand `acks=1/64`, one acknowledgement for so many \
              segments, and `frame=9000`, octets of the largest frame that is handed to the device. Rules narrow it: \
              `rate=1Gbit acks=1/64 address=10.1.0.0/24 port=7471; cubic`; the first that fits decides, and where none \
              fits it is CUBIC. docs/adapter.md tells more.",
    },
    Setting {
        name: "off",
        env: "WEFT_OFF",
        key: "run.off",
        kind: Kind::Flag(|settings, off| settings.off = off),
        default: "off",
        doc: "Run the program as if Weft were not there. `weft run --off` loads none of Weft's \
              libraries; where they are loaded all the same, `WEFT_OFF=1` makes each of them pass every \
              call on: `weft0` is in no list, no rule is applied and no thread is started.",
    },
    Setting {
        name: "log",
        env: "WEFT_LOG",
        key: "run.log",
        kind: Kind::Choice(
            &["off", "error", "warn", "info", "debug"],
            |settings, index| settings.log = LogLevel::ALL[index],
        ),
        default: "warn",
        doc: "What Weft says on standard error, each level with those before it. `info` says in \
              one line each what is served and what is not; `debug` follows every connection.",
    },
    Setting {
        name: "stat",
        env: "WEFT_STAT",
        key: "run.stat",
        kind: Kind::Switch(|settings, on| settings.stat = on),
        default: "on",
        doc: "Keep counters where `weft stat` can read them: one small piece of memory per \
              process, nothing on disk.",
    },
    Setting {
        name: "serve-tick-us",
        env: "WEFT_SERVE_TICK_US",
        key: "run.serve-tick-us",
        kind: Kind::Integer {
            min: 1,
            max: 1_000_000,
            unit: "microseconds",
            set: |settings, us| settings.serve_tick = Duration::from_micros(us),
        },
        default: "200",
        doc: "How often the thread that serves one-sided operations looks at connections that \
              the program has stopped polling. Smaller answers sooner and costs more wake-ups.",
    },
    Setting {
        name: "busy-poll-us",
        env: "WEFT_BUSY_POLL_US",
        key: "run.busy-poll-us",
        kind: Kind::Integer {
            min: 0,
            max: 1000,
            unit: "microseconds",
            set: |settings, us| settings.busy_poll = Duration::from_micros(us),
        },
        default: "50",
        doc: "How long a thread that waits looks before it sleeps, where what it waits for came so soon lately: for a \
              completion (`ibv_get_cq_event`; four times as long in `rdma_get_cm_event`), and in `recv`, `poll`, `select` \
              and `epoll_wait` with sockets over carriers or DDP. As long a Write that the peer answers soon may wait \
              to be complete. 0: who waits sleeps at once, each message costs a wake-up, and no Write waits.",
    },
    Setting {
        name: "socket-buffer",
        env: "WEFT_SOCKET_BUFFER",
        key: "run.socket-buffer",
        kind: Kind::Integer {
            min: 0,
            max: 1 << 30,
            unit: "octets",
            set: |settings, octets| {
                settings.socket_buffer = (octets != 0).then_some(octets as usize);
            },
        },
        default: "0",
        doc: "Size of each connection's kernel send and receive buffer. 0 leaves it to the \
              kernel, which grows them as needed; a fixed size is capped by net.core.wmem_max \
              and net.core.rmem_max.",
    },
    Setting {
        name: "mode",
        env: "WEFT_MODE",
        key: "run.mode",
        kind: Kind::LauncherChoice(&["auto", "preload", "replacement"]),
        default: "auto",
        doc: "How the program comes to Weft's libraries. `preload`: LD_PRELOAD puts them in \
              front of the machine's rdma-core. `replacement`: LD_LIBRARY_PATH puts Weft's \
              libibverbs.so.1 and librdmacm.so.1 in its place, which also serves programs that \
              open them by name at run time. `auto` chooses; `weft run --show` says what it \
              chose and why.",
    },
    Setting {
        name: "libdir",
        env: "WEFT_LIBDIR",
        key: "run.libdir",
        kind: Kind::LauncherFolder,
        default: "",
        doc: "The folder that holds libweft.so. Without it the libraries are looked for beside \
              the `weft` command and in ../lib/weft from there.",
    },
    sockets::UDP,
    sockets::UDP_HOLD_US,
    sockets::UDP_BUSY_AFTER,
    sockets::DDP,
    sockets::DDP_CRC,
    sockets::DISCOVERY_PORT,
];

/// The setting called `name`.
pub fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}
