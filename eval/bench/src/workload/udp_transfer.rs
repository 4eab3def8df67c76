//! Programs that carry a file over UDP and bring a reliability of their own, unmodified, over the kernel's UDP, with
//! segmentation offload, and over carriers: UDT, SRT and UFTP.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use tempfile::TempDir;

use super::made::Made;
use super::Workload;
use crate::exec::Output;
use crate::job::{Job, Ready, Role, Seat, CLIENT, SERVER};
use crate::metric::{Metric, CPU_PER_OCTET, GOODPUT};
use crate::path::{Host, PathKind};
use crate::record::Metrics;
use crate::stack::compiled::{Source, CXX};
use crate::stack::{need, Program, Site, Stack, UdpProgram, UDP, UDP_GSO, UOE};

/// Octets of the file.
const OCTETS: u64 = 128 << 20;
/// Its names where it is sent and where it comes.
const SENT: &str = "source";
const CAME: &str = "came";
/// What takes part of a second where all goes well may take so long where it does not.
const TIMEOUT: Duration = Duration::from_secs(60);

/// UDT has no program, only a library.
const UDT: Source = Source {
    name: "udt",
    compiler: CXX,
    text: include_str!("../../c/udt.cpp"),
    libraries: &["-ludt", "-lpthread"],
};
const SRT: &str = "srt-file-transmit";
/// Octets of a packet's payload, which is that program's own choice.
const SRT_CHUNK: f64 = 1456.0;
/// Packets between two lines of its figures.
const SRT_SAYS_EVERY: u32 = 2000;
const UFTP: &str = "uftp";
const UFTPD: &str = "uftpd";
/// Of uftp, which has no congestion control of its own: kbit/s that it sends, and octets of a block, which fits a
/// packet.
const UFTP_RATE: u32 = 1_000_000;
const UFTP_BLOCK: u32 = 1400;

/// Key of the packets that were sent again, of those that were sent, in percent.
const AGAIN: &str = "again_percent";
/// Key of the times that the receiver asked for blocks, and how many these were.
const MISSED: &str = "missed_blocks";

/// Which program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Udt,
    Srt,
    Uftp,
}

/// A file by one of them.
#[derive(Clone, Debug)]
pub(super) struct UdpTransfer(What, Rc<Made>);

/// Every row.
pub(super) fn all() -> [UdpTransfer; 3] {
    let made = Rc::new(Made::new(make));
    [What::Udt, What::Srt, What::Uftp].map(|what| UdpTransfer(what, made.clone()))
}

fn make() -> Result<TempDir> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    fs::create_dir(folder.path().join(CAME)).context("cannot make a folder")?;
    let write = |path: PathBuf| -> std::io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        for word in 0..OCTETS / 8 {
            file.write_all(&word.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes())?;
        }
        file.flush()
    };
    write(folder.path().join(SENT)).context("cannot write the file that is sent")?;
    Ok(folder)
}

impl Workload for UdpTransfer {
    fn id(&self) -> String {
        let name = match self.0 {
            What::Udt => "udt",
            What::Srt => "srt",
            What::Uftp => "uftp",
        };
        format!("app-{name}")
    }

    fn describe(&self) -> String {
        let name = match self.0 {
            What::Udt => "UDT",
            What::Srt => "SRT",
            What::Uftp => "UFTP at 1 Gbit/s",
        };
        format!("goodput of a file of 128 MiB over {name}")
    }

    fn metric(&self) -> Metric {
        GOODPUT
    }

