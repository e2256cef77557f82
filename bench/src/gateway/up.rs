//! `waypost up` on the node, and its API.
//!
//! In: a stage. Out: a program that is ready, with clients, and what it costs. The program is two processes: the data plane (proxy, DNS, gateway),
//! and the API server with the controllers, its child.
#![expect(clippy::disallowed_methods, reason = "a benchmark runs the programs it measures")]

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use client::http::{Client, Method};
use serde_json::Value;
use testbed::net::Process;
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep};

use super::objects::{NAMESPACE, collection};
use crate::lb::contender::worked;
use crate::lb::stage::{BALANCERS, Stage};
use crate::load::Work;
use crate::proxy::usage;
use crate::stats::megabytes;

/// How long a start, and the assignment of an address, may take.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The interval at which the API is polled meanwhile.
const LOOK: Duration = Duration::from_millis(20);

/// A running program. Dropping it ends it.
pub struct Up {
    process: Process,
    home: PathBuf,
}

/// What both processes cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Resident memory of the data plane, in megabytes.
    pub data_plane: f64,
    /// Resident memory of the API server, in megabytes.
    pub server: f64,
    /// The greatest resident memory of both so far, in megabytes.
    pub peak: f64,
    /// Processor time of the data plane.
    pub data_plane_cpu: Duration,
    /// Processor time of the API server.
    pub server_cpu: Duration,
}

impl Up {
    /// Starts it in a new directory, and waits until it is ready.
    ///
    /// # Errors
    /// When the directory of an earlier one cannot be removed.
    pub fn start(program: &Path, stage: &Stage) -> anyhow::Result<Self> {
        let home = stage.file("waypost");
        if home.exists() {
            std::fs::remove_dir_all(&home).context("removing what an earlier one left")?;
        }
        let mut command = Command::new(program);
        command.args(["up", "--node-name", "n1", "--workloads", "false", "--load-balancer-pool", BALANCERS]);
        command.arg("--data-dir").arg(&home);
        let process = stage.node.spawn(command);
        process.wait_for_line("ready", TIMEOUT);
        Ok(Self { process, home })
    }

    /// A client of its API. It connects where it is used: in the namespace of the node.
    ///
    /// # Errors
    /// When there is no kubeconfig.
    pub fn client(&self) -> anyhow::Result<Client> {
        Client::from_kubeconfig(&self.home.join("kubeconfig")).context("a kubeconfig")
    }

    /// The processor time of all of it so far.
    ///
    /// # Errors
    /// When it has ended.
    pub fn worked(&self) -> anyhow::Result<Duration> {
        worked(self.process.pid())
    }

    /// What it costs.
    ///
    /// # Errors
    /// When it has ended.
    pub fn usage(&self) -> anyhow::Result<Usage> {
        let own = usage::memory(self.process.pid())?;
        let mut sum = Usage { data_plane: megabytes(own.resident), peak: megabytes(own.peak), ..Usage::default() };
        sum.data_plane_cpu = usage::cpu(self.process.pid())?;
        for child in usage::children(self.process.pid()) {
            let memory = usage::memory(child)?;
            sum.server += megabytes(memory.resident);
            sum.peak += megabytes(memory.peak);
            sum.server_cpu += usage::cpu(child)?;
        }
        Ok(sum)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // One that is killed would leave its child behind.
        let _ = self.process.terminate();
    }
}

/// A runtime whose threads are in the namespace of the caller.
///
/// # Errors
/// When there are no threads.
pub fn runtime() -> anyhow::Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// Creates a Gateway, and waits until it is programmed.
///
/// # Errors
/// When it is not in time.
pub async fn create_gateway(client: &mut Client, gateway: &Value) -> anyhow::Result<IpAddr> {
    let all = collection(NAMESPACE, "gateways");
    Work::create(&all, gateway).send(client).await?;
    let name = gateway["metadata"]["name"].as_str().context("the Gateway has no name")?;
    let begun = Instant::now();
    while begun.elapsed() < TIMEOUT {
        let (_, body) = client.bytes(Method::GET, &format!("{all}/{name}"), None, Bytes::new()).await?;
        let got: Value = serde_json::from_slice(&body)?;
        let status = &got["status"];
        let is_programmed = status["conditions"].as_array().is_some_and(|all| {
            all.iter().any(|condition| condition["type"] == "Programmed" && condition["status"] == "True")
        });
        if let (true, Some(address)) = (is_programmed, status["addresses"][0]["value"].as_str()) {
            return address.parse().context("the address of a Gateway");
        }
        sleep(LOOK).await;
    }
    bail!("the Gateway {name} was not programmed in time")
}
