//! The devices, `weft0` and so on, as they stand in the device list.

use std::mem::zeroed;
use std::sync::OnceLock;

use libc::{c_char, c_int};
use weft_engine::device::{self, Device};
use weft_engine::fork::once;
use weft_engine::settings::Face;

use crate::layout::ibv_device;
use crate::layout::numbers::{IBV_NODE_CA, IBV_NODE_RNIC, IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP};

/// A device as programs see it, with room behind it: the drivers of real devices look behind
/// `struct ibv_device` for their own, and must find nothing there.
#[repr(C)]
struct Listed {
    device: ibv_device,
    driver_part: [u64; 128],
}

/// Copies text into a field of fixed size, cut so that a NUL fits behind it.
pub fn put_text(field: &mut [c_char], text: &str) {
    let room = field.len() - 1;
    for (to, from) in field[..room].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
}

/// The devices' addresses, by number. They are made on first use and never go away.
fn addresses() -> &'static [usize] {
    static ADDRESSES: OnceLock<Vec<usize>> = OnceLock::new();
    let make = |device| Box::leak(listed(device)) as *mut Listed as usize;
    once(&ADDRESSES, || device::all().iter().map(make).collect()).as_slice()
}

fn listed(of: &Device) -> Box<Listed> {
    // SAFETY: numbers and characters, for which zero is a value.
    let mut listed: Box<Listed> = Box::new(unsafe { zeroed() });
    let device = &mut listed.device;
    let (node, transport) = match Face::of_process() {
        Face::Infiniband => (IBV_NODE_CA, IBV_TRANSPORT_IB),
        Face::Iwarp => (IBV_NODE_RNIC, IBV_TRANSPORT_IWARP),
    };
    device.node_type = node as c_int;
    device.transport_type = transport as c_int;
    put_text(&mut device.name, &of.name);
    put_text(&mut device.dev_name, &of.name);
    let class = |class| format!("/sys/class/{class}/{}", of.name);
    put_text(&mut device.dev_path, &class("infiniband_verbs"));
    put_text(&mut device.ibdev_path, &class("infiniband"));
    listed
}

/// All of them, as a program's list has them.
pub fn all() -> impl Iterator<Item = *mut ibv_device> {
    addresses()
        .iter()
        .map(|&address| address as *mut ibv_device)
}

/// The entry of a device.
pub fn entry(device: &Device) -> *mut ibv_device {
    addresses()[device.number] as *mut ibv_device
}

/// The device of an entry, if it is one of ours.
pub fn device_of(entry: *const ibv_device) -> Option<&'static Device> {
    let number = addresses()
        .iter()
        .position(|&ours| ours == entry as usize)?;
    device::all().get(number)
}
