//! `waypost who IP[:PORT]`: whose an address or a port is.
//!
//! In: the objects. Out: everybody who has it, one line each; nobody is an answer, too.

use std::net::{IpAddr, SocketAddr};

use anyhow::{anyhow, ensure};
use clap::Args;
use plan::why::owners::{AddressQuery, Owner, owners};
use serde_json::json;

use super::world::World;
use super::{Output, pretty, wait};
use crate::commands::reach::{self, Reach};

/// Settings of the command.
#[derive(Args, Debug, Clone)]
pub(crate) struct Arguments {
    /// An address, an address with a port, or a node port alone
    #[arg(value_name = "IP[:PORT]", value_parser = read)]
    what: AddressQuery,
    /// How to write the answer
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: Output,
    #[command(flatten)]
    reach: Reach,
}

/// Runs the command.
pub(crate) fn exec(arguments: &Arguments) -> anyhow::Result<()> {
    let world = wait(async { World::read(&mut arguments.reach.api()?).await })?;
    let owners = owners(&world.objects(), arguments.what);
    reach::print(&match arguments.output {
        Output::Text => text(arguments.what, &owners, &world.missing),
        Output::Json => {
            let owner = |one: &Owner| json!({"kind": one.kind, "name": one.name, "role": one.role, "says": one.says});
            let owners: Vec<_> = owners.iter().map(owner).collect();
            let AddressQuery { ip, port } = arguments.what;
            let ip = ip.map(|ip| ip.to_string());
            pretty(&json!({"ip": ip, "port": port, "owners": owners, "missing": world.missing}))
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
        lines.push(format!("{asked} is nobody's: no Service, Pod, Node, endpoint or range has it"));
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

/// Reads what is asked for.
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
    fn addresses_and_ports_are_read_as_people_write_them() {
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
    fn nobody_is_an_answer() {
        let asked = AddressQuery { ip: Some([203, 0, 113, 1].into()), port: Some(80) };
        assert!(text(asked, &[], &[]).starts_with("203.0.113.1:80 is nobody's"));
    }
}
