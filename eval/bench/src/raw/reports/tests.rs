//! The generator against servers that do right and wrong.

use std::net::{Shutdown, TcpListener, UdpSocket};

use super::*;

fn of(hosts: u32, kept: bool) -> Reports {
    Reports {
        hosts,
        at_once: 1,
        seconds: 1,
        kept,
        feed: false,
    }
}

/// What the generator makes of the bench's own server; the server's thread ends with the test.
fn measured(program: Reports) -> Result<Metrics> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let theirs = program.clone();
    thread::spawn(move || serve(&listener, &theirs));
    measure(address, &program)
}

/// What it makes of one that does this with each connection.
fn against(program: &Reports, answer: impl Fn(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            answer(stream.unwrap());
        }
    });
    format!("{:#}", measure(address, program).unwrap_err())
}

/// Sends this, where it is asked to.
fn sends(octets: Vec<u8>, when_asked: bool) -> impl Fn(TcpStream) + Send {
    move |mut stream| {
        let mut request = [0; REQUEST.len()];
        if !when_asked || stream.read_exact(&mut request).is_ok() {
            let _ = stream.write_all(&octets);
        }
    }
}

#[test]
fn reports_are_as_many_as_were_whole_whether_the_connection_is_kept_or_not() {
    for kept in [false, true] {
        for (hosts, about) in [(1, 6_000.0), (128, 440_000.0)] {
            let m = measured(of(hosts, kept)).unwrap();
            let octets = m["report_octets"];
            assert!((octets / about - 1.0).abs() < 0.1, "{m:?}");
            assert_eq!(octets, report::make(hosts).len() as f64);
            assert!(
                0.0 < m["request_us"] && m["request_us"] <= m["p99_us"],
                "{m:?}"
            );
            let counted = m["operations"] - WARM_UP as f64;
            assert!(
                0.0 < m["requests_per_s"] && m["requests_per_s"] <= counted,
                "{m:?}"
            );
        }
    }
}

#[test]
fn several_clients_add_up() {
    for kept in [false, true] {
        let program = Reports {
            at_once: 4,
            ..of(1, kept)
        };
        let m = measured(program).unwrap();
        assert!(m["operations"] >= (4 * WARM_UP + 4) as f64, "{m:?}");
    }
}

#[test]
fn a_report_that_is_cut_short_is_no_report() {
    let mut short = report::make(3);
    short.truncate(short.len() - report::END.len());
    let said = against(&of(3, false), sends(short.clone(), false));
    assert!(
        said.contains("cut short") && said.contains(&short.len().to_string()),
        "{said}"
    );
    let said = against(&of(3, true), sends(short.clone(), true));
    assert!(
        said.contains(&format!("after {} octets", short.len())),
        "{said}"
    );
}

#[test]
fn a_server_that_closes_at_once_is_told_so() {
    let closes = |stream: TcpStream| {
        let _ = stream.shutdown(Shutdown::Both);
    };
    let said = against(&of(1, false), closes);
    assert!(said.contains("sent nothing"), "{said}");
}

#[test]
fn what_is_no_report_of_these_hosts_is_told_so() {
    let nonsense = b"HTTP/1.1 400 Bad Request\r\n\r\n</GANGLIA_XML>\n".to_vec();
    for kept in [false, true] {
        let said = against(&of(1, kept), sends(nonsense.clone(), kept));
        assert!(
            said.contains("no report") && said.contains("HTTP/1.1 400"),
            "{said}"
        );
    }
    let said = against(&of(3, false), sends(report::make(2), false));
    assert!(said.contains("lacks the host node-002"), "{said}");
    let said = against(&of(2, false), sends(report::make(3), false));
    assert!(said.contains("has a host \"node-002\""), "{said}");
}

#[test]
fn a_host_stands_there_once_with_all_its_metrics() {
    let text = String::from_utf8(report::make(2)).unwrap();
    let complaint = |text: &str| Whole::of(2).check(text.as_bytes()).unwrap_err().to_string();
    let twice = complaint(&text.replace("NAME=\"node-001\"", "NAME=\"node-000\""));
    assert!(twice.contains("twice"), "{twice}");
    let fewer = complaint(&text.replacen("<METRIC NAME=\"load_one\"", "<METRIC", 1));
    assert!(fewer.contains("31 metrics and not 32"), "{fewer}");
    Whole::of(2).check(text.as_bytes()).unwrap();
}

#[test]
fn what_gmond_reports_is_whole() {
    let report = include_bytes!("../../../tests/samples/gmond-report.xml");
    Whole::of(1).check(report).unwrap();
    // Ours is to be about as long: its numbers have other digits.
    let ours = report::make(1).len() as f64;
    assert!((ours / report.len() as f64 - 1.0).abs() < 0.02, "{ours}");
}

#[test]
fn a_monitor_is_told_again_until_it_reports_everything() {
    let monitor = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut looks = 0;
    feed::until_reported(monitor.local_addr().unwrap(), 2, || {
        looks += 1;
        Ok(looks == 3)
    })
    .unwrap();
    monitor.set_nonblocking(true).unwrap();
    let mut datagrams = 0;
    while monitor.recv(&mut [0; 1500]).is_ok() {
        datagrams += 1;
    }
    // Of each metric what it is and its value.
    assert_eq!(datagrams, 3 * 2 * 2 * report::METRICS.len());
}
