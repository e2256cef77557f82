//! `waypost`: arguments in, a running server (or an answer) out. No logic lives here.

mod cli;
mod commands;
mod config;
mod doctor;
mod figures;
mod kubeconfig;
mod log;
mod notify;
mod trace_export;
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
    let command = &arguments.command;
    let export = match log::init(&arguments.log, command.default_log(), command.component()) {
        Ok(export) => export,
        Err(error) => {
            log::fatal(&error);
            return ExitCode::FAILURE;
        }
    };
    let result = commands::run(arguments.command);
    if let Some(export) = export {
        export.shutdown();
    }
    exit_code(result)
}

fn exit_code(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    if let Some(cli::Ended(code)) = error.downcast_ref::<cli::Ended>() {
        return ExitCode::from(*code);
    }
    log::fatal(&error);
    ExitCode::FAILURE
}
