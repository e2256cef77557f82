//! `waypost doctor`: why a Service does not work, and the command that repairs it.
//!
//! In: an API, and this machine. Out: one verdict for each Service, and the findings for Gateways, routes and Ingresses, by
//! [`cli::doctor`]; exit code 0 when nothing was found, 1 when something was, 2 when the API cannot be read. A failure that may be transient is checked again before it is reported. `--security` gathers
//! other evidence and reports by [`cli::doctor::security`].
//!
//! ```text
//! objects: lists of the API ─┬─▶ machine: kernel, rules and plan ─┬─▶ probe: connections, DNS ─▶ Evidence ─▶ Verdict
//!                            └────────────────────────────────────┘
//! ```

mod firewall;
mod machine;
pub(super) mod probe;
mod rules;
mod security;
mod tables;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::value::ValueExt as _;
use clap::Args;
use cli::api_client::{ApiClient, ApiFlags};
use cli::doctor::{Cluster, Evidence, Routes, Verdict, json, objects, run_checks, security as exposed, text};
use cli::host::{AnnouncedObjects, Announcements};
use cli::terminal;
use futures_util::{StreamExt as _, stream};

use self::probe::{Limits, Prober};
use super::announced::{self, Announced};
use super::server;

/// How often the checks run while a failure may be transient.
const ATTEMPTS: usize = 4;
/// The time between two attempts.
const RETRY_DELAY: Duration = Duration::from_millis(400);
/// How many Services are measured concurrently.
const CONCURRENCY: usize = 16;

/// Settings of the command.
#[derive(Args, Debug, Clone)]
pub(crate) struct Arguments {
    /// The Service [default: all of the namespace]
    #[arg(value_name = "SERVICE")]
    name: Option<String>,
    /// Its namespace
    #[arg(short, long, default_value = "default", value_name = "NAMESPACE")]
    namespace: String,
    /// Check all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Report the security exposure of the cluster, instead of problems of Services
    #[arg(long, conflicts_with_all = ["name", "all_namespaces", "from"])]
    security: bool,
    /// Output format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: Output,
    /// The client address for which access to load balancers is checked [default: this node]
    #[arg(long, value_name = "IP")]
    from: Option<IpAddr>,
    /// The name of this node [default: the Node that has an address of this machine]
    #[arg(long, env = "WAYPOST_NODE_NAME", value_name = "NAME")]
    node_name: Option<String>,
    /// The domain of the cluster
    #[arg(long, env = "WAYPOST_CLUSTER_DOMAIN", default_value = "cluster.local", value_name = "DOMAIN")]
    cluster_domain: String,
    #[command(flatten)]
    api: ApiFlags,
}

/// Output formats.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Output {
    /// Text.
    Text,
    /// JSON.
    Json,
}

/// Runs the command. Ends the process where the exit code is not 0.
pub(crate) fn exec(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.security {
        return exposure(arguments);
    }
    let found = server::runtime().and_then(|runtime| runtime.block_on(check(arguments)));
    let (verdicts, routes) = match found {
        Ok(found) => found,
        Err(error) => {
            crate::log::fatal(&error);
            std::process::exit(2);
        }
    };
    terminal::print(&match arguments.output {
        Output::Text => text(&verdicts, arguments.name.is_some()) + &routes.text(),
        Output::Json => json(&verdicts, &routes),
    })?;
    if verdicts.iter().any(Verdict::has_failed) || routes.has_failed() {
        std::process::exit(1);
    }
    Ok(())
}

/// The same for `--security`.
fn exposure(arguments: &Arguments) -> anyhow::Result<()> {
    let gathered = server::runtime().and_then(|runtime| runtime.block_on(security::gather(&arguments.api)));
    let evidence = match gathered {
        Ok(evidence) => evidence,
        Err(error) => {
            crate::log::fatal(&error);
            std::process::exit(2);
        }
    };
    let report = exposed::examine(&evidence);
    terminal::print(&match arguments.output {
        Output::Text => exposed::text(&report),
        Output::Json => exposed::json(&report),
    })?;
    std::process::exit(report.exit_code())
}

/// Runs all checks, again while a failure may be transient.
async fn check(arguments: &Arguments) -> anyhow::Result<(Vec<Verdict>, Routes)> {
    let mut found = check_once(arguments).await?;
    for _ in 1..ATTEMPTS {
        if !found.0.iter().any(Verdict::is_transient) {
            break;
        }
        tokio::time::sleep(RETRY_DELAY).await;
        found = check_once(arguments).await?;
    }
    Ok(found)
}

async fn check_once(arguments: &Arguments) -> anyhow::Result<(Vec<Verdict>, Routes)> {
    let mut api = arguments.api.client()?;
    let domain = arguments.cluster_domain.trim_matches('.');
    let mut cluster = objects::read(&mut api, &arguments.namespace, domain).await?;
    cluster.announcements = announcements(&mut api, &cluster).await;
    // A named Service is checked alone.
    let namespace = (!arguments.all_namespaces).then_some(&*arguments.namespace);
    let routes = match arguments.name {
        None => Routes::read(&mut api, &cluster, namespace).await,
        Some(_) => Routes::default(),
    };
    let machine = machine::read(&cluster, arguments.node_name.as_deref(), arguments.from);
    let prober = Prober::new(&cluster, &machine, Limits::THOROUGH).await;
    let snapshot = cluster.snapshot();
    let (cluster, machine, prober, snapshot) = (&cluster, &machine, &prober, &snapshot);
    let verdicts = stream::iter(wanted(arguments, cluster)).map(|(namespace, name)| async move {
        let probes = prober.of(&namespace, &name).await;
        let (namespace, name) = (&*namespace, &*name);
        let evidence = Evidence { namespace, name, cluster, machine, probes: &probes, diagnosis: None };
        run_checks(&evidence.diagnosed(snapshot))
    });
    Ok((verdicts.buffered(CONCURRENCY).collect().await, routes))
}

/// The announcements of load-balancer addresses, where there are any; none when they may not be read.
async fn announcements(api: &mut ApiClient, cluster: &Cluster) -> Option<Arc<dyn Announcements>> {
    if !cluster.services.iter().any(|service| !service.items("status.loadBalancer.ingress").is_empty()) {
        return Some(Arc::new(Announced::default()));
    }
    let Cluster { services, slices, nodes, .. } = cluster.clone();
    let announced = announced::read(api, AnnouncedObjects { services, slices, nodes }).await.ok()?;
    Some(Arc::new(announced))
}

/// The Services to check; a named one also if it does not exist.
fn wanted(arguments: &Arguments, cluster: &Cluster) -> Vec<(String, String)> {
    let name = arguments.name.as_deref().map(|name| name.rsplit('/').next().unwrap_or(name));
    let titles = cluster.services.iter().map(|one| (one.text("metadata.namespace"), one.text("metadata.name")));
    let fits = |(namespace, called): &(&str, &str)| {
        (arguments.all_namespaces || *namespace == arguments.namespace) && name.is_none_or(|name| name == *called)
    };
    let mut found: Vec<(String, String)> =
        titles.filter(fits).map(|(namespace, name)| (namespace.to_owned(), name.to_owned())).collect();
    if let (Some(name), true) = (name, found.is_empty()) {
        found.push((arguments.namespace.clone(), name.to_owned()));
    }
    found.sort_unstable();
    found
}
