//! Objects in; certificates that are wanted, Secrets and Events out.

mod orders;
mod requests;

use std::collections::BTreeSet;
use std::sync::Arc;

use api::acme::Challenge;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;

use super::*;
use crate::certificate_orders::{Acme, Authority, KeyPair, Pauses, Problem, Proof, Publish, Validity};

/// A CA that validates nothing. Its certificates are texts: hosts, from, until.
#[derive(Default)]
struct Fake {
    /// Hosts of each order.
    orders: Mutex<Vec<String>>,
    /// Why orders fail.
    problem: Mutex<Option<Problem>>,
    /// Waits after the publication, as long as it is held.
    gate: tokio::sync::Mutex<()>,
}

fn text(hosts: &BTreeSet<Box<str>>) -> String {
    hosts.iter().map(|host| &**host).collect::<Vec<_>>().join(",")
}

impl Authority for Fake {
    fn directory(&self) -> &str {
        "https://ca.example/dir"
    }

    fn register(&self) -> BoxFuture<'_, Result<String, Problem>> {
        self.orders.lock().push("account".to_owned());
        async { Ok("credentials".to_owned()) }.boxed()
    }

    fn issue<'a>(
        &'a self,
        credentials: &'a str,
        hosts: &'a BTreeSet<Box<str>>,
        _: Challenge,
        publish: &'a dyn Publish,
    ) -> BoxFuture<'a, Result<KeyPair, Problem>> {
        assert_eq!(credentials, "credentials");
        let issue = async move {
            self.orders.lock().push(text(hosts));
            let proof = |host: &str| Proof {
                host: host.into(),
                token: host.replace('.', "-").into(),
                key_authorization: format!("{host}.thumb").into(),
            };
            publish.publish(hosts.iter().map(|host| proof(host)).collect()).await?;
            let _open = self.gate.lock().await;
            if let Some(problem) = self.problem.lock().clone() {
                return Err(problem);
            }
            let now = Timestamp::now().as_second();
            Ok(KeyPair { key: "key".to_owned(), chain: format!("{}|{now}|{}", text(hosts), now + 90 * 86_400) })
        };
        issue.boxed()
    }

    fn temporary(&self, hosts: &BTreeSet<Box<str>>) -> Result<KeyPair, Problem> {
        Ok(KeyPair { key: "key".to_owned(), chain: format!("{}|0|1", text(hosts)) })
    }

    fn read(&self, chain: &[u8]) -> Option<Validity> {
        let text = std::str::from_utf8(chain).ok()?;
        let [hosts, from, until] = text.split('|').collect::<Vec<_>>().try_into().ok()?;
        let at = |text: &str| Timestamp::from_second(text.parse().ok()?).ok();
        Some(Validity { hosts: hosts.split(',').map(Into::into).collect(), from: at(from)?, until: at(until)? })
    }
}

fn acme(fake: &Arc<Fake>) -> Acme {
    let pauses = Pauses { propagation: Duration::ZERO, ..Pauses::default() };
    Acme::new(Arc::clone(fake) as _, pauses)
}
