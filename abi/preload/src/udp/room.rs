//! Where a datagram goes that the program receives.

use weft_os::user::UserBuffers;
use weft_sockets::Errno;

use crate::edge::List;

/// The program's buffers for one datagram, however many they are.
#[derive(Clone, Copy)]
pub(super) enum Room<'a> {
    /// As many as can be held.
    Held(&'a UserBuffers),
    /// More.
    Long { list: List, octets: usize },
}

impl<'a> Room<'a> {
    /// Nothing where the kernel is to answer the call: the list is none that it takes.
    pub(super) fn of(room: Result<&'a UserBuffers, List>) -> Option<Room<'a>> {
        match room {
            Ok(held) => Some(Room::Held(held)),
            Err(list) => {
                let octets = list.octets().ok()?;
                Some(Room::Long { list, octets })
            }
        }
    }

    /// Octets of them all.
    pub(super) fn octets(self) -> usize {
        match self {
            Room::Held(held) => held.octets(),
            Room::Long { octets, .. } => octets,
        }
    }

    /// Writes the octets of a datagram, from the first buffer on.
    ///
    /// # Errors
    /// `EFAULT`: a buffer is not mapped. Those before it have been written, as by the kernel.
    pub(super) fn write(self, octets: &[u8]) -> Result<(), Errno> {
        let list = match self {
            Room::Held(held) => {
                return held.write(octets).map(|_| ()).map_err(|_| libc::EFAULT);
            }
            Room::Long { list, .. } => list,
        };
        let mut left = octets;
        for piece in list.pieces() {
            let piece = piece.ok_or(libc::EFAULT)?;
            let (here, rest) = left.split_at(left.len().min(piece.octets()));
            piece.write(here).map_err(|_| libc::EFAULT)?;
            left = rest;
            if left.is_empty() {
                break;
            }
        }
        Ok(())
    }
}
