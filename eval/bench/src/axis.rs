//! Where a row stands among those that differ from it in one number alone: what lines in a picture are drawn along.

use serde::{Deserialize, Serialize};

/// A place on such a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// What the rows share: `send-lat`.
    pub series: String,
    /// What differs, for people: `message size`.
    pub parameter: String,
    /// Its unit; empty for a count.
    pub unit: String,
    /// Its value here, above zero.
    pub value: f64,
}

impl Axis {
    /// Octets of a message.
    pub fn size(series: impl Into<String>, octets: u64) -> Axis {
        Axis {
            series: series.into(),
            parameter: "message size".to_owned(),
            unit: "octets".to_owned(),
            value: octets as f64,
        }
    }

    /// How many of something there are.
    pub fn count(series: &str, of_what: &str, number: u32) -> Axis {
        Axis {
            series: series.to_owned(),
            parameter: of_what.to_owned(),
            unit: String::new(),
            value: f64::from(number),
        }
    }
}
