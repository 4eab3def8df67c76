//! The drivers of a network: which of them has an address, and which leads to one.

use std::net::IpAddr;
use std::sync::Arc;

use weft_os::ifaces;

use crate::driver::Driver;

/// All drivers; copies are the same ones.
#[derive(Clone, Debug)]
pub(crate) struct Drivers(Arc<[Arc<Driver>]>);

impl Drivers {
    pub(crate) fn new(drivers: Vec<Arc<Driver>>) -> Drivers {
        Drivers(drivers.into())
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[Arc<Driver>] {
        &self.0
    }

    /// The driver that leads to an address; none where the kernel does.
    pub(crate) fn towards(&self, address: IpAddr) -> Option<&Arc<Driver>> {
        let by = |bits: fn(&Driver, IpAddr) -> Option<u8>| {
            let drivers = self.0.iter();
            let leading =
                drivers.filter_map(|driver| bits(driver, address).map(|bits| (bits, driver)));
            leading
                .max_by_key(|(bits, _)| *bits)
                .map(|(_, driver)| driver)
        };
        let near = by(Driver::on_link);
        // A gateway leads to all the world, but not to this machine.
        near.or_else(|| by(Driver::leads_to).filter(|_| !is_this_machine(address)))
    }

    /// The driver whose address it is.
    pub(crate) fn of(&self, address: IpAddr) -> Option<&Arc<Driver>> {
        self.0.iter().find(|driver| driver.owns(address))
    }
}

/// The kernel has the address.
fn is_this_machine(address: IpAddr) -> bool {
    let interfaces = ifaces::interfaces();
    address.is_loopback()
        || interfaces
            .iter()
            .any(|interface| interface.addrs.contains(&address))
}
