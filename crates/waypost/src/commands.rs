//! One subcommand, one file.

mod cleanup;
mod demo;
mod node;
mod proxy;
mod server;
mod store;
mod up;

use crate::config::Subject;

/// Runs a subcommand.
pub(crate) fn run(subject: Subject) -> anyhow::Result<()> {
    match subject {
        Subject::Up(arguments) => up::exec(arguments),
        Subject::Server(arguments) => server::exec(&arguments),
        Subject::Node(arguments) => node::exec(&arguments),
        Subject::Cleanup => cleanup::exec(),
        Subject::Demo => demo::exec(),
        Subject::Store(subject) => store::exec(subject),
    }
}
