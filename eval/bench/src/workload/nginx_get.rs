//! nginx, unmodified, over DDP beside the kernel's TCP: how many requests of wrk it answers, with a reload amid them.

use anyhow::{ensure, Context, Result};

use super::sockets::{carried, carries};
use super::Workload;
use crate::exec::Output;
use crate::job::{Job, Seat};
use crate::metric::{Metric, OPERATIONS, P99, REQUEST_RATE};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{need, on_path, Program, Site, Stack, TCP};

/// nginx, and where Debian has it: an ordinary user's `PATH` may lack that folder.
const NGINX: [&str; 2] = ["nginx", "/usr/sbin/nginx"];
const WRK: &str = "wrk";

/// Connections of wrk, each with a request under way.
const CONNECTIONS: u32 = 16;
/// Octets of an answer, which is this part so often.
const PART: usize = 1000;
const PARTS: usize = 4;

/// Runs nginx in a folder that goes with it, with the configuration that is its second argument, and has it read that
/// again after so many seconds.
const WITH_RELOAD: &str = "d=$(mktemp -d) || exit 1\n\
                           trap 'rm -rf \"$d\"' EXIT\n\
                           trap : TERM\n\
                           echo \"$2\" > \"$d/nginx.conf\"\n\
                           \"$1\" -e stderr -p \"$d\" -c \"$d/nginx.conf\" &\n\
                           n=$!\n\
                           sleep \"$3\" && kill -HUP $n\n\
                           while kill -0 $n 2> /dev/null; do wait $n; done\n";

/// A server and wrk.
#[derive(Clone, Copy, Debug)]
pub(super) struct NginxGet;

fn nginx() -> &'static str {
    let mut names = NGINX.into_iter();
    names.find(|name| on_path(name)).unwrap_or(NGINX[0])
}

/// A worker that gives everybody the same, and writes nothing down.
fn configuration(site: &Site) -> String {
    let part = "weft".repeat(PART / 4);
    let answer = "$part".repeat(PARTS);
    format!(
        "daemon off; worker_processes 1; pid pid;\n\
         events {{ worker_connections 256; }}\n\
         http {{ access_log off; keepalive_requests 100000000; client_body_temp_path body; proxy_temp_path proxy;\n\
         fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n\
         server {{ listen {}; set $part {part}; location / {{ return 200 {answer}; }} }} }}",
        site.address()
    )
}

impl Workload for NginxGet {
    fn id(&self) -> String {
        "nginx-get".to_owned()
    }

    fn describe(&self) -> String {
        format!(
            "wrk, GET of {} octets from nginx, {CONNECTIONS} connections, a reload half-way",
            PART * PARTS
        )
    }

    fn metric(&self) -> Metric {
        REQUEST_RATE
    }

    fn references(&self) -> Vec<String> {
        vec![TCP.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, _: PathKind) -> bool {
        carries(stack)
    }

    fn ready(&self) -> Result<()> {
        need(nginx(), "nginx-light")?;
        need(WRK, "wrk")
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        let half = format!("{:.1}", f64::from(site.seconds) / 2.0);
        let server = [
            "-c",
            WITH_RELOAD,
            "sh",
            nginx(),
            &configuration(site),
            &half,
        ]
        .map(str::to_owned);
        let client = [
            "-t1".to_owned(),
            format!("-c{CONNECTIONS}"),
            format!("-d{}s", site.seconds),
            "--latency".to_owned(),
            format!("http://{}/", site.address()),
        ];
        let job = Job {
            timeout: site.timeout(),
            ..Job::pair(
                carried(stack, Seat::Server, Program::Installed("sh", &server)),
                carried(stack, Seat::Client, Program::Installed(WRK, &client)),
                site.port,
                site.place.hosts.len(),
            )
        };
        job.of_lasting_server()
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        let text = output.client();
        let mut lines = text.lines().map(str::trim);
        let complaint = lines.find(|line| line.starts_with("Non-2xx") || is_too_many_errors(line));
        if let Some(complaint) = complaint {
            anyhow::bail!("wrk was not served: {complaint}");
        }
        let (requests, octets) = read(text).context("wrk did not say how much it read")?;
        let rate: f64 = figure(text, "Requests/sec:")
            .context("wrk printed no rate")?
            .parse()?;
        // It rounds to three figures.
        let least = requests * (PART * PARTS) as f64 * 0.99;
        ensure!(
            octets >= least && requests > 0.0,
            "wrk read {octets} octets in {requests} answers"
        );
        let p99 = figure(text, "99%").and_then(microseconds);
        Ok(Metrics::from([
            (REQUEST_RATE.key.to_owned(), rate),
            (OPERATIONS.to_owned(), requests),
            (
                P99.to_owned(),
                p99.context("wrk printed no 99th percentile")?,
            ),
        ]))
    }

    fn on_request(&self) -> bool {
        true
    }
}

/// Whether a line counts errors that are none of the reload's: the old worker ends each of its connections, and a
/// request may be on its way to it.
fn is_too_many_errors(line: &str) -> bool {
    let Some(counts) = line.strip_prefix("Socket errors:") else {
        return false;
    };
    let of_reload = |count: &str| {
        let read = count.trim().strip_prefix("read ");
        read.and_then(|read| read.parse().ok())
            .is_some_and(|read: u32| read <= CONNECTIONS)
    };
    !counts
        .split(',')
        .all(|count| of_reload(count) || count.ends_with(" 0"))
}

/// The word behind a title.
fn figure<'a>(text: &'a str, title: &str) -> Option<&'a str> {
    let mut lines = text.lines().map(str::trim);
    let rest = lines.find_map(|line| line.strip_prefix(title))?;
    rest.split_whitespace().next()
}