    fn references(&self) -> Vec<String> {
        vec![UDP.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, path: PathKind) -> bool {
        path.is_local() && [UDP, UDP_GSO, UOE].contains(&&*stack.name())
    }

    fn ready(&self) -> Result<()> {
        match self.0 {
            What::Udt => UDT.compile(self.1.folder()?),
            What::Srt => need(SRT, "srt-tools").and(self.1.folder().map(drop)),
            What::Uftp => need(UFTP, "uftp").and(self.1.folder().map(drop)),
        }
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        // What came before has been looked at, or has failed.
        let _ = fs::remove_file(self.came());
        let role = |name: &str, host: usize, seat, (program, words): (String, Vec<String>)| Role {
            name: name.to_owned(),
            host,
            seat,
            program: stack
                .carry_datagrams(
                    &site.place.hosts[host],
                    UdpProgram {
                        program: Program::Installed(&program, &words),
                        requires: false,
                        is_neighbour: false,
                    },
                )
                .expect("a stack that serves the workload carries its programs"),
            ready: Ready::AtOnce,
            measures: true,
            told_to_end: false,
        };
        let last = site.place.hosts.len() - 1;
        // uftpd is a daemon: it serves until it is told to end. The others serve once.
        let is_daemon = self.0 == What::Uftp;
        let server = Role {
            ready: Ready::Binds(site.port),
            measures: !is_daemon,
            told_to_end: is_daemon,
            ..role(SERVER, 0, Seat::Server, self.receiver(site))
        };
        let client = role(CLIENT, last, Seat::Client, self.sender(site));
        Job {
            roles: vec![server, client],
            pinned: true,
            timeout: TIMEOUT,
        }
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        let metrics = figures(self.0, output)?;
        let came = self.came();
        let compared = compare(&self.1.file(SENT), &came);
        let _ = fs::remove_file(&came);
        compared.map(|()| metrics)
    }

    /// As measured: the file is of one length, whatever a cell's seconds are. uftp looks for receivers at first, and
    /// waits at the end.
    fn share(&self) -> f64 {
        match self.0 {
            What::Udt => 1.3,
            What::Srt => 0.5,
            What::Uftp => 3.0,
        }
    }

    fn on_request(&self) -> bool {
        true
    }
}

impl UdpTransfer {
    /// Where the file is once it has come. SRT and UFTP bring its name with them.
    fn came(&self) -> PathBuf {
        self.1.file(CAME).join(SENT)
    }

    fn receiver(&self, site: &Site) -> (String, Vec<String>) {
        let (address, port) = (site.address().ip().to_string(), site.port.to_string());
        let came = self.1.file(CAME).to_string_lossy().into_owned();
        match self.0 {
            What::Udt => {
                let file = self.came().to_string_lossy().into_owned();
                (self.udt(), strings(&["receive", &address, &port, &file]))
            }
            What::Srt => {
                let from = format!("srt://{address}:{port}?mode=listener");
                let to = format!("file://{came}/");
                (SRT.to_owned(), strings(&["-q", &from, &to]))
            }
            What::Uftp => {
                let scratch = self.1.file("").to_string_lossy().into_owned();
                let interface = &interface(site.place.server());
                let words = [
                    "-d", "-D", &came, "-T", &scratch, "-p", &port, "-I", interface,
                ];
                (UFTPD.to_owned(), strings(&words))
            }
        }
    }

    fn sender(&self, site: &Site) -> (String, Vec<String>) {
        let (address, port) = (site.address().ip().to_string(), site.port.to_string());
        let file = self.1.file(SENT).to_string_lossy().into_owned();
        match self.0 {
            What::Udt => (self.udt(), strings(&["send", &address, &port, &file])),
            What::Srt => {
                let says = SRT_SAYS_EVERY.to_string();
                let (from, to) = (format!("file://{file}"), format!("srt://{address}:{port}"));
                let words = ["-q", "-f", "-pf", "json", "-s", &says, &from, &to];
                (SRT.to_owned(), strings(&words))
            }
            What::Uftp => {
                let (rate, block) = (UFTP_RATE.to_string(), UFTP_BLOCK.to_string());
                let interface = &interface(site.place.client());
                // It says on its standard error what is read here, unless it has a log.
                let words = [
                    "-L",
                    "/dev/stdout",
                    "-M",
                    &address,
                    "-p",
                    &port,
                    "-R",
                    &rate,
                    "-b",
                    &block,
                    "-I",
                    interface,
                    &file,
                ];
                (UFTP.to_owned(), strings(&words))
            }
        }
    }

