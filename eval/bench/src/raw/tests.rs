//! Both sides of each program in one process.

use super::ablated::{AblatedFlow, AblatedPingPong, Carrier, Pieces};
use super::programs::*;
use super::*;
use crate::verbs::Mode;

/// Both sides of a program in one process, the server on a thread.
fn both(program: Program) -> Metrics {
    all_of(1, program)
}

/// The same with a client of so many connections.
fn all_of(clients: u32, program: Program) -> Metrics {
    tried(clients, &program).unwrap()
}

/// The same of a program that has to be in time: a try in which the machine stood still says nothing.
fn both_in_time(program: &Program) -> Metrics {
    let mut tries = (0..20).map(|_| tried(1, program));
    tries.find_map(Result::ok).expect("one try is in time")
}

fn tried(clients: u32, program: &Program) -> Result<Metrics> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let theirs = program.clone();
    let server = thread::spawn(move || serve(&listener, clients, &theirs).unwrap());
    let measured = measure_all(address, clients, program);
    let told = server.join().unwrap();
    measured.map(|metrics| metrics.into_iter().chain(told).collect())
}

#[test]
fn a_ping_pong_halves_the_round_trip() {
    for mode in [Mode::Polling, Mode::Event] {
        let m = both(Program::PingPong(PingPong {
            mode,
            epoll: false,
            request: 64,
            reply: 64,
            iterations: 200,
            pace: None,
        }));
        assert!((m["rtt_us"] / m["half_rtt_us"] - 2.0).abs() < 1e-9, "{m:?}");
        assert!(
            m["min_us"] <= m["half_rtt_us"]
                && m["half_rtt_us"] <= m["p99_us"]
                && m["p99_us"] <= m["p999_us"]
        );
    }
}

#[test]
fn a_ping_pong_at_a_pace_takes_its_time_and_the_server_tells_its_own() {
    let start = std::time::Instant::now();
    let m = both_in_time(&Program::PingPong(PingPong {
        mode: Mode::Event,
        epoll: false,
        request: 1,
        reply: 1,
        iterations: 50,
        pace: Some(100),
    }));
    assert!(start.elapsed().as_millis() >= 500, "{m:?}");
    // Of the whole process: other tests run in it.
    assert!(m["server_cpu_ns"] > 0.0, "{m:?}");
}

#[test]
fn a_read_reports_percentiles_of_the_whole_round_trip() {
    let m = both(Program::PingPong(PingPong {
        mode: Mode::Event,
        epoll: false,
        request: 52,
        reply: 1 << 20,
        iterations: 20,
        pace: None,
    }));
    assert!(m["p99_us"] >= m["rtt_us"], "{m:?}");
}

#[test]
fn a_receiver_that_decrypts_gets_what_was_sealed() {
    let m = both(Program::Stream(Stream {
        size: 1000,
        seconds: 1,
        nagle: false,
        poll: true,
        rate: None,
        decrypt: true,
    }));
    assert!(m["messages_per_s"] > 1.0, "{m:?}");
    let m = both(Program::DatagramFlow(DatagramFlow {
        size: 1000,
        seconds: 1,
        pace: None,
        rate: None,
        lost: 0.0,
        own: true,
        decrypt: true,
    }));
    assert!(m["messages_per_s"] > 1.0, "{m:?}");
}

#[test]
fn a_stream_counts_what_arrived() {
    let m = both(Program::Stream(Stream {
        size: 1000,
        seconds: 1,
        nagle: false,
        poll: false,
        rate: None,
        decrypt: false,
    }));
    let octets_per_s = m["goodput_gbit_s"] * 1e9 / 8.0;
    assert!(
        (octets_per_s / m["messages_per_s"] - 1000.0).abs() < 1.0,
        "{m:?}"
    );
    assert!(m["messages_per_s"] > 1.0, "{m:?}");
}

