//! The protocol between `up` and its API server process, over the standard input of the child: lines of JSON.
//!
//! In: an [`Order`] from the parent. Out: a [`Report`] once the API is served and at each change of its certificates, or an error. The server
//! stops when the connection is closed.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use api::value::ValueExt as _;
use kernel::privileges::Account;
use rest::pki::{Identity, ServingNames};
use serde_json::{Value, json};

/// The settings of the API server process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Order {
    /// Its user.
    pub(super) account: Account,
    /// Its data directory.
    pub(super) data_dir: PathBuf,
    /// The other components.
    pub(super) machine: Machine,
}

/// The other components on this machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Machine {
    /// Other addresses at which the server listens, for Pods.
    pub(super) addresses: Vec<IpAddr>,
    /// The Node whose agent runs here.
    pub(super) node: Option<String>,
    /// The names in the serving certificate of that agent.
    pub(super) agent: ServingNames,
}

/// The state of a ready server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Report {
    pub(super) address: SocketAddr,
    /// The certificate authority, PEM.
    pub(super) ca: String,
    pub(super) admin: Identity,
    /// The serving certificate of the agent.
    pub(super) agent: Identity,
}

impl Order {
    pub(super) fn write(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let Self { account, data_dir, machine } = self;
        let data_dir = data_dir.to_str().context("the path of the data directory is not UTF-8")?;
        let order = json!({
            "name": account.name, "uid": account.uid, "gid": account.gid, "dataDir": data_dir,
            "addresses": machine.addresses, "node": machine.node, "ips": machine.agent.ips, "dns": machine.agent.dns,
        });
        Ok(writeln!(out, "{order}")?)
    }

    pub(super) fn read(from: impl Read) -> anyhow::Result<Self> {
        let mut line = String::new();
        BufReader::new(from).read_line(&mut line)?;
        let order: Value = serde_json::from_str(&line)?;
        let number = |key: &str| u32::try_from(order.int(key)).with_context(|| key.to_owned());
        let known = |key: &str| order.at(key).as_str().map(str::to_owned);
        Ok(Self {
            account: Account { name: known("name"), uid: number("uid")?, gid: number("gid")? },
            data_dir: PathBuf::from(order.text("dataDir")),
            machine: Machine {
                addresses: texts(&order, "addresses").map(|ip| ip.parse()).collect::<Result<_, _>>()?,
                node: known("node"),
                agent: ServingNames {
                    ips: texts(&order, "ips").map(|ip| ip.parse()).collect::<Result<_, _>>()?,
                    dns: texts(&order, "dns").map(str::to_owned).collect(),
                },
            },
        })
    }
}

impl Report {
    pub(super) fn line(&self) -> String {
        let pair = |identity: &Identity| json!({"certificate": identity.certificate_pem, "key": identity.key_pem});
        let report = json!({
            "address": self.address, "ca": self.ca, "admin": pair(&self.admin), "agent": pair(&self.agent),
        });
        format!("{report}\n")
    }

    /// The message in place of a report.
    pub(super) fn failure(error: &anyhow::Error) -> String {
        format!("{}\n", json!({"error": format!("{error:#}")}))
    }

    pub(super) fn parse(line: &str) -> anyhow::Result<Self> {
        let report: Value = serde_json::from_str(line).context("the API server ended before it was ready")?;
        if let Some(error) = report.at("error").as_str() {
            return Err(anyhow!("{error}"));
        }
        let pair = |key: &str| Identity {
            certificate_pem: report.at(key).text("certificate").to_owned(),
            key_pem: report.at(key).text("key").to_owned(),
        };
        Ok(Self {
            address: report.text("address").parse().context("the address of the API server")?,
            ca: report.text("ca").to_owned(),
            admin: pair("admin"),
            agent: pair("agent"),
        })
    }
}

fn texts<'a>(order: &'a Value, key: &str) -> impl Iterator<Item = &'a str> {
    order.items(key).iter().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let order = Order {
            account: Account::numbered(5, 6),
            data_dir: PathBuf::from("/srv/a b"),
            machine: Machine {
                addresses: vec![IpAddr::from([192, 0, 2, 1])],
                node: Some("n1".to_owned()),
                agent: ServingNames {
                    ips: vec!["2001:db8::1".parse().expect("an address")],
                    dns: vec!["n1".to_owned()],
                },
            },
        };
        let mut wire = Vec::new();
        order.write(&mut wire).expect("written");
        assert_eq!(Order::read(&wire[..]).expect("read"), order);
        let identity = Identity { certificate_pem: "a\nb\n".to_owned(), key_pem: "c\n".to_owned() };
        let report = Report {
            address: SocketAddr::from(([127, 0, 0, 1], 6443)),
            ca: "x\ny\n".to_owned(),
            admin: identity.clone(),
            agent: identity,
        };
        assert_eq!(report.line().lines().count(), 1);
        assert_eq!(Report::parse(&report.line()).expect("read"), report);
    }

    #[test]
    fn a_failure_is_told_in_its_own_words() {
        let error = Report::parse(&Report::failure(&anyhow!("inner").context("outer"))).expect_err("a failure");
        assert_eq!(format!("{error:#}"), "outer: inner");
        assert!(format!("{:#}", Report::parse("").expect_err("nothing")).contains("ended before it was ready"));
        assert!(Order::read(&b""[..]).is_err());
    }
}
