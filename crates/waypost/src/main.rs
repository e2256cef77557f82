//! `waypost`: parses arguments and runs a command.

mod commands;
mod config;
mod figures;
mod host;
mod log;
mod notify;
mod trace_export;

use std::process::ExitCode;

use clap::error::ErrorKind;
use cli::verbs::Ended;
use mimalloc::MiMalloc;

/// glibc's allocator took a quarter of the time of a request, and did not release the memory of large lists.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let arguments = match config::parse(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Printing fails only if the stream is closed.
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
    if let Some(Ended(code)) = error.downcast_ref::<Ended>() {
        return ExitCode::from(*code);
    }
    log::fatal(&error);
    ExitCode::FAILURE
}
