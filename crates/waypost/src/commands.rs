//! One subcommand, one file.

mod demo;
mod server;
mod store;

use crate::config::Subject;

/// Runs a subcommand.
pub(crate) fn run(subject: Subject) -> anyhow::Result<()> {
    match subject {
        Subject::Up(arguments) => server::exec(&arguments.for_one_machine()),
        Subject::Server(arguments) => server::exec(&arguments),
        Subject::Demo => demo::exec(),
        Subject::Store(subject) => store::exec(subject),
    }
}
