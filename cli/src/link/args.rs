//! The command line of `weft link`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueHint};

use super::values::{self, BurstLoss, Queue, Reorder};

pub const LONG_ABOUT: &str = "\
Join two network interfaces by an emulated link: frames that arrive at A leave by B, and the other way, \
late, limited and damaged as the options say. It does what the kernel's netem does, where there is none, \
and what a router or another box on the way does besides.

It needs CAP_NET_RAW in the network namespace of the two interfaces: root has it, and so has an ordinary \
user in a namespace of their own (unshare -rn). The interfaces stay as they are; while it runs they are \
promiscuous. The documentation (docs/link.md) shows how to make two namespaces with a link between them.

The first line on standard error says that frames are forwarded from now on. At the end (Ctrl-C, SIGTERM, \
--duration) standard output gets the counts and how late frames were. The exit status is 0 when the \
emulator kept up, 3 when it did not, 1 when it could not begin.";

pub const AFTER: &str = "\
Every option of the link is for both directions; --a-to-b and --b-to-a change single ones for one direction, \
as the option's name without the dashes, and its value.

Examples:
  weft link veth-a veth-b --delay 50ms --rate 1Gbit --loss 0.01% --seed 7
  weft link veth-a veth-b --delay 10ms --a-to-b rate=10Mbit,loss=1% --b-to-a rate=100Mbit
  weft link veth-a veth-b --burst-loss 1%:20     1 % lost, in bursts of 20 frames on average
  weft link veth-a veth-b --mtu 1400             a router that fragments, or says what is too big
  weft link veth-a veth-b --resegment --reorder 1%:5ms --duplicate 0.1% --pcap link.pcapng
  weft link veth-a veth-b --delay 20ms --duration 30s --json";

/// `weft link`.
#[derive(Debug, clap::Args)]
pub struct LinkArgs {
    /// One interface
    #[arg(value_name = "A")]
    pub a: String,

    /// The other
    #[arg(value_name = "B")]
    pub b: String,

    /// What happens to frames, in both directions.
    #[command(flatten)]
    pub both: PathFlags,

    /// Options for frames that arrive at A alone: delay=20ms,rate=10Mbit,resegment
    #[arg(long, value_name = "OPTION=VALUE,...", value_parser = PathFlags::parse_list)]
    pub a_to_b: Option<PathFlags>,

    /// Options for frames that arrive at B alone
    #[arg(long, value_name = "OPTION=VALUE,...", value_parser = PathFlags::parse_list)]
    pub b_to_a: Option<PathFlags>,

    /// Decides every random choice: the same frames meet the same fate
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Write what comes in and goes out at both interfaces to a pcapng file
    ///
    /// Frames that come in are written after large ones were cut and before anything else is done to them; frames
    /// that go out as they leave. Each frame has its interface and direction.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub pcap: Option<PathBuf>,

    /// Write when holes in TCP streams were filled to a file
    ///
    /// A JSON object on a line for each segment that let something go on which had waited behind a hole: from, to,
    /// at_ns (since 1970), the octets without a hole before and after it, and those that it brought itself. At the end
    /// one for each stream, with its octets. Of streams whose SYN was seen, by what has left the emulator.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub holes: Option<PathBuf>,

    /// Have each segment leave by itself
    ///
    /// Segments of one stream that leave at one moment otherwise leave as a large frame, as a network card with receive
    /// offload hands them up.
    #[arg(long)]
    pub separate: bool,

    /// End after this time [default: at Ctrl-C or SIGTERM]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub duration: Option<Duration>,

    /// The emulator fails if more than one frame of 100 leaves later than this after it was due
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = values::duration)]
    pub late_max: Duration,

    /// Print a line of counts so often [default: 1s on a terminal, else never]
    #[arg(long, value_name = "TIME", value_parser = interval)]
    pub interval: Option<Duration>,

    /// Print no line of counts
    #[arg(long, conflicts_with = "interval")]
    pub quiet: bool,

    /// Print the counts at the end as JSON, one object on a line
    #[arg(long)]
    pub json: bool,
}

