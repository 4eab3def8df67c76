use super::*;

fn read(variables: &[(&str, &str)]) -> (Settings, Vec<Complaint>) {
    Settings::from_pairs(
        variables
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value))),
    )
}

/// Settings in which no field has its default.
fn perturbed() -> Settings {
    Settings {
        off: true,
        crc: false,
        mpa_revision: 0,
        peer_to_peer: false,
        ready_to_receive: ReadyToReceive::Read,
        speak_first: true,
        acknowledge: false,
        markers: true,
        fpdu: FpduSize::Large,
        face: Face::Iwarp,
        devices: Devices::All,
        adapter: Adapter::Inline,
        interfaces: interfaces::parse("tap:t address=10.0.0.1/8").unwrap(),
        place: Place::InOrder,
        tcp: TransportRules::parse("none").unwrap(),
        log: LogLevel::Off,
        real_devices: true,
        connect_timeout: Duration::MAX,
        start_timeout: Duration::MAX,
        receive_wait: Duration::MAX,
        half_open_limit: 0,
        refused_access_limit: u32::MAX,
        same_host: false,
        same_host_dir: Some(PathBuf::from("/")),
        same_host_crc: true,
        stat: false,
        serve_tick: Duration::MAX,
        busy_poll: Duration::MAX,
        socket_buffer: Some(1),
        udp: DatagramRules::default(),
        udp_hold: Duration::MAX,
        udp_busy_after: u32::MAX,
        ddp: StreamRules::parse("require").unwrap(),
        ddp_crc: true,
        discovery_port: DiscoveryPort::Same,
    }
}

#[test]
fn the_defaults_of_the_table_are_the_defaults_of_the_struct() {
    let mut settings = perturbed();
    for setting in SETTINGS
        .iter()
        .filter(|setting| !setting.default.is_empty())
    {
        setting
            .apply(&mut settings, setting.default)
            .unwrap_or_else(|reason| panic!("{}: {reason:?}", setting.name));
    }
    // Of what has no default text nothing was set.
    assert_eq!(settings.ddp, perturbed().ddp);
    settings.ddp = StreamRules::default();
    assert_eq!(settings.tcp, perturbed().tcp);
    settings.tcp = TransportRules::default();
    assert_eq!(settings.same_host_dir, perturbed().same_host_dir);
    settings.same_host_dir = None;
    assert_eq!(settings, Settings::default());
}

#[test]
fn a_folder_has_its_whole_path() {
    let long = format!("/{}", "x".repeat(80));
    for (folder, is_good) in [
        ("/run/weft", true),
        ("", false),
        ("run", false),
        (&long, false),
    ] {
        let (settings, complaints) = read(&[("WEFT_SAME_HOST_DIR", folder)]);
        assert_eq!(settings.same_host_dir.is_some(), is_good, "{folder}");
        assert_eq!(complaints.is_empty(), is_good, "{folder}");
    }
}

#[test]
fn the_three_spellings_of_a_setting_follow_from_its_name() {
    for setting in SETTINGS {
        let env = format!("{PREFIX}{}", setting.name.to_uppercase().replace('-', "_"));
        assert_eq!(setting.env, env);
        let (section, name) = setting.key.split_once('.').expect("section.name");
        assert_eq!(name, setting.name);
        assert!(!section.is_empty());
    }
}

#[test]
fn names_are_unique_and_documented() {
    let mut names: Vec<_> = SETTINGS.iter().map(|setting| setting.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), SETTINGS.len());
    assert!(SETTINGS
        .iter()
        .all(|setting| setting.doc.ends_with('.') && !setting.doc.contains("  ")));
}

#[test]
fn nothing_set_is_the_default_without_complaint() {
    assert_eq!(read(&[]), (Settings::default(), vec![]));
    assert_eq!(
        read(&[("PATH", "/bin"), ("weft_crc", "off")]),
        (Settings::default(), vec![])
    );
}

