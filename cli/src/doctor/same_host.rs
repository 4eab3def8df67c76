//! What doctor finds in the folder by which ends in other network namespaces share memory (`same-host-dir`).

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use weft_engine::settings::Settings;
use weft_engine::SAME_HOST_PREFIX;
use weft_os::local::{LocalListener, LocalSocket};
use weft_os::seqpacket::own_user;

use super::Finding;

const SUBJECT: &str = "same host";
/// What follows where nobody can be met.
const TCP: &str = "ends in other network namespaces stay on TCP";

/// Looks at the folder as a program of this user would use it.
pub(super) fn examine(settings: &Settings) -> Option<Finding> {
    if settings.off {
        return None;
    }
    let folder = settings.same_host_dir.as_deref();
    Some(match folder {
        None if settings.same_host => Finding::good(
            SUBJECT,
            "programs of one network namespace share memory; no folder is set for others (same-host-dir)",
        ),
        None => Finding::good(SUBJECT, "TCP carries what stays on this machine (same-host off)"),
        Some(folder) if settings.same_host => judge(folder),
        Some(folder) => Finding::note(
            SUBJECT,
            format!("{}: is not used (same-host off)", folder.display()),
        ),
    })
}

/// What becomes of connections whose ends both name this folder.
fn judge(folder: &Path) -> Finding {
    let named = folder.display();
    let about = match fs::metadata(folder) {
        Ok(about) if about.is_dir() => about,
        Ok(_) => {
            let what = format!("{named}: is no folder: {TCP}");
            return Finding::note(SUBJECT, what).advise(advice(folder));
        }
        Err(error) => {
            let what = format!("{named}: {error}: {TCP}");
            return Finding::note(SUBJECT, what).advise(advice(folder));
        }
    };
    let user = own_user();
    let others = Others::of(about.mode(), about.uid(), user);
    let whose = owner(about.uid(), user);
    match try_to_meet(folder) {
        Ok(()) => others.finding(folder, &whose, about.mode()),
        Err(error) => {
            let what = format!(
                "{named}: {whose}; no programs of this user can meet there ({error}): {TCP}"
            );
            let finding = Finding::note(SUBJECT, what);
            match error.kind() {
                // Another folder would not help.
                io::ErrorKind::Other => finding,
                _ => finding.advise(advice(folder)),
            }
        }
    }
}

fn advice(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "as this user, on a file system that both ends see: mkdir -m 700 {folder}, or name another"
    )
}

/// Whose a folder is, in words.
fn owner(owner: u32, user: u32) -> String {
    match owner {
        _ if owner == user => "this user's".to_owned(),
        0 => "root's".to_owned(),
        _ => format!("user {owner}'s"),
    }
}

/// Users beside this one and root that may make files in a folder, or take some away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    /// None may.
    Nobody,
    /// They may make files, and take away their own alone.
    OwnFiles,
    /// They may take away those of this user.
    AllFiles,
}

impl Others {
    /// By a folder's mode and owner, for a user.
    fn of(mode: u32, owner: u32, user: u32) -> Others {
        const STICKY: u32 = 0o1000;
        // To write in a folder and to pass through it.
        let may_group = mode & 0o030 == 0o030;
        let may_others = mode & 0o003 == 0o003;
        if owner != user && owner != 0 {
            return Others::AllFiles;
        }
        match (may_group || may_others, mode & STICKY != 0) {
            (false, _) => Others::Nobody,
            (true, true) => Others::OwnFiles,
            (true, false) => Others::AllFiles,
        }
    }

    /// The finding on a folder where this user's programs can meet.
    fn finding(self, folder: &Path, whose: &str, mode: u32) -> Finding {
        let begin = format!("{}: {whose} (mode {:o})", folder.display(), mode & 0o7777);
        match self {
            Others::Nobody => Finding::good(
                SUBJECT,
                format!("{begin}: programs of this user that name it share memory"),
            ),
            Others::OwnFiles => Finding::note(
                SUBJECT,
                format!(
                    "{begin}: programs of this user that name it share memory; other users may make sockets there, \
                     too: no memory is shared with theirs"
                ),
            )
            .advise(alone(folder)),
            Others::AllFiles => Finding::note(
                SUBJECT,
                format!(
                    "{begin}: programs of this user that name it share memory, but other users may take their sockets \
                     away: TCP is left then"
                ),
            )
            .advise(alone(folder)),
        }
    }
}

fn alone(folder: &Path) -> String {
    let folder = folder.display();
    format!("a folder for this user alone keeps them out: chmod 700 {folder}, or name another")
}

