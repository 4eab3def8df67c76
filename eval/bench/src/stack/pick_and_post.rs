//! Payloads to the places that their headers name, by queue pairs of the connection manager: a small C program on the
//! system's librdmacm, under `weft run`.

use std::path::PathBuf;

use anyhow::{bail, Result};

use super::compiled::{Source, CC};
use super::{on_off, weft_name, Placing, Programs, Site, Stack, Weft};
use crate::exec::Output;
use crate::job::{Invocation, Job, Seat};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::verbs::Verbs;

const SOURCE: Source = Source {
    name: "pick_and_post",
    text: include_str!("../../c/pick_and_post.c"),
    compiler: CC,
    libraries: &["-lrdmacm", "-libverbs"],
};

/// The C program, compiled when it is first asked for.
pub(super) struct PickAndPost {
    weft: Weft,
    scratch: PathBuf,
    crc: bool,
}

impl PickAndPost {
    pub(super) fn new(programs: &Programs, crc: bool) -> Self {
        PickAndPost {
            weft: programs.weft.clone(),
            scratch: programs.scratch.clone(),
            crc,
        }
    }
}

impl Stack for PickAndPost {
    fn name(&self) -> String {
        weft_name(self.crc)
    }

    fn serves(&self, _: &Verbs, _: PathKind) -> bool {
        false
    }

    fn ready(&self) -> Result<()> {
        self.weft.ready()?;
        SOURCE.compile(&self.scratch)
    }

    fn job(&self, workload: &Verbs, site: &Site) -> Job {
        let none = || self.weft.run(&[]);
        site.job(workload, none(), none())
    }

    fn parse(&self, workload: &Verbs, _: &Output) -> Result<Metrics> {
        bail!("{} is not for payloads and their places", workload.id())
    }

    fn places(&self, path: PathKind) -> bool {
        // What is compiled here is on no other machine.
        path != PathKind::Hosts
    }

    fn place(&self, placing: &Placing, site: &Site, seat: Seat) -> Option<Invocation> {
        let program = self
            .weft
            .run(&[])
            .args([SOURCE.program(&self.scratch)])
            .args([placing.way.to_owned()])
            .args([placing.size, u64::from(site.port)].map(|number| number.to_string()))
            .env("WEFT_CRC", on_off(self.crc));
        Some(match seat {
            Seat::Server => program,
            Seat::Client => {
                let server = site.place.server().address.to_string();
                program.args([server, site.seconds.to_string()])
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Place;

    #[test]
    fn both_ends_are_told_the_way_and_the_length_and_the_sender_where_and_for_how_long() {
        let stack = PickAndPost {
            weft: Weft::new("weft"),
            scratch: PathBuf::from("/tmp"),
            crc: true,
        };
        let place = Place::loopback(None);
        let site = Site {
            place: &place,
            port: 7000,
            seconds: 2,
        };
        let placing = Placing {
            way: "pick",
            size: 4096,
        };
        let shown = |seat| stack.place(&placing, &site, seat).unwrap().display();
        assert_eq!(
            [shown(Seat::Server), shown(Seat::Client)],
            [
                "WEFT_CRC=on weft run -- pick_and_post pick 4096 7000",
                "WEFT_CRC=on weft run -- pick_and_post pick 4096 7000 127.0.0.1 2"
            ]
        );
    }
}
