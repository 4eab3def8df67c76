//! What doctor finds in the limits of this process and in the kernel.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use weft_engine::device::{self, AddressGid, Device};
use weft_engine::settings::{Adapter, Face, Settings};

use super::Finding;

/// Looks at this machine and at the limits a program started from here will have, with these settings.
pub fn examine(settings: &Settings) -> Vec<Finding> {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let network = Path::new("/sys/class/net");
    let others = [
        open_files(&limits),
        locked_memory(&limits),
        loopback(network),
        ipv6(),
        kernel(&fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default()),
        buffers(),
        real_devices(Path::new("/sys/class/infiniband")),
    ];
    let mut findings = devices(settings);
    findings.extend(others.into_iter().flatten());
    findings
}

/// The devices that programs will see in their list.
fn devices(settings: &Settings) -> Vec<Finding> {
    let adapter = adapter_addresses(settings);
    match device::of_settings(settings) {
        Ok(devices) => {
            let all = devices.iter();
            all.map(|one| of_device(settings.face, one, &one.gids_beside(&adapter)))
                .collect()
        }
        Err(missing) => {
            let (named, there) = (missing.named.join(", "), missing.there.join(", "));
            let what = format!("none: the setting devices names {named}, which is not here");
            vec![Finding::bad("device", what)
                .advise(format!("name some of {there}, or give --devices all"))]
        }
    }
}

/// The addresses that an adapter will have, each with the name of its interface.
fn adapter_addresses(settings: &Settings) -> Vec<(IpAddr, String)> {
    if settings.adapter == Adapter::Off || settings.off {
        return Vec::new();
    }
    let interfaces = settings.interfaces.iter();
    let addresses = interfaces.flat_map(|interface| {
        let own = interface.addresses.iter();
        own.map(|(address, _)| (*address, interface.device.name().to_owned()))
    });
    addresses.collect()
}

/// A device and its GIDs.
fn of_device(face: Face, device: &Device, gids: &[AddressGid]) -> Finding {
    let name = match device.of_one_interface {
        true => format!("{} on {}", device.name, device.port.netdev),
        false => device.name.clone(),
    };
    let gid = |(at, gid): (usize, &AddressGid)| format!("{at} {}", gid.address);
    match face {
        Face::Iwarp => Finding::good(
            "device",
            format!("{name} as an iWARP device: for programs that connect with rdma_cm"),
        ),
        Face::Infiniband if gids.is_empty() => {
            let whose = match device.of_one_interface {
                true => "the interface",
                false => "the machine",
            };
            Finding::note(
                "device",
                format!("{name} without a GID: {whose} has no address"),
            )
            .advise("bring an interface up")
        }
        Face::Infiniband => {
            let list: Vec<String> = gids.iter().enumerate().map(gid).collect();
            let what = format!(
                "{name} as InfiniBand on Ethernet; GIDs: {}",
                list.join(", ")
            );
            Finding::good("device", what)
        }
    }
}

/// A soft limit with its hard one, as /proc/self/limits writes them.
fn limit(limits: &str, name: &str) -> Option<(String, String)> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let mut words = line.split_whitespace();
    Some((words.next()?.to_owned(), words.next()?.to_owned()))
}

fn open_files(limits: &str) -> Option<Finding> {
    /// Below this a program with many connections meets the limit before anything else.
    const FEW: u64 = 4096;
    let (soft, hard) = limit(limits, "Max open files")?;
    let Ok(count) = soft.parse::<u64>() else {
        return Some(Finding::good("open files", "no limit"));
    };
    if count >= FEW {
        return Some(Finding::good("open files", format!("{count}")));
    }
    let what = format!(
        "{count}: each connection takes one, so some {} at most",
        room(count)
    );
    Some(Finding::note("open files", what).advise(format!(
        "for more connections: ulimit -n {hard} before weft run"
    )))
}

/// Connections that fit, with some files left to the program itself.
fn room(files: u64) -> u64 {
    const OWN: u64 = 32;
    files.saturating_sub(OWN)
}

fn locked_memory(limits: &str) -> Option<Finding> {
    let (soft, _) = limit(limits, "Max locked memory")?;
    let amount = match soft.parse::<u64>() {
        Ok(octets) => format!("{} KiB", octets >> 10),
        Err(_) => soft,
    };
    Some(Finding::good(
        "memlock",
        format!("{amount}: it does not matter, Weft never pins memory"),
    ))
}

/// In a new network namespace even the loopback interface is down.
fn loopback(network: &Path) -> Option<Finding> {
    const UP: u64 = 1;
    let flags = fs::read_to_string(network.join("lo/flags")).ok()?;
    let flags = u64::from_str_radix(flags.trim().trim_start_matches("0x"), 16).ok()?;
    Some(match flags & UP {
        0 => Finding::note(
            "network",
            "the loopback interface is down: 127.0.0.1 cannot be reached",
        )
        .advise("ip link set lo up"),
        _ => Finding::good("network", "the loopback interface is up"),
    })
}

fn ipv6() -> Option<Finding> {
    let disabled = fs::read_to_string("/proc/sys/net/ipv6/conf/all/disable_ipv6");
    match disabled {
        Ok(value) if value.trim() == "0" => None,
        _ => Some(Finding::note(
            "network",
            "IPv6 is off here: IPv6 addresses cannot be used, IPv4 is not touched",
        )),
    }
}

