//! MPA: start-up frames and what they come to, framing, markers and CRC (RFC 5044, updated by RFC 6581).

pub mod crc;
pub mod established;
pub mod fpdu;
pub mod frame;
pub(crate) mod marker;
pub(crate) mod whole;
