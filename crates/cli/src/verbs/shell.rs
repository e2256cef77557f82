//! `waypost completion` and `waypost man`: generated from the definition of the command line.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use clap_complete::Shell;

use crate::host::Host;
use crate::terminal;

/// Settings of `completion`.
#[derive(Args, Debug)]
pub struct CompletionArguments {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Settings of `man`.
#[derive(Args, Debug)]
pub struct ManArguments {
    /// The directory; it is created if it does not exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Prints the completion of a shell.
pub(super) fn completion(arguments: &CompletionArguments, host: &dyn Host) -> anyhow::Result<()> {
    let mut out = Vec::new();
    clap_complete::generate(arguments.shell, &mut host.command_line(), "waypost", &mut out);
    terminal::write(&out)
}

/// Writes a page for the program and for each of its commands.
pub(super) fn man(arguments: &ManArguments, host: &dyn Host) -> anyhow::Result<()> {
    let folder = arguments.folder.display();
    std::fs::create_dir_all(&arguments.folder).with_context(|| format!("making the folder {folder}"))?;
    clap_mangen::generate_to(host.command_line(), &arguments.folder).with_context(|| format!("writing to {folder}"))?;
    terminal::note(&format!("man -l {folder}/waypost.1 shows the first page"));
    Ok(())
}
