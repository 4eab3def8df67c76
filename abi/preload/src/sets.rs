//! The sets of a `select`.

use std::cell::Cell;
use std::ffi::c_int;

use libc::fd_set;

use crate::edge::{get_octets, put_octets};
use crate::sifted::Sifted;

/// The three sets of a select, to look without losing what was asked.
pub struct Sets {
    pub places: [*mut fd_set; 3],
    asked: [[u8; Sets::OCTETS]; 3],
    len: usize,
}

impl Sets {
    /// Of an `fd_set` proper; who has larger ones does not look first.
    const OCTETS: usize = 128;

    /// Nothing where they cannot be read, or are larger.
    pub fn save(count: c_int, places: [*mut fd_set; 3]) -> Option<Sets> {
        let len = usize::try_from(count).ok()?.div_ceil(64) * 8;
        let mut asked = [[0; Sets::OCTETS]; 3];
        for (place, asked) in places.iter().zip(&mut asked) {
            let asked = asked.get_mut(..len)?;
            if !place.is_null() && !get_octets(place.cast(), asked) {
                return None;
            }
        }
        Some(Sets { places, asked, len })
    }

    /// They are again what was asked.
    pub fn restore(&self) {
        for (place, asked) in self.places.iter().zip(&self.asked) {
            if !place.is_null() {
                // What was read there can be written there: select does.
                let _ = put_octets(place.cast(), &asked[..self.len]);
            }
        }
    }

    /// Each descriptor that is asked for to receive from.
    pub fn each_to_read(&self, work: impl Fn(c_int)) {
        let [read, ..] = &self.asked;
        let is_asked = |fd: &usize| read[fd / 8] & 1 << (fd % 8) != 0;
        let fds = (0..self.len * 8).filter(is_asked);
        fds.for_each(|fd| work(fd as c_int));
    }

    /// Takes the readiness of descriptors away that cannot be received from, or sent to.
    pub fn sift(
        &self,
        ready: c_int,
        is_readable: impl Fn(c_int) -> bool,
        is_writable: impl Fn(c_int) -> bool,
        is_asking: impl Fn(c_int) -> bool,
    ) -> Sifted {
        let [read, write, _] = self.places;
        let any_asks = Cell::new(false);
        let unreadable = self.take_away(read, |fd| {
            let is_readable = is_readable(fd);
            any_asks.set(any_asks.get() || !is_readable && is_asking(fd));
            is_readable
        });
        let unwritable = self.take_away(write, is_writable);
        Sifted {
            left: ready - unreadable - unwritable,
            looks_again: unwritable > 0 || any_asks.get(),
        }
    }

    /// Takes the descriptors out of a set that are not ready after all; gives how many those are.
    fn take_away(&self, place: *mut fd_set, is_ready: impl Fn(c_int) -> bool) -> c_int {
        let mut set = [0; Sets::OCTETS];
        if place.is_null() || !get_octets(place.cast(), &mut set[..self.len]) {
            return 0;
        }
        let mut gone = 0;
        for fd in 0..self.len * 8 {
            let bit = 1 << (fd % 8);
            if set[fd / 8] & bit != 0 && !is_ready(fd as c_int) {
                set[fd / 8] &= !bit;
                gone += 1;
            }
        }
        let _ = put_octets(place.cast(), &set[..self.len]);
        gone
    }
}
