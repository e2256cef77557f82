//! `waypost shim`: the supervisor of one container, and the process that runs a command in one. Internal.

use std::process::exit;

use crate::config::ShimSubject;

/// Runs the command. The process must have one thread.
pub(crate) fn exec(subject: ShimSubject) -> anyhow::Result<()> {
    match subject {
        ShimSubject::Run { folder } => Ok(::agent::shim::run(&folder)?),
        ShimSubject::Exec { file } => exit(::agent::command::enter(&file)),
    }
}
