//! Reports of the API server of `up` to the other components: one when it serves, and one at each change of its certificates.

use std::net::SocketAddr;
use std::sync::Arc;

use jiff::Timestamp;
use rest::pki::{Identity, Pki, PkiError, ServingNames};
use tokio::sync::watch;

use super::order::Report;
use crate::commands::server;

/// Creates reports. The key of the agent is new at each start and not stored.
pub(super) struct Reporter {
    address: SocketAddr,
    names: ServingNames,
    identity: watch::Receiver<Arc<Pki>>,
    agent: Identity,
    /// The CA that signed for the agent.
    agent_ca: String,
}

impl Reporter {
    /// Reports of a server; `names` are those of the agent's serving certificate.
    ///
    /// # Errors
    /// When the agent's key cannot be created.
    pub(super) fn new(running: &server::Running, names: ServingNames) -> Result<Self, PkiError> {
        let mut identity = running.identity.subscribe();
        let pki = identity.borrow_and_update().clone();
        let agent = pki.issue_server(&names, Timestamp::now())?;
        Ok(Self { address: running.address, names, identity, agent, agent_ca: pki.agent_ca_key_id().to_owned() })
    }

    /// The current report.
    pub(super) fn report(&self) -> Report {
        let pki = self.identity.borrow();
        Report {
            address: self.address,
            ca: pki.ca_pem().to_owned(),
            admin: pki.admin().clone(),
            agent: self.agent.clone(),
        }
    }

    /// The next report after a change of certificates; never returns after the server has ended.
    ///
    /// # Errors
    /// When the agent's key cannot be created.
    pub(super) async fn next(&mut self) -> Result<Report, PkiError> {
        if self.identity.changed().await.is_err() {
            return std::future::pending().await;
        }
        let pki = self.identity.borrow_and_update().clone();
        if pki.agent_ca_key_id() != self.agent_ca {
            self.agent = pki.issue_server(&self.names, Timestamp::now())?;
            pki.agent_ca_key_id().clone_into(&mut self.agent_ca);
        }
        Ok(self.report())
    }
}
