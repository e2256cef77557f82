//! `waypost completion` and `waypost man`: what shells and manuals need to know of the program, made from its own arguments.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::terminal;

/// Settings of `completion`.
#[derive(Args, Debug)]
pub(crate) struct CompletionArguments {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Settings of `man`.
#[derive(Args, Debug)]
pub(crate) struct ManArguments {
    /// The folder; it is made when it is not there
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Prints the completion of a shell.
pub(super) fn completion(arguments: &CompletionArguments) -> anyhow::Result<()> {
    let mut out = Vec::new();
    clap_complete::generate(arguments.shell, &mut crate::config::Arguments::command(), "waypost", &mut out);
    terminal::write(&out)
}

/// Writes a page for the program and for each of its commands.
pub(super) fn man(arguments: &ManArguments) -> anyhow::Result<()> {
    let folder = arguments.folder.display();
    std::fs::create_dir_all(&arguments.folder).with_context(|| format!("making the folder {folder}"))?;
    let command = crate::config::Arguments::command();
    clap_mangen::generate_to(command, &arguments.folder).with_context(|| format!("writing to {folder}"))?;
    terminal::note(&format!("man -l {folder}/waypost.1 shows the first page"));
    Ok(())
}
