//! A program of UDP that keeps a pace over a `weft link` of the row's own: how late its datagrams are where frames are
//! lost, over UDP, over carriers that wait behind a hole, and over those that do not.

use std::time::Duration;

use anyhow::Result;

use super::over_link::{Link, LinkRate, BEYOND, LINK, SECONDS_MIN};
use super::sockets::printed;
use super::Workload;
use crate::exec::Output;
use crate::job::{Job, Ready, Role, Seat, CLIENT, SERVER};
use crate::metric::{Metric, DELAY};
use crate::path::{adapter, PathKind};
use crate::record::Metrics;
use crate::stack::{Site, Stack, UdpProgram, UDP, UOE, UOE_INLINE};

/// Octets of a datagram, and how many a second: 16 Mbit/s, as a moving picture has them.
const SIZE: u64 = 1000;
const PACE: u32 = 2000;

/// Datagrams at a pace over a link.
#[derive(Clone, Debug)]
pub(super) struct FramesOverLink(Link);

/// Every one of the default or of the full plan.
pub(super) fn all(full: bool, rate: LinkRate) -> Vec<FramesOverLink> {
    let (losses, round_trips): (&[f64], &[u32]) = match full {
        true => (&[0.0, 0.01, 0.1, 1.0, 5.0], &[1, 10, 100]),
        false => (&[0.0, 1.0], &[10]),
    };
    let each = round_trips.iter().flat_map(|&round_trip_ms| {
        losses.iter().map(move |&loss_percent| {
            FramesOverLink(Link {
                rate,
                round_trip_ms,
                loss_percent,
                separate: true,
            })
        })
    });
    each.collect()
}

impl Workload for FramesOverLink {
    fn id(&self) -> String {
        let Link {
            round_trip_ms,
            loss_percent,
            ..
        } = self.0;
        format!("udp-frames-rtt{round_trip_ms}-loss{loss_percent}")
    }

    fn describe(&self) -> String {
        let Link {
            rate,
            round_trip_ms,
            loss_percent,
            ..
        } = &self.0;
        format!(
            "delay of datagrams of {SIZE} octets one way, {PACE} a second; {rate}, {round_trip_ms} ms, {loss_percent} \
             % lost; carriers required"
        )
    }

    fn metric(&self) -> Metric {
        DELAY
    }

    fn references(&self) -> Vec<String> {
        vec![UDP.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, path: PathKind) -> bool {
        path == PathKind::Adapter && [UDP, UOE, UOE_INLINE].contains(&stack.name().as_str())
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        let hosts = &site.place.hosts;
        let seconds = site.seconds.max(SECONDS_MIN);
        let address = (hosts[adapter::RECEIVER].address, site.port);
        let role = |name: &str, listens: &str, host, seat, ready| {
            let words = [
                "raw".to_owned(),
                listens.to_owned(),
                std::net::SocketAddr::from(address).to_string(),
                "datagram-flow".to_owned(),
                format!("--size={SIZE}"),
                format!("--seconds={seconds}"),
                format!("--pace={PACE}"),
                format!("--lost={}", self.0.loss_percent),
            ];
            let program = UdpProgram {
                words: &words,
                requires: true,
            };
            Role {
                name: name.to_owned(),
                host,
                seat,
                program: stack
                    .carry_datagrams(&hosts[host], program)
                    .expect("a stack that serves the workload carries its programs"),
                ready,
                measures: true,
                told_to_end: false,
            }
        };
        let weft = stack.emulates().expect("and has the command");
        let server = role(
            SERVER,
            "--listen",
            adapter::RECEIVER,
            Seat::Server,
            Ready::Listens(site.port),
        );
        let client = role(
            CLIENT,
            "--connect",
            adapter::SENDER,
            Seat::Client,
            Ready::AtOnce,
        );
        Job {
            roles: vec![self.0.emulator(weft, false), server, client],
            // Three programs on two cores: where they run is for the scheduler.
            pinned: false,
            timeout: Duration::from_secs((seconds + BEYOND).into()),
        }
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        let mut metrics = printed(output.client(), CLIENT)?;
        let kept_up = output.role(LINK).contains("\"kept_up\":true");
        metrics.insert("link_kept_up".to_owned(), f64::from(u8::from(kept_up)));
        Ok(metrics)
    }

    fn share(&self) -> f64 {
        1.3
    }

    fn size(&self) -> Option<u64> {
        Some(SIZE)
    }
}
