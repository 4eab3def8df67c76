//! A process of a program that is made of filters: a copy of one of them, on a host, joined to others.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::time::Duration;

use super::sockets::carried;
use super::GivenSlide;
use crate::job::{Ready, Role, Seat};
use crate::stack::{Program, Site, Stack};

/// Name of a program.
pub(super) const MICROSCOPE: &str = "microscope";

/// A program of several filters.
pub(super) struct FilterProgram<'a> {
    /// Its name among the applications.
    pub(super) name: &'static str,
    /// Octets of a unit.
    pub(super) unit: u32,
    /// The user's own slide, where there is one.
    pub(super) slide: Option<&'a GivenSlide>,
}

/// A port of a host of the path: so many behind the row's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// The host.
    pub(super) host: usize,
    /// How many ports behind.
    pub(super) port: u16,
}

/// One process.
pub(super) struct FilterCopy {
    /// Its name in the record.
    pub(super) role: String,
    /// Where it listens.
    pub(super) at: End,
    /// Ports that it listens at, from there on.
    pub(super) ports: u16,
    /// Copies of the filter before it.
    pub(super) before: usize,
    /// Where it connects to.
    pub(super) behind: Vec<End>,
    /// Which filter it is, and what that wants to know.
    pub(super) filter: Vec<String>,
    /// Whether it prints the figures.
    pub(super) measures: bool,
}

impl End {
    /// The row's own port of a host.
    pub(super) fn of(host: usize) -> End {
        End { host, port: 0 }
    }

    fn address(self, site: &Site) -> SocketAddr {
        SocketAddr::new(site.place.host(self.host).address, site.port + self.port)
    }
}

impl FilterProgram<'_> {
    /// How long a job of it may take: each process decodes what it needs of a slide of the user's own, view by view.
    pub(super) fn timeout(&self, site: &Site) -> Duration {
        const TIMES: u32 = 16;
        const AT_MOST: Duration = Duration::from_secs(600);
        let decodes = self.slide.map(|slide| slide.decoded_in * TIMES);
        site.timeout() + decodes.unwrap_or_default().min(AT_MOST)
    }

    /// A process of it.
    pub(super) fn role(&self, stack: &dyn Stack, site: &Site, copy: FilterCopy) -> Role {
        let behind = copy.behind.iter();
        let behind: Vec<String> = behind.map(|end| end.address(site).to_string()).collect();
        let mut words = vec![
            "application".to_owned(),
            self.name.to_owned(),
            format!("--unit={}", self.unit),
            format!("--listen={}", copy.at.address(site)),
            format!("--before={}", copy.before),
            format!("--to={}", behind.join(",")),
        ];
        words.extend(copy.filter);
        // As words of their own: a record has the names of files, and not their folders.
        let slide = self
            .slide
            .map(|slide| [OsStr::new("--slide"), slide.file.as_os_str()]);
        Role {
            name: copy.role,
            host: copy.at.host,
            seat: Seat::Server,
            program: carried(stack, Seat::Server, Program::Bench(&words))
                .args(slide.into_iter().flatten()),
            // It listens at the last of them last.
            ready: Ready::Listens(site.port + copy.at.port + copy.ports - 1),
            measures: copy.measures,
            told_to_end: false,
        }
    }
}

/// The words of a filter; that of the first has a share of what is there.
pub(super) fn filter_words(filter: &str, share: Option<(usize, usize)>) -> Vec<String> {
    let mut words = vec![filter.to_owned()];
    if let Some((copy, copies)) = share {
        words.push(format!("--copy={copy}"));
        words.push(format!("--copies={copies}"));
    }
    words
}
