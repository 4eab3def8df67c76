//! Names of the sockets at which two ends of one machine meet: abstract ones, or files in a folder that processes of
//! two network namespaces share (`same-host-dir`).

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use weft_os::local::{LocalListener, LocalSocket};
use weft_os::seqpacket::own_user;

/// What names begin with. A file in the folder of which it is true, and at which nobody listens, is removed by the next
/// listener of its user.
pub const PREFIX: &str = "weft-rings-";
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// Files of others that are looked at, as a listener begins.
const LOOKED_AT_MAX: usize = 256;
/// A file that is younger may be one whose listener is about to listen.
const YOUNGEST: Duration = Duration::from_secs(10);

/// A listener, and the file that goes with it.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) socket: LocalListener,
    file: Option<(PathBuf, u32)>,
}

fn name_of(number: u64) -> String {
    format!("{PREFIX}{number:06x}")
}

impl Listening {
    /// Listens under this number, in a folder or abstractly.
    ///
    /// # Errors
    /// The name is taken ([`io::ErrorKind::AddrInUse`]), the folder is none to write in, descriptors are short.
    pub(super) fn begin(number: u64, folder: Option<&Path>) -> io::Result<Listening> {
        let name = name_of(number);
        let Some(folder) = folder else {
            let socket = LocalListener::bind(&name, BACKLOG)?;
            return Ok(Listening { socket, file: None });
        };
        remove_what_is_left(folder, YOUNGEST);
        let path = folder.join(name);
        let socket = LocalListener::bind_file(&path, BACKLOG)?;
        let file = Some((path, std::process::id()));
        Ok(Listening { socket, file })
    }

    /// The file is gone: whoever looks for it finds nothing, and uses TCP. Of a forked child it is its parent's.
    pub(super) fn remove_file(&self) {
        if let Some((path, process)) = &self.file {
            if *process == std::process::id() {
                let _ = fs::remove_file(path);
            }
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.remove_file();
    }
}

/// Connects to whoever listens under this number: in the folder, and else in this network namespace.
///
/// # Errors
/// Nobody of this user does.
#[cold]
pub(super) fn connect(number: u64, folder: Option<&Path>) -> io::Result<LocalSocket> {
    let name = name_of(number);
    let by_file = folder.map(|folder| LocalSocket::connect_file(&folder.join(&name)));
    match by_file {
        Some(Ok(socket)) => Ok(socket),
        _ => LocalSocket::connect(&name),
    }
}

/// Removes the files of processes that were killed. One whose listener is there, or another user's, stays, though root
/// may remove each.
fn remove_what_is_left(folder: &Path, youngest: Duration) {
    let own = own_user();
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_ours = |file: &fs::DirEntry| {
        let is_socket = file.file_type().is_ok_and(|kind| kind.is_socket());
        is_socket && file.file_name().to_string_lossy().starts_with(PREFIX)
    };
    for file in files.filter(is_ours).take(LOOKED_AT_MAX) {
        let about = file.metadata().ok().filter(|about| about.uid() == own);
        let age = about.and_then(|about| about.modified().ok()?.elapsed().ok());
        if age.is_none_or(|age| age < youngest) {
            continue;
        }
        let met = LocalSocket::connect_file(&file.path());
        if met.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            let _ = fs::remove_file(file.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn folder(what: &str) -> PathBuf {
        let name = format!("weft-test-{}-{what}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn files(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn who_listens_in_a_folder_is_found_there_and_leaves_nothing() {
        let folder = folder("meets");
        let listening = Listening::begin(7, Some(&folder)).unwrap();
        let taken = Listening::begin(7, Some(&folder)).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        assert!(connect(7, Some(&folder)).is_ok());
        assert!(connect(7, None).is_err(), "it has no abstract name");
        drop(listening);
        assert_eq!(files(&folder), 0);
        assert!(connect(7, Some(&folder)).is_err());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn who_names_a_folder_finds_who_names_none() {
        let folder = folder("both");
        let number = 0x00ff_0000 | u64::from(std::process::id() & 0xffff);
        let _listening = Listening::begin(number, None).unwrap();
        assert!(connect(number, Some(&folder)).is_ok());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_nothing_else() {
        let folder = folder("left");
        // Its listener is gone without a word.
        drop(LocalListener::bind_file(&folder.join(name_of(1)), 1).unwrap());
        let lives = Listening::begin(2, Some(&folder)).unwrap();
        File::create(folder.join("weft-rings-none")).unwrap();
        File::create(folder.join("another")).unwrap();
        assert_eq!(
            files(&folder),
            4,
            "one that is young may be about to listen"
        );
        remove_what_is_left(&folder, Duration::ZERO);
        assert_eq!(files(&folder), 3, "no socket is no socket's");
        let others = folder.join(name_of(3));
        drop(LocalListener::bind_file(&others, 1).unwrap());
        let another = Some(own_user() + 1);
        if std::os::unix::fs::chown(&others, another, None).is_ok() {
            remove_what_is_left(&folder, Duration::ZERO);
        }
        assert!(others.exists(), "root leaves what is another user's");
        assert!(connect(2, Some(&folder)).is_ok());
        drop(lives);
        fs::remove_dir_all(folder).unwrap();
    }
}
