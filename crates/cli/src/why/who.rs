//! `waypost who IP[:PORT]`: the owners of an address or a port.
//!
//! In: the objects. Out: one line for each owner, or that there is none.

use std::net::{IpAddr, SocketAddr};

use anyhow::{anyhow, ensure};
use clap::Args;
use plan::why::owners::{AddressQuery, Owner, owners};
use serde_json::json;

use super::cluster::ClusterObjects;
use super::{Output, pretty, wait};
use crate::api_client::ApiFlags;
use crate::terminal;

/// Settings of the command.
#[derive(Args, Debug, Clone)]
pub struct Arguments {
    /// An address, an address with a port, or a node port alone
    #[arg(value_name = "IP[:PORT]", value_parser = read)]
    what: AddressQuery,
    /// Output format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: Output,
    #[command(flatten)]
    api: ApiFlags,
}

/// Runs the command.
pub(crate) fn exec(arguments: &Arguments) -> anyhow::Result<()> {
    let cluster = wait(async { ClusterObjects::read(&mut arguments.api.client()?).await })?;
    let owners = owners(&cluster.objects(), arguments.what);
    terminal::print(&match arguments.output {
        Output::Text => text(arguments.what, &owners, &cluster.missing),
        Output::Json => {
            let owner = |one: &Owner| json!({"kind": one.kind, "name": one.name, "role": one.role, "says": one.says});
            let owners: Vec<_> = owners.iter().map(owner).collect();
            let AddressQuery { ip, port } = arguments.what;
            let ip = ip.map(|ip| ip.to_string());
            pretty(&json!({"ip": ip, "port": port, "owners": owners, "missing": cluster.missing}))
        }
    })
}

fn text(what: AddressQuery, owners: &[Owner], missing: &[String]) -> String {
    let asked = match (what.ip, what.port) {
        (Some(ip), Some(port)) => SocketAddr::new(ip, port).to_string(),
        (Some(ip), None) => ip.to_string(),
        (None, port) => format!("node port {}", port.unwrap_or_default()),
    };
    let mut lines = Vec::new();
    if owners.is_empty() {
        lines.push(format!("{asked} has no owner: no Service, Pod, Node, endpoint or range has it"));
    }
    let width = |of: fn(&Owner) -> usize| owners.iter().map(of).max().unwrap_or_default();
    let (roles, names) = (width(|one| one.role.len()), width(|one| one.kind.len() + one.name.len() + 1));
    for one in owners {
        let name = format!("{} {}", one.kind, one.name);
        lines.push(format!("{:roles$}  {name:names$}  {}", one.role, one.says).trim_end().to_owned());
    }
    lines.extend(missing.iter().map(|what| format!("note: {what}")));
    lines.join("\n") + "\n"
}

/// Parses the argument.
fn read(text: &str) -> Result<AddressQuery, anyhow::Error> {
    let bad =
        || anyhow!("{text:?} is no address; write 10.96.0.1, 10.96.0.1:80, [fd00::1]:80 or a node port such as 30080");
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(AddressQuery { ip: Some(ip.to_canonical()), port: None });
    }
    if let Ok(at) = text.parse::<SocketAddr>() {
        return Ok(AddressQuery { ip: Some(at.ip().to_canonical()), port: Some(at.port()) });
    }
    let port: u16 = text.trim_start_matches(':').parse().map_err(|_| bad())?;
    ensure!(port > 0, bad());
    Ok(AddressQuery { ip: None, port: Some(port) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_ports_are_parsed() {
        let read = |text| read(text).map(|asked| (asked.ip.map(|ip| ip.to_string()), asked.port)).ok();
        assert_eq!(read("10.96.0.1"), Some((Some("10.96.0.1".to_owned()), None)));
        assert_eq!(read("10.96.0.1:80"), Some((Some("10.96.0.1".to_owned()), Some(80))));
        assert_eq!(read("[fd00::1]:80"), Some((Some("fd00::1".to_owned()), Some(80))));
        assert_eq!(read("fd00::1"), Some((Some("fd00::1".to_owned()), None)));
        assert_eq!(read("[fd00::1]"), Some((Some("fd00::1".to_owned()), None)));
        assert_eq!(read("::ffff:10.0.0.1"), Some((Some("10.0.0.1".to_owned()), None)));
        assert_eq!(read(":30080"), Some((None, Some(30080))));
        assert_eq!(read("30080"), Some((None, Some(30080))));
        assert_eq!(read("0"), None);
        assert_eq!(read("web"), None);
    }

    #[test]
    fn an_address_without_an_owner_is_reported() {
        let asked = AddressQuery { ip: Some([203, 0, 113, 1].into()), port: Some(80) };
        assert!(text(asked, &[], &[]).starts_with("203.0.113.1:80 has no owner"));
    }
}
