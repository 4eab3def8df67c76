//! Striped files in the manner of PVFS: a manager that knows which files there are, servers that have the stripes, as
//! files of their own, and clients that ask each server for what it has.
//!
//! The clients read or write, each its own part of one file: an unbroken row of octets by requests of one length, or a
//! tile of a picture that all of them make up, whose rows lie apart in the file (a list of regions in a request). What
//! is read is what was written, or the program fails.
//!
//! A mount is a client for programs that know nothing of it: the files are in a folder (FUSE).

mod client;
mod layout;
mod manager;
mod meeting;
mod message;
mod mount;
mod server;

use std::env;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use crate::filters::Share;
use crate::net::listen;
use client::Client;
use layout::{Layout, Region};
use manager::Manager;
use mount::MountArgs;

/// Octets of each client's part of a file that lies in one row: together more than the caches of processors hold.
const ROW: u64 = 64 << 20;
/// Columns and rows of a tile, and octets of a pixel: of a wall of displays.
const TILE: (u64, u64) = (1024, 768);
const PIXEL: u64 = 3;
/// Tiles beside each other.
const TILES_ACROSS: u64 = 2;
/// Regions of a tile that are asked for at a time.
const ROWS_AT_A_TIME: usize = 256;

/// A process of it.
#[derive(Args, Clone, Debug)]
pub struct StripedArgs {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand, Clone, Debug)]
enum Role {
    /// Knows which files there are
    Manager(ManagerArgs),
    /// Has stripes of them
    Server(ServerArgs),
    /// Reads or writes its part of a file, and prints how fast
    Client(ClientArgs),
    /// Has the files in a folder for any program, until it is unmounted or told to end
    Mount(MountArgs),
}

#[derive(Args, Clone, Debug)]
struct ManagerArgs {
    /// Where clients connect to
    #[arg(long, value_name = "ADDRESS")]
    listen: SocketAddr,
    /// How many there are
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    clients: u32,
    /// Octets of a stripe
    #[arg(long, default_value_t = 64 << 10)]
    stripe: u64,
    /// Servers that a file is spread over
    #[arg(long)]
    servers: u64,
}

#[derive(Args, Clone, Debug)]
struct ServerArgs {
    /// Where clients connect to
    #[arg(long, value_name = "ADDRESS")]
    listen: SocketAddr,
    /// How many there are
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    clients: u32,
}

#[derive(Args, Clone, Debug)]
struct ClientArgs {
    /// Where the manager listens
    #[arg(long, value_name = "ADDRESS")]
    manager: SocketAddr,
    /// Where the servers listen, in their order
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',', required = true)]
    servers: Vec<SocketAddr>,
    #[command(flatten)]
    share: Share,
    /// What lies where in the file
    #[arg(long)]
    pattern: Pattern,
    /// What it does with it
    #[arg(long)]
    does: Does,
    /// Octets of a row
    #[arg(long, default_value_t = ROW)]
    row: u64,
    /// Octets of a request for a part of it
    #[arg(long, default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(8..=16 << 20))]
    request: u32,
    /// Seconds
    #[arg(long)]
    seconds: u32,
}

/// What of the file is a client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Pattern {
    /// One row of octets, in requests of one length.
    Row,
    /// A tile of a picture.
    Tile,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Does {
    Write,
    /// What the servers have in memory.
    Read,
    /// What they have on their disks, where those are disks.
    ReadCold,
}

/// Runs a process.
///
/// # Errors
/// Another one is gone or says what makes no sense; a disk is full; what is read is not what was written.
pub fn run(args: &StripedArgs) -> Result<()> {
    match &args.role {
        Role::Manager(args) => {
            let layout = Layout::new(args.stripe, args.servers)?;
            manager::serve(&listen(args.listen)?, args.clients, layout)
        }
        Role::Server(args) => {
            server::serve(&listen(args.listen)?, args.clients, &env::temp_dir()).map(drop)
        }
        Role::Client(args) => {
            let figures = serde_json::to_string(&measure(args)?)? + "\n";
            weft_os::stdout::print(&figures).context("cannot print the figures")?;
            Ok(())
        }
        Role::Mount(args) => mount::run(args),
    }
}