#[test]
fn every_setting_reaches_its_field() {
    let variables = [
        ("WEFT_OFF", "1"),
        ("WEFT_CRC", "off"),
        ("WEFT_MPA_REVISION", "1"),
        ("WEFT_PEER_TO_PEER", "off"),
        ("WEFT_SPEAK_FIRST", "on"),
        ("WEFT_ACKNOWLEDGE", "off"),
        ("WEFT_MARKERS", "on"),
        ("WEFT_FPDU", "emss"),
        ("WEFT_LOG", "debug"),
        ("WEFT_REAL_DEVICES", "on"),
        ("WEFT_CONNECT_TIMEOUT_MS", "250"),
        ("WEFT_READY_TO_RECEIVE", "write"),
        ("WEFT_START_TIMEOUT_MS", "300"),
        ("WEFT_RECEIVE_WAIT_MS", "70"),
        ("WEFT_HALF_OPEN_LIMIT", "7"),
        ("WEFT_REFUSED_ACCESS_LIMIT", "3"),
        ("WEFT_SAME_HOST", "off"),
        ("WEFT_SAME_HOST_DIR", "/run/weft"),
        ("WEFT_SAME_HOST_CRC", "on"),
        ("WEFT_STAT", "off"),
        ("WEFT_SERVE_TICK_US", "50"),
        ("WEFT_BUSY_POLL_US", "0"),
        ("WEFT_SOCKET_BUFFER", "65536"),
        ("WEFT_UDP", "gso port=5001; off"),
        ("WEFT_UDP_HOLD_US", "100"),
        ("WEFT_UDP_BUSY_AFTER", "0"),
        ("WEFT_DDP", "prefer port=6379; off"),
        ("WEFT_DDP_CRC", "on"),
        ("WEFT_DISCOVERY_PORT", "same"),
        ("WEFT_MODE", "preload"),
        ("WEFT_LIBDIR", "/opt/weft"),
        ("WEFT_FACE", "iwarp"),
        ("WEFT_DEVICES", "eth1,eth0"),
        ("WEFT_ADAPTER", "inline"),
        ("WEFT_INTERFACE", "tap:t address=10.0.0.1/8"),
        ("WEFT_PLACE", "eager"),
        ("WEFT_TCP", "rate=1Gbit port=7471; reno"),
    ];
    for setting in SETTINGS {
        let is_set = variables.iter().any(|(name, _)| *name == setting.env);
        assert!(is_set, "{} is not among the variables above", setting.env);
    }
    let (settings, complaints) = read(&variables);
    assert_eq!(complaints, vec![]);
    assert_eq!(
        settings,
        Settings {
            off: true,
            crc: false,
            mpa_revision: 1,
            peer_to_peer: false,
            ready_to_receive: ReadyToReceive::Write,
            speak_first: true,
            acknowledge: false,
            markers: true,
            fpdu: FpduSize::Emss,
            face: Face::Iwarp,
            devices: Devices::parse("eth1,eth0").unwrap(),
            adapter: Adapter::Inline,
            interfaces: interfaces::parse("tap:t address=10.0.0.1/8").unwrap(),
            place: Place::Eager,
            tcp: TransportRules::parse("rate=1Gbit port=7471; reno").unwrap(),
            log: LogLevel::Debug,
            real_devices: true,
            connect_timeout: Duration::from_millis(250),
            start_timeout: Duration::from_millis(300),
            receive_wait: Duration::from_millis(70),
            half_open_limit: 7,
            refused_access_limit: 3,
            same_host: false,
            same_host_dir: Some(PathBuf::from("/run/weft")),
            same_host_crc: true,
            stat: false,
            serve_tick: Duration::from_micros(50),
            busy_poll: Duration::ZERO,
            socket_buffer: Some(65536),
            udp: DatagramRules::parse("gso port=5001; off").unwrap(),
            udp_hold: Duration::from_micros(100),
            udp_busy_after: 0,
            ddp: StreamRules::parse("prefer port=6379; off").unwrap(),
            ddp_crc: true,
            discovery_port: DiscoveryPort::Same,
        }
    );
}

#[test]
fn choices_name_the_values_in_order() {
    for (index, size) in FpduSize::ALL.iter().enumerate() {
        let name = format!("{size:?}").to_lowercase();
        assert_eq!(
            read(&[("WEFT_FPDU", &name)]).0.fpdu,
            FpduSize::ALL[index],
            "{name}"
        );
    }
    for (place, name) in Place::ALL.into_iter().zip(["in-order", "safe", "eager"]) {
        assert_eq!(read(&[("WEFT_PLACE", name)]).0.place, place, "{name}");
    }
    for level in LogLevel::ALL {
        let name = format!("{level:?}").to_lowercase();
        assert_eq!(read(&[("WEFT_LOG", &name)]).0.log, level, "{name}");
    }
    assert!(LogLevel::Debug > LogLevel::Warn);
}

#[test]
fn switches_take_the_usual_words() {
    for on in ["on", "ON", "true", "yes", "1", " on "] {
        let (settings, complaints) = read(&[("WEFT_MARKERS", on)]);
        assert!(settings.markers && complaints.is_empty(), "{on}");
    }
    for off in ["off", "false", "no", "0"] {
        assert!(!read(&[("WEFT_CRC", off)]).0.crc, "{off}");
    }
}

#[test]
fn a_bad_value_is_named_and_the_default_stays() {
    let (settings, complaints) = read(&[("WEFT_CRC", "maybe"), ("WEFT_LOG", "info")]);
    assert!(settings.crc);
    assert_eq!(settings.log, LogLevel::Info);
    assert_eq!(complaints.len(), 1);
    assert_eq!(
        complaints[0].to_string(),
        "WEFT_CRC=maybe is not understood: give on or off; the default, on, is used"
    );
}

