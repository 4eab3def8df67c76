//! A mount: the files in a folder, for programs that know nothing of them. The kernel asks for what they do there
//! (FUSE), one thing after another.
//!
//! Nothing is kept that another host could change: every read and write goes to the servers, past the kernel's page
//! cache, and names and attributes are asked for each time.

mod files;
mod filesystem;

use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use clap::Args;
use fuser::{Config, MountOption, Session, SessionUnmounter};
use rustix::mount::{unmount, UnmountFlags};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::client::Client;
use super::manager::Manager;
use files::Mounted;

/// How long the manager or a server may take to answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long what the kernel has asked for may take once the mount is to end.
const PARTING: Duration = Duration::from_secs(5);

#[derive(Args, Clone, Debug)]
pub(super) struct MountArgs {
    /// Where the manager listens
    #[arg(long, value_name = "ADDRESS")]
    manager: SocketAddr,
    /// Where the servers listen, in their order
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',', required = true)]
    servers: Vec<SocketAddr>,
    /// Folder in which the files are to be; made where there is none
    #[arg(long, value_name = "FOLDER")]
    at: PathBuf,
}

/// Mounts, says so, and serves until it is unmounted or told to end (SIGTERM, SIGINT).
///
/// # Errors
/// The folder cannot be had, a process of the store is not there, or the kernel mounts nothing.
pub(super) fn run(args: &MountArgs) -> Result<()> {
    let at = folder(&args.at)?;
    let files = Mounted::new(
        Manager::reach(args.manager)?,
        Client::reach(&args.servers)?,
        TIMEOUT,
    )?;
    let mut session = mount(files, &at)?;
    let mut signals = Signals::new([SIGTERM, SIGINT]).context("cannot wait for signals")?;
    let (handle, unmounter) = (signals.handle(), session.unmount_callable());
    let is_over = Arc::new(AtomicBool::new(false));
    let ending = thread::spawn({
        let is_over = is_over.clone();
        move || {
            if signals.forever().next().is_some() {
                end(unmounter, &at, &is_over);
            }
        }
    });
    weft_os::stdout::print("mounted\n").context("cannot say that it is mounted")?;
    let served = session.run();
    is_over.store(true, Ordering::Relaxed);
    handle.close();
    // It panics nowhere, and has nothing to say.
    let _ = ending.join();
    served.context("the kernel asks for nothing more")
}

/// The folder, by a name that holds from everywhere.
fn folder(at: &Path) -> Result<PathBuf> {
    let named = || format!("cannot mount at {}", at.display());
    match fs::create_dir(at) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(error).with_context(named);
        }
        _ => {}
    }
    // A mount whose program was killed: nothing can be done in it.
    let found = fs::metadata(at).with_context(|| format!("{}, or umount it", named()))?;
    ensure!(found.is_dir(), "{}: it is no folder", named());
    fs::canonicalize(at).with_context(named)
}

fn mount(files: Mounted, at: &Path) -> Result<Session<Mounted>> {
    let mut config = Config::default();
    let name = MountOption::FSName("striped".to_owned());
    config.mount_options = vec![name, MountOption::NoExec, MountOption::NoAtime];
    Session::new(files, at, &config).with_context(|| {
        format!(
            "the kernel mounts nothing at {}: /dev/fuse has to be there and open to this user, and mounting allowed",
            at.display()
        )
    })
}

/// Unmounts, and ends the process if what the kernel has asked for does not come to an end.
fn end(mut unmounter: SessionUnmounter, at: &Path, is_over: &AtomicBool) {
    if unmounter.unmount().is_err() {
        // A program has a file open: it may use it until it closes it.
        let _ = unmount(at, UnmountFlags::DETACH);
    }
    let steps = 100;
    for _ in 0..steps {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        thread::sleep(PARTING / steps);
    }
    eprintln!(
        "striped mount: files are still open, or a server does not answer: it ends all the same"
    );
    std::process::exit(1);
}

#[cfg(test)]
mod tests;
