//! One subcommand, one file.

mod agent;
mod announce;
pub(crate) mod announced;
mod certificate_authority;
mod certs;
mod cleanup;
pub(crate) mod demo;
pub(crate) mod dig;
mod dns;
pub(crate) mod doctor;
mod down;
mod encryption;
mod gateway;
mod identity;
mod image;
mod join;
mod node;
mod privileges;
mod proxy;
pub(crate) mod register;
mod release;
mod served_certificates;
pub(crate) mod server;
mod shim;
mod store;
mod token;
mod up;
pub(crate) mod version;

use cli::{env, page, verbs, why};

use crate::config::Subject;
use crate::host::Waypost;

pub(crate) use self::up::is_api_server as is_api_server_of_up;

/// Runs a subcommand.
pub(crate) fn run(subject: Subject) -> anyhow::Result<()> {
    match subject {
        Subject::Up(arguments) => up::exec(*arguments),
        Subject::Down(arguments) => down::exec(&arguments),
        Subject::Server(arguments) => server::exec(&arguments),
        Subject::Node(arguments) => node::exec(&arguments),
        Subject::Cleanup(arguments) => cleanup::exec(&arguments),
        Subject::Demo(arguments) => demo::exec(&arguments),
        Subject::Env(arguments) => env::exec(&arguments),
        Subject::Dig(arguments) => dig::exec(&arguments),
        Subject::Register(arguments) => register::exec(&arguments),
        Subject::Unregister(arguments) => register::exec_removal(&arguments),
        Subject::Page(arguments) => page::exec(&arguments, &Waypost),
        Subject::Why(subject) => why::run(&subject),
        Subject::Doctor(arguments) => doctor::exec(&arguments),
        Subject::Store(subject) => store::exec(subject),
        Subject::Certs(subject) => certs::exec(subject),
        Subject::Token(subject) => token::exec(&subject),
        Subject::Image(subject) => image::exec(subject),
        Subject::Version(arguments) => version::exec(&arguments),
        Subject::Cli(verb) => verbs::run(*verb, &Waypost),
        Subject::Shim(subject) => shim::exec(subject),
    }
}
