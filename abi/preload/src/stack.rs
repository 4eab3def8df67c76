//! The sockets face of the process, which every hook asks for.

use std::sync::OnceLock;

use weft_sockets::stack::Stack;

static STACK: OnceLock<Stack> = OnceLock::new();

/// The sockets face, if any rule asks for it.
#[inline(always)]
pub fn stack() -> Option<&'static Stack> {
    STACK.get()
}

/// Sets it, once, when the library is loaded.
pub fn set_stack(stack: Stack) -> &'static Stack {
    STACK.get_or_init(|| stack)
}
