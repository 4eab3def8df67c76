//! Link arguments of libweft.so, and the parts of the sources that come from `symbols.txt`.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=symbols.txt");
    println!("cargo::rerun-if-changed=build.rs");
    let symbols = fs::read_to_string("symbols.txt").expect("symbols.txt is beside this file");
    write_rsockets(&symbols);
    // nodelete: plugins are unloaded while the engine's threads run.
    // Bsymbolic: our own calls never go through a name that somebody else may interpose.
    for argument in [
        "-soname,libweft.so",
        "-z,nodelete",
        "-z,now",
        "-z,relro",
        "-z,text",
        "-Bsymbolic",
    ] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
}

/// The functions of rsocket(7), as one list for the macro that makes failing ones of them.
fn write_rsockets(symbols: &str) {
    let mut source = String::from("rsocket_stubs! {\n");
    for (name, _) in entries(symbols).filter(|(_, kind)| *kind == "rsocket") {
        writeln!(source, "    {name},").expect("a string takes anything");
    }
    source.push_str("}\n");
    let folder = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(Path::new(&folder).join("rsockets.rs"), source).expect("OUT_DIR can be written");
}

/// The lines of the list: name and kind.
fn entries(symbols: &str) -> impl Iterator<Item = (&str, &str)> {
    symbols.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        (!name.starts_with('#')).then_some(())?;
        Some((name, words.nth(1)?))
    })
}