    fn udt(&self) -> String {
        let folder = self.1.folder().unwrap_or(Path::new(""));
        UDT.program(folder).to_string_lossy().into_owned()
    }
}

/// What the path goes through at a host. uftp asks for it by name.
fn interface(host: &Host) -> String {
    host.side.interface.clone()
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// The programs' own figures, and the time on a core of both for an octet of the file.
fn figures(what: What, output: &Output) -> Result<Metrics> {
    let mut metrics = match what {
        What::Udt => of_udt(output.client()),
        What::Srt => of_srt(output.client()),
        What::Uftp => of_uftp(output.client()),
    }?;
    let roles = output.roles.iter();
    let cpu: f64 = roles.map(|role| role.taken.user + role.taken.system).sum();
    metrics.insert(CPU_PER_OCTET.key.to_owned(), cpu * 1e9 / OCTETS as f64);
    Ok(metrics)
}

/// A figure behind a word.
fn behind(text: &str, word: &str) -> Option<f64> {
    let (_, rest) = text.rsplit_once(word)?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

fn of_udt(printed: &str) -> Result<Metrics> {
    let figure =
        |word: &str| behind(printed, word).with_context(|| format!("udt printed no {word}"));
    let again = 100.0 * figure("again ")? / figure("sent ")?;
    Ok(Metrics::from([
        goodput(OCTETS as f64, figure("seconds ")?),
        (AGAIN.to_owned(), again),
    ]))
}

/// The last of its lines, from when nearly all was sent: it says so for each so many packets. They count from when it
/// was connected.
fn of_srt(printed: &str) -> Result<Metrics> {
    let line = printed.lines().rfind(|line| line.starts_with('{'));
    let line = line.context("srt-file-transmit printed no figures")?;
    let line = line.trim_end_matches(',');
    let said: serde_json::Value = serde_json::from_str(line).context("which are no JSON")?;
    let figure = |at: &str| {
        let found = said.pointer(at).and_then(serde_json::Value::as_f64);
        found.with_context(|| format!("srt-file-transmit printed no {at}"))
    };
    let octets = figure("/send/packetsUnique")? * SRT_CHUNK;
    let again = 100.0 * figure("/send/packetsRetransmitted")? / figure("/send/packets")?;
    Ok(Metrics::from([
        goodput(octets, figure("/time")? / 1e3),
        (AGAIN.to_owned(), again),
    ]))
}

/// The time is that of the transfer: finding who listens takes some seconds before, and the end some behind it.
fn of_uftp(printed: &str) -> Result<Metrics> {
    let seconds = behind(printed, "Total elapsed time:");
    let seconds = seconds.context("uftp printed no time of the transfer")?;
    let asked = printed.lines().filter_map(|line| {
        let (_, got) = line.split_once("Got ")?;
        let (count, _) = got.split_once(" NAKs")?;
        count.parse::<f64>().ok()
    });
    Ok(Metrics::from([
        goodput(OCTETS as f64, seconds),
        (MISSED.to_owned(), asked.fold(0.0, |sum, count| sum + count)),
    ]))
}

fn goodput(octets: f64, seconds: f64) -> (String, f64) {
    (GOODPUT.key.to_owned(), octets * 8.0 / 1e9 / seconds)
}

/// An error where what came is not what was sent.
fn compare(sent: &Path, came: &Path) -> Result<()> {
    let open = |path: &Path| -> Result<BufReader<File>> {
        let file = File::open(path).with_context(|| match path == came {
            true => "no file came".to_owned(),
            false => "the file that was sent is gone".to_owned(),
        })?;
        Ok(BufReader::with_capacity(1 << 20, file))
    };
    let (mut sent, mut came) = (open(sent)?, open(came)?);
    let mut rooms = [vec![0; 1 << 20], vec![0; 1 << 20]];
    loop {
        let [one, other] = &mut rooms;
        let (read, also) = (fill(&mut sent, one)?, fill(&mut came, other)?);
        ensure!(
            one[..read] == other[..also],
            "what came is not what was sent"
        );
        if read == 0 {
            return Ok(());
        }
    }
}

fn fill(from: &mut impl Read, room: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < room.len() {
        match from.read(&mut room[filled..])? {
            0 => break,
            some => filled += some,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_programs_own_figures_are_read() {
        let said = |what, text| figures(what, &Output::of_client(text));
        let udt = said(What::Udt, "seconds 1.073741824 sent 95000 again 950\n").unwrap();
        assert_eq!((udt["goodput_gbit_s"], udt["again_percent"]), (1.0, 1.0));
        let text = include_str!("../../tests/samples/srt-file-transmit.json");
        let srt = said(What::Srt, text).unwrap();
        assert_eq!(srt["goodput_gbit_s"], 84_315.0 * 1456.0 * 8.0 / 1e9 / 0.789);
        assert_eq!(srt["again_percent"], 100.0 * 3663.0 / 87_978.0);
        let text = include_str!("../../tests/samples/uftp.txt");
        let uftp = said(What::Uftp, text).unwrap();
        assert_eq!(uftp["goodput_gbit_s"], 1.073741824 / 1.23);
        assert_eq!(uftp["missed_blocks"], 2968.0);
        for what in [What::Udt, What::Srt, What::Uftp] {
            assert!(said(what, "").is_err(), "{what:?}");
        }
    }

    #[test]
    fn a_file_that_is_another_one_or_shorter_or_not_there_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("sent"), vec![7; 3 << 20]).unwrap();
        fs::write(at("same"), vec![7; 3 << 20]).unwrap();
        fs::write(at("short"), vec![7; 2 << 20]).unwrap();
        let mut damaged = vec![7; 3 << 20];
        damaged[2_500_000] = 8;
        fs::write(at("damaged"), damaged).unwrap();
        compare(&at("sent"), &at("same")).unwrap();
        for name in ["short", "damaged", "none"] {
            assert!(compare(&at("sent"), &at(name)).is_err(), "{name}");
        }
    }
}
