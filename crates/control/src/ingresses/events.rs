//! Events of Ingresses.
//!
//! In: the findings of an Ingress, and why it has no address. Out: an Event of type Warning for each that has none in the store: one that exists is not
//! repeated, also not after a restart. Objects of one manifest are created in any order, so what may only be late is reported after a while.

use std::borrow::Cow;
use std::time::Duration;

use api::value::ValueExt as _;
use jiff::Timestamp;
use routing::ingress::{Finding, Reason};
use serde_json::Value;

use crate::controller::View;
use crate::event::{self, EventDetails, Reference, new_event};
use crate::write::Write;

/// The source of Events.
const COMPONENT: &str = "ingress";
/// The most Events about one version of an Ingress.
const MOST: usize = 16;
/// The longest message of an Event, in bytes.
const LONGEST_MESSAGE: usize = 1024;
/// How long Services and Secrets of a new Ingress may be missing.
const GRACE: Duration = Duration::from_secs(5);

/// The Events that are due, and when to look again.
pub(super) fn due(
    view: &View<'_>,
    ingress: &Value,
    findings: &[Finding],
    pending: Option<String>,
) -> (Vec<Write>, Option<Duration>) {
    let grace = grace(ingress, view.now);
    let (late, due): (Vec<&Finding>, Vec<&Finding>) =
        findings.iter().partition(|finding| grace.is_some() && may_be_late(finding.reason));
    let mut all: Vec<(&str, Cow<'_, str>)> = Vec::new();
    all.extend(pending.map(|why| ("AddressNotAssigned", why.into())));
    all.extend(due.iter().map(|finding| (finding.reason.as_str(), Cow::from(&*finding.message))));
    let more = all.len().saturating_sub(MOST);
    if more > 0 {
        all.truncate(MOST - 1);
        all.push(("MoreFindings", format!("{} more findings are not listed", more + 1).into()));
    }
    let now = view.now_text();
    let events = all.iter().map(|(reason, message)| {
        let details =
            EventDetails { controller: COMPONENT, normal: false, reason, message: shortened(message), now: &now };
        new_event("Ingress", "networking.k8s.io/v1", &Reference::to(ingress), &details)
    });
    let events = events.filter(|event| !event::exists(view.store, event)).collect();
    (events, grace.filter(|_| !late.is_empty()))
}

/// Whether the cause of a finding may be that another object is created after the Ingress.
const fn may_be_late(reason: Reason) -> bool {
    matches!(reason, Reason::BackendInvalid | Reason::CertificateInvalid | Reason::CanaryIgnored)
}

/// How much longer an Ingress is new; `None` when it no longer is.
fn grace(ingress: &Value, now: Timestamp) -> Option<Duration> {
    let created: Timestamp = ingress.text("metadata.creationTimestamp").parse().ok()?;
    let age = Duration::try_from(now.duration_since(created)).ok()?;
    GRACE.checked_sub(age).filter(|rest| !rest.is_zero())
}

fn shortened(message: &str) -> &str {
    let mut end = message.len().min(LONGEST_MESSAGE);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message.get(..end).unwrap_or_default()
}
