//! The GID table of a device's port, and which addresses its indices stand for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weft_engine::device::{self, AddressGid, Device, PORT};
use weft_engine::settings::Face;

use crate::entry::{invalid, Errno, Outcome};
use crate::layout::numbers::{IBV_GID_TYPE_IB, IBV_GID_TYPE_ROCE_V2};
use crate::layout::{ibv_gid, ibv_gid_entry};

/// The GID at an index.
///
/// # Errors
/// `EINVAL`: there is no such port or index.
pub fn gid(device: &Device, port: u32, index: u32) -> Outcome<ibv_gid> {
    Ok(gid_entry(device, port, index)?.gid)
}

/// The entry of the GID table at an index.
///
/// # Errors
/// `EINVAL`: there is no such port or index.
pub fn gid_entry(device: &Device, port: u32, index: u32) -> Outcome<ibv_gid_entry> {
    if port != u32::from(PORT) {
        return invalid();
    }
    gids(device)
        .get(index as usize)
        .copied()
        .ok_or(Errno(libc::EINVAL))
}

/// A device's GID table. On an Ethernet link it has the addresses of the machine, or of the device's interface; iWARP
/// devices have one entry, made of the hardware address.
pub fn gids(device: &Device) -> Vec<ibv_gid_entry> {
    let entry = |index: usize, raw, gid_type: i64, ifindex| ibv_gid_entry {
        gid: ibv_gid { raw },
        gid_index: index as u32,
        port_num: u32::from(PORT),
        gid_type: gid_type as u32,
        ndev_ifindex: ifindex,
    };
    match Face::of_process() {
        Face::Infiniband => (0..)
            .zip(device.gids())
            .map(|(at, gid)| entry(at, gid.octets(), IBV_GID_TYPE_ROCE_V2, gid.ifindex))
            .collect(),
        Face::Iwarp => {
            let port = &device.port;
            vec![entry(0, port.gid(), IBV_GID_TYPE_IB, port.ifindex)]
        }
    }
}

/// The loopback addresses. Where the table has other addresses it has none of these, and where it has none of their
/// family either, datagrams between programs of this machine need an index all the same: one behind the table.
const LOOPBACK: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
];

/// The index of the first entry of the same family.
fn index_of_family(table: &[AddressGid], address: IpAddr) -> Option<usize> {
    let same = |gid: &AddressGid| gid.address.is_ipv6() == address.is_ipv6();
    table.iter().position(same)
}

fn loopback_index(address: IpAddr) -> u8 {
    u8::MAX - u8::from(address.is_ipv6())
}

/// The address behind the GID at an index of a device's table.
///
/// # Errors
/// `EINVAL`: there is no such entry, or it stands for no address.
pub fn address_at(device: &Device, index: u8) -> Outcome<IpAddr> {
    if Face::of_process() == Face::Iwarp {
        return invalid();
    }
    if let Some(found) = device.address_at(usize::from(index)) {
        return Ok(found);
    }
    let behind = LOOPBACK
        .into_iter()
        .find(|own| loopback_index(*own) == index);
    match behind {
        Some(own) if index_of_family(&device.gids(), own).is_none() => Ok(own),
        _ => invalid(),
    }
}

/// The index of a device's GID that stands for an address.
///
/// # Errors
/// `EINVAL`: the machine does not have it.
pub fn index_of(device: &Device, address: IpAddr) -> Outcome<u8> {
    let table = device.gids();
    let own = table.iter().position(|gid| gid.address == address);
    let found = own.or_else(|| {
        // A loopback address has no entry beside others. Who wrote to it is on this machine and is reached from any.
        // An address of another device's interface has none here either, and whoever wrote to it is reached from
        // this one's where the routes lead there.
        let elsewhere = || {
            let other = device::with_address(address);
            other.is_some_and(|other| other.number != device.number)
        };
        (address.is_loopback() || elsewhere()).then(|| index_of_family(&table, address))?
    });
    match found.map(u8::try_from) {
        Some(Ok(index)) => Ok(index),
        None if address.is_loopback() => Ok(loopback_index(address)),
        _ => invalid(),
    }
}
