//! The API server of `up` as a child process: it starts as root, binds the local socket, changes its user and serves.
//!
//! In: an order on standard input, and the settings of its parent. Out: reports there; it serves until the parent closes the connection. If the
//! parent dies, the kernel kills it.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use anyhow::Context as _;
use cli::verbs::Ended;
use rest::LocalSocket;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::order::{Machine, Order, Report};
use super::reporter::Reporter;
use crate::commands::server::{self, Beside};
use crate::commands::{down, privileges};
use crate::config::ServerArguments;

/// The `argv[0]` of the child process.
pub(super) const NAME: &str = "waypost-api-server";

/// Whether this process is the child.
pub(crate) fn is_one() -> bool {
    std::env::args_os().next().is_some_and(|name| name == NAME)
}

/// Serves.
pub(super) fn exec(mut settings: ServerArguments) -> anyhow::Result<()> {
    let input = std::io::stdin().as_fd().try_clone_to_owned().context("opening standard input")?;
    let mut control = UnixStream::from(input);
    let order = Order::read(&control).context("reading the order of `waypost up`, which alone starts this")?;
    order.data_dir.clone_into(&mut settings.place.data_dir);
    match prepare(&order, &settings).and_then(|socket| serve(&settings, order.machine, socket, &control)) {
        Ok(()) => Ok(()),
        Err(error) => {
            // The parent prints the error.
            let _ = control.write_all(Report::failure(&error).as_bytes());
            Err(Ended(1).into())
        }
    }
}

/// Binds the local socket, and changes the user.
fn prepare(order: &Order, settings: &ServerArguments) -> anyhow::Result<LocalSocket> {
    let socket = local_socket(&order.data_dir)?;
    privileges::become_server(&order.account, settings)?;
    kernel::privileges::die_with_parent().context("setting the parent-death signal")?;
    Ok(socket)
}

/// The socket in a data directory, for requests of the user that this process has now.
///
/// # Errors
/// When it cannot be bound.
pub(super) fn local_socket(data_dir: &Path) -> anyhow::Result<LocalSocket> {
    let path = data_dir.join(down::SOCKET);
    let listener =
        bind(&path).with_context(|| format!("listening on {}; choose a shorter --data-dir", path.display()))?;
    Ok(LocalSocket { listener, uid: rustix::process::geteuid().as_raw() })
}

fn bind(path: &Path) -> std::io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

fn serve(
    settings: &ServerArguments,
    machine: Machine,
    socket: LocalSocket,
    mut control: &UnixStream,
) -> anyhow::Result<()> {
    server::runtime()?.block_on(async {
        let Machine { addresses, node, agent } = machine;
        let running = server::start(settings, Beside { addresses, node, socket: Some(socket), is_apart: true }).await?;
        let mut reporter = Reporter::new(&running, agent)?;
        kernel::memory::release();
        let mut asked = std::pin::pin!(server::stop_signal());
        control.write_all(reporter.report().line().as_bytes()).context("reporting to `waypost up`")?;
        let open = control.try_clone()?;
        open.set_nonblocking(true)?;
        let mut open = tokio::net::UnixStream::from_std(open)?;
        loop {
            tokio::select! {
                _ = open.read_u8() => break,
                () = &mut asked => break,
                report = reporter.next() => open.write_all(report?.line().as_bytes()).await?,
            }
        }
        running.stop().await;
        Ok(())
    })
}
