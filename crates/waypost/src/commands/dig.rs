//! `waypost dig`: how a name is resolved, and why.
//!
//! In: a name as a program in a Pod resolves it, and the objects of a cluster. Out: the response for each name of the search path, with
//! the objects that records come from, up to the first name that resolves; and differences from the responses of a DNS server.
//!
//! ```text
//! search: Pod ─▶ search path ─▶ names ─▶ zone: objects ─▶ records and their origin ─┬─▶ step ─▶ show: text or JSON
//!                                  └───▶ query: a server, over UDP and TCP ─▶ difference ┘
//! ```

pub(super) mod query;
pub(super) mod search;
mod show;
mod step;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Args;
use cli::api_client::ApiFlags;
use cli::terminal;
use client::remote::Remote;
use dns::informers::Informers;
use dns::metrics::Metrics;
use dns::snapshot::ZoneSnapshot;
use dns::wire::rtype;
use dns::zone::Config;

use self::search::Search;
use self::step::Step;
use super::server;

/// Timeout of the first sync of the zone.
const SYNC_TIMEOUT: Duration = Duration::from_secs(15);

/// Settings of the command.
#[derive(Args, Debug, Clone)]
pub(crate) struct Arguments {
    /// The name as a program resolves it; absolute when it ends with a dot. For an address, its reverse name
    name: String,
    /// The type of the records [default: A and AAAA, as programs query; PTR for an address]
    #[arg(value_name = "TYPE", value_parser = read_type)]
    qtype: Option<u16>,
    /// The namespace whose search path is used
    #[arg(short, long, default_value = "default", value_name = "NAMESPACE")]
    namespace: String,
    /// Use the search path of this Pod, by its dnsPolicy and dnsConfig
    #[arg(long, value_name = "NAME")]
    pod: Option<String>,
    /// Also query this DNS server, and report differences
    #[arg(long, value_name = "IP:PORT", value_parser = read_server)]
    server: Option<SocketAddr>,
    /// The domain of the cluster
    #[arg(long, env = "WAYPOST_CLUSTER_DOMAIN", default_value = "cluster.local", value_name = "DOMAIN")]
    cluster_domain: String,
    /// Output format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: Output,
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

/// The steps of a resolution.
struct Resolution {
    search: Search,
    steps: Vec<Step>,
    server: Option<SocketAddr>,
}

/// Runs the command.
pub(crate) fn exec(arguments: &Arguments) -> anyhow::Result<()> {
    let resolution = server::runtime()?.block_on(find(arguments))?;
    terminal::print(&match arguments.output {
        Output::Text => show::text(&resolution),
        Output::Json => show::json(&resolution),
    })?;
    ensure!(
        resolution.steps.iter().any(Step::has_records),
        "no record was found for {}; each step shows why",
        arguments.name
    );
    Ok(())
}

async fn find(arguments: &Arguments) -> anyhow::Result<Resolution> {
    let mut api = arguments.api.client()?;
    api.namespace(&arguments.namespace).await?;
    let pod = match &arguments.pod {
        None => None,
        Some(name) => Some(api.pod(&arguments.namespace, name).await?),
    };
    let domain = arguments.cluster_domain.trim_matches('.');
    let search = Search::of(&arguments.namespace, pod.as_ref(), domain);
    let (names, types) = names_and_types(arguments, &search);
    let remote = Remote::of(arguments.api.access()?);
    let zone = sync_zone(&remote, domain).await?;
    let mut server = arguments.server;
    let mut steps = Vec::new();
    for name in names {
        let mut has_records = false;
        for qtype in &types {
            let step = Step::run(&zone, &name, *qtype, server).await?;
            // A server that timed out once would time out at each step.
            server = server.filter(|_| !step.has_failed());
            has_records |= step.has_records();
            steps.push(step);
        }
        if has_records {
            break;
        }
    }
    Ok(Resolution { search, steps, server: arguments.server })
}

/// The names to query in order, and the types.
fn names_and_types(arguments: &Arguments, search: &Search) -> (Vec<String>, Vec<u16>) {
    if let (Ok(address), None | Some(rtype::PTR)) = (arguments.name.parse::<IpAddr>(), arguments.qtype) {
        return (vec![search::reverse_name(address)], vec![rtype::PTR]);
    }
    let types = arguments.qtype.map_or_else(|| vec![rtype::A, rtype::AAAA], |qtype| vec![qtype]);
    (search.names(&arguments.name), types)
}

/// The zone of all objects.
async fn sync_zone(remote: &Remote, domain: &str) -> anyhow::Result<Arc<ZoneSnapshot>> {
    let zones = [domain, "in-addr.arpa", "ip6.arpa"].map(str::to_owned).to_vec();
    let zone = ZoneSnapshot::new(Config { zones, ..Config::default() }).context("--cluster-domain")?;
    let metrics = Metrics::new(&zone.zones, "");
    let mut updates = zone.updates();
    let inputs = Informers::start(remote, &zone, &metrics).map_err(|status| anyhow!("{}", status.message))?;
    let ready = updates.wait_for(|_| zone.is_ready());
    match tokio::time::timeout(SYNC_TIMEOUT, ready).await {
        Ok(ready) => {
            ready.context("the watches ended")?;
        }
        Err(_) => bail!(
            "the DNS zone is not synced after {SYNC_TIMEOUT:?}: {}; use the kubeconfig of a user who may list and watch these",
            inputs.out_of_sync().join("; ")
        ),
    }
    Ok(zone)
}

fn read_type(text: &str) -> anyhow::Result<u16> {
    rtype::parse(text).context("no type of records is called so; A, AAAA, SRV, CNAME, PTR and TXT are some")
}

fn read_server(text: &str) -> anyhow::Result<SocketAddr> {
    let plain = |text: &str| text.parse::<IpAddr>().map(|address| SocketAddr::new(address, 53));
    let address = text.parse().or_else(|_| plain(text));
    address.context("expected an address, such as 10.96.0.10:53 or [fd00::a]:53")
}