#[test]
fn every_mistake_in_interfaces_is_told() {
    let (settings, complaints) = read(&[("WEFT_INTERFACE", "veth1; tap:t")]);
    assert!(settings.interfaces.is_empty());
    let said = complaints[0].to_string();
    for part in [
        "veth1 is no device",
        "tap:t has no address",
        "none, is used",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn numbers_are_bounded() {
    for bad in ["0", "3", "-1", "two", "", "1.5", "99999999999999999999"] {
        let (settings, complaints) = read(&[("WEFT_MPA_REVISION", bad)]);
        assert_eq!(settings.mpa_revision, 2, "{bad}");
        assert_eq!(complaints.len(), 1, "{bad}");
    }
    let (_, complaints) = read(&[("WEFT_SERVE_TICK_US", "0")]);
    assert_eq!(
        complaints[0].to_string(),
        "WEFT_SERVE_TICK_US=0 is not understood: give a whole number of microseconds \
         from 1 to 1000000; the default, 200, is used"
    );
}

#[test]
fn a_mistyped_name_is_pointed_out() {
    let (_, complaints) = read(&[("WEFT_CRCS", "off"), ("WEFT_SOMETHING_ELSE", "1")]);
    let said: Vec<_> = complaints.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "WEFT_CRCS is not a setting of Weft; did you mean WEFT_CRC?",
            "WEFT_SOMETHING_ELSE is not a setting of Weft; `weft run --help` lists them",
        ]
    );
}

#[test]
fn a_complaint_is_about_the_section_of_its_setting() {
    let (_, complaints) = read(&[
        ("WEFT_CRC", "maybe"),
        ("WEFT_UPD", "gso"),
        ("WEFT_SOMETHING_ELSE", "1"),
        ("WEFT_UDP", "of"),
        ("WEFT_UDP_HOLD", "1"),
    ]);
    let of_sockets = complaints.iter().filter(|one| one.is_about("sockets"));
    let named: Vec<_> = of_sockets.map(|one| one.variable.as_str()).collect();
    assert_eq!(named, ["WEFT_UDP", "WEFT_UDP_HOLD", "WEFT_UPD"]);
    assert!(complaints[0].is_about("iwarp"));
}

#[test]
fn octets_that_are_not_text_are_a_bad_value() {
    use std::os::unix::ffi::OsStringExt;
    let value = OsString::from_vec(vec![b'o', 0xff]);
    let (settings, complaints) = Settings::from_pairs([("WEFT_CRC".into(), value)]);
    assert!(settings.crc);
    assert_eq!(complaints.len(), 1);
}

#[test]
fn a_zero_buffer_is_the_kernels_own() {
    assert_eq!(read(&[("WEFT_SOCKET_BUFFER", "0")]).0.socket_buffer, None);
}

#[test]
fn sockets_are_hooked_for_programs_that_a_rule_names() {
    assert!(!Settings::default().hooks_sockets());
    let (settings, _) = read(&[("WEFT_UDP", "gso program=iperf3"), ("WEFT_CRC", "off")]);
    assert!(settings.hooks_sockets());
    assert!(settings.for_program(&["iperf3"]).hooks_sockets());
    let other = settings.for_program(&["dig"]);
    assert!(!other.hooks_sockets() && !other.crc);
}

#[test]
fn a_rule_that_leaves_tcp_alone_gives_the_program_the_socket_option() {
    let (settings, _) = read(&[("WEFT_DDP", "off program=redis-server")]);
    assert!(settings.hooks_sockets());
    assert!(settings.for_program(&["redis-server"]).hooks_sockets());
    assert!(!settings.for_program(&["sshd"]).hooks_sockets());
    let (wrong, complaints) = read(&[("WEFT_DDP", "preffer")]);
    assert!(!wrong.hooks_sockets() && complaints[0].is_about("sockets"));
    assert_eq!(
        complaints[0].to_string(),
        "WEFT_DDP=preffer is not understood: rule 1, column 1: a rule begins with its action, and preffer is none; \
         did you mean prefer? There are: prefer, require or off; it is left unset"
    );
}

#[test]
fn each_mistake_in_rules_is_named_with_its_place() {
    let (settings, complaints) = read(&[("WEFT_UDP", "gso prot=1; of; gso port=5-4")]);
    assert_eq!(settings.udp, Settings::default().udp);
    assert_eq!(
        complaints[0].to_string(),
        "WEFT_UDP=gso prot=1; of; gso port=5-4 is not understood: rule 1, column 5: prot is nothing that a rule can \
         say; did you mean port=? There are: direction=, address=, port=, program=; rule 2, column 13: a rule begins \
         with its action, and of is none; did you mean off? There are: gso, uoe prefer, uoe require or off; rule 3, \
         column 21: port=5-4 is not understood: give port=N or N-M; the default, off, is used"
    );
}
