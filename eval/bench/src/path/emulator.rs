//! `weft link` between two interfaces of a namespace, as long as a path stands.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;

use anyhow::{bail, ensure, Context, Result};
use rustix::process::{kill_process, Pid, Signal};

use super::holder::Holder;
use crate::job::{Invocation, Side};

/// What it says once frames go through.
const FORWARDING: &str = "forwarding between";

/// A running emulator; ended when dropped.
pub(super) struct Emulator {
    child: Child,
}

impl Emulator {
    /// Starts it and waits until frames go through.
    pub(super) fn start(
        middle: &Holder,
        weft: &Path,
        interfaces: [&str; 2],
        delay: &str,
        rate: &str,
    ) -> Result<Emulator> {
        ensure!(
            weft.is_file(),
            "there is no {} (make build)",
            weft.display()
        );
        // It ends with the bench, however that ends.
        let program = Invocation::new("setpriv", ["--pdeathsig", "KILL"])
            .args([weft])
            .args(["link"])
            .args(interfaces)
            .args(["--delay", delay, "--rate", rate, "--quiet"]);
        let side = Side {
            namespace: Some(middle.namespace),
            ..Side::default()
        };
        let mut child = side
            .command(&program, None)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run nsenter and setpriv (Debian package util-linux)")?;
        let stderr = child.stderr.take().context("it has no standard error")?;
        let mut said = BufReader::new(stderr);
        let mut line = String::new();
        if said.read_line(&mut line)? == 0 || !line.contains(FORWARDING) {
            let _ = child.kill();
            let _ = child.wait();
            let mut rest = String::new();
            let _ = said.read_to_string(&mut rest);
            bail!(
                "weft link did not begin: {}",
                format!("{line}{rest}").trim()
            );
        }
        // What it says later stays in nobody's way.
        thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        Ok(Emulator { child })
    }

    /// Ends it; an error says that what was measured over it is a measurement of the emulator.
    pub(super) fn end(mut self) -> Result<()> {
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        let status = self.child.wait()?;
        ensure!(
            status.success(),
            "weft link ended with {status}: it did not keep up, and figures over it are its own"
        );
        Ok(())
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // ECHILD where it was ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
