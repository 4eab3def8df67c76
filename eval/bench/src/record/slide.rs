//! The slide of the user's own that microscopes looked at.

use serde::{Deserialize, Serialize};

/// A slide that was read from a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlideRecord {
    /// Name of the file, without its folder; what would act on a terminal is escaped.
    pub name: String,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// `RGB` or `grey`, of 8 bits.
    pub colours: String,
    /// `strips` or `tiles`.
    pub parts: String,
    /// Octets of the file.
    pub octets: u64,
    /// CRC-32 of the file, as zip and gzip have it: eight hexadecimal digits.
    pub crc32: String,
}

impl SlideRecord {
    /// In a line, for people.
    pub fn describe(&self) -> String {
        format!(
            "slide \"{}\": {} x {} pixels, {}, in {}; {} octets, CRC-32 {}",
            self.name, self.width, self.height, self.colours, self.parts, self.octets, self.crc32
        )
    }
}
