//! What a program sees of our objects, octet for octet as the headers of rdma-core lay it out on
//! 64-bit Linux. Names are the headers' own.
//!
//! Each structure states its size and the offset of each field; the compiler checks them, and a
//! test compares them with the system's headers.

#![allow(non_camel_case_types, non_snake_case)]
#![allow(
    missing_docs,
    reason = "fields are named and documented by the headers"
)]

#[macro_use]
mod c_struct;
#[cfg(test)]
mod header_test;

pub mod attr;
pub mod cm;
pub mod device;
pub mod extended;
pub mod numbers;
pub mod objects;
pub mod work;

pub use attr::*;
pub use cm::*;
pub use device::*;
pub use extended::*;
pub use objects::*;
pub use work::*;
