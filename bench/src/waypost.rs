//! Waypost as a subject: one process, one directory.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use tokio::time::Instant;

use crate::subject::{Process, Running, Starting, Subject};

/// See the module.
pub struct Waypost {
    program: PathBuf,
    at: IpAddr,
    more: Vec<String>,
}

impl Waypost {
    /// The program: `$WAYPOST_BIN`, or the one built beside this.
    ///
    /// # Errors
    /// When it is not there.
    pub fn find() -> anyhow::Result<Self> {
        let program = match std::env::var_os("WAYPOST_BIN") {
            Some(path) => PathBuf::from(path),
            None => std::env::current_exe().context("finding this program")?.with_file_name("waypost"),
        };
        ensure!(program.exists(), "{} is missing: `cargo build --release -p waypost`", program.display());
        Ok(Self { program, at: Ipv4Addr::LOCALHOST.into(), more: Vec::new() })
    }

    /// The program itself.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The same, listening at another address than loopback's.
    #[must_use]
    pub fn at(self, at: IpAddr) -> Self {
        Self { at, ..self }
    }

    /// The same with more arguments.
    #[must_use]
    pub fn with(self, arguments: &[&str]) -> Self {
        Self { more: arguments.iter().map(|argument| (*argument).to_owned()).collect(), ..self }
    }
}

impl Subject for Waypost {
    fn name(&self) -> &'static str {
        "waypost"
    }

    fn describe(&self) -> String {
        "waypost server, embedded store".to_owned()
    }

    fn start<'a>(&'a self, home: &'a Path) -> Starting<'a> {
        Box::pin(async move {
            let listen = SocketAddr::new(self.at, 0).to_string();
            let arguments = ["server", "--data-dir", &home.to_string_lossy(), "--listen", &listen];
            let arguments = [&arguments.map(str::to_owned), &self.more[..]].concat();
            let begun = Instant::now();
            let process = Process::spawn(&self.program, &arguments, home, "waypost")?;
            Running::when_ready(vec![process], &home.join("kubeconfig"), begun).await
        })
    }
}
