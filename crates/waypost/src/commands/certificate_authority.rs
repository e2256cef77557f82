//! The ACME server of the controllers, by the client of the crate `acme`.

use std::collections::BTreeSet;

use acme::{Directory, Error, certificate};
use api::acme::Challenge;
use control::certificate_orders::{Authority, KeyPair, Problem, ProblemKind, Proof, Publish, Validity};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

/// An ACME server.
pub(super) struct AcmeServer(pub(super) Directory);

impl Authority for AcmeServer {
    fn directory(&self) -> &str {
        self.0.url()
    }

    fn register(&self) -> BoxFuture<'_, Result<String, Problem>> {
        self.0.register().map(|result| result.map_err(problem)).boxed()
    }

    fn issue<'a>(
        &'a self,
        credentials: &'a str,
        hosts: &'a BTreeSet<Box<str>>,
        challenge: Challenge,
        publish: &'a dyn Publish,
    ) -> BoxFuture<'a, Result<KeyPair, Problem>> {
        let issue = async move {
            let publish = async |proofs: Vec<acme::Proof>| {
                let proof = |acme::Proof { host, token, key_authorization }| Proof { host, token, key_authorization };
                publish.publish(proofs.into_iter().map(proof).collect()).await.map_err(|problem| problem.message)
            };
            self.0.issue(credentials, hosts, challenge, publish).await.map(pair).map_err(problem)
        };
        issue.boxed()
    }

    fn temporary(&self, hosts: &BTreeSet<Box<str>>) -> Result<KeyPair, Problem> {
        certificate::temporary(hosts).map(pair).map_err(problem)
    }

    fn read(&self, chain: &[u8]) -> Option<Validity> {
        let certificate::Contents { hosts, from, until } = certificate::read(chain)?;
        Some(Validity { hosts, from, until })
    }
}

fn pair(certificate::Identity { key, chain }: certificate::Identity) -> KeyPair {
    KeyPair { key, chain }
}

#[expect(clippy::needless_pass_by_value, reason = "it is the argument of map_err")]
fn problem(error: Error) -> Problem {
    let kind = match error {
        Error::UnknownAccount => ProblemKind::UnknownAccount,
        Error::RateLimit(_) => ProblemKind::RateLimit,
        _ => ProblemKind::Retry,
    };
    Problem { message: error.to_string(), kind }
}
