//! Health-check ports: a listener for each Service that load balancers ask about.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;

use super::serve::{Answer, Answers, listen, serve};
use super::{Check, Checks, Health};

/// How long until a port is tried again that somebody else has.
const AGAIN: Duration = Duration::from_secs(5);

/// Keeps the listeners in step with the Services for as long as the future is polled. `failed` hears of ports that cannot be
/// served, with the Service and the reason.
pub async fn run(health: Arc<Health>, addresses: Vec<IpAddr>, failed: impl Fn(&str, u16, &str) + Send) {
    let mut checks = health.checks();
    let mut open: BTreeMap<u16, (String, JoinSet<()>)> = BTreeMap::new();
    let mut told: BTreeSet<(u16, String)> = BTreeSet::new();
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
                        if told.insert((*port, check.service.clone())) {
                            failed(&check.service, *port, &error.to_string());
                        }
                    }
                }
            }
        }
        told.retain(|(port, _)| wanted.contains_key(port));
        // Whoever has a port that we want may let it go.
        let patience = if missing { AGAIN } else { Duration::MAX };
        if let Ok(Err(_)) = tokio::time::timeout(patience, checks.changed()).await {
            return;
        }
    }
}

fn start(port: u16, check: &Check, addresses: &[IpAddr], health: &Arc<Health>) -> std::io::Result<JoinSet<()>> {
    let mut tasks = JoinSet::new();
    for ip in addresses {
        let listener = listen(SocketAddr::new(*ip, port))?;
        let answers = ServiceCheck { port, service: check.service.clone(), health: health.clone() };
        tasks.spawn(serve(listener, Arc::new(answers)));
    }
    Ok(tasks)
}

struct ServiceCheck {
    port: u16,
    service: String,
    health: Arc<Health>,
}

impl Answers for ServiceCheck {
    fn answer(&self, _path: &str) -> Answer {
        let local = self.health.checks.borrow().get(&self.port).map_or(0, |check| check.local);
        let well = self.health.is_well();
        let (namespace, name) = self.service.split_once('/').unwrap_or_default();
        let body = json!({
            "service": {"namespace": namespace, "name": name}, "localEndpoints": local, "serviceProxyHealthy": well,
        });
        let headers = vec![
            ("content-type", "application/json".to_owned()),
            ("x-content-type-options", "nosniff".to_owned()),
            ("x-load-balancing-endpoint-weight", local.to_string()),
        ];
        (if local > 0 && well { 200 } else { 503 }, headers, body.to_string())
    }
}
