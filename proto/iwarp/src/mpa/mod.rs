//! MPA: start-up frames, framing, markers and CRC (RFC 5044, updated by RFC 6581).

pub mod crc;
pub mod fpdu;
pub mod frame;
pub(crate) mod marker;
pub mod startup;
