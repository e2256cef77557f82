//! The agent: watches go in, Pods run. Put together here, and nothing else done.

mod inputs;
pub(crate) mod network;
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
use crate::events::Teller;
use crate::followed::Followed;
use crate::home::Home;
use crate::images::Images;
use crate::images::pull::Puller;
use crate::machine::Machine;
use crate::node;
use crate::pod::image::Waits;
use crate::pool::Pool;
use crate::settings::Settings;

pub use network::{clean_settings, remove_table};

/// Why an agent does not begin.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The disk.
    #[error("{path}: {source}")]
    Disk {
        /// Where.
        path: String,
        /// What went wrong.
        source: std::io::Error,
    },
    /// A selector of ours is not understood, which would be a fault in the program.
    #[error("watching: {0}")]
    Watch(String),
    /// The Node could not be made.
    #[error("making the Node")]
    Node(#[from] ApiError),
}

/// An agent that runs. Dropping it ends it, and leaves its Pods running.
pub struct Agent {
    machine: Arc<Machine>,
    ready: watch::Receiver<bool>,
    _tasks: JoinSet<()>,
}

/// What it works with.
pub struct Tools {
    /// How it writes.
    pub api: Arc<dyn Api>,
    /// The network of the kernel.
    pub network: Box<dyn PodNetwork>,
    /// The addresses of this machine, the preferred first.
    pub host: Vec<IpAddr>,
}

impl Agent {
    /// Begins: makes the Node, takes over what runs, follows the API.
    ///
    /// # Errors
    /// When it has no place to write, or the Node cannot be made.
    pub async fn start(settings: Settings, source: Arc<dyn Source>, tools: Tools) -> Result<Self, AgentError> {
        let home = Home::new(&settings.data_dir);
        private_folder(home.path())?;
        private_folder(&home.pods())?;
        let (ranges_sender, ranges) = watch::channel(Vec::new());
        let teller = Teller::start(tools.api.clone(), &settings.node);
        let machine = Arc::new(Machine {
            puller: Puller::new(Images::new(&settings.data_dir), &settings.insecure_registries),
            image_waits: Waits::default(),
            images: Images::new(&settings.data_dir),
            pool: Mutex::new(Pool::open(&home.addresses())),
            capacity: node::capacity(&settings.data_dir),
            home,
            settings,
            api: tools.api,
            teller,
            network: Mutex::new(tools.network),
            groups: Cgroups::find(),
            host: tools.host,
            ranges,
            followed: Followed::new(source.clone()),
            services: Mutex::default(),
            adopted: Mutex::default(),
            seats: Mutex::default(),
            doors: Mutex::default(),
        });
        node::register(&machine).await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(node::keep_alive(machine.clone()));
        let (ready_sender, ready) = watch::channel(false);
        let watches = inputs::Watches::begin(&*source, &machine.settings.node);
        let watches = watches.map_err(|status| AgentError::Watch(status.message))?;
        let adopted = adapters::start(&machine, &mut tasks);
        tasks.spawn(watches.run(machine.clone(), ranges_sender, ready_sender, adopted));
        Ok(Self { machine, ready, _tasks: tasks })
    }

    /// Waits until the Pods of this machine are known and its network is there.
    pub async fn ready(&self) {
        let mut ready = self.ready.clone();
        // An error says that the agent has ended: then it is never ready.
        if ready.wait_for(|ready| *ready).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// What the serving side asks.
    #[must_use]
    pub fn workloads(&self) -> Arc<Machine> {
        self.machine.clone()
    }
}

/// A folder that only root looks into.
fn private_folder(path: &Path) -> Result<(), AgentError> {
    use std::os::unix::fs::PermissionsExt as _;
    let made = std::fs::create_dir_all(path);
    let made = made.and_then(|()| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)));
    made.map_err(|source| AgentError::Disk { path: path.display().to_string(), source })
}
