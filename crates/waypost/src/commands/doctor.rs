//! `waypost doctor`: why a Service does not work, and the command that repairs it.
//!
//! In: an API, and this machine. Out: one verdict for each Service, by [`crate::doctor`]; exit code 0 when all Services work, 1 when one
//! does not, 2 when the API cannot be read. A failure that may be transient is checked again before it is reported. `--security` gathers
//! other evidence and reports by [`crate::doctor::security`].
//!
//! ```text
//! objects: lists of the API ─┬─▶ here: kernel, rules beside the plan ─┬─▶ tries: connections, names ─▶ Evidence ─▶ Verdict
//!                            └────────────────────────────────────────┘
//! ```

mod here;
pub(super) mod objects;
mod rules;
mod security;
mod tables;
pub(super) mod tries;

use std::net::IpAddr;
use std::time::Duration;

use clap::Args;
use futures_util::{StreamExt as _, stream};

use self::tries::{Bounds, Tries};
use super::reach::{self, Reach};
use super::server;
use crate::doctor::{Cluster, Evidence, Verdict, json, run_checks, security as exposed, text};

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
    /// Look at all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Report how exposed the cluster is, instead of what is wrong with Services
    #[arg(long, conflicts_with_all = ["name", "all_namespaces", "from"])]
    security: bool,
    /// How to write the answer
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: Output,
    /// On whose behalf to ask whether a load balancer may be used [default: this node]
    #[arg(long, value_name = "IP")]
    from: Option<IpAddr>,
    /// The name of this node [default: the Node that has an address of this machine]
    #[arg(long, env = "WAYPOST_NODE_NAME", value_name = "NAME")]
    node_name: Option<String>,
    /// The domain of the cluster
    #[arg(long, env = "WAYPOST_CLUSTER_DOMAIN", default_value = "cluster.local", value_name = "DOMAIN")]
    cluster_domain: String,
    #[command(flatten)]
    reach: Reach,
}

/// How the answer is written.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Runs the command. The code of the exit says what was found, so it ends here.
pub(crate) fn exec(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.security {
        return exposure(arguments);
    }
    let found = server::runtime().and_then(|runtime| runtime.block_on(look(arguments)));
    let verdicts = match found {
        Ok(verdicts) => verdicts,
        Err(error) => {
            crate::log::fatal(&error);
            std::process::exit(2);
        }
    };
    reach::print(&match arguments.output {
        Output::Text => text(&verdicts, arguments.name.is_some()),
        Output::Json => json(&verdicts),
    })?;
    if verdicts.iter().any(|verdict| verdict.cause().is_some()) {
        std::process::exit(1);
    }
    Ok(())
}

/// The same for `--security`.
fn exposure(arguments: &Arguments) -> anyhow::Result<()> {
    let gathered = server::runtime().and_then(|runtime| runtime.block_on(security::gather(&arguments.reach)));
    let evidence = match gathered {
        Ok(evidence) => evidence,
        Err(error) => {
            crate::log::fatal(&error);
            std::process::exit(2);
        }
    };
    let report = exposed::examine(&evidence);
    reach::print(&match arguments.output {
        Output::Text => exposed::text(&report),
        Output::Json => exposed::json(&report),
    })?;
    std::process::exit(report.exit_code())
}

/// Runs all checks, again while a failure may be transient.
async fn look(arguments: &Arguments) -> anyhow::Result<Vec<Verdict>> {
    let mut verdicts = look_once(arguments).await?;
    for _ in 1..ATTEMPTS {
        if !verdicts.iter().any(Verdict::is_transient) {
            break;
        }
        tokio::time::sleep(RETRY_DELAY).await;
        verdicts = look_once(arguments).await?;
    }
    Ok(verdicts)
}

async fn look_once(arguments: &Arguments) -> anyhow::Result<Vec<Verdict>> {
    let mut api = arguments.reach.api()?;
    let domain = arguments.cluster_domain.trim_matches('.');
    let cluster = objects::read(&mut api, &arguments.namespace, domain).await?;
    let here = here::look(&cluster, arguments.node_name.as_deref(), arguments.from);
    let tries = Tries::new(&cluster, &here, Bounds::THOROUGH).await;
    let snapshot = cluster.snapshot();
    let (cluster, here, tries, snapshot) = (&cluster, &here, &tries, &snapshot);
    let verdicts = stream::iter(wanted(arguments, cluster)).map(|(namespace, name)| async move {
        let tried = tries.of(&namespace, &name).await;
        let evidence = Evidence { namespace: &namespace, name: &name, cluster, here, tried: &tried, diagnosis: None };
        run_checks(&evidence.diagnosed(snapshot))
    });
    Ok(verdicts.buffered(CONCURRENCY).collect().await)
}

/// The Services that are asked for; one that is named is, also when it is not there.
fn wanted(arguments: &Arguments, cluster: &Cluster) -> Vec<(String, String)> {
    use api::value::ValueExt as _;
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
