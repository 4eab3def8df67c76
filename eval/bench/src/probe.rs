//! What lies under verbs on an adapter: frames alone there and back by its device, and octets of its TCP without verbs.
//! Both ends spin.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};
use clap::{Args, Subcommand};
use weft_adapter::setup;
use weft_engine::carrier::{Carrier, Drive, Network, SocketOptions, Transfer};
use weft_engine::settings::{interfaces, Adapter, Settings};
use weft_os::device::{Batch, PacketDevice, PacketOptions};
use weft_os::packet::{PacketInterface, OFFLOAD_LEN};

use crate::raw::ping_pong::{metrics, WARM_UP};
use crate::record::Metrics;

/// One side of a measurement under verbs. One that is told no number of round trips answers until it is ended.
#[derive(Args, Clone, Debug)]
pub struct ProbeArgs {
    /// Octets of a message, or of a frame
    #[arg(long)]
    size: usize,
    /// Round trips; none for the side that answers
    #[arg(long)]
    iterations: Option<usize>,
    #[command(subcommand)]
    layer: Layer,
}

#[derive(Subcommand, Clone, Debug)]
enum Layer {
    /// Frames of a type that no protocol has
    Device {
        /// The network interface
        #[arg(long)]
        interface: String,
    },
    /// Octets by the adapter's TCP
    Tcp {
        /// The adapter's interface, as settings name it
        #[arg(long)]
        interface: String,
        /// The address of the side that answers
        #[arg(long)]
        server: SocketAddr,
    },
}

/// Nothing comes any more after this.
const SILENCE: Duration = Duration::from_secs(5);
/// The side that answers says so when it can.
const READY: &str = "ready\n";
/// A type for experiments (IEEE 802).
const EXPERIMENTAL: [u8; 2] = [0x88, 0xb5];
const BROADCAST: [u8; 6] = [0xff; 6];
const HEADER_LEN: usize = 14;

/// Runs one side; the one that measures prints its metrics.
pub fn run(args: &ProbeArgs) -> Result<()> {
    let measured = match &args.layer {
        Layer::Device { interface } => by_device(interface, args)?,
        Layer::Tcp { interface, server } => by_tcp(interface, *server, args)?,
    };
    if let Some(metrics) = measured {
        let line = serde_json::to_string(&metrics)? + "\n";
        weft_os::stdout::print(&line).context("cannot print the metrics")?;
    }
    Ok(())
}

/// Times `round_trip` as a ping-pong does.
fn timed(iterations: usize, mut round_trip: impl FnMut() -> Result<()>) -> Result<Metrics> {
    for _ in 0..WARM_UP.min(iterations / 10) {
        round_trip()?;
    }
    let mut samples = Vec::with_capacity(iterations);
    for _ in 0..iterations {
        let start = Instant::now();
        round_trip()?;
        samples.push(start.elapsed().as_secs_f64() * 1e6);
    }
    metrics(&samples, true)
}

fn by_device(name: &str, args: &ProbeArgs) -> Result<Option<Metrics>> {
    let interface = PacketInterface::find(name).with_context(|| format!("no interface {name}"))?;
    let mut device = PacketDevice::open(&interface, &PacketOptions::default())
        .with_context(|| format!("cannot open {name}"))?;
    let mut frame = [&BROADCAST[..], &interface.mac, &EXPERIMENTAL].concat();
    frame.resize(args.size.max(HEADER_LEN), 7);
    let Some(iterations) = args.iterations else {
        weft_os::stdout::print(READY)?;
        loop {
            if answer_to(&mut device, &mut frame)? {
                send(&device, &frame)?;
            }
        }
    };
    // The answer to the first one tells who there is.
    timed(iterations, || {
        send(&device, &frame)?;
        let sent = Instant::now();
        while !answer_to(&mut device, &mut frame)? {
            ensure!(sent.elapsed() < SILENCE, "no frame came back");
        }
        Ok(())
    })
    .map(Some)
}

