//! The Node of this machine.

use std::net::IpAddr;

use anyhow::{Context as _, bail};
use api::value::ValueExt as _;
use cli::api_client::ApiClient;
use serde_json::Value;

use super::super::agent;

/// The Node of this name; or the one of this machine, by its name or its addresses.
pub(super) async fn node(api: &mut ApiClient, said: Option<&str>) -> anyhow::Result<Value> {
    let list = api.get("/api/v1/nodes").await?.unwrap_or_default();
    let nodes = list.items("items");
    let named = |name: &str| nodes.iter().find(|node| node.text("metadata.name") == name);
    let names: Vec<&str> = nodes.iter().map(|node| node.text("metadata.name")).collect();
    let names = if names.is_empty() { "none yet".to_owned() } else { names.join(", ") };
    if let Some(name) = said {
        return named(name).cloned().with_context(|| format!("there is no Node {name}; those there are: {names}"));
    }
    let own = agent::node_name(None);
    match named(&own).or_else(|| nodes.iter().find(|node| is_here(node))) {
        Some(node) => Ok(node.clone()),
        None if nodes.is_empty() => bail!(
            "there is no Node whose agent could probe the program; run `waypost up` as root, or `waypost node --join` on its machine"
        ),
        None => {
            bail!("this machine ({own}) is not a Node; set --node to the one on which the program runs: {names}")
        }
    }
}

/// Whether a Node is this machine.
pub(super) fn is_here(node: &Value) -> bool {
    let own: Vec<IpAddr> = agent::own_addresses().into_iter().filter(|ip| !ip.is_loopback()).collect();
    let mut addresses = node.items("status.addresses").iter().filter_map(|one| one.text("address").parse().ok());
    addresses.any(|ip: IpAddr| own.contains(&ip))
}
