//! `waypost`: arguments in, a running server (or an answer) out. No logic lives here.

mod cli;
mod commands;
mod config;
mod doctor;
mod figures;
mod kubeconfig;
mod log;
mod notify;
mod why;

use std::process::ExitCode;

use clap::error::ErrorKind;
use mimalloc::MiMalloc;

/// A quarter of the time of a request went into glibc's allocator, and it kept what a large list had needed.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let arguments = match config::parse(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(error) => {
            // clap words its own messages; printing them can only fail when nobody listens.
            let _ = error.print();
            let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            return if asked { ExitCode::SUCCESS } else { ExitCode::from(2) };
        }
    };
    log::begin(&arguments.log, arguments.command.default_log());
    match commands::run(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match error.downcast_ref::<cli::Ended>() {
            Some(cli::Ended(code)) => ExitCode::from(*code),
            None => {
                log::fatal(&error);
                ExitCode::FAILURE
            }
        },
    }
}
