//! The agent: wires watches, Pod workers, Node registration and adapters together.

mod network;
mod pods;
mod routes;

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use client::requests::{Api, ApiError};
use client::watch::Source;
use kernel::cgroups::Cgroups;
use kernel::pod_network::PodNetwork;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::adapters;
use crate::data_dir::AgentDir;
use crate::events::EventRecorder;
use crate::images::Images;
use crate::images::backoff::PullBackoff;
use crate::images::pull::Puller;
use crate::machine::Machine;
use crate::metrics::Metrics;
use crate::node;
use crate::object_watches::ObjectWatches;
use crate::pool::Pool;
use crate::settings::Settings;

pub use network::restore_sysctls;

/// Why an agent cannot start.
#[derive(Debug, Error)]
pub enum AgentError {
    /// A file system operation failed.
    #[error("{path}: {source}")]
    Disk {
        /// The path.
        path: String,
        /// The error.
        source: std::io::Error,
    },
    /// A field selector was rejected: a bug.
    #[error("watching Pods: {0}")]
    Watch(String),
    /// The Node could not be registered.
    #[error("registering the Node")]
    Node(#[from] ApiError),
}

/// A running agent. Dropping it stops the agent; its Pods keep running.
pub struct Agent {
    machine: Arc<Machine>,
    ready: watch::Receiver<bool>,
    _tasks: JoinSet<()>,
}

/// External dependencies of an agent.
pub struct Tools {
    /// The API client for reads and writes.
    pub api: Arc<dyn Api>,
    /// Bridge, veth pairs and routes.
    pub network: Box<dyn PodNetwork>,
    /// Counts what the agent does.
    pub metrics: Arc<Metrics>,
    /// Node addresses, the preferred one first.
    pub host: Vec<IpAddr>,
}

impl Agent {
    /// Registers the Node, restores running Pods and starts the watches.
    ///
    /// # Errors
    /// When the data directory cannot be written or the Node cannot be registered.
    pub async fn start(settings: Settings, source: Arc<dyn Source>, tools: Tools) -> Result<Self, AgentError> {
        let dir = AgentDir::new(&settings.data_dir);
        create_private_dir(dir.path())?;
        create_private_dir(&dir.pods())?;
        let (ranges_sender, ranges) = watch::channel(Vec::new());
        let recorder = EventRecorder::start(tools.api.clone(), &settings.node);
        let machine = Arc::new(Machine {
            puller: Puller::new(Images::new(&settings.data_dir), &settings.insecure_registries),
            pull_backoff: PullBackoff::default(),
            images: Images::new(&settings.data_dir),
            pool: Mutex::new(Pool::open(&dir.addresses())),
            capacity: node::capacity(&settings.data_dir),
            dir,
            settings,
            api: tools.api,
            recorder,
            metrics: tools.metrics,
            network: Mutex::new(tools.network),
            groups: Cgroups::find(),
            host: tools.host,
            ranges,
            object_watches: ObjectWatches::new(source.clone()),
            services: Mutex::default(),
            adopted: Mutex::default(),
            pods: Mutex::default(),
            host_ports: Mutex::default(),
        });
        node::register(&machine).await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(node::keep_alive(machine.clone()));
        let (ready_sender, ready) = watch::channel(false);
        let watches = pods::Watches::start(&*source, &machine.settings.node);
        let watches = watches.map_err(|status| AgentError::Watch(status.message))?;
        let adopted = adapters::start(&machine, &mut tasks);
        tasks.spawn(watches.run(machine.clone(), ranges_sender, ready_sender, adopted));
        Ok(Self { machine, ready, _tasks: tasks })
    }

    /// Waits until the Pods of this node are listed and the Pod network is set up.
    pub async fn ready(&self) {
        let mut ready = self.ready.clone();
        // The sender is gone: the agent ended and will not become ready.
        if ready.wait_for(|ready| *ready).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The backend of the agent's HTTPS endpoint.
    #[must_use]
    pub fn workloads(&self) -> Arc<Machine> {
        self.machine.clone()
    }
}

/// Creates a directory with mode 0700.
fn create_private_dir(path: &Path) -> Result<(), AgentError> {
    use std::os::unix::fs::PermissionsExt as _;
    let created = std::fs::create_dir_all(path);
    let created = created.and_then(|()| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)));
    created.map_err(|source| AgentError::Disk { path: path.display().to_string(), source })
}
