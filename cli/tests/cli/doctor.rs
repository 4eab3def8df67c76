//! `weft doctor`.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::place::{err, out, Place};

/// Exit status and everything printed.
fn doctor(place: &Place, program: &str) -> (Option<i32>, String) {
    let output = place.weft(&["doctor", "--", program]).output().unwrap();
    (output.status.code(), out(&output) + &err(&output))
}

fn verdict(said: &str) -> &str {
    said.lines().last().unwrap_or_default()
}

#[test]
fn a_program_without_verbs_has_nothing_to_serve() {
    let (code, said) = doctor(&Place::new(), "/bin/true");
    assert_eq!(code, Some(1));
    assert!(verdict(&said).starts_with("verdict: no: "), "{said}");
    assert!(said.contains("it makes no RDMA calls"), "{said}");
}

#[test]
fn a_program_that_starts_others_may_be_anything() {
    let (code, said) = doctor(&Place::new(), "/bin/sh");
    assert_eq!(code, Some(1));
    assert!(verdict(&said).starts_with("verdict: perhaps: "), "{said}");
}

#[test]
fn a_script_is_followed_to_its_interpreter() {
    let place = Place::new();
    place.executable("script", "#!/bin/sh\ntrue\n");
    let (code, said) = doctor(&place, "./script");
    assert_eq!(code, Some(1));
    assert!(said.contains("is run by /bin/sh"), "{said}");
    assert!(
        said.contains("name the program that the script starts") || said.contains("cannot be seen"),
        "{said}"
    );
    assert!(verdict(&said).starts_with("verdict: perhaps: "), "{said}");
}

#[test]
fn a_missing_file_is_not_found() {
    let (code, said) = doctor(&Place::new(), "./missing");
    assert_eq!(code, Some(1));
    assert_eq!(verdict(&said), "verdict: no: ./missing: no such file");
}

#[test]
fn a_static_program_cannot_be_served() {
    let place = Place::new();
    let source = place.file("empty.c", "int main(void) { return 0; }\n");
    let built = Command::new("gcc")
        .args(["-static", "-o"])
        .arg(place.path("static"))
        .arg(source)
        .output();
    if !built.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: gcc -static makes no program here");
        return;
    }
    let (code, said) = doctor(&place, "./static");
    assert_eq!(code, Some(1));
    assert!(verdict(&said).contains("it is statically linked"), "{said}");

    let run = |arguments: &[&str]| place.weft(arguments).status().unwrap().code();
    assert_eq!(run(&["run", "--", "./static"]), Some(125));
    assert_eq!(run(&["run", "--anyway", "--", "./static"]), Some(0));
}

#[test]
fn a_setuid_program_cannot_be_served() {
    let place = Place::new();
    let copy = place.copy("/bin/true", "setuid");
    if std::os::unix::fs::chown(&copy, Some(65534), None).is_err() {
        eprintln!("skipped: only root can make a program setuid to another user");
        return;
    }
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let (code, said) = doctor(&place, "./setuid");
    assert_eq!(code, Some(1));
    assert!(
        verdict(&said).contains("it is setuid to user 65534"),
        "{said}"
    );
    let status = place.weft(&["run", "--", "./setuid"]).status().unwrap();
    assert_eq!(status.code(), Some(125));
}

#[test]
fn a_missing_library_is_named_with_who_needs_it() {
    let place = Place::new();
    let part = place.file("part.c", "int part(void) { return 0; }\n");
    let main = place.file(
        "main.c",
        "int part(void); int main(void) { return part(); }\n",
    );
    let gcc = |arguments: &[&str]| {
        let output = Command::new("gcc")
            .args(arguments)
            .current_dir(place.path(""))
            .output();
        output.is_ok_and(|output| output.status.success())
    };
    let (part, main) = (part.to_str().unwrap(), main.to_str().unwrap());
    let built = gcc(&["-shared", "-fPIC", "-o", "libpart.so", part])
        && gcc(&["-o", "needy", main, "-L.", "-lpart"]);
    if !built {
        eprintln!("skipped: gcc makes no program here");
        return;
    }
    let (code, said) = doctor(&place, "./needy");
    assert_eq!(code, Some(1));
    assert!(
        said.contains("libpart.so is missing (needed by ./needy)"),
        "{said}"
    );

    let output = place
        .weft(&["doctor", "./needy"])
        .env("LD_LIBRARY_PATH", place.path(""))
        .output()
        .unwrap();
    assert!(!out(&output).contains("is missing"), "{}", out(&output));
}

#[test]
fn an_rdma_program_will_be_served() {
    let Some(place) = Place::with_verbs() else {
        eprintln!("skipped: this machine has no rdma-core");
        return;
    };
    if !std::path::Path::new("/usr/bin/rping").exists() {
        eprintln!("skipped: this machine has no rping");
        return;
    }
    let (code, said) = doctor(&place, "/usr/bin/rping");
    assert_eq!(code, Some(0), "{said}");
    assert!(verdict(&said).starts_with("verdict: yes: "), "{said}");
    assert!(
        said.contains("libibverbs.so.1 and librdmacm.so.1 asked for by the program itself"),
        "{said}"
    );
    assert!(said.contains("Weft never pins memory"), "{said}");

    // Libraries that provide nothing of it are found out.
    let (code, said) = doctor(&Place::new(), "/usr/bin/rping");
    assert_eq!(code, Some(1));
    assert!(verdict(&said).contains("provides none"), "{said}");
}