/// Weft needs nothing newer than what Debian 11 has; one thing gets better.
fn kernel(release: &str) -> Option<Finding> {
    /// First that gives a thread the time slice it asks for.
    const SLICES: (u32, u32) = (6, 12);
    let (major, minor) = version(release)?;
    let release = release.trim();
    if (major, minor) >= SLICES {
        return Some(Finding::good("kernel", release));
    }
    Some(
        Finding::note(
            "kernel",
            format!(
            "{release}: before 6.12 the scheduler gives no short time slices, so a program that \
             spins on memory (ib_write_lat) may wait milliseconds for the other side"
        ),
        )
        .advise("for such programs pin the two sides to processors of their own (taskset)"),
    )
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The most that one connection's receive buffer may grow to.
fn buffers() -> Option<Finding> {
    const SMALL: u64 = 1 << 20;
    let text = fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").ok()?;
    let most: u64 = text.split_whitespace().nth(2)?.parse().ok()?;
    (most < SMALL).then(|| {
        Finding::note(
            "tcp buffers",
            format!("receive buffers may grow to {} KiB only", most >> 10),
        )
        .advise("for fast or long paths: sysctl -w net.ipv4.tcp_rmem='4096 131072 6291456'")
    })
}

/// Devices of the machine, which a program does not see under Weft.
fn real_devices(class: &Path) -> Option<Finding> {
    let mut names: Vec<String> = fs::read_dir(class)
        .ok()?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    (!names.is_empty()).then(|| {
        Finding::note(
            "devices",
            format!(
                "this machine has {}; under Weft a program sees weft0 alone",
                names.join(", ")
            ),
        )
        .advise("weft run --real-devices on shows them too")
    })
}

#[cfg(test)]
mod tests {
    use weft_engine::settings::devices::Devices;

    use super::*;
    use crate::doctor::Level;
    use crate::scratch::Scratch;

    const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units
Max locked memory         8388608              unlimited            bytes
Max open files            1024                 524288               files
";

    #[test]
    fn the_device_is_told_with_its_face_and_its_gids() {
        let gid = |address: &str| AddressGid {
            address: address.parse().unwrap(),
            ifindex: 1,
        };
        let gids = [gid("192.0.2.1"), gid("::1")];
        let one = &device::of_settings(&Settings::default()).unwrap()[0];
        let infiniband = of_device(Face::Infiniband, one, &gids);
        assert_eq!(
            infiniband.what,
            "weft0 as InfiniBand on Ethernet; GIDs: 0 192.0.2.1, 1 ::1"
        );
        assert_eq!(of_device(Face::Infiniband, one, &[]).level, Level::Note);
        assert!(of_device(Face::Iwarp, one, &gids).what.contains("iWARP"));
    }

    #[test]
    fn devices_of_interfaces_are_told_by_name_and_missing_ones_with_those_that_are_there() {
        let named = |text| Settings {
            devices: Devices::parse(text).unwrap(),
            ..Settings::default()
        };
        let found = devices(&named("lo"));
        assert!(
            found[0].what.starts_with("weft0 on lo as InfiniBand"),
            "{}",
            found[0].what
        );
        let missing = devices(&named("lo,none-such"));
        assert_eq!(missing.len(), 1);
        assert_eq!(missing[0].level, Level::Bad);
        assert!(
            missing[0].what.contains("names none-such,"),
            "{}",
            missing[0].what
        );
        assert!(missing[0].advice.as_ref().unwrap().contains("lo"));
    }

    #[test]
    fn few_open_files_are_noted_with_the_way_out() {
        let finding = open_files(LIMITS).unwrap();
        assert_eq!(finding.level, Level::Note);
        assert!(finding.what.starts_with("1024: "), "{}", finding.what);
        assert!(finding.advice.unwrap().contains("ulimit -n 524288"));
        let many = LIMITS.replace("1024 ", "65536");
        assert_eq!(open_files(&many).unwrap().level, Level::Good);
    }

    #[test]
    fn memlock_is_good_whatever_it_is() {
        let finding = locked_memory(LIMITS).unwrap();
        assert_eq!(finding.level, Level::Good);
        assert!(finding.what.starts_with("8192 KiB"));
    }

    #[test]
    fn a_loopback_that_is_down_is_noted() {
        let scratch = Scratch::new();
        scratch.file("lo/flags", "0x8\n");
        assert_eq!(loopback(&scratch.path("")).unwrap().level, Level::Note);
        scratch.file("lo/flags", "0x9\n");
        assert_eq!(loopback(&scratch.path("")).unwrap().level, Level::Good);
    }

    #[test]
    fn older_kernels_are_noted() {
        assert_eq!(kernel("6.1.0-18-amd64\n").unwrap().level, Level::Note);
        assert_eq!(kernel("6.12.5\n").unwrap().level, Level::Good);
        assert_eq!(kernel("7.0-rc1\n").unwrap().level, Level::Good);
        assert_eq!(kernel("strange"), None);
    }

    #[test]
    fn devices_of_the_machine_are_named() {
        let scratch = Scratch::new();
        assert_eq!(real_devices(&scratch.path("none")), None);
        scratch.file("mlx5_0/x", "");
        let finding = real_devices(&scratch.path("")).unwrap();
        assert!(finding.what.contains("mlx5_0"));
    }
}