/// What happens to frames in one direction.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub struct PathFlags {
    /// How long a frame is under way, one way
    #[arg(long, value_name = "TIME", value_parser = values::duration, help_heading = "The link")]
    pub delay: Option<Duration>,

    /// Up to so much is added to the delay of each frame; order is kept
    #[arg(long, value_name = "TIME", value_parser = values::duration, help_heading = "The link")]
    pub jitter: Option<Duration>,

    /// Bits per second, Ethernet headers included: 1Gbit, 100Mbit
    #[arg(long, value_name = "RATE", value_parser = values::rate, help_heading = "The link")]
    pub rate: Option<u64>,

    /// What may wait for the rate, in octets or time: 256kB, 20ms
    ///
    /// Frames that find no room are dropped. Without this option what the rate passes in a round trip (both delays
    /// together), and no less than in 10 ms, and no less than 64 KiB.
    #[arg(long, value_name = "SIZE", value_parser = values::queue, help_heading = "The link")]
    pub queue: Option<Queue>,

    /// Share of frames that is lost, each by itself: 0.01%
    #[arg(
        long,
        value_name = "SHARE",
        value_parser = values::share,
        conflicts_with = "burst_loss",
        help_heading = "The link"
    )]
    pub loss: Option<f64>,

    /// Share that is lost in bursts, and how long these are on average: 1%:20
    ///
    /// A third part is the share that is lost within a burst, 100% if it is not there: 1%:20:50% loses 1 % of all
    /// frames, namely half of those in bursts of 20. (The model of Gilbert and Elliott.)
    #[arg(long, value_name = "SHARE:FRAMES", value_parser = values::burst_loss, help_heading = "The link")]
    pub burst_loss: Option<BurstLoss>,

    /// Share of frames that is held back, and for how long: 1%:5ms [default time: 1ms]
    #[arg(long, value_name = "SHARE[:TIME]", value_parser = values::reorder, help_heading = "The link")]
    pub reorder: Option<Reorder>,

    /// Share of frames that arrives twice
    #[arg(long, value_name = "SHARE", value_parser = values::share, help_heading = "The link")]
    pub duplicate: Option<f64>,

    /// Share of frames that arrives with one to eight bits flipped, behind the Ethernet header
    #[arg(long, value_name = "SHARE", value_parser = values::share, help_heading = "The link")]
    pub corrupt: Option<f64>,

    /// A router with this MTU: it fragments IPv4, and answers what must not be fragmented and IPv6
    ///
    /// The answers (ICMP "fragmentation needed", ICMPv6 "packet too big") go back at once and come from the address
    /// that the packet was going to. IPv6 passes up to 1280 octets, whatever the MTU.
    #[arg(
        long,
        value_name = "OCTETS",
        value_parser = clap::value_parser!(u32).range(68..=65535),
        help_heading = "Boxes on the way"
    )]
    pub mtu: Option<u32>,

    /// A box that splits and joins TCP segments; the stream stays the same
    #[arg(long, help_heading = "Boxes on the way")]
    pub resegment: bool,
}

/// [`PathFlags`] as a command line of their own.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct List {
    #[command(flatten)]
    flags: PathFlags,
}

impl PathFlags {
    /// Reads `delay=20ms,resegment`.
    fn parse_list(text: &str) -> Result<PathFlags, String> {
        let words = text.split(',').filter(|word| !word.is_empty());
        List::try_parse_from(words.map(|word| format!("--{word}")))
            .map(|list| list.flags)
            .map_err(|error| first_paragraph(&error.to_string()))
    }

    /// These, and where they say nothing those of `general`.
    pub fn or(&self, general: &PathFlags) -> PathFlags {
        // They exclude each other, so one of them replaces the other.
        let own_loss = self.loss.is_some() || self.burst_loss.is_some();
        let of_loss = if own_loss { self } else { general };
        PathFlags {
            delay: self.delay.or(general.delay),
            jitter: self.jitter.or(general.jitter),
            rate: self.rate.or(general.rate),
            queue: self.queue.or(general.queue),
            loss: of_loss.loss,
            burst_loss: of_loss.burst_loss,
            reorder: self.reorder.or(general.reorder),
            duplicate: self.duplicate.or(general.duplicate),
            corrupt: self.corrupt.or(general.corrupt),
            mtu: self.mtu.or(general.mtu),
            resegment: self.resegment || general.resegment,
        }
    }
}

/// What is wrong, without the hints about a command line that nobody typed.
fn first_paragraph(error: &str) -> String {
    let text = error.strip_prefix("error: ").unwrap_or(error);
    let first = text.split("\n\n").next().unwrap_or_default();
    first.trim().replace("--", "").replace('\n', " ")
}

fn interval(text: &str) -> Result<Duration, String> {
    const LEAST: Duration = Duration::from_millis(100);
    let interval = values::duration(text)?;
    match interval >= LEAST {
        true => Ok(interval),
        false => Err("give 100ms or more".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_direction_has_its_own_and_the_general_options() {
        let general = PathFlags::parse_list("delay=10ms,loss=1%,rate=1Gbit").unwrap();
        let own = PathFlags::parse_list("delay=20ms,burst-loss=2%:5,resegment").unwrap();
        let both = own.or(&general);
        assert_eq!(both.delay, Some(Duration::from_millis(20)));
        assert_eq!(both.rate, Some(1_000_000_000));
        assert_eq!((both.loss, both.burst_loss.unwrap().frames), (None, 5.0));
        assert!(both.resegment && !general.resegment);
        assert_eq!(PathFlags::default().or(&general), general);
    }

    #[test]
    fn a_wrong_list_says_what_is_wrong() {
        for (text, says) in [
            ("dealy=3ms", "dealy"),
            ("delay=3", "such as 20ms"),
            ("loss=1%,burst-loss=1%:3", "cannot be used with"),
            ("mtu=20", "68"),
        ] {
            let error = PathFlags::parse_list(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
            assert!(!error.contains('\n') && !error.contains("--"), "{error}");
        }
    }
}
