//! The wire itself: what a client sees that no well-behaved client library would show.
//!
//! Each file below covers one topic: who is authenticated, which formats responses have, which limits hold, and what
//! hostile input costs. They use `testbed::wire` (bytes) and `curl` (HTTP/2).

mod access;
mod dials;
mod floods;
mod formats;
mod hostile;
mod limits;
mod metrics;
mod tokens;

use std::process::Command;

use testbed::{Run, Server, run};

/// curl as the administrator. The last line of its output is the version of HTTP and the code.
fn curl(server: &Server, version: &str, arguments: &[&str], path: &str) -> Run {
    let pki = server.home().join("pki");
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", version, "--write-out", "\n%{http_version} %{http_code}"]);
    command.arg("--cacert").arg(pki.join("ca.crt"));
    command.arg("--cert").arg(pki.join("admin.crt")).arg("--key").arg(pki.join("admin.key"));
    run(command.args(arguments).arg(format!("https://{}{path}", server.address)), "")
}
