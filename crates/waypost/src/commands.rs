//! One subcommand, one file.

mod agent;
mod cleanup;
mod demo;
pub(crate) mod dig;
mod dns;
mod down;
pub(crate) mod env;
mod image;
mod join;
mod node;
mod proxy;
pub(crate) mod reach;
mod server;
mod shim;
mod store;
mod token;
mod up;

use crate::config::Subject;

/// Runs a subcommand.
pub(crate) fn run(subject: Subject) -> anyhow::Result<()> {
    match subject {
        Subject::Up(arguments) => up::exec(arguments),
        Subject::Down(arguments) => down::exec(&arguments),
        Subject::Server(arguments) => server::exec(&arguments),
        Subject::Node(arguments) => node::exec(&arguments),
        Subject::Cleanup(arguments) => cleanup::exec(&arguments),
        Subject::Demo => demo::exec(),
        Subject::Env(arguments) => env::exec(&arguments),
        Subject::Dig(arguments) => dig::exec(&arguments),
        Subject::Store(subject) => store::exec(subject),
        Subject::Token(subject) => token::exec(&subject),
        Subject::Image(subject) => image::exec(subject),
        Subject::Shim(subject) => shim::exec(subject),
    }
}