/// Makes a socket in the folder, as a program that is told to does, and connects to it.
///
/// # Errors
/// The socket cannot be made there, or this user is not known by its number ([`io::ErrorKind::Other`]).
fn try_to_meet(folder: &Path) -> io::Result<()> {
    let name = format!("{SAME_HOST_PREFIX}doctor-{}", std::process::id());
    let socket = SocketFile(folder.join(name));
    let listener = LocalListener::bind_file(&socket.0, 1)?;
    LocalSocket::connect_file(&socket.0).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            io::Error::other("in this user namespace others may have the same number as this user")
        }
        _ => error,
    })?;
    drop(listener);
    Ok(())
}

/// A socket's file, gone with this.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // One that was not made is not there.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::doctor::Level;
    use crate::scratch::Scratch;

    fn of(same_host: bool, folder: Option<&Path>) -> Finding {
        let settings = Settings {
            same_host,
            same_host_dir: folder.map(Path::to_owned),
            ..Settings::default()
        };
        examine(&settings).unwrap()
    }

    fn with_mode(scratch: &Scratch, mode: u32) -> PathBuf {
        let folder = scratch.path("shared");
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
        folder
    }

    #[test]
    fn without_a_folder_it_says_what_is_shared() {
        let finding = of(true, None);
        assert_eq!(finding.level, Level::Good);
        assert!(
            finding.what.contains("no folder is set"),
            "{}",
            finding.what
        );
        assert!(of(false, None).what.contains("same-host off"));
        let off = Settings {
            off: true,
            ..Settings::default()
        };
        assert_eq!(examine(&off), None);
    }

    #[test]
    fn a_folder_of_this_user_alone_is_good_and_nothing_is_left_in_it() {
        let scratch = Scratch::new();
        let folder = with_mode(&scratch, 0o700);
        let finding = of(true, Some(&folder));
        assert_eq!(finding.level, Level::Good, "{}", finding.what);
        let words = "this user's (mode 700): programs of this user that name it share memory";
        assert!(finding.what.ends_with(words), "{}", finding.what);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        let unused = of(false, Some(&folder));
        assert_eq!(unused.level, Level::Note);
        assert!(unused.what.contains("is not used"), "{}", unused.what);
    }

    #[test]
    fn a_folder_where_others_may_write_is_noted_with_what_they_may_do() {
        let scratch = Scratch::new();
        for (mode, words) in [
            (0o1777, "no memory is shared with theirs"),
            (0o777, "take their sockets away"),
            (0o770, "take their sockets away"),
        ] {
            let finding = of(true, Some(&with_mode(&scratch, mode)));
            assert_eq!(finding.level, Level::Note);
            assert!(
                finding.what.contains(&format!("(mode {mode:o})")),
                "{}",
                finding.what
            );
            assert!(finding.what.contains(words), "{}", finding.what);
            assert!(finding.advice.unwrap().contains("chmod 700 "));
        }
    }

    #[test]
    fn who_else_may_write_goes_by_mode_and_owner() {
        const USER: u32 = 1000;
        for (mode, owner, others) in [
            (0o700, USER, Others::Nobody),
            (0o755, USER, Others::Nobody),
            // To write without passing through is of no use.
            (0o722, USER, Others::Nobody),
            (0o730, USER, Others::AllFiles),
            (0o703, USER, Others::AllFiles),
            (0o1777, USER, Others::OwnFiles),
            (0o1777, 0, Others::OwnFiles),
            (0o777, 0, Others::AllFiles),
            // The owner may remove each file.
            (0o1777, 2000, Others::AllFiles),
        ] {
            assert_eq!(Others::of(mode, owner, USER), others, "{mode:o} of {owner}");
        }
        assert_eq!(owner(USER, USER), "this user's");
        assert_eq!(owner(0, USER), "root's");
        assert_eq!(owner(0, 0), "this user's");
        assert_eq!(owner(2000, USER), "user 2000's");
    }

    #[test]
    fn what_is_no_folder_to_meet_in_is_noted_with_what_follows() {
        let scratch = Scratch::new();
        let file = scratch.file("file", "");
        // Nobody makes files there, not even root.
        let kernels = PathBuf::from("/proc/self");
        for (folder, words) in [
            (scratch.path("none"), "No such file or directory"),
            (file, "is no folder"),
            (kernels, "no programs of this user can meet there"),
        ] {
            let finding = of(true, Some(&folder));
            assert_eq!(finding.level, Level::Note);
            assert!(finding.what.contains(words), "{}", finding.what);
            assert!(finding.what.ends_with(TCP), "{}", finding.what);
            assert!(finding.advice.unwrap().contains("mkdir -m 700"));
        }
    }
}
