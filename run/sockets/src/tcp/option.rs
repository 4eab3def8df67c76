//! The socket option by which a program asks for DDP itself. Numbers and structure are those of
//! `abi/include/weft/sockets.h`, where the option is described.

use weft_os::stream;
use weft_settings::streams::Mode;

use super::standing::{Asked, Reason, Standing, State};
use super::{Record, Streams};
use crate::Errno;

/// The level of Weft's options.
pub const SOL_WEFT: i32 = 0x5745_4654;
/// How the octets of the socket go.
const WEFT_SO_DDP: i32 = 1;
/// Octets of what sets the option: an int.
pub const MODE_OCTETS: usize = 4;
/// Octets of what the option gives: three ints.
pub const STATUS_OCTETS: usize = 12;

const MODES: [(Mode, i32); 3] = [(Mode::Off, 0), (Mode::Prefer, 1), (Mode::Require, 2)];
const BY_RULE: i32 = -1;

impl Streams {
    /// `setsockopt` at [`SOL_WEFT`]: `value` is what the program hands over, an int's octets and no more.
    ///
    /// # Errors
    /// ENOPROTOOPT for another option, EINVAL for a value or a length that is none and for a listening socket, EISCONN
    /// for one that is connected or being connected.
    pub fn set_option(
        &self,
        record: &Record,
        fd: i32,
        option: i32,
        value: &[u8],
    ) -> Result<(), Errno> {
        if option != WEFT_SO_DDP {
            return Err(libc::ENOPROTOOPT);
        }
        let number = i32::from_ne_bytes(value.try_into().map_err(|_| libc::EINVAL)?);
        let named = MODES.iter().find(|(_, value)| *value == number);
        let (mode, _) = named.ok_or(libc::EINVAL)?;
        match stream::state(fd) {
            Some(stream::State::Listening) => return Err(libc::EINVAL),
            Some(stream::State::Connected) => return Err(libc::EISCONN),
            Some(stream::State::Closed) | None => {}
        }
        record.set_asked(Asked::For(*mode));
        self.stand(record, Standing::default());
        Ok(())
    }

    /// `getsockopt` at [`SOL_WEFT`]: the octets of a `struct weft_ddp`.
    ///
    /// # Errors
    /// ENOPROTOOPT for another option.
    pub fn option(
        &self,
        record: &Record,
        fd: i32,
        option: i32,
    ) -> Result<[u8; STATUS_OCTETS], Errno> {
        if option != WEFT_SO_DDP {
            return Err(libc::ENOPROTOOPT);
        }
        let standing = self.standing(record, fd);
        let mode = MODES.iter().find(|(mode, _)| Some(*mode) == standing.mode);
        let state = match standing.state {
            State::Undecided => 0,
            State::Tcp => 1,
            State::Ddp => 2,
        };
        let reason = match standing.reason {
            Reason::None => 0,
            Reason::Off => 1,
            Reason::Released => 2,
            Reason::Found => 3,
            Reason::NoRoom => 4,
            Reason::NotThere => 5,
            Reason::TooEarly => 6,
        };
        let numbers: [i32; 3] = [mode.map_or(BY_RULE, |(_, value)| *value), state, reason];
        let mut octets = [0; STATUS_OCTETS];
        for (place, number) in octets.as_chunks_mut::<4>().0.iter_mut().zip(numbers) {
            *place = number.to_ne_bytes();
        }
        Ok(octets)
    }
}
