//! `waypost dig`: how a name is resolved, and why.
//!
//! In: a name as a program in a Pod would ask for it, and the objects of a cluster. Out: each name of the search path with
//! its answer and the objects behind each record, until one answers; and where a DNS server says something else.
//!
//! ```text
//! search: Pod ─▶ search path ─▶ names ─▶ book: objects ─▶ records and their origin ─┬─▶ step ─▶ show: text or JSON
//!                                  └───▶ ask: a server, by UDP and TCP ─▶ difference ┘
//! ```

pub(super) mod ask;
pub(super) mod search;
mod show;
mod step;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Args;
use client::remote::Remote;
use dns::informers::Informers;
use dns::metrics::Metrics;
use dns::snapshot::ZoneSnapshot;
use dns::wire::rtype;
use dns::zone::Config;

use self::search::Search;
use self::step::Step;
use super::reach::{self, Reach};
use super::server;

/// How long it may take until every object is known.
const PATIENCE: Duration = Duration::from_secs(15);

/// Settings of the command.
#[derive(Args, Debug, Clone)]
pub(crate) struct Arguments {
    /// The name as a program asks for it; absolute when it ends with a dot. An address stands for its reverse name
    name: String,
    /// The type of the records [default: A and AAAA, as programs ask; PTR for an address]
    #[arg(value_name = "TYPE", value_parser = read_type)]
    qtype: Option<u16>,
    /// The namespace whose search path is walked
    #[arg(short, long, default_value = "default", value_name = "NAMESPACE")]
    namespace: String,
    /// Walk the search path of this Pod, by its dnsPolicy and dnsConfig
    #[arg(long, value_name = "NAME")]
    pod: Option<String>,
    /// Ask this DNS server too, and say where it answers differently
    #[arg(long, value_name = "IP:PORT", value_parser = read_server)]
    server: Option<SocketAddr>,
    /// The domain of the cluster
    #[arg(long, env = "WAYPOST_CLUSTER_DOMAIN", default_value = "cluster.local", value_name = "DOMAIN")]
    cluster_domain: String,
    /// How to write the answer
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: Output,
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

/// Everything that was found.
struct Found {
    search: Search,
    steps: Vec<Step>,
    server: Option<SocketAddr>,
}

/// Runs the command.
pub(crate) fn exec(arguments: &Arguments) -> anyhow::Result<()> {
    let found = server::runtime()?.block_on(find(arguments))?;
    reach::print(&match arguments.output {
        Output::Text => show::text(&found),
        Output::Json => show::json(&found),
    })?;
    ensure!(found.steps.iter().any(Step::is_found), "no record was found for {}; each step says why", arguments.name);
    Ok(())
}

async fn find(arguments: &Arguments) -> anyhow::Result<Found> {
    let mut api = arguments.reach.api()?;
    api.namespace(&arguments.namespace).await?;
    let pod = match &arguments.pod {
        None => None,
        Some(name) => Some(api.pod(&arguments.namespace, name).await?),
    };
    let domain = arguments.cluster_domain.trim_matches('.');
    let search = Search::of(&arguments.namespace, pod.as_ref(), domain);
    let (names, types) = question(arguments, &search);
    let remote = Remote::of(arguments.reach.access()?);
    let book = fill(&remote, domain).await?;
    let mut server = arguments.server;
    let mut steps = Vec::new();
    for name in names {
        let mut is_found = false;
        for qtype in &types {
            let step = Step::take(&book, &name, *qtype, server).await?;
            // A server that is silent once would be waited for at each step.
            server = server.filter(|_| !step.is_unanswered());
            is_found |= step.is_found();
            steps.push(step);
        }
        if is_found {
            break;
        }
    }
    Ok(Found { search, steps, server: arguments.server })
}

/// The names to ask for in turn, and the types.
fn question(arguments: &Arguments, search: &Search) -> (Vec<String>, Vec<u16>) {
    if let (Ok(address), None | Some(rtype::PTR)) = (arguments.name.parse::<IpAddr>(), arguments.qtype) {
        return (vec![search::reverse_name(address)], vec![rtype::PTR]);
    }
    let types = arguments.qtype.map_or_else(|| vec![rtype::A, rtype::AAAA], |qtype| vec![qtype]);
    (search.names(&arguments.name), types)
}

/// A book of everything the API has now.
async fn fill(remote: &Remote, domain: &str) -> anyhow::Result<Arc<ZoneSnapshot>> {
    let zones = [domain, "in-addr.arpa", "ip6.arpa"].map(str::to_owned).to_vec();
    let book = ZoneSnapshot::new(Config { zones, ..Config::default() }).context("--cluster-domain")?;
    let metrics = Metrics::new(&book.zones, "");
    let mut updates = book.updates();
    let inputs = Informers::start(remote, &book, &metrics).map_err(|status| anyhow!("{}", status.message))?;
    let ready = updates.wait_for(|_| book.is_ready());
    match tokio::time::timeout(PATIENCE, ready).await {
        Ok(ready) => {
            ready.context("the watches ended")?;
        }
        Err(_) => bail!(
            "not every object is known after {PATIENCE:?}: {}; use the kubeconfig of a user who may list and watch these",
            inputs.out_of_sync().join("; ")
        ),
    }
    Ok(book)
}

fn read_type(text: &str) -> Result<u16, String> {
    rtype::parse(text)
        .ok_or_else(|| "no type of records is called so; A, AAAA, SRV, CNAME, PTR and TXT are some".to_owned())
}

fn read_server(text: &str) -> Result<SocketAddr, String> {
    let plain = |text: &str| text.parse::<IpAddr>().map(|address| SocketAddr::new(address, 53));
    let address = text.parse().or_else(|_| plain(text));
    address.map_err(|_| "expected an address, such as 10.96.0.10:53 or [fd00::a]:53".to_owned())
}
