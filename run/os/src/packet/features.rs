//! What an interface does for the stack above it: checksums, segmentation, joining of segments. Asked and switched by
//! the kernel's names (`ethtool -k` shows them).

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd};

use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

use super::interface::named;
use crate::descriptors;
use crate::lowest;
use crate::private::Private;
use crate::sys;

/// Commands of `SIOCETHTOOL` (linux/ethtool.h).
const GET_STRINGS: u32 = 0x1b;
const COUNT_STRINGS: u32 = 0x37;
const GET_FEATURES: u32 = 0x3a;
const SET_FEATURES: u32 = 0x3b;
/// The set of strings that are the names of features.
const NAMES: u32 = 4;
/// Octets of a name, the zeroes behind it included.
const NAME_LEN: usize = 32;
/// Words of 32 bits before what a command is about.
const HEAD: usize = 2;
/// Words that the kernel tells of 32 features: which there are, are wanted, are on, and never change.
const TOLD: usize = 4;
/// Which of these words says what is on.
const ON: usize = 2;
/// Words that are said to it of 32 features: which are meant, and which of these are to be on.
const SAID: usize = 2;

/// The features of one interface.
pub struct Features {
    interface: String,
    socket: Private,
    /// The kernel's names; the place of a name is the number of its bit.
    names: Vec<String>,
}

impl Features {
    /// Those of the interface of this name.
    ///
    /// # Errors
    /// `ENODEV`: there is no such interface in this network namespace; or no descriptor is left.
    pub fn of(interface: &str) -> io::Result<Features> {
        lowest::ours(|| {
            let flags = SocketFlags::CLOEXEC;
            let open = || net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None);
            let mut features = Features {
                interface: interface.to_owned(),
                socket: Private::from(descriptors::open(open)?),
                names: Vec::new(),
            };
            features.names = features.ask_names()?;
            Ok(features)
        })
    }

    /// Whether a feature is on; an interface does not do what the kernel has no name for.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn is_on(&self, name: &str) -> io::Result<bool> {
        let Some((word, bit)) = self.place(name) else {
            return Ok(false);
        };
        let blocks = self.names.len().div_ceil(32);
        let mut asked = vec![0; HEAD + TOLD * blocks];
        (asked[0], asked[1]) = (GET_FEATURES, blocks as u32);
        self.call(&mut asked)?;
        Ok(asked[HEAD + TOLD * word + ON] & bit != 0)
    }

    /// Switches a feature. What it needs, or what needs it, may keep it as it is, or go with it: ask
    /// [`Features::is_on`].
    ///
    /// # Errors
    /// `EPERM`: that takes `CAP_NET_ADMIN`. `EOPNOTSUPP`: the kernel has no such feature.
    pub fn switch(&self, name: &str, on: bool) -> io::Result<()> {
        let (word, bit) = self
            .place(name)
            .ok_or(io::Error::from(rustix::io::Errno::OPNOTSUPP))?;
        let blocks = self.names.len().div_ceil(32);
        let mut said = vec![0; HEAD + SAID * blocks];
        (said[0], said[1]) = (SET_FEATURES, blocks as u32);
        said[HEAD + SAID * word] = bit;
        said[HEAD + SAID * word + 1] = if on { bit } else { 0 };
        self.call(&mut said)
    }

    /// The block of 32 features that one is in, and its bit there.
    fn place(&self, name: &str) -> Option<(usize, u32)> {
        let number = self.names.iter().position(|known| known == name)?;
        Some((number / 32, 1 << (number % 32)))
    }

    fn ask_names(&self) -> io::Result<Vec<String>> {
        // The command, a reserved word, the sets that are asked about (64 bits), and the length of each.
        let mut sets = vec![COUNT_STRINGS, 0, 0, 0, 0];
        let mask = (1_u64 << NAMES).to_ne_bytes();
        sets[2] = u32::from_ne_bytes([mask[0], mask[1], mask[2], mask[3]]);
        sets[3] = u32::from_ne_bytes([mask[4], mask[5], mask[6], mask[7]]);
        self.call(&mut sets)?;
        // More than any kernel has would be memory that nobody needs.
        let count = (sets[4] as usize).min(1024);
        let mut strings = vec![0; HEAD + 1 + count * NAME_LEN / size_of::<u32>()];
        (strings[0], strings[1], strings[2]) = (GET_STRINGS, NAMES, count as u32);
        self.call(&mut strings)?;
        let octets: Vec<u8> = strings[HEAD + 1..]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        let name = |octets: &[u8; NAME_LEN]| {
            let end = octets.iter().position(|octet| *octet == 0);
            String::from_utf8_lossy(&octets[..end.unwrap_or(octets.len())]).into_owned()
        };
        Ok(octets.as_chunks::<NAME_LEN>().0.iter().map(name).collect())
    }

    /// One command, with room for its answer.
    fn call(&self, command: &mut [u32]) -> io::Result<()> {
        // SAFETY: all-zero is a value of the plain structure.
        let mut request: libc::ifreq = unsafe { zeroed() };
        request.ifr_name = named(&self.interface)?;
        request.ifr_ifru.ifru_data = command.as_mut_ptr().cast();
        let args = [
            self.socket.as_fd().as_raw_fd() as usize,
            libc::SIOCETHTOOL as usize,
            std::ptr::from_mut(&mut request) as usize,
            0,
            0,
            0,
        ];
        // SAFETY: the kernel reads and writes as many words of the command as its head says, and each caller has made
        // it as long as that; both structures outlive the call.
        unsafe { sys::call(libc::SYS_ioctl, args) }.map_err(io::Error::from_raw_os_error)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_segments_and_tells_so() {
        let features = Features::of("lo").unwrap();
        assert!(features.is_on("tx-tcp-segmentation").unwrap());
        assert!(!features.is_on("no such feature").unwrap());
        let error = features.switch("no such feature", true).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
    }

    #[test]
    fn an_interface_that_is_not_there_has_none() {
        let error = Features::of("nobody0").err().unwrap();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
