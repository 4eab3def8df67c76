//! Open devices.

use std::mem::offset_of;
use std::sync::Arc;

use weft_engine::device::Device;

use crate::entry::Outcome;
use crate::handle::{Handle, Object};
use crate::layout::{ibv_context, verbs_context};

/// An open device.
pub struct Context {
    /// The engine's side of it.
    pub engine: Arc<weft_engine::Context>,
    /// Which device it is.
    pub device: &'static Device,
}

impl Object for Context {
    type Public = verbs_context;
    type Pointee = ibv_context;
    const MAGIC: u32 = 0x6374_7830;
    const OFFSET: usize = offset_of!(verbs_context, context);
}

/// The device that an open one is of.
///
/// # Errors
/// `EINVAL`: null, or not one of ours.
///
/// # Safety
/// `context` is null or a context.
pub unsafe fn device_of(context: *mut ibv_context) -> Outcome<&'static Device> {
    // SAFETY: the caller promises: `context` is null or a context.
    Ok(unsafe { Handle::<Context>::of(context)? }.device)
}
