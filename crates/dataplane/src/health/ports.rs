//! Health-check node ports: one listener per Service.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;

use super::serve::{Handler, Reply, listen, serve};
use super::{Check, Checks, Health};

/// Retry interval for ports in use by other programs.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Keeps listeners in sync with Services while polled. `failed` is called with Service, port and reason when a port
/// cannot be opened.
pub async fn run(health: Arc<Health>, addresses: Vec<IpAddr>, failed: impl Fn(&str, u16, &str) + Send) {
    let mut checks = health.checks();
    let mut open: BTreeMap<u16, (String, JoinSet<()>)> = BTreeMap::new();
    let mut reported: BTreeSet<(u16, String)> = BTreeSet::new();
    loop {
        let mut missing = false;
        let wanted: Checks = checks.borrow_and_update().clone();
        open.retain(|port, (service, _)| wanted.get(port).is_some_and(|check| check.service == *service));
        for (port, check) in &wanted {
            if !open.contains_key(port) {
                match start(*port, check, &addresses, &health) {
                    Ok(tasks) => drop(open.insert(*port, (check.service.clone(), tasks))),
                    Err(error) => {
                        missing = true;
                        if reported.insert((*port, check.service.clone())) {
                            failed(&check.service, *port, &error.to_string());
                        }
                    }
                }
            }
        }
        reported.retain(|(port, _)| wanted.contains_key(port));
        // The port may become free.
        let timeout = if missing { RETRY_INTERVAL } else { Duration::MAX };
        if let Ok(Err(_)) = tokio::time::timeout(timeout, checks.changed()).await {
            return;
        }
    }
}

fn start(port: u16, check: &Check, addresses: &[IpAddr], health: &Arc<Health>) -> std::io::Result<JoinSet<()>> {
    let mut tasks = JoinSet::new();
    for ip in addresses {
        let listener = listen(SocketAddr::new(*ip, port))?;
        let handler = ServiceCheck { port, service: check.service.clone(), health: health.clone() };
        tasks.spawn(serve(listener, Arc::new(handler)));
    }
    Ok(tasks)
}

struct ServiceCheck {
    port: u16,
    service: String,
    health: Arc<Health>,
}

impl Handler for ServiceCheck {
    fn handle(&self, _path: &str) -> Reply {
        let local = self.health.checks.borrow().get(&self.port).map_or(0, |check| check.local);
        let healthy = self.health.is_healthy();
        let (namespace, name) = self.service.split_once('/').unwrap_or_default();
        let body = json!({
            "service": {"namespace": namespace, "name": name}, "localEndpoints": local, "serviceProxyHealthy": healthy,
        });
        let headers = vec![
            ("content-type", "application/json".to_owned()),
            ("x-content-type-options", "nosniff".to_owned()),
            ("x-load-balancing-endpoint-weight", local.to_string()),
        ];
        (if local > 0 && healthy { 200 } else { 503 }, headers, body.to_string())
    }
}
