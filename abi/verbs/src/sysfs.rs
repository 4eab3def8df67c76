//! The devices' folders in sysfs, for programs that choose a GID by what stands there.
//!
//! UCX, NCCL and many others read the type of a GID, and the interface behind it, from
//! `ports/1/gid_attrs`, since `ibv_query_gid` does not tell them. The kernel does not know the
//! device, so the texts are made here when they are asked for, in the kernel's words; [`super::device_files`]
//! puts them where programs look.

use weft_engine::device::{self, Device};
use weft_engine::settings::Face;

use crate::gids::gids;
use crate::layout::ibv_gid_entry;
use crate::layout::numbers::IBV_GID_TYPE_ROCE_V2;
use crate::off;
use crate::query::{port_attributes, PKEY};

/// What stands at a path.
#[derive(PartialEq, Eq, Debug)]
pub enum Node {
    /// The names in a folder.
    Folder(Vec<String>),
    /// The text of a file.
    File(String),
}

/// What stands at a path below `/sys/class/infiniband`; nothing of ours when Weft is off.
pub fn at(path: &[&str]) -> Option<Node> {
    if off::is_off() {
        return None;
    }
    match path {
        [] => Some(Node::Folder(
            device::all().iter().map(|one| one.name.clone()).collect(),
        )),
        [name, rest @ ..] => of_device(device::all().iter().find(|one| one.name == *name)?, rest),
    }
}

fn of_device(device: &Device, path: &[&str]) -> Option<Node> {
    let guid = || groups(&device.guid().to_be_bytes());
    match path {
        [] => folder(&[
            "fw_ver",
            "node_desc",
            "node_guid",
            "node_type",
            "ports",
            "sys_image_guid",
        ]),
        ["fw_ver"] => file(env!("CARGO_PKG_VERSION")),
        ["node_desc"] => file(&device.name),
        ["node_guid" | "sys_image_guid"] => file(&guid()),
        ["node_type"] => file(node_type()),
        ["ports"] => folder(&["1"]),
        ["ports", "1", rest @ ..] => of_port(device, rest),
        _ => None,
    }
}

fn of_port(device: &Device, path: &[&str]) -> Option<Node> {
    match path {
        [] => folder(&[
            "cap_mask",
            "gid_attrs",
            "gids",
            "lid",
            "link_layer",
            "phys_state",
            "pkeys",
            "rate",
            "sm_lid",
            "state",
        ]),
        ["cap_mask"] => file(&format!("0x{:08x}", port_attributes(device).port_cap_flags)),
        ["lid" | "sm_lid"] => file("0x0"),
        ["link_layer"] => file("Ethernet"),
        ["phys_state"] => file("5: LinkUp"),
        // The words for what `port_attributes` says in numbers.
        ["rate"] => file("40 Gb/sec (4X FDR10)"),
        ["state"] => file("4: ACTIVE"),
        ["pkeys"] => folder(&["0"]),
        ["pkeys", "0"] => file(&format!("0x{PKEY:04x}")),
        ["gid_attrs"] => folder(&["ndevs", "types"]),
        ["gids"] | ["gid_attrs", "ndevs" | "types"] => Some(Node::Folder(
            (0..gids(device).len())
                .map(|index| index.to_string())
                .collect(),
        )),
        ["gids", index] => file(&groups(&gid(device, index)?.gid.raw)),
        ["gid_attrs", "ndevs", index] => {
            file(&device::interface_name(gid(device, index)?.ndev_ifindex)?)
        }
        ["gid_attrs", "types", index] => file(gid_type(&gid(device, index)?)),
        _ => None,
    }
}

fn folder(names: &[&str]) -> Option<Node> {
    Some(Node::Folder(
        names.iter().map(|&name| name.to_owned()).collect(),
    ))
}

/// A file of one line.
fn file(line: &str) -> Option<Node> {
    Some(Node::File(format!("{line}\n")))
}

/// The entry of the GID table whose index is written so.
fn gid(device: &Device, index: &str) -> Option<ibv_gid_entry> {
    let number: usize = index.parse().ok()?;
    // "+1" and "01" are no names of files.
    (number.to_string() == index).then(|| gids(device).get(number).copied())?
}

fn gid_type(entry: &ibv_gid_entry) -> &'static str {
    match i64::from(entry.gid_type) {
        IBV_GID_TYPE_ROCE_V2 => "RoCE v2",
        // The kernel has one word for both, and for what iWARP devices have.
        _ => "IB/RoCE v1",
    }
}

fn node_type() -> &'static str {
    match Face::of_process() {
        Face::Iwarp => "4: RNIC",
        Face::Infiniband => "1: CA",
    }
}

/// Octets as groups of four hexadecimal digits, the way the kernel writes GIDs and GUIDs.
fn groups(octets: &[u8]) -> String {
    let group = |pair: &[u8]| {
        pair.iter()
            .map(|octet| format!("{octet:02x}"))
            .collect::<String>()
    };
    octets.chunks(2).map(group).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &str) -> Option<String> {
        let path: Vec<&str> = path.split('/').collect();
        match at(&path)? {
            Node::File(text) => Some(text),
            Node::Folder(_) => None,
        }
    }

    /// Every path below one, folders and files.
    fn walk(path: &mut Vec<String>, found: &mut Vec<String>) {
        let words: Vec<&str> = path.iter().map(String::as_str).collect();
        let node = at(&words).unwrap_or_else(|| panic!("{path:?} is listed and not there"));
        found.push(path.join("/"));
        if let Node::Folder(names) = node {
            for name in names {
                path.push(name);
                walk(path, found);
                path.pop();
            }
        }
    }

    #[test]
    fn the_gid_table_stands_there_as_the_kernel_writes_it() {
        let device = &device::all()[0];
        let entry = gids(device)[0];
        let gid = text("weft0/ports/1/gids/0").unwrap();
        assert_eq!(gid.len(), 40, "{gid:?}");
        let written: std::net::Ipv6Addr = gid.trim().parse().unwrap();
        assert_eq!(written.octets(), entry.gid.raw);
        assert_eq!(
            text("weft0/ports/1/gid_attrs/types/0").unwrap(),
            "RoCE v2\n"
        );
        let interface = text("weft0/ports/1/gid_attrs/ndevs/0").unwrap();
        assert!(std::path::Path::new("/sys/class/net")
            .join(interface.trim())
            .exists());
        for kind in ["gids", "gid_attrs/types", "gid_attrs/ndevs"] {
            for index in [
                gids(device).len().to_string().as_str(),
                "00",
                "+0",
                "-1",
                "",
            ] {
                assert_eq!(text(&format!("weft0/ports/1/{kind}/{index}")), None);
            }
        }
    }

    #[test]
    fn what_is_listed_is_there() {
        let mut found = Vec::new();
        walk(&mut Vec::new(), &mut found);
        for path in [
            "weft0/ports/1/state",
            "weft0/node_guid",
            "weft0/ports/1/pkeys/0",
        ] {
            assert!(found.iter().any(|known| known == path), "{path}");
        }
        assert_eq!(at(&["mlx5_0"]), None);
        assert_eq!(at(&["weft0", "ports", "2"]), None);
    }

    #[test]
    fn guids_have_four_groups() {
        let guid = text("weft0/node_guid").unwrap();
        assert_eq!(
            guid.split(':')
                .map(|group| group.trim().len())
                .collect::<Vec<_>>(),
            [4; 4]
        );
    }
}
