//! Real connections from the client pod, which alone say what works.
//!
//! In: an address, and what should come of a connection to it. Out: the moment that came to pass.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::net::sockopt;
use testbed::net::Pod;

use crate::sentry::Sentry;

/// Timeout of one connection of a sentry: a hundred times what it needs. Some proxies drop packets to addresses that they do
/// not know yet.
const SHORT: Duration = Duration::from_millis(5);
/// How long one that should work may take.
pub const TIMEOUT: Duration = Duration::from_secs(1);

/// The result of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Accepted.
    Accepted,
    /// Refused.
    Refused,
    /// No way there, or no answer.
    Lost,
}

/// Connects once and closes. The calling thread must be inside the namespace.
#[must_use]
pub fn call(to: SocketAddr, timeout: Duration) -> Outcome {
    match TcpStream::connect_timeout(&to, timeout) {
        Ok(connection) => {
            hang_up(&connection);
            Outcome::Accepted
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Outcome::Refused,
        Err(_) => Outcome::Lost,
    }
}

/// Ends a connection with a reset, so that its port is free again at once.
pub fn hang_up(connection: &TcpStream) {
    // It ends with an ordinary end then, which is only slower.
    let _ = sockopt::set_socket_linger(connection, Some(Duration::ZERO));
}

/// Starts calling, from a thread inside the pod, until the outcome is the wanted one.
///
/// # Errors
/// When it ends before its first call.
pub async fn post(pod: &Pod, to: SocketAddr, wanted: Outcome, pause: Duration) -> anyhow::Result<Sentry> {
    let pod = pod.clone();
    let what = format!("{to} is {wanted:?}");
    Sentry::post(what, pause, move |watch| pod.in_namespace(|| watch.until(|| call(to, SHORT) == wanted))).await
}
