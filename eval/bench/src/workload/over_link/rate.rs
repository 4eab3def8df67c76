//! The rate of emulated links.

use std::fmt;
use std::str::FromStr;

/// The rate of emulated links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkRate {
    /// Millions of bits a second.
    mbit: u32,
}

impl LinkRate {
    /// So many millions of bits a second.
    pub(in crate::workload) const fn of_mbit(mbit: u32) -> LinkRate {
        LinkRate { mbit }
    }

    /// In millions of bits a second.
    pub(super) fn mbit(self) -> u32 {
        self.mbit
    }
}

impl Default for LinkRate {
    /// 1 Gbit/s.
    fn default() -> LinkRate {
        LinkRate { mbit: 1000 }
    }
}

impl FromStr for LinkRate {
    type Err = String;

    fn from_str(text: &str) -> Result<LinkRate, String> {
        let parsed = text.strip_suffix("Mbit").map(|number| (number, 1));
        let parsed = parsed.or_else(|| Some((text.strip_suffix("Gbit")?, 1000)));
        let mbit = parsed.and_then(|(number, unit)| number.parse::<u32>().ok()?.checked_mul(unit));
        let mbit = mbit.filter(|mbit| (1..=100_000).contains(mbit));
        mbit.map(|mbit| LinkRate { mbit })
            .ok_or_else(|| "a rate such as 1Gbit or 300Mbit".to_owned())
    }
}

impl fmt::Display for LinkRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mbit {
            mbit if mbit % 1000 == 0 => write!(f, "{}Gbit", mbit / 1000),
            mbit => write!(f, "{mbit}Mbit"),
        }
    }
}