/// Compiles a program that calls what is declared in `source`; false, with a word, where that cannot be done here.
fn built(place: &Place, source: &str, program: &str) -> bool {
    let source = place.file("source.c", source);
    let built = Command::new("gcc")
        .arg("-o")
        .arg(place.path(program))
        .arg(source)
        .args(["-lrdmacm", "-libverbs"])
        .status();
    let built = built.is_ok_and(|status| status.success());
    if !built {
        eprintln!("skipped: gcc, libibverbs-dev or librdmacm-dev is missing");
    }
    built
}

/// As `rstream` of rdmacm-utils is.
const RSOCKETS: &str =
    "int rsocket(int, int, int); int main(void) { return rsocket(2, 1, 0) < 0; }";

#[test]
fn a_program_of_rsockets_will_be_served() {
    let Some(place) = Place::with_verbs() else {
        eprintln!("skipped: this machine has no rdma-core");
        return;
    };
    if !built(&place, RSOCKETS, "streams") {
        return;
    }
    let place = place.with_sockets();
    let (_, said) = doctor(&place, "./streams");
    assert!(
        said.contains("its rsockets are TCP sockets over DDP"),
        "{said}"
    );
    assert!(!verdict(&said).contains("rsockets"), "{said}");
    // Its ordinary calls are to be seen.
    let shown = place.weft(&["run", "--show", "./streams"]).output();
    let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
    assert!(shown.contains("libweft_preload.so"), "{shown}");
}

#[test]
fn a_program_of_rsockets_will_not_be_served_without_the_library_that_does() {
    let Some(place) = Place::with_verbs() else {
        eprintln!("skipped: this machine has no rdma-core");
        return;
    };
    if !built(&place, RSOCKETS, "streams") {
        return;
    }
    let (code, said) = doctor(&place, "./streams");
    assert_eq!(code, Some(1), "{said}");
    assert!(
        verdict(&said)
            .ends_with("it makes rsockets, and libweft_preload.so is not there to serve them"),
        "{said}"
    );
}

#[test]
fn json_says_the_same() {
    let place = Place::new();
    let output = place.weft(&["doctor", "--json", "/bin/true"]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["verdict"]["answer"], "no");
    assert_eq!(report["program"], "/bin/true");
    assert!(report["findings"].as_array().unwrap().len() > 3);
}

#[test]
fn without_a_program_it_looks_at_the_machine() {
    let place = Place::new();
    let output = place.weft(&["doctor"]).output().unwrap();
    assert!(output.status.success());
    assert!(out(&output).contains("weft run is ready"));

    let output = place.weft(&["doctor", "--libdir", "/nowhere"]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(out(&output).contains("make build"), "{}", out(&output));
}

#[test]
fn a_folder_that_others_may_write_in_is_noted() {
    let place = Place::new();
    let folder = place.path("shared");
    std::fs::create_dir(&folder).unwrap();
    for (mode, words) in [
        (
            0o700,
            "(mode 700): programs of this user that name it share memory",
        ),
        (
            0o1777,
            "-> a folder for this user alone keeps them out: chmod 700 ",
        ),
    ] {
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).unwrap();
        let named = folder.to_str().unwrap();
        let output = place.weft(&["doctor", "--same-host-dir", named]).output();
        let output = output.unwrap();
        assert!(out(&output).contains(words), "{}", out(&output));
        assert!(output.status.success(), "programs are served all the same");
    }
}

/// With a rule for UDP.
fn doctor_of_sockets(place: &Place, program: &str) -> (Option<i32>, String) {
    let output = place
        .weft(&["doctor", "--udp", "gso", "--", program])
        .output()
        .unwrap();
    (output.status.code(), out(&output) + &err(&output))
}

#[test]
fn a_program_with_sockets_is_served_without_rdma_calls() {
    let place = Place::new();
    let source = place.file(
        "talks.c",
        "#include <sys/socket.h>\n\
         int main(void) { return (int)send(socket(2, 2, 0), \"\", 0, 0); }\n",
    );
    let built = Command::new("gcc")
        .arg("-o")
        .arg(place.path("talks"))
        .arg(source)
        .status();
    if !built.is_ok_and(|status| status.success()) {
        eprintln!("skipped: there is no gcc");
        return;
    }
    let (code, said) = doctor_of_sockets(&place, "./talks");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("go through the C library"), "{said}");
}

#[test]
fn a_program_without_sockets_has_nothing_to_offload() {
    let (code, said) = doctor_of_sockets(&Place::new(), "/bin/true");
    assert_eq!(code, Some(1));
    assert!(said.contains("nothing it loads makes sockets"), "{said}");
}

#[test]
fn a_go_program_is_foretold_to_be_unaffected() {
    let place = Place::new();
    let source = place.file(
        "go.c",
        "const char info[] = \"\\377 Go buildinf:\";\nint main(void) { return info[0] == 1; }\n",
    );
    let built = Command::new("gcc")
        .arg("-o")
        .arg(place.path("gopher"))
        .arg(source)
        .status();
    if !built.is_ok_and(|status| status.success()) {
        eprintln!("skipped: there is no gcc");
        return;
    }
    let (code, said) = doctor_of_sockets(&place, "./gopher");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("its sockets are unaffected"), "{said}");
}

#[test]
fn doctor_says_that_weft_is_off() {
    let place = Place::new();
    let output = place
        .weft(&["doctor", "sh"])
        .env("WEFT_OFF", "1")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = out(&output);
    let last = said.lines().last().unwrap();
    assert_eq!(
        last, "verdict: no: sh will not be served: Weft is off (WEFT_OFF)",
        "{said}"
    );
    assert!(
        said.contains("-> to have it on, leave --off away"),
        "{said}"
    );
}
