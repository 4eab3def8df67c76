//! What the kernel says of a path.

use std::collections::BTreeMap;
use std::process::Stdio;

use anyhow::{Context, Result};

use super::{Host, PathKind, Place};
use crate::job::{Invocation, Side};
use crate::record::PathRecord;

const SYSCTLS: [&str; 9] = [
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
    "net/ipv4/tcp_mem",
    "net/ipv4/tcp_notsent_lowat",
    "net/ipv4/tcp_no_metrics_save",
    "net/core/rmem_max",
    "net/core/wmem_max",
    "net/core/default_qdisc",
];

/// Kernel settings that bear on TCP, as seen in the network that this process is in.
pub fn sysctls() -> BTreeMap<String, String> {
    sysctls_of(&Side::default())
}

fn sysctls_of(side: &Side) -> BTreeMap<String, String> {
    let read = |file: &str| -> Option<String> {
        let invocation = Invocation::new("cat", [file]);
        let output = side
            .command(&invocation, None)
            .stderr(Stdio::null())
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stdout)
            .split_ascii_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        (output.status.success() && !text.is_empty()).then_some(text)
    };
    SYSCTLS
        .iter()
        .filter_map(|name| Some((name.replace('/', "."), read(&format!("/proc/sys/{name}"))?)))
        .collect()
}

/// What the kernel says about a path that stands, asked from one of its ends.
pub(super) fn measured(kind: PathKind, place: &Place) -> Result<PathRecord> {
    let side = &place.server().side;
    // Not from /sys, which shows the namespace it was mounted in.
    let link = side
        .command(
            &Invocation::new("ip", ["-o", "link", "show", &side.interface]),
            None,
        )
        .output()
        .context("cannot run ip (Debian package iproute2)")?;
    let mtu = mtu_of(&String::from_utf8_lossy(&link.stdout));
    Ok(PathRecord {
        mtu,
        sysctls: sysctls_of(side),
        hosts: place.hosts.iter().map(Host::record).collect(),
        ..kind.record()
    })
}

fn mtu_of(link: &str) -> Option<u32> {
    link.split_ascii_whitespace()
        .skip_while(|word| *word != "mtu")
        .nth(1)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mtu_is_the_word_behind_mtu() {
        assert_eq!(
            mtu_of("2: weft-s@if2: <UP> mtu 1500 qdisc noqueue"),
            Some(1500)
        );
        assert_eq!(mtu_of(""), None);
    }
}
