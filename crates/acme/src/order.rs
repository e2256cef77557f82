//! An order: from hosts to a certificate.
//!
//! ```text
//! new order ─▶ authorizations ─▶ answers published ─▶ challenges ready ─▶ validated ─▶ request for the key ─▶ certificate
//! ```
//! A CA remembers validations for its accounts, for weeks, and needs no further one for another certificate. The tenants of a cluster share an account:
//! one could get a certificate for a host that another one has proved to control. So validations are used once: they are deactivated after the
//! order, and one that is left over is deactivated before it.

use std::collections::BTreeSet;

use api::acme::{Challenge, is_token};
use instant_acme::{
    Account, AuthorizationStatus, ChallengeStatus, ChallengeType, Identifier, NewOrder, Order, OrderStatus, RetryPolicy,
};

use crate::certificate::{self, Identity};
use crate::{Directory, Error, ORDER_TIMEOUT, describe};

/// How often an order is made anew because of validations that are left over.
const ATTEMPTS: usize = 3;

/// The answer to a challenge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proof {
    /// The host.
    pub host: Box<str>,
    /// The token of the challenge.
    pub token: Box<str>,
    /// The token with the thumbprint of the account key.
    pub key_authorization: Box<str>,
}

impl Directory {
    /// Orders a certificate for hosts, with a new key. `publish` returns when answers can be given.
    ///
    /// # Errors
    /// When the server refuses, cannot validate a host, does not follow the protocol or does not respond.
    pub async fn issue(
        &self,
        credentials: &str,
        hosts: &BTreeSet<Box<str>>,
        challenge: Challenge,
        publish: impl AsyncFnOnce(Vec<Proof>) -> Result<(), String>,
    ) -> Result<Identity, Error> {
        let account = self.account(credentials).await?;
        let mut order = fresh(&account, hosts).await?;
        let result = complete(&mut order, hosts, challenge, publish).await;
        // Best effort: what stays valid is found by the next order for the host.
        let _ = deactivate(&mut order).await;
        result
    }
}

/// An order whose hosts have yet to be validated.
async fn fresh(account: &Account, hosts: &BTreeSet<Box<str>>) -> Result<Order, Error> {
    let identifiers: Vec<Identifier> = hosts.iter().map(|host| Identifier::Dns(host.to_string())).collect();
    for _ in 0..ATTEMPTS {
        let mut order = account.new_order(&NewOrder::new(&identifiers)).await?;
        if order.state().authorizations.len() != hosts.len() {
            return Err(Error::Protocol("the number of authorizations is not that of hosts".to_owned()));
        }
        if deactivate(&mut order).await? == 0 {
            return Ok(order);
        }
    }
    Err(Error::Protocol("it uses earlier validations again that were deactivated".to_owned()))
}

/// Deactivates the validations of an order; returns their number. A deactivated one makes an order invalid that has no certificate yet.
async fn deactivate(order: &mut Order) -> Result<usize, Error> {
    let mut count = 0;
    let mut all = order.authorizations();
    while let Some(authorization) = all.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Valid {
            authorization.deactivate().await?;
            count += 1;
        }
    }
    Ok(count)
}

async fn complete(
    order: &mut Order,
    hosts: &BTreeSet<Box<str>>,
    challenge: Challenge,
    publish: impl AsyncFnOnce(Vec<Proof>) -> Result<(), String>,
) -> Result<Identity, Error> {
    let proofs = proofs(order, hosts, challenge).await?;
    publish(proofs).await.map_err(Error::Publication)?;
    let mut all = order.authorizations();
    while let Some(authorization) = all.next().await {
        if let Some(mut challenge) = authorization?.challenge(kind(challenge)) {
            challenge.set_ready().await?;
        }
    }
    validated(order, hosts, challenge).await?;
    let request = certificate::request(hosts)?;
    order.finalize_csr(&request.der).await?;
    let chain = order.poll_certificate(&polling()).await?;
    request.identity(chain)
}

const fn polling() -> RetryPolicy {
    RetryPolicy::new().timeout(ORDER_TIMEOUT)
}

const fn kind(challenge: Challenge) -> ChallengeType {
    match challenge {
        Challenge::Http => ChallengeType::Http01,
        Challenge::TlsAlpn => ChallengeType::TlsAlpn01,
    }
}

/// The answers that the authorizations of an order demand.
async fn proofs(order: &mut Order, hosts: &BTreeSet<Box<str>>, challenge: Challenge) -> Result<Vec<Proof>, Error> {
    let mut proofs = Vec::new();
    let mut all = order.authorizations();
    while let Some(authorization) = all.next().await {
        let mut authorization = authorization?;
        let host = authorization.identifier().to_string();
        if !hosts.contains(host.as_str()) {
            return Err(Error::Protocol(format!("it demands an authorization for {host:.100}, which was not ordered")));
        }
        if authorization.status != AuthorizationStatus::Pending {
            return Err(Error::Validation { host, why: format!("the authorization is {:?}", authorization.status) });
        }
        let offered = authorization.challenges.iter().map(|offer| format!("{:?}", offer.r#type)).collect::<Vec<_>>();
        let Some(offer) = authorization.challenge(kind(challenge)) else {
            return Err(Error::NoChallenge { challenge: challenge.name(), host, offered: offered.join(", ") });
        };
        if !is_token(&offer.token) {
            return Err(Error::Protocol("the token of a challenge is not base64url".to_owned()));
        }
        proofs.push(Proof {
            host: host.into(),
            token: offer.token.as_str().into(),
            key_authorization: offer.key_authorization().as_str().into(),
        });
    }
    Ok(proofs)
}

/// Waits until the order is ready by the challenges that were answered. If it becomes invalid, the error names the host and what the server
/// found there.
async fn validated(order: &mut Order, hosts: &BTreeSet<Box<str>>, challenge: Challenge) -> Result<(), Error> {
    let result = match order.poll_ready(&polling()).await {
        Ok(OrderStatus::Ready) => Ok(()),
        Ok(_) => Err(Error::Protocol("the order is invalid, without a problem".to_owned())),
        Err(error) => Err(Error::from(error)),
    };
    let mut all = order.authorizations();
    while let Some(authorization) = all.next().await {
        let mut authorization = authorization?;
        authorization.refresh().await?;
        let host = authorization.identifier().to_string();
        let problem = authorization.challenges.iter().find_map(|challenge| challenge.error.as_ref()).map(describe);
        let proof = authorization.challenges.iter().find(|offer| offer.r#type == kind(challenge));
        let is_proved = proof.is_some_and(|proof| proof.status == ChallengeStatus::Valid);
        match (&result, problem) {
            (Err(_), Some(why)) if hosts.contains(host.as_str()) => return Err(Error::Validation { host, why }),
            (Ok(()), _) if !is_proved => {
                let why = format!("it was validated by another challenge than {}", challenge.name());
                return Err(Error::Validation { host, why });
            }
            _ => {}
        }
    }
    result
}
