//! A process that holds a network namespace.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{bail, Context, Result};

use crate::job::{Invocation, Namespace, Side};

/// What a holder runs. Programs that look for interfaces in /sys see those of the namespace that
/// mounted it; where that is not allowed they see the wrong ones and say so.
const HOLD: &str = "mount -t sysfs sysfs /sys 2>/dev/null; echo ready; exec cat";

/// A process that does nothing but hold a network namespace. It reads a pipe of ours, so it ends
/// when we do, however that comes about, and the kernel then takes down the namespace with
/// everything in it: there is nothing to clean up.
pub(super) struct Holder {
    child: Child,
    pub(super) namespace: Namespace,
}

impl Holder {
    pub(super) fn start(join: Option<&Holder>, user: bool) -> Result<Holder> {
        let first = join.map(|first| first.namespace.holder.to_string());
        let mut words: Vec<&str> = Vec::new();
        match &first {
            Some(first) => words.extend([
                "nsenter",
                "-t",
                first,
                "-U",
                "--preserve-credentials",
                "--",
                "unshare",
            ]),
            None if user => words.extend(["unshare", "-U", "-r"]),
            None => words.push("unshare"),
        }
        words.extend(["-n", "-m", "sh", "-c", HOLD]);

        let mut child = Command::new(words[0])
            .args(&words[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run unshare (Debian package util-linux)")?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.as_mut() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        if line.trim() != "ready" {
            let output = child.wait_with_output()?;
            bail!(
                "no network namespace to be had: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        let namespace = Namespace {
            holder: child.id(),
            user,
        };
        Ok(Holder { child, namespace })
    }

    pub(super) fn ip(&self, args: &[&str]) -> Result<()> {
        self.run("ip", "iproute2", args)
    }

    /// Has what leaves by an interface leave at this rate.
    pub(super) fn keep_to(&self, interface: &str, rate: &str) -> Result<()> {
        let words = ["qdisc", "add", "dev", interface, "root", "tbf"];
        let bounds = ["rate", rate, "burst", "256k", "latency", "5ms"];
        self.run("tc", "iproute2", &[&words[..], &bounds].concat())
    }

    /// Sets a setting of the namespace's.
    pub(super) fn sysctl(&self, setting: &str) -> Result<()> {
        self.run("sysctl", "procps", &["-qw", setting])
    }

    fn run(&self, program: &str, package: &str, args: &[&str]) -> Result<()> {
        let side = Side {
            namespace: Some(self.namespace),
            ..Side::default()
        };
        let output = side
            .command(&Invocation::new(program, args), None)
            .output()
            .context("cannot run nsenter (Debian package util-linux)")?;
        if !output.status.success() {
            bail!(
                "{program} {} (Debian package {package}): {}",
                args.join(" "),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
