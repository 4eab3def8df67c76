//! What doctor finds of a program's sockets: whether the rules for UDP and TCP sockets meet them.

use std::rc::Rc;

use weft_engine::settings::streams::{self, Mode};
use weft_engine::settings::{DiscoveryPort, Settings};

use super::binary::theirs;
use super::Finding;
use crate::elf::closure::Closure;
use crate::elf::Object;
use crate::setup::Setup;

const SUBJECT: &str = "sockets";

/// What can be seen of a program from outside.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// It makes its system calls itself.
    is_go: bool,
    /// It loads liburing.
    has_rings: bool,
    /// It calls the C library for sockets and for what they carry.
    makes_sockets: bool,
    /// It may come to do so by what it opens or starts later.
    may_make_sockets: bool,
}

/// Looks at the sockets of a program that rules know by these names; nothing where no rule is for sockets.
pub(super) fn examine(
    closure: &Closure,
    is_script: bool,
    setup: &Setup,
    names: &[&str],
) -> Vec<Finding> {
    if setup.binding.sockets.is_none() {
        return Vec::new();
    }
    let settings = setup.config.settings();
    let seen = Seen::of(closure, is_script);
    // Where its TCP sockets stay the kernel's no rule meets any, unless it is one for UDP.
    let left = confined(&settings, names);
    let its = settings.for_program(names);
    let is_met = left.is_none() || its.udp.any();
    let mut findings: Vec<Finding> = is_met
        .then(|| judge(seen, &settings, names))
        .into_iter()
        .chain(left)
        .collect();
    findings.extend(discovery(&its));
    findings
}

impl Seen {
    fn of(closure: &Closure, is_script: bool) -> Seen {
        const CALLS: [&str; 12] = [
            "send", "sendto", "sendmsg", "sendmmsg", "write", "writev", "recv", "recvfrom",
            "recvmsg", "recvmmsg", "read", "readv",
        ];
        let makes = |names: &[&str]| theirs(closure).any(|object| object.imports_any(names));
        let rings = |object: &Rc<Object>| {
            let mut needed = object.needed.iter();
            needed.any(|name| name.starts_with("liburing"))
        };
        Seen {
            is_go: closure.program().is_go,
            has_rings: theirs(closure).any(rings),
            makes_sockets: makes(&["socket"]) && makes(&CALLS),
            may_make_sockets: is_script || makes(&["dlopen", "execve", "execvp", "posix_spawn"]),
        }
    }
}

/// The sockets that the program's rules are for, in words; nothing where none of them is for it.
fn transports(settings: &Settings) -> Option<&'static str> {
    match (settings.udp.any(), settings.ddp.any()) {
        (true, true) => Some("UDP and TCP"),
        (true, false) => Some("UDP"),
        (false, true) => Some("TCP"),
        (false, false) => None,
    }
}

/// Whether the rules meet the program's sockets.
fn judge(seen: Seen, settings: &Settings, names: &[&str]) -> Finding {
    let its = settings.for_program(names);
    let Some(transports) = transports(&its) else {
        let called = names.join(" or ");
        return Finding::note(SUBJECT, format!("no rule is for a program called {called}"))
            .advise("the rules name others: program=NAME in a rule, or none for all programs");
    };
    let has_streams = its.ddp.any();
    if seen.is_go {
        let advice = match has_streams {
            true => "its TCP connections stay TCP, and a peer that requires DDP refuses them; nothing else breaks",
            false => "a Go program can set UDP_SEGMENT and UDP_GRO itself; nothing breaks",
        };
        return Finding::bad(
            SUBJECT,
            "it is a Go program and makes its system calls itself: its sockets are unaffected",
        )
        .advise(advice);
    }
    if seen.has_rings {
        let advice = match has_streams {
            true => {
                "what goes through its rings is the kernel's alone, and its listeners serve plain TCP from its first \
                 ring on: give it a rule off"
            }
            false => {
                "what goes through its rings is the kernel's alone; if it also receives from the same sockets through \
                 the C library, give it a rule off"
            }
        };
        return Finding::unclear(SUBJECT, "it uses io_uring (liburing)").advise(advice);
    }
    if seen.makes_sockets {
        let what = format!(
            "its socket calls go through the C library, where the rules for {transports} sockets meet them"
        );
        return Finding::good(SUBJECT, what);
    }
    if seen.may_make_sockets {
        return Finding::unclear(SUBJECT, "nothing it loads makes sockets by itself").advise(
            "what it opens or starts later cannot be seen from outside; `weft run --log info` tells at the end what \
             was done, and `weft stat` meanwhile",
        );
    }
    Finding::bad(SUBJECT, "nothing it loads makes sockets")
        .advise("there is nothing for --udp and --ddp to do")
}

/// Programs that DDP would end are left on TCP by `prefer`.
fn confined(settings: &Settings, names: &[&str]) -> Option<Finding> {
    let prefers = |settings: &Settings| {
        let mut rules = settings.ddp.iter();
        rules.any(|rule| *rule.action() == Mode::Prefer)
    };
    let name = names.iter().find(|name| streams::is_confined(name))?;
    let is_left = prefers(settings) && !prefers(&settings.for_program(names));
    is_left.then(|| {
        Finding::note(
            SUBJECT,
            format!("{name} confines itself, so that DDP would end it: prefer leaves its sockets on TCP"),
        )
        .advise(format!(
            "a rule that names it has them go as DDP all the same: prefer program={name}"
        ))
    })
}

