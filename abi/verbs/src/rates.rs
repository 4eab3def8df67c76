//! Conversions between InfiniBand's rate codes, multiples of 2.5 Gbit/s and Mbit/s.

use libc::c_int;

/// A rate: its code, its multiple of 2.5 Gbit/s if it is known by one, and its Mbit/s.
struct Rate {
    code: c_int,
    multiple: Option<c_int>,
    mbps: c_int,
}

const fn rate(code: c_int, multiple: Option<c_int>, mbps: c_int) -> Rate {
    Rate {
        code,
        multiple,
        mbps,
    }
}

/// The code for "no limit", which stands for whatever has no code.
const MAX: c_int = 0;

const RATES: [Rate; 23] = [
    rate(2, Some(1), 2_500),
    rate(5, Some(2), 5_000),
    rate(3, Some(4), 10_000),
    rate(6, Some(8), 20_000),
    rate(4, Some(12), 30_000),
    rate(7, Some(16), 40_000),
    rate(8, Some(24), 60_000),
    rate(9, Some(32), 80_000),
    rate(10, Some(48), 120_000),
    rate(11, None, 14_062),
    rate(12, None, 56_250),
    rate(13, None, 112_500),
    rate(14, None, 168_750),
    rate(15, None, 25_781),
    rate(16, None, 103_125),
    rate(17, None, 206_250),
    rate(18, None, 309_375),
    rate(19, Some(11), 28_125),
    rate(20, Some(20), 53_125),
    rate(21, Some(160), 425_000),
    rate(22, Some(240), 637_500),
    rate(23, Some(320), 850_000),
    rate(24, Some(480), 1_275_000),
];

fn find(is: impl Fn(&&Rate) -> bool) -> Option<&'static Rate> {
    RATES.iter().find(is)
}

export! {
    /// `ibv_rate_to_mult(3)`: -1 for codes without a multiple.
    fn ibv_rate_to_mult(code: c_int) -> c_int {
        find(|rate| rate.code == code).and_then(|rate| rate.multiple).unwrap_or(-1)
    }

    /// `mult_to_ibv_rate(3)`.
    fn mult_to_ibv_rate(multiple: c_int) -> c_int {
        find(|rate| rate.multiple == Some(multiple)).map_or(MAX, |rate| rate.code)
    }

    /// `ibv_rate_to_mbps(3)`: -1 for unknown codes.
    fn ibv_rate_to_mbps(code: c_int) -> c_int {
        find(|rate| rate.code == code).map_or(-1, |rate| rate.mbps)
    }

    /// `mbps_to_ibv_rate(3)`.
    fn mbps_to_ibv_rate(mbps: c_int) -> c_int {
        find(|rate| rate.mbps == mbps).map_or(MAX, |rate| rate.code)
    }
}