/// What a client prints.
#[derive(Debug, Serialize)]
struct Figures {
    goodput_gbit_s: f64,
    /// The median request.
    request_us: f64,
    p99_us: f64,
    operations: u64,
}

fn measure(args: &ClientArgs) -> Result<Figures> {
    let manager = Manager::reach(args.manager)?;
    let mut client = Client::reach(&args.servers)?;
    let file = client.open(&manager, "picture")?;
    let requests = args.requests();
    let contents: Vec<Vec<u8>> = requests.iter().map(|regions| contents(regions)).collect();
    for (regions, octets) in requests.iter().zip(&contents) {
        client.write(file, regions, octets)?;
    }
    manager.meet()?;
    let mut room = vec![0; contents.iter().map(Vec::len).max().unwrap_or(0)];
    for (regions, octets) in requests.iter().zip(&contents) {
        let room = &mut room[..octets.len()];
        client.read(file, regions, room)?;
        ensure!(room == octets, "what is read is not what was written");
    }
    manager.meet()?;

    let time = Duration::from_secs(args.seconds.into());
    let (mut took, mut sum, mut moved) = (Vec::new(), Duration::ZERO, 0);
    for (at, (regions, octets)) in requests.iter().zip(&contents).enumerate().cycle() {
        if at == 0 && args.does == Does::ReadCold {
            client.settle(file)?;
        }
        let room = &mut room[..octets.len()];
        let begun = Instant::now();
        match args.does {
            Does::Write => client.write(file, regions, octets)?,
            Does::Read | Does::ReadCold => client.read(file, regions, room)?,
        }
        let each = begun.elapsed();
        // A word of each end, beside the clock: all of them were compared before.
        let ends = |octets: &[u8]| {
            (
                octets.first_chunk::<8>().copied(),
                octets.last_chunk::<8>().copied(),
            )
        };
        let is_it = args.does == Does::Write || ends(room) == ends(octets);
        ensure!(is_it, "what is read is not what was written");
        took.push(each.as_secs_f64() * 1e6);
        moved += octets.len();
        sum += each;
        if sum >= time {
            break;
        }
    }
    took.sort_by(f64::total_cmp);
    Ok(Figures {
        goodput_gbit_s: moved as f64 * 8.0 / sum.as_secs_f64() / 1e9,
        request_us: took[took.len() / 2],
        p99_us: took[took.len() * 99 / 100],
        operations: took.len() as u64,
    })
}

impl ClientArgs {
    /// The regions of each request for all of the client's part.
    fn requests(&self) -> Vec<Vec<Region>> {
        let (copy, row) = (u64::from(self.share.copy), self.row);
        match self.pattern {
            Pattern::Row => {
                let request = u64::from(self.request);
                let starts = (0..row).step_by(request as usize);
                let region = |start: u64| Region {
                    offset: copy * row + start,
                    len: request.min(row - start),
                };
                starts.map(|start| vec![region(start)]).collect()
            }
            Pattern::Tile => {
                let (column, row) = (copy % TILES_ACROSS, copy / TILES_ACROSS);
                let line = TILES_ACROSS * TILE.0 * PIXEL;
                let region = |y: u64| Region {
                    offset: (row * TILE.1 + y) * line + column * TILE.0 * PIXEL,
                    len: TILE.0 * PIXEL,
                };
                let regions: Vec<Region> = (0..TILE.1).map(region).collect();
                regions
                    .chunks(ROWS_AT_A_TIME)
                    .map(<[Region]>::to_vec)
                    .collect()
            }
        }
    }
}

/// What these regions hold: each word of eight octets says where it is.
fn contents(regions: &[Region]) -> Vec<u8> {
    let words = regions
        .iter()
        .flat_map(|region| (region.offset..region.offset + region.len).step_by(8));
    let mut octets: Vec<u8> = words
        .flat_map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes())
        .collect();
    octets.truncate(regions.iter().map(|region| region.len as usize).sum());
    octets
}

#[cfg(test)]
mod tests;
