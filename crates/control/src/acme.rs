//! Certificates by ACME for Gateways, ListenerSets and Ingresses with the annotation `waypost.dev/acme`.
//!
//! ```text
//! objects ──▶ wanted ──▶ worker ──▶ ACME server            wanted, ledger: pure
//!               │          ├─ ledger: limits, kept in a ConfigMap
//!               │          ├─ answers: challenges, in a ConfigMap that the gateways of the nodes watch
//!               ▼          └─ Secret with the certificate
//!             Events ◀─────┘
//! ```
//! The controller determines what is wanted, as a pure function of the cache; the [worker](worker::run) orders it. Both run in the leader only. With two
//! leaders for a moment nothing is ordered twice: an attempt is entered in the ledger, by revision, before it begins.

mod answers;
mod ledger;
#[cfg(test)]
mod tests;
mod validation;
mod wanted;
mod worker;

use std::time::Duration;

use crate::cache::{CLASSES, Change, INGRESSES};
use crate::controller::{AffectedKeys, Controller, Outcome, SINGLETON_KEY, View};
use crate::event::{self, EventDetails};
use crate::objects::gateway_api::{GATEWAYS, LISTENER_SETS};
use crate::settings::Settings;

pub use worker::run;

/// The source of Events.
const COMPONENT: &str = "acme";
const SECRETS: &str = "secrets";
/// How long changes are collected.
const DELAY: Duration = Duration::from_millis(500);
/// How often everything is looked at again without a change.
const RESYNC: Duration = Duration::from_secs(600);

/// Determines the certificates that are wanted.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "acme", enabled: is_configured, affected_keys, reconcile, resync_period: Some(RESYNC) };

fn is_configured(settings: &Settings) -> bool {
    settings.acme.is_some()
}

fn affected_keys(_: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    let is_object = [GATEWAYS, LISTENER_SETS, INGRESSES, CLASSES].iter().any(|table| change.is_of(table));
    let touches_gateway = || change.routing.as_ref().is_some_and(|touched| !touched.configs.is_empty());
    let touches_ingress = || change.ingresses.as_ref().is_some_and(|altered| !altered.ingresses.is_empty());
    if is_object || change.is_of(SECRETS) || touches_gateway() || touches_ingress() {
        affected.add_after(SINGLETON_KEY, DELAY);
    }
}

fn reconcile(view: &View<'_>, _: &str) -> Outcome {
    let wanted::Requests { wanted, findings, .. } = wanted::all(view);
    let now = view.now_text();
    let events = findings.iter().map(|finding| {
        let wanted::Finding { requester, reason, message } = finding;
        let details = EventDetails { controller: COMPONENT, normal: false, reason, message, now: &now };
        event::new_event(requester.kind, &requester.api_version, &requester.object, &details)
    });
    let events = events.filter(|event| !event::exists(view.store, event)).collect();
    Outcome { events, certificates: Some(wanted.into()), ..Outcome::done() }
}
