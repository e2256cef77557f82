//! A server and a node on a separate machine, with room for many Pods. Two programs instead of `waypost up`, so that the usage of the node can be
//! distinguished from that of the server. Everything is cleaned up on drop.
#![expect(clippy::disallowed_methods, reason = "a benchmark runs the programs it measures")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use client::http::Client;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::program;
use crate::subject::{Process, Running};
use crate::waypost::Waypost;

/// Addresses of Pods, apart from those of the testbed's own pods, and many of them.
const PODS: &str = "10.200.0.0/16,fd00:10:200::/56";
/// Configuration of the server.
const SERVER: [&str; 5] = ["--allocate-node-cidrs", "--node-cidr-mask-size-ipv4", "20", "--cluster-cidr", PODS];
/// Configuration of the node.
const NODE: [&str; 8] =
    ["--node-name", "bench", "--roles", "proxy,agent", "--max-pods", "1000", "--cluster-cidr", PODS];

/// See the module.
pub struct Machine {
    running: Option<Running>,
    program: PathBuf,
    /// The server that Pods run.
    pub backend: PathBuf,
    home: TempDir,
}

impl Machine {
    /// Starts it in the network namespace of this thread.
    ///
    /// # Errors
    /// When a program is missing or does not start.
    pub async fn start() -> anyhow::Result<Self> {
        let program = Waypost::find()?.program().to_owned();
        let backend = std::env::current_exe().context("finding this program")?.with_file_name("backend");
        ensure!(backend.exists(), "{} is missing: `cargo build --release --workspace`", backend.display());
        let home = program::home()?;
        let data = home.path().to_string_lossy().into_owned();
        let kubeconfig = home.path().join("kubeconfig");
        let words = |first: &[&str], more: &[&str]| -> Vec<String> {
            first.iter().chain(more).map(|word| (*word).to_owned()).collect()
        };
        let begun = Instant::now();
        let server = words(&["server", "--data-dir", &data], &SERVER);
        let server = Process::spawn(&program, &server, home.path(), "server")?;
        let mut running = Running::when_ready(vec![server], &kubeconfig, begun).await?;
        let node = words(&["node", "--data-dir", &data, "--kubeconfig", &kubeconfig.to_string_lossy()], &NODE);
        running.join(Process::spawn(&program, &node, home.path(), "node")?);
        Ok(Self { running: Some(running), program, backend, home })
    }

    /// A client with its own connection.
    ///
    /// # Errors
    /// When the program has ended.
    pub fn client(&self) -> anyhow::Result<Client> {
        Ok(self.running()?.client())
    }

    /// The memory of the server and of the node, in bytes.
    ///
    /// # Errors
    /// When one has ended.
    pub fn memory(&self) -> anyhow::Result<[u64; 2]> {
        let each = self.running()?.memory_of_each()?;
        let of = |name| each.iter().find(|(known, _)| *known == name).map(|(_, memory)| memory.resident);
        Ok([of("server").context("there is no server")?, of("node").context("there is no node")?])
    }

    /// The processor time that both have used.
    ///
    /// # Errors
    /// When one has ended.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        self.running()?.cpu()
    }

    /// The memory of all supervisors of containers, shared pages counted once, and how many there are.
    ///
    /// # Errors
    /// When processes cannot be listed.
    pub fn supervisors(&self) -> anyhow::Result<(u64, usize)> {
        let home = self.home.path().to_string_lossy().into_owned();
        let ours = |folder: &Path| {
            let line = std::fs::read_to_string(folder.join("cmdline")).unwrap_or_default();
            line.split('\0').nth(1) == Some("shim") && line.contains(&home)
        };
        let all = std::fs::read_dir("/proc").context("listing processes")?.flatten().map(|entry| entry.path());
        let sizes: Vec<u64> = all.filter(|folder| ours(folder)).filter_map(|folder| proportional(&folder)).collect();
        Ok((sizes.iter().sum(), sizes.len()))
    }

    fn running(&self) -> anyhow::Result<&Running> {
        self.running.as_ref().context("the program has ended")
    }
}

/// The part of a process in the memory of the machine.
fn proportional(folder: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(folder.join("smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.running.take());
        let cleaned = Command::new(&self.program).args(["cleanup", "--data-dir"]).arg(self.home.path()).output();
        match cleaned {
            Ok(output) if output.status.success() => {}
            Ok(output) => eprintln!("cleanup: {}", String::from_utf8_lossy(&output.stderr)),
            Err(error) => eprintln!("cleanup: {error}"),
        }
    }
}
