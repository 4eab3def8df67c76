//! Link arguments of libweft.so.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
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
