//! `waypost shim`: the supervisor of one container, and the process that takes a command into one. Not for people.

use std::process::exit;

use crate::config::ShimSubject;

/// Runs the command. There is no other thread in this process, and there must be none.
pub(crate) fn exec(subject: ShimSubject) -> anyhow::Result<()> {
    match subject {
        ShimSubject::Run { folder } => Ok(::agent::shim::run(&folder)?),
        ShimSubject::Exec { file } => exit(::agent::command::enter(&file)),
    }
}
