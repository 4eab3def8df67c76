//! Switches what an interface does for the stack above it: what is off the kernel does in its place.
//!
//! A program of its own, which is started in the network namespace of the interface before those that measure.

use std::thread;

use anyhow::{ensure, Context, Result};
use clap::{Args, ValueEnum};
use weft_os::packet::Features;

/// Says that all is as it was asked for.
pub const READY: &str = "switched";

/// Switches the offloads of an interface: those that are named off, all others on.
#[derive(Args, Clone, Debug)]
pub struct OffloadsArgs {
    /// The network interface
    #[arg(long)]
    interface: String,
    /// What it is not to do
    #[arg(long, value_enum)]
    off: Vec<Offload>,
}

/// What a device may do for the stack above it, in the order in which they are switched: segmentation needs checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Offload {
    /// Checksums of what is sent; without them the other end checks what it gets
    Checksum,
    /// Segments of TCP out of longer ones, by the device
    Tso,
    /// Datagrams out of longer ones, by the device
    Uso,
    /// The same as both by the kernel, right before the device
    Gso,
    /// Longer segments and datagrams out of what comes
    Gro,
}

impl Offload {
    /// Its word in a command.
    pub fn word(self) -> String {
        let value = self.to_possible_value();
        value.map_or(String::new(), |value| value.get_name().to_owned())
    }

    /// The kernel's names of it.
    fn features(self) -> &'static [&'static str] {
        match self {
            Offload::Checksum => &["tx-checksum-ip-generic"],
            Offload::Tso => &[
                "tx-tcp-segmentation",
                "tx-tcp-ecn-segmentation",
                "tx-tcp-mangleid-segmentation",
                "tx-tcp6-segmentation",
            ],
            Offload::Uso => &["tx-udp-segmentation"],
            Offload::Gso => &["tx-generic-segmentation"],
            Offload::Gro => &["rx-gro"],
        }
    }
}

/// Switches, looks whether it is so, says that it is, and stays until it is ended: who waits for its word sees it
/// alive.
///
/// # Errors
/// The interface does not do as it was told, or this user may not tell it.
pub fn run(args: &OffloadsArgs) -> Result<()> {
    let interface = &args.interface;
    let features = Features::of(interface)
        .with_context(|| format!("the features of {interface} are not to be had"))?;
    let wanted = |offload: Offload| !args.off.contains(&offload);
    for &offload in Offload::value_variants() {
        for name in offload.features() {
            features
                .switch(name, wanted(offload))
                .with_context(|| format!("cannot switch {name} of {interface}"))?;
        }
    }
    for &offload in Offload::value_variants() {
        for name in offload.features() {
            let is_on = features.is_on(name)?;
            ensure!(
                is_on == wanted(offload),
                "{interface} keeps {name} {}",
                if is_on { "on" } else { "off" }
            );
        }
    }
    weft_os::stdout::print(&format!("{READY}\n")).context("cannot say so")?;
    loop {
        thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offload_is_one_that_this_kernel_has_a_name_for() {
        let features = Features::of("lo").unwrap();
        for &offload in Offload::value_variants() {
            for name in offload.features() {
                let unknown = features.switch(name, features.is_on(name).unwrap());
                // Without the privilege it says that, and with it nothing has changed.
                let code = unknown.err().and_then(|error| error.raw_os_error());
                let unsupported = rustix::io::Errno::OPNOTSUPP.raw_os_error();
                assert_ne!(code, Some(unsupported), "{name}");
            }
        }
    }

    #[test]
    fn words_are_those_of_the_command() {
        assert_eq!(Offload::Checksum.word(), "checksum");
        assert_eq!(Offload::from_str("gro", false), Ok(Offload::Gro));
    }
}
