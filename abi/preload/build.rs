//! Link arguments of libweft_preload.so.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // nodelete: hooks stay bound wherever the program goes.
    // Bsymbolic: the standard library's own calls bind here, to hooks, never to somebody else's.
    for argument in [
        "-soname,libweft_preload.so",
        "-z,nodelete",
        "-z,now",
        "-z,relro",
        "-z,text",
        "-Bsymbolic",
        "-z,start-stop-visibility=hidden",
    ] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
}
