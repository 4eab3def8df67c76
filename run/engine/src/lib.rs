//! The host stack: iWARP in the process over kernel TCP.

pub mod settings;
