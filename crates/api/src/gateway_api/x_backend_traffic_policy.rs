//! XBackendTrafficPolicy: retry budgets and session persistence of backends (experimental).

use serde_json::{Value, json};

use super::Channel;
use super::definition::{Names, Version, age, definition as define, root};
use super::persistence::session_persistence;
use super::references::policy_target;
use super::route::policy_status;
use super::schema::{Schema, integer, map_list, object, optional, required};
use super::shapes::duration;

pub(super) fn definition(channel: Channel) -> Value {
    let spec = object([
        optional("retryConstraint", "When requests are no longer sent again.", retry_constraint()),
        optional("sessionPersistence", "How clients stay at one endpoint.", session_persistence()),
        required(
            "targetRefs",
            "The Services that the policy applies to.",
            map_list(&["group", "kind", "name"], policy_target()).items(1..=16),
        ),
    ]);
    let names = Names {
        short: Some("xbtrafficpolicy"),
        is_experimental: true,
        is_policy: true,
        ..Names::namespaced("XBackendTrafficPolicy", "xbackendtrafficpolicies")
    };
    let schema = root("XBackendTrafficPolicy configures requests to backends.", spec, Some(policy_status()));
    define(channel, &names, [Version::stored("v1alpha1", json!([age()]), schema)])
}

fn retry_constraint() -> Schema {
    let period = duration().default("10s").rule(
        "interval cannot be greater than one hour or less than one second",
        "duration(self) >= duration('1s') && duration(self) <= duration('1h')",
    );
    let budget = object([
        optional("interval", "The time in which requests are counted.", period),
        optional("percent", "The percentage of requests that may be retries.", integer().range(0..=100).default(20)),
    ])
    .default(json!({"percent": 20, "interval": "10s"}));
    let second = duration().rule(
        "interval cannot be greater than one hour",
        "duration(self) != duration('0s') && duration(self) <= duration('1h')",
    );
    let rate = object([
        optional("count", "The number of retries.", integer().range(1..=1_000_000)),
        optional("interval", "The time for that number.", second),
    ])
    .default(json!({"count": 10, "interval": "1s"}));
    object([
        optional("budget", "The share of retries.", budget),
        optional("minRetryRate", "The rate of retries that is always permitted.", rate),
    ])
}