/// Whether peers hear that this end takes DDP, or carriers of UDP, where a rule asks them.
fn discovery(settings: &Settings) -> Option<Finding> {
    let DiscoveryPort::Agreed(port) = settings.discovery_port else {
        return None;
    };
    let asks = |mode: &Mode| *mode == Mode::Prefer;
    if !settings.ddp.iter().any(|rule| asks(rule.action())) && !settings.udp.any_uoe() {
        return None;
    }
    let at_port = [procfs::net::udp(), procfs::net::udp6()]
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.local_address.port() == port);
    let own = rustix::process::geteuid().as_raw();
    Some(told(port, at_port.map(|entry| entry.uid), own))
}

/// The port of discovery, whose sockets these users have.
fn told(port: u16, owners: impl IntoIterator<Item = u32>, own: u32) -> Finding {
    match owners.into_iter().find(|owner| *owner != own) {
        None => Finding::good(
            "discovery",
            format!("peers ask, and are asked, at UDP port {port}"),
        ),
        Some(other) => Finding::note(
            "discovery",
            format!(
                "UDP port {port} is another user's ({other}): no peer hears that this end is Weft"
            ),
        )
        .advise("--discovery-port with another number, or `same`, at both ends"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;
    use weft_engine::settings::datagrams::DatagramRules;
    use weft_engine::settings::streams::StreamRules;

    /// Settings with these rules, none where the text is empty.
    fn settings(udp: &str, ddp: &str) -> Settings {
        let wanted = |text: &str| !text.is_empty();
        Settings {
            udp: match wanted(udp) {
                true => DatagramRules::parse(udp).unwrap(),
                false => DatagramRules::default(),
            },
            ddp: match wanted(ddp) {
                true => StreamRules::parse(ddp).unwrap(),
                false => StreamRules::default(),
            },
            ..Settings::default()
        }
    }

    const MAKES: Seen = Seen {
        is_go: false,
        has_rings: false,
        makes_sockets: true,
        may_make_sockets: false,
    };

    #[test]
    fn what_a_rule_is_for_is_said() {
        for (udp, ddp, words) in [
            ("gso", "prefer", "for UDP and TCP sockets"),
            ("gso", "", "for UDP sockets"),
            ("", "require direction=connect", "for TCP sockets"),
        ] {
            let found = judge(MAKES, &settings(udp, ddp), &["redis-server"]);
            assert!(
                found.level == Level::Good && found.what.contains(words),
                "{found:?}"
            );
        }
        let found = judge(
            MAKES,
            &settings("", "prefer program=nginx"),
            &["redis-server"],
        );
        assert_eq!(found.level, Level::Note);
        assert!(found.what.contains("redis-server"), "{found:?}");
    }

    #[test]
    fn programs_that_the_hooks_do_not_see_are_told_what_becomes_of_their_connections() {
        let ddp = settings("", "prefer");
        let go = Seen {
            is_go: true,
            ..MAKES
        };
        let found = judge(go, &ddp, &["caddy"]);
        assert_eq!(found.level, Level::Bad);
        assert!(found.advice.unwrap().contains("stay TCP"));
        let advice = judge(go, &settings("gso", ""), &["caddy"]).advice.unwrap();
        assert!(advice.contains("UDP_SEGMENT"));
        let rings = Seen {
            has_rings: true,
            ..MAKES
        };
        let found = judge(rings, &ddp, &["server"]);
        assert_eq!(found.level, Level::Unclear);
        assert!(found.advice.unwrap().contains("plain TCP"));
        let nothing = Seen::default();
        assert_eq!(judge(nothing, &ddp, &["true"]).level, Level::Bad);
        let starts = Seen {
            may_make_sockets: true,
            ..nothing
        };
        assert_eq!(judge(starts, &ddp, &["sh"]).level, Level::Unclear);
    }

    #[test]
    fn a_program_that_confines_itself_is_told_how_it_is_served_all_the_same() {
        let left = confined(&settings("", "prefer"), &["sshd"]).unwrap();
        assert!(left.advice.unwrap().contains("program=sshd"));
        for (ddp, name) in [
            ("prefer", "ssh"),
            ("require", "sshd"),
            ("prefer program=sshd", "sshd"),
        ] {
            assert_eq!(confined(&settings("", ddp), &[name]), None, "{ddp} {name}");
        }
    }

    #[test]
    fn another_users_port_of_discovery_is_told() {
        assert_eq!(told(22342, [], 1000).level, Level::Good);
        assert_eq!(told(22342, [1000, 1000], 1000).level, Level::Good);
        let found = told(22342, [1000, 33], 1000);
        assert!(
            found.level == Level::Note && found.what.contains("(33)"),
            "{found:?}"
        );
        assert_eq!(discovery(&settings("gso", "require")), None, "nobody asks");
        assert!(discovery(&settings("", "prefer")).is_some());
    }
}
