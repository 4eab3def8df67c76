//! What the kernel has mapped in this process (proc(5), `/proc/PID/maps`).

use std::fs::File;
use std::io::{BufRead, BufReader};

use crate::lowest;

/// Whether all of these octets are in memory of this process that may be written to. Where the kernel does not say,
/// they count as such: whoever writes there finds out.
pub fn are_writable(addr: usize, len: usize) -> bool {
    lowest::ours(|| match File::open("/proc/self/maps") {
        Ok(file) => covers(BufReader::new(file), addr, len),
        Err(_) => true,
    })
}

/// Whether the list names writable memory without a gap from `addr` on.
fn covers(list: impl BufRead, addr: usize, len: usize) -> bool {
    let Some(end) = addr.checked_add(len) else {
        return false;
    };
    let mut at = addr;
    // The list ascends.
    for (from, to) in list.lines().map_while(Result::ok).filter_map(writable) {
        if at >= end || from > at {
            break;
        }
        at = at.max(to);
    }
    at >= end
}

/// The first octet and the end of what a line names, where that may be written to.
fn writable(line: String) -> Option<(usize, usize)> {
    let (range, behind) = line.split_once(' ')?;
    let (from, to) = range.split_once('-')?;
    let number = |digits| usize::from_str_radix(digits, 16).ok();
    let pair = number(from).zip(number(to));
    pair.filter(|_| behind.as_bytes().get(1) == Some(&b'w'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
1000-3000 rw-p 00000000 00:00 0
3000-4000 rw-s 00000000 00:01 77 /memfd:x
4000-5000 r--p 00000000 00:00 0
6000-7000 rw-p 00000000 00:00 0 [stack]
";

    #[test]
    fn memory_is_writable_where_every_octet_is() {
        let is_writable = |addr, len| covers(LIST.as_bytes(), addr, len);
        assert!(is_writable(0x1000, 1) && is_writable(0x1000, 0x3000) && is_writable(0x2fff, 2));
        assert!(is_writable(0x6000, 0x1000));
        assert!(!is_writable(0xfff, 2), "it begins before");
        assert!(!is_writable(0x3fff, 2), "it ends in what may only be read");
        assert!(!is_writable(0x4000, 1));
        assert!(!is_writable(0x5000, 0x1001), "it begins in a gap");
        assert!(!is_writable(0x6000, 0x1001));
        assert!(!is_writable(0x7000, 1));
        assert!(!is_writable(0x6000, usize::MAX));
    }

    #[test]
    fn this_processs_own_memory_is_found() {
        static CONSTANT: [u8; 4] = [1; 4];
        let octets = [0u8; 100];
        assert!(are_writable(octets.as_ptr() as usize, octets.len()));
        assert!(!are_writable(CONSTANT.as_ptr() as usize, CONSTANT.len()));
        assert!(!are_writable(8, 1));
    }
}
