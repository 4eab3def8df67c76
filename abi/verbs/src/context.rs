//! Open devices.

use std::mem::offset_of;
use std::sync::Arc;

use crate::handle::Object;
use crate::layout::{ibv_context, verbs_context};

/// An open device.
pub struct Context {
    /// The engine's side of it.
    pub engine: Arc<weft_engine::Context>,
}

impl Object for Context {
    type Public = verbs_context;
    type Pointee = ibv_context;
    const MAGIC: u32 = 0x6374_7830;
    const OFFSET: usize = offset_of!(verbs_context, context);
}