#[test]
fn messages_of_two_buffers_arrive_whole_however_they_are_gathered() {
    for (how, payload) in [
        (gather::How::Copy, 1448),
        (gather::How::Writev, 16),
        (gather::How::Writev, 1 << 20),
        (gather::How::Cork, 1448),
    ] {
        let m = both(Program::Gather(Gather {
            how,
            payload,
            seconds: 1,
        }));
        let octets_per_s = m["goodput_gbit_s"] * 1e9 / 8.0;
        let each = octets_per_s / m["messages_per_s"];
        assert!((each - payload as f64).abs() < 1.0, "{m:?}");
        assert!(m["operations"] >= 16.0, "{m:?}");
    }
}

#[test]
fn a_stream_that_is_not_what_was_sent_is_refused() {
    let gather = Gather {
        how: gather::How::Copy,
        payload: 100,
        seconds: 1,
    };
    for (octets, wanted) in [
        (vec![7; 116], "message 0 is not what was sent"),
        (vec![7; 115], "ends within message 0"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        std::io::Write::write_all(&mut sender, &octets).unwrap();
        drop(sender);
        let program = Program::Gather(gather.clone());
        let complaint = serve(&listener, 1, &program).unwrap_err().to_string();
        assert!(complaint.contains(wanted), "{complaint}");
    }
}

#[test]
fn several_streams_add_up_and_a_server_feeds_its_clients() {
    let stream = Stream {
        size: 1000,
        seconds: 1,
        nagle: false,
        poll: false,
        rate: None,
        decrypt: false,
    };
    for program in [Program::Stream(stream.clone()), Program::Feed(stream)] {
        let m = all_of(3, program);
        let octets_per_s = m["goodput_gbit_s"] * 1e9 / 8.0;
        assert!(
            (octets_per_s / m["messages_per_s"] - 1000.0).abs() < 1.0,
            "{m:?}"
        );
    }
}

#[test]
fn both_directions_carry_at_once_and_are_added_up() {
    let m = both(Program::Both(Both {
        size: 100_000,
        seconds: 1,
    }));
    let sum = m["to_client_gbit_s"] + m["to_server_gbit_s"];
    assert!((m["goodput_gbit_s"] - sum).abs() < 1e-9, "{m:?}");
    assert!(m["to_client_gbit_s"] > 0.0 && m["to_server_gbit_s"] > 0.0);
}

#[test]
fn windows_are_answered_as_wholes() {
    for messages in [1, 5] {
        let m = both(Program::Window(Window {
            size: 1000,
            messages,
            seconds: 1,
        }));
        assert!(m["goodput_gbit_s"] > 0.0, "{m:?}");
        assert_eq!(m["operations"] % messages as f64, 0.0, "{m:?}");
    }
}

#[test]
fn payloads_get_to_their_places_in_every_way() {
    for way in [Way::Pick, Way::Posted, Way::Copied] {
        // Longer than what one look takes, so that they come in pieces.
        let m = both(Program::Place(Place {
            way,
            size: 200_001,
            seconds: 1,
        }));
        let octets_per_s = m["goodput_gbit_s"] * 1e9 / 8.0;
        assert!(
            (octets_per_s / m["messages_per_s"] - 200_001.0).abs() < 1.0,
            "{m:?}"
        );
    }
}

#[test]
fn a_client_computes_while_messages_come_or_go() {
    for direction in [Direction::Receive, Direction::Send] {
        let m = both_in_time(&Program::Overlap(Overlap {
            direction,
            size: 1000,
            rate: 100,
            seconds: 1,
        }));
        assert_eq!(m["operations"], 50.0, "{m:?}");
        // Of a machine that does nothing else it would be nearly all.
        assert!(m["computing_percent"] > 1.0, "{m:?}");
    }
}

#[test]
fn who_works_on_every_octet_has_the_sum_of_what_was_sent() {
    let m = both(Program::Process(Process {
        size: 70_001,
        seconds: 1,
    }));
    assert!(m["goodput_gbit_s"] > 0.0 && m["operations"] >= 2.0, "{m:?}");
}

#[test]
fn a_connection_is_measured_until_it_stands_or_until_it_answers() {
    for (reply, key) in [(false, "connect_us"), (true, "bring_up_us")] {
        let m = both(Program::Connect(Connect {
            iterations: 50,
            reply,
        }));
        assert!(0.0 < m[key] && m[key] <= m["p99_us"], "{m:?}");
    }
}

#[test]
fn an_exchange_counts_answers_whose_octets_come_in_any_pieces() {
    // Longer than what one look takes, so that they do come in pieces.
    let m = both(Program::Exchange(Exchange {
        request: 100_000,
        reply: 70_001,
        depth: 3,
        seconds: 1,
    }));
    assert!(m["messages_per_s"] > 1.0, "{m:?}");
}

#[test]
fn datagrams_go_there_and_back() {
    for waits in [false, true] {
        let m = both(Program::DatagramPingPong(DatagramPingPong {
            size: 64,
            iterations: 200,
            waits,
        }));
        assert!(
            m["min_us"] <= m["half_rtt_us"] && m["half_rtt_us"] <= m["p99_us"],
            "{m:?}"
        );
    }
}

#[test]
fn a_flow_of_datagrams_tells_what_came_and_what_it_took() {
    for own in [false, true] {
        let m = both(Program::DatagramFlow(DatagramFlow {
            size: 1000,
            seconds: 1,
            pace: None,
            rate: None,
            lost: 0.0,
            own,
            decrypt: false,
        }));
        assert!(m["goodput_gbit_s"] > 0.0, "{m:?}");
        assert!(m["cpu_ns_per_octet"] > 0.0, "{m:?}");
        assert!((0.0..100.0).contains(&m["lost_percent"]), "{m:?}");
    }
}

#[test]
fn a_flow_at_a_pace_tells_how_long_each_took() {
    let m = both(Program::DatagramFlow(DatagramFlow {
        size: 100,
        seconds: 1,
        pace: Some(1000),
        rate: None,
        lost: 0.0,
        own: false,
        decrypt: false,
    }));
    assert!(
        m["operations"] > 500.0 && m["operations"] <= 1000.0,
        "{m:?}"
    );
    assert!(0.0 < m["delay_us"] && m["delay_us"] <= m["p99_us"], "{m:?}");
    assert_eq!(m["not_lost_p99_us"], m["p99_us"]);
    assert!((0.0..100.0).contains(&m["missed_20ms_percent"]), "{m:?}");
}

#[test]
fn a_datagram_to_each_of_some_ports_arrives() {
    let m = both(Program::DatagramLone(DatagramLone {
        size: 1000,
        iterations: 20,
        late: 0,
    }));
    assert_eq!((m["operations"], m["lost_percent"]), (20.0, 0.0), "{m:?}");
    assert!(
        m["delay_us"] > 0.0 && m["delay_us"] <= m["latest_us"],
        "{m:?}"
    );
}

#[test]
fn a_stream_of_datagrams_counts_what_came_and_tells_what_did_not() {
    let m = both(Program::DatagramStream(DatagramStream {
        size: 1000,
        seconds: 1,
    }));
    let octets_per_s = m["goodput_gbit_s"] * 1e9 / 8.0;
    assert!(
        (octets_per_s / m["messages_per_s"] - 1000.0).abs() < 1.0,
        "{m:?}"
    );
    assert!((0.0..100.0).contains(&m["lost_percent"]), "{m:?}");
}

#[test]
fn who_waits_in_epoll_or_poll_gets_all_of_it() {
    let m = both(Program::PingPong(PingPong {
        mode: Mode::Event,
        epoll: true,
        request: 64,
        reply: 64,
        iterations: 200,
        pace: None,
    }));
    assert!(m["half_rtt_us"] > 0.0, "{m:?}");
    let m = both(Program::Stream(Stream {
        size: 1 << 20,
        seconds: 1,
        nagle: false,
        poll: true,
        rate: None,
        decrypt: false,
    }));
    assert!(m["goodput_gbit_s"] > 0.0, "{m:?}");
}

#[test]
fn idle_connections_are_counted_by_both_ends() {
    let m = both(Program::Idle(Idle {
        connections: 20,
        seconds: 1,
    }));
    assert_eq!(m["connections"], 20.0, "{m:?}");
    // Of the whole process: other tests run in it.
    assert!(m.contains_key("idle_cpu_percent"), "{m:?}");
    assert!(m.contains_key("process_octets"), "{m:?}");
}

#[test]
fn a_transfer_is_there_whole_at_the_end() {
    let m = both(Program::DatagramBlast(DatagramBlast {
        size: 1000,
        octets: 2_000_500,
        rate: 200,
        socket_rate: false,
    }));
    assert!(m["rounds"] >= 1.0 && m["operations"] >= 2001.0, "{m:?}");
    assert!(
        m["goodput_gbit_s"] > 0.0 && m["goodput_gbit_s"] < 0.3,
        "{m:?}"
    );
}

#[test]
fn a_stream_that_adapts_goes_faster_where_nothing_holds_it() {
    let m = both(Program::DatagramAdaptive(DatagramAdaptive {
        size: 1000,
        seconds: 1,
        rate: 20,
        socket_rate: false,
    }));
    assert!(m["goodput_gbit_s"] > 0.0, "{m:?}");
    assert!((0.0..100.0).contains(&m["lost_percent"]), "{m:?}");
}

/// All of it straight, and with a copy and a second thread; over each carrier.
fn pieces_of_each() -> Vec<Pieces> {
    let carriers = [
        Carrier::Tcp,
        Carrier::Udp,
        Carrier::UdpMany,
        Carrier::UdpSegment,
    ];
    let pieces = |carrier| {
        [(false, false), (true, true)].map(|(copy, thread)| Pieces {
            carrier,
            size: 1000,
            batch: 2,
            nagle: copy,
            copy,
            thread,
        })
    };
    carriers.into_iter().flat_map(pieces).collect()
}

#[test]
fn messages_come_whatever_piece_of_the_way_is_there() {
    for pieces in pieces_of_each() {
        let m = both(Program::AblatedFlow(AblatedFlow { pieces, seconds: 1 }));
        assert!(m["goodput_gbit_s"] > 0.0, "{pieces:?}: {m:?}");
        // What was lost is not counted as having come.
        let (lost, came) = (m["lost_percent"], m["operations"]);
        assert!((0.0..100.0).contains(&lost) && came > 10.0, "{m:?}");
    }
}

#[test]
fn a_message_comes_back_whatever_piece_of_the_way_is_there() {
    for pieces in pieces_of_each() {
        let m = both(Program::AblatedPingPong(AblatedPingPong {
            pieces,
            iterations: 50,
        }));
        assert!(m["half_rtt_us"] > 0.0 && m["operations"] == 1050.0, "{m:?}");
    }
}

#[test]
fn a_stream_and_datagrams_keep_a_rate() {
    let stream = Program::Stream(Stream {
        size: 1000,
        seconds: 1,
        nagle: false,
        poll: false,
        rate: Some(2000),
        decrypt: false,
    });
    let datagrams = |own| {
        Program::DatagramFlow(DatagramFlow {
            size: 1000,
            seconds: 1,
            pace: None,
            rate: Some(2000),
            lost: 0.0,
            own,
            decrypt: false,
        })
    };
    for program in [stream, datagrams(false), datagrams(true)] {
        let m = both_in_time(&program);
        // The last burst is ahead of its time.
        assert!(m["messages_per_s"] < 2500.0, "{m:?}");
    }
}

#[test]
fn who_comes_to_less_than_its_rate_has_no_figure() {
    let program = Program::Stream(Stream {
        size: 1 << 20,
        seconds: 1,
        nagle: false,
        poll: false,
        rate: Some(1_000_000_000),
        decrypt: false,
    });
    let error = tried(1, &program).unwrap_err().to_string();
    assert!(error.ends_with("instead of 1000000000"), "{error}");
}
