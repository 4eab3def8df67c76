//! The one device, `weft0`, as it stands in the device list.

use std::mem::zeroed;
use std::sync::OnceLock;

use libc::{c_char, c_int};
use weft_engine::device;
use weft_engine::fork::once;
use weft_engine::settings::Face;

use crate::layout::ibv_device;
use crate::layout::numbers::{IBV_NODE_CA, IBV_NODE_RNIC, IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP};

/// The device as programs see it, with room behind it: the drivers of real devices look behind
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

/// The one device. It is made on first use and never goes away.
pub fn weft0() -> *mut ibv_device {
    static WEFT0: OnceLock<usize> = OnceLock::new();
    *once(&WEFT0, || {
        // SAFETY: numbers and characters, for which zero is a value.
        let mut listed: Box<Listed> = Box::new(unsafe { zeroed() });
        let device = &mut listed.device;
        let (node, transport) = match Face::of_process() {
            Face::Infiniband => (IBV_NODE_CA, IBV_TRANSPORT_IB),
            Face::Iwarp => (IBV_NODE_RNIC, IBV_TRANSPORT_IWARP),
        };
        device.node_type = node as c_int;
        device.transport_type = transport as c_int;
        put_text(&mut device.name, device::NAME);
        put_text(&mut device.dev_name, device::NAME);
        let class = |class| format!("/sys/class/{class}/{}", device::NAME);
        put_text(&mut device.dev_path, &class("infiniband_verbs"));
        put_text(&mut device.ibdev_path, &class("infiniband"));
        Box::leak(listed) as *mut Listed as usize
    }) as *mut ibv_device
}
