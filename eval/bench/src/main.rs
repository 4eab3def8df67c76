//! The bench on its own, without the rest of `weft`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(name = "weft-bench", version)]
struct Line {
    #[command(flatten)]
    bench: weft_bench::cli::Args,
}

fn main() -> anyhow::Result<ExitCode> {
    weft_bench::cli::run_as(Line::parse().bench, &[])
}
