//! Controllers that start with Services and Pods, and without a single slice.
//!
//! The same for both servers: the controllers are stopped, everything they made is removed while it cannot be recreated,
//! and they are started. For Waypost, whose controllers run in the server, the server is stopped and its store is changed
//! in between; for the peer only kube-controller-manager is stopped, and the API server keeps running.

use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use api::facts::Facts;
use bytes::Bytes;
use client::http::Method;
use store::{Embedded, Store as _, Table, Txn};
use tokio::time::{Instant, sleep};

use crate::kubernetes::Kubernetes;
use crate::load::{NAMESPACE, SLICES};
use crate::subject::{Running, Subject};
use crate::waypost::Waypost;

/// Where Endpoints are.
const ENDPOINTS: &str = "/api/v1/namespaces/bench/endpoints";
/// How many objects are removed in one transaction.
const TOGETHER: usize = 1000;
/// The peer is left alone for a while after the removal.
const SETTLE: Duration = Duration::from_secs(2);

/// Controllers that have just been started.
pub struct Begun {
    /// The server.
    pub running: Running,
    /// When the process with the controllers was started.
    pub at: Instant,
    /// The processor time that all processes had used up to that time.
    pub cpu: Duration,
}

/// Controllers on their way.
pub type Beginning<'a> = Pin<Box<dyn Future<Output = anyhow::Result<Begun>> + 'a>>;

/// A subject with controllers.
pub trait Controlled: Subject {
    /// Stops the controllers, removes all EndpointSlices and Endpoints of the load, and starts them again.
    fn start_over<'a>(&'a self, running: Running, home: &'a Path) -> Beginning<'a>;
}

impl Controlled for Waypost {
    fn start_over<'a>(&'a self, running: Running, home: &'a Path) -> Beginning<'a> {
        Box::pin(async move {
            running.stop().await?;
            empty_store(&home.join("store")).await.context("removing slices from the store")?;
            let at = Instant::now();
            let running = self.start(home).await?;
            Ok(Begun { running, at, cpu: Duration::ZERO })
        })
    }
}

/// Removes them from a store that is not open.
async fn empty_store(dir: &Path) -> anyhow::Result<()> {
    let store = Embedded::open(dir, |_, _| Facts::default(), store::Options::default())?;
    for table in ["endpointslices", "services/endpoints"] {
        let entries = store.range(Table::named(table), &format!("{NAMESPACE}/"), None)?.entries;
        ensure!(!entries.is_empty(), "there are no {table}");
        for some in entries.chunks(TOGETHER) {
            let txn = some.iter().fold(Txn::new(), |txn, entry| txn.delete(entry.key.clone()));
            store.commit(txn).await?;
        }
    }
    store.close();
    Ok(())
}

impl Controlled for Kubernetes {
    fn start_over<'a>(&'a self, mut running: Running, home: &'a Path) -> Beginning<'a> {
        Box::pin(async move {
            running.stop_last().await?;
            let mut client = running.client();
            for collection in [SLICES, ENDPOINTS] {
                // A request has a minute; many objects take longer.
                let mut code = 0;
                while code != 200 || count(&running, collection).await? > 0 {
                    (code, _) = client.bytes(Method::DELETE, collection, None, Bytes::new()).await?;
                    ensure!(code == 200 || code >= 500, "the deletion of {collection} was answered with {code}");
                }
            }
            sleep(SETTLE).await;
            let cpu = running.cpu()?;
            let at = Instant::now();
            self.start_controllers(home, &mut running)?;
            Ok(Begun { running, at, cpu })
        })
    }
}

async fn count(running: &Running, collection: &str) -> anyhow::Result<usize> {
    let (code, list) = running.client().json(Method::GET, &format!("{collection}?limit=1"), None).await?;
    ensure!(code == 200, "a list was answered with {code}");
    Ok(list["items"].as_array().map_or(0, Vec::len))
}