/// Answers and octets, out of `55555 requests in 2.00s, 220.50MB read`.
fn read(text: &str) -> Option<(f64, f64)> {
    let line = text.lines().find(|line| line.contains(" requests in "))?;
    let mut words = line.split_whitespace();
    let requests = words.next()?.parse().ok()?;
    let amount = words.rev().nth(1)?;
    let number = amount.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &amount[number.len()..] {
        "B" => 1.0,
        "KB" => 1024.0,
        "MB" => 1024.0 * 1024.0,
        "GB" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    Some((requests, number.parse::<f64>().ok()? * unit))
}

/// A time as wrk has it, such as `731.00us` or `1.02ms`.
fn microseconds(text: &str) -> Option<f64> {
    let number = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[number.len()..] {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Place;
    use crate::stack::tests::raw_tcp;

    const PRINTED: &str = include_str!("../../tests/samples/wrk.txt");

    fn parsed(printed: &str) -> Result<Metrics> {
        NginxGet.parse(&raw_tcp(), &Output::of_client(printed))
    }

    #[test]
    fn the_rate_and_the_tail_stand_in_what_wrk_prints() {
        let metrics = parsed(PRINTED).unwrap();
        assert_eq!(metrics[REQUEST_RATE.key], 83_213.21);
        assert_eq!(metrics[P99], 3090.0);
        assert_eq!(metrics[OPERATIONS], 83_706.0);
    }

    #[test]
    fn errors_and_answers_that_are_too_short_are_told() {
        let complaint = |printed: String| format!("{:#}", parsed(&printed).unwrap_err());
        for more in ["read 17,", "read 16, write 1,"] {
            let errors = PRINTED
                .replace("read 16, write 0,", more)
                .replace("read 16,", more);
            assert!(complaint(errors).contains(more), "{more}");
        }
        let refused = format!("{PRINTED}  Non-2xx or 3xx responses: 7\n");
        assert!(complaint(refused).contains("responses: 7"));
        assert!(
            complaint("unable to connect to 127.0.0.1:1 Connection refused\n".to_owned())
                .contains("how much")
        );
        let short = PRINTED
            .replace("MB read", "KB read")
            .replace("GB read", "KB read");
        assert!(complaint(short).contains("answers"));
    }

    #[test]
    fn times_have_units() {
        assert_eq!(microseconds("731.00us"), Some(731.0));
        assert_eq!(microseconds("1.02ms"), Some(1020.0));
        assert_eq!(microseconds("2.00s"), Some(2e6));
        assert_eq!(microseconds("2.00m"), None);
    }

    #[test]
    fn an_answer_has_its_octets() {
        let place = Place::loopback(None);
        let site = Site {
            place: &place,
            port: 7000,
            seconds: 3,
        };
        let text = configuration(&site);
        assert!(text.contains("listen 127.0.0.1:7000;"), "{text}");
        assert!(text.contains("return 200 $part$part$part$part;"), "{text}");
        let part = text.split_once("set $part ").unwrap().1;
        assert_eq!(part.find(';'), Some(PART));
    }
}
