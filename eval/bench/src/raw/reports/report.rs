//! What a whole report is: one of the bench's own making, and whether one that came is whole.

use std::fmt::Write;
use std::str;

use anyhow::{bail, ensure, Context, Result};

/// The metrics of each host.
pub(super) const METRICS: [&str; 16] = [
    "load_one",
    "load_five",
    "load_fifteen",
    "cpu_user",
    "cpu_system",
    "cpu_idle",
    "mem_free",
    "mem_cached",
    "bytes_in",
    "bytes_out",
    "proc_run",
    "disk_free",
    "mem_total",
    "cpu_num",
    "pkts_in",
    "pkts_out",
];

/// Value of every metric.
pub(super) const VALUE: &str = "0.50";

/// How a report ends.
pub(super) const END: &[u8] = b"</GANGLIA_XML>\n";

/// How one begins.
const BEGIN: &[u8] = b"<?xml ";
/// Octets of the document type that gmond 3.7 puts before each report.
const DOCUMENT_TYPE: usize = 2470;
const HOST: &[u8] = b"<HOST NAME=\"";
const METRIC: &[u8] = b"<METRIC NAME=\"";

/// The name of a host, counted from 0.
pub(super) fn host_name(number: u32) -> String {
    format!("node-{number:03}")
}

/// The address of a host, from a network for documents.
pub(super) fn host_address(number: u32) -> String {
    format!("198.18.{}.{}", number >> 8, number & 255)
}

/// A report of so many hosts, of the elements that gmond's has and about as long.
pub(super) fn make(hosts: u32) -> Vec<u8> {
    let mut text =
        "<?xml version=\"1.0\" encoding=\"ISO-8859-1\" standalone=\"yes\"?>\n".to_owned();
    // In the place of the document type, which nobody here reads.
    let filler = ".".repeat(DOCUMENT_TYPE - "<!---->\n".len());
    let _ = writeln!(text, "<!--{filler}-->");
    text += "<GANGLIA_XML VERSION=\"3.7.2\" SOURCE=\"gmond\">\n";
    text += "<CLUSTER NAME=\"bench\" LOCALTIME=\"1795863310\" OWNER=\"\" LATLONG=\"\" URL=\"\">\n";
    for number in 0..hosts {
        let (name, address) = (host_name(number), host_address(number));
        let _ = writeln!(
            text,
            "<HOST NAME=\"{name}\" IP=\"{address}\" TAGS=\"\" REPORTED=\"1795863309\" TN=\"0\" TMAX=\"20\" \
             DMAX=\"0\" LOCATION=\"unspecified\" GMOND_STARTED=\"0\">"
        );
        for metric in METRICS {
            let _ = write!(
                text,
                "<METRIC NAME=\"{metric}\" VAL=\"{VALUE}\" TYPE=\"float\" UNITS=\"\" TN=\"0\" TMAX=\"60\" \
                 DMAX=\"0\" SLOPE=\"both\">\n<EXTRA_DATA>\n\
                 <EXTRA_ELEMENT NAME=\"SPOOF_HOST\" VAL=\"{address}:{name}\"/>\n</EXTRA_DATA>\n</METRIC>\n"
            );
        }
        text += "</HOST>\n";
    }
    text += "</CLUSTER>\n</GANGLIA_XML>\n";
    text.into_bytes()
}

/// What a report has to have in it.
pub(super) struct Whole {
    hosts: u32,
}

impl Whole {
    /// So many hosts, each with all metrics.
    pub(super) fn of(hosts: u32) -> Whole {
        Whole { hosts }
    }

    /// An error says what is wrong with a report.
    pub(super) fn check(&self, report: &[u8]) -> Result<()> {
        if !report.starts_with(BEGIN) {
            let begin = String::from_utf8_lossy(&report[..report.len().min(40)]);
            bail!("the server sent no report; it begins with {begin:?}");
        }
        ensure!(
            report.ends_with(END),
            "a report was cut short: {} octets without its end",
            report.len()
        );
        let mut seen = vec![false; self.hosts as usize];
        let mut metrics = 0;
        for line in report.split(|octet| *octet == b'\n') {
            if let Some(rest) = line.strip_prefix(HOST) {
                self.see(rest, &mut seen)?;
            } else if line.starts_with(METRIC) {
                metrics += 1;
            }
        }
        let missing = seen.iter().position(|seen| !seen);
        if let Some(missing) = missing {
            bail!("a report lacks the host {}", host_name(missing as u32));
        }
        let wanted = METRICS.len() * self.hosts as usize;
        ensure!(
            metrics == wanted,
            "a report has {metrics} metrics and not {wanted}"
        );
        Ok(())
    }

    /// Takes down that a host was there, whose name `rest` begins with.
    fn see(&self, rest: &[u8], seen: &mut [bool]) -> Result<()> {
        let name = rest.split(|octet| *octet == b'"').next();
        let name = str::from_utf8(name.unwrap_or_default()).context("a host has no name")?;
        let number: Option<u32> = name
            .strip_prefix("node-")
            .and_then(|number| number.parse().ok());
        let number = number.filter(|&number| number < self.hosts && name == host_name(number));
        let number = number.with_context(|| format!("a report has a host {name:?}"))?;
        let seen = &mut seen[number as usize];
        ensure!(!*seen, "a report has the host {name:?} twice");
        *seen = true;
        Ok(())
    }
}
