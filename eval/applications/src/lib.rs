//! Distributed programs over plain sockets, that the evaluation suite runs on each stack: they know nothing of Weft.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`filters`] | a runtime for programs that are pipelines of filters, in the manner of DataCutter |
//! | [`isosurface`] | pictures of where water has come to in an oil reservoir, on that runtime |
//! | [`striped`] | files that are spread over several servers, in the manner of PVFS |
//! | [`microscope`] | views of a slide that is too large for one machine's memory, on that runtime |
//!
//! Each process of such a program is one run of [`run`], which the bench starts where it belongs.

#![forbid(unsafe_code)]

pub mod filters;
pub mod isosurface;
pub mod microscope;
mod net;
pub mod striped;

use anyhow::Result;
use clap::{Args, Subcommand};

/// One process of a distributed program.
#[derive(Args, Clone, Debug)]
pub struct ApplicationArgs {
    #[command(subcommand)]
    application: Application,
}

#[derive(Subcommand, Clone, Debug)]
enum Application {
    /// Pictures of water in a reservoir
    Isosurface(isosurface::IsosurfaceArgs),
    /// Views of a large slide
    Microscope(microscope::MicroscopeArgs),
    /// Striped files
    Striped(striped::StripedArgs),
}

/// Runs one process. The one that measures prints its figures as a JSON object.
///
/// # Errors
/// What failed: a peer that is not there or ends amid its work, octets that are no frame, a result that is wrong.
pub fn run(args: &ApplicationArgs) -> Result<()> {
    match &args.application {
        Application::Isosurface(isosurface) => isosurface::run(isosurface),
        Application::Microscope(microscope) => microscope::run(microscope),
        Application::Striped(striped) => striped::run(striped),
    }
}