/// Takes a frame that is there, and addresses `frame` to who sent it.
fn answer_to(device: &mut PacketDevice, frame: &mut [u8]) -> io::Result<bool> {
    let mut came = false;
    device.receive(1, |received| {
        came = received.octets.get(12..HEADER_LEN) == Some(&EXPERIMENTAL[..]);
        if came {
            frame[..6].copy_from_slice(&received.octets[6..12]);
        }
    })?;
    Ok(came)
}

fn send(device: &PacketDevice, frame: &[u8]) -> io::Result<()> {
    let mut batch = Batch::default();
    batch.frame(&[0; OFFLOAD_LEN]);
    batch.push(frame);
    device.send(&mut batch).map(drop)
}

fn by_tcp(interface: &str, server: SocketAddr, args: &ProbeArgs) -> Result<Option<Metrics>> {
    let Ok(interfaces) = interfaces::parse(interface) else {
        bail!("{interface} is no interface of an adapter");
    };
    let settings = Settings {
        adapter: Adapter::Inline,
        interfaces,
        ..Settings::default()
    };
    let network = match setup::open(&settings) {
        Ok(Some(network)) => network,
        Ok(None) => bail!("there is no adapter"),
        Err(wrong) => bail!("{wrong} ({})", wrong.advice()),
    };
    let drives = network.drives();
    let options = SocketOptions::default();
    let mut octets = vec![0x5a; args.size];
    let Some(iterations) = args.iterations else {
        let listener = network.bind(server, &options)?.listen(1)?;
        weft_os::stdout::print(READY)?;
        let (carrier, _) = until(&drives, None, || listener.accept().transpose())??;
        let stream = Stream { carrier, drives };
        while stream.receive(&mut octets, None)? {
            stream.send(&octets)?;
        }
        return Ok(None);
    };
    let carrier = network.connect(server, &options)?;
    until(&drives, Some(SILENCE), || {
        (carrier.is_connected() || carrier.is_broken()).then_some(())
    })?;
    carrier.connect_result().context("cannot connect")?;
    let stream = Stream { carrier, drives };
    timed(iterations, || {
        stream.send(&octets)?;
        ensure!(stream.receive(&mut octets, Some(SILENCE))?, "it ended");
        Ok(())
    })
    .map(Some)
}

/// Runs the adapter until something is there.
fn until<T>(
    drives: &[Arc<dyn Drive>],
    timeout: Option<Duration>,
    mut there: impl FnMut() -> Option<T>,
) -> Result<T> {
    let began = Instant::now();
    loop {
        if let Some(there) = there() {
            return Ok(there);
        }
        for drive in drives {
            ensure!(drive.run(), "the interface is gone");
        }
        let over = timeout.is_some_and(|timeout| began.elapsed() > timeout);
        ensure!(!over, "nothing came");
    }
}

/// A connection of the adapter's, and what runs it.
struct Stream {
    carrier: Box<dyn Carrier>,
    drives: Vec<Arc<dyn Drive>>,
}

impl Stream {
    fn send(&self, mut octets: &[u8]) -> Result<()> {
        while !octets.is_empty() {
            let sent = until(&self.drives, Some(SILENCE), || {
                done(self.carrier.send(octets))
            })??;
            octets = &octets[sent..];
        }
        Ok(())
    }

    /// False at the end of the stream.
    fn receive(&self, octets: &mut [u8], timeout: Option<Duration>) -> Result<bool> {
        let mut got = 0;
        while got < octets.len() {
            let rest = &mut octets[got..];
            match until(&self.drives, timeout, || done(self.carrier.recv(rest)))?? {
                0 => return Ok(false),
                octets => got += octets,
            }
        }
        Ok(true)
    }
}

/// What a transfer came to, 0 for the end of the stream; none where it has to be tried again.
fn done(transfer: Transfer) -> Option<io::Result<usize>> {
    match transfer {
        Transfer::Octets(octets) => Some(Ok(octets)),
        Transfer::End => Some(Ok(0)),
        Transfer::Failed(error) => Some(Err(error)),
        Transfer::WouldBlock => None,
    }
}
