//! What others see of the TCP sockets of a family of processes while it lives: `weft stat` reads it.
//!
//! The memory of the family's connections has a file ([`NAME`]), which `/proc/PID/fd` leads to. In it is a word for
//! each socket, found by the socket's inode, beside the slots of connections.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::rows::{self, number};
use super::slot::{Slot, State};
use super::slots::{BITS_OCTETS, FILE_OCTETS, INODES_AT, ROWS_AT, SLOTS_AT, SLOTS_MAX};

pub use super::slots::NAME;

/// Octets at the beginning of a slot, in which what is shown of it is.
const LOOKED_AT: usize = 256;
const _: () = assert!(offset_of!(Slot, is_foreign) + 4 <= LOOKED_AT);

/// What a family shows, read by a process outside.
#[derive(Debug)]
pub struct Shown {
    file: File,
    /// The slots of connections, by the inode of their socket.
    slots: HashMap<u64, u32>,
}

/// What is shown of a connection over DDP, or of one that was to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// How far it is.
    pub state: State,
    /// The other end is rsockets of another make.
    pub is_foreign: bool,
    /// FPDUs carry a CRC.
    pub has_crc: bool,
}

impl Shown {
    /// Looks at the file at `path`, such as `/proc/PID/fd/N`. Reading it takes no memory of the family's.
    ///
    /// # Errors
    /// No permission, gone, or not a file of this layout.
    pub fn open(path: &Path) -> io::Result<Shown> {
        // Whoever runs the process named the file, and may have meant a pipe to be waited for.
        let file = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)?;
        if file.metadata()?.len() != FILE_OCTETS as u64 {
            let what = "not what this version of Weft shows of TCP sockets";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let slots = slots_by_inode(&file)?;
        Ok(Shown { file, slots })
    }

    /// The word of the socket with this inode; nothing where none is shown.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn word(&self, inode: u64) -> io::Result<Option<u32>> {
        let mut bucket = [0; rows::BUCKET_OCTETS];
        let at = ROWS_AT + rows::bucket_at(inode);
        self.file.read_exact_at(&mut bucket, at as u64)?;
        Ok(rows::word_among(&bucket, inode))
    }

    /// The connection of the socket with this inode; nothing where it has none over DDP and was to have none.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn connection(&self, inode: u64) -> io::Result<Option<Connection>> {
        let Some(slot) = self.slots.get(&inode) else {
            return Ok(None);
        };
        let at = SLOTS_AT + *slot as usize * std::mem::size_of::<Slot>();
        let mut octets = [0; LOOKED_AT];
        self.file.read_exact_at(&mut octets, at as u64)?;
        let word = |at| number::<4>(&octets, at) as u32;
        Ok(Some(Connection {
            state: State::from_word(word(offset_of!(Slot, state))),
            is_foreign: word(offset_of!(Slot, is_foreign)) != 0,
            has_crc: word(offset_of!(Slot, has_crc)) != 0,
        }))
    }
}

/// The slots that are taken.
fn slots_by_inode(file: &File) -> io::Result<HashMap<u64, u32>> {
    let mut bits = [0; BITS_OCTETS];
    file.read_exact_at(&mut bits, 0)?;
    let mut inodes = vec![0; SLOTS_MAX * 8];
    file.read_exact_at(&mut inodes, INODES_AT as u64)?;
    let taken = (0..SLOTS_MAX).filter(|slot| bits[slot / 8] & 1 << (slot % 8) != 0);
    Ok(taken
        .map(|slot| (number::<8>(&inodes, slot * 8), slot as u32))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ddp::rows::{BUCKETS, BUCKET_ROWS};
    use crate::ddp::Slots;

    fn path(slots: &Slots) -> String {
        format!("/proc/self/fd/{}", slots.file().expect("it has a file"))
    }

    #[test]
    fn what_is_shown_is_what_another_reads() {
        weft_os::process::watch();
        let slots = Slots::new(true).unwrap();
        slots.show(4711, 7, true);
        slots.show(4711 + BUCKETS, 8, true);
        slots.show(4711, 9, false);
        let slot = slots.take(State::Connecting, 4711, true, None).unwrap();
        slots.get(slot).unwrap().set_has_crc(true);
        let shown = Shown::open(Path::new(&path(&slots))).unwrap();
        assert_eq!(shown.word(4711).unwrap(), Some(7));
        assert_eq!(shown.word(4711 + BUCKETS).unwrap(), Some(8));
        assert_eq!(shown.word(4712).unwrap(), None);
        let connection = Connection {
            state: State::Connecting,
            is_foreign: false,
            has_crc: true,
        };
        assert_eq!(shown.connection(4711).unwrap(), Some(connection));
        assert_eq!(shown.connection(4712).unwrap(), None);
        slots.show(4711, 9, true);
        assert_eq!(shown.word(4711).unwrap(), Some(9));
        assert!(Shown::open(Path::new("/proc/self/exe")).is_err());
    }

    #[test]
    fn a_pipe_under_its_name_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("weft-shown-{}", std::process::id()));
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        let opened = Shown::open(&path);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(opened.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn more_sockets_than_there_are_rows_for_take_the_place_of_others() {
        weft_os::process::watch();
        let slots = Slots::new(true).unwrap();
        let inodes = (1..=2 * BUCKET_ROWS as u64).map(|at| 5 + at * BUCKETS);
        inodes.clone().for_each(|inode| slots.show(inode, 1, true));
        let shown = Shown::open(Path::new(&path(&slots))).unwrap();
        let seen = inodes.map(|inode| shown.word(inode).unwrap().is_some());
        let expected = (1..=2 * BUCKET_ROWS).map(|at| at > BUCKET_ROWS);
        assert!(seen.eq(expected), "the later ones");
    }
}
