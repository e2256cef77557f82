//! What all routes have: parents, hostnames, names of rules, and the status by parent.

use super::Channel;
use super::conditions::conditions;
use super::references::{parent, parents};
use super::schema::{Field, Schema, choice, list, object, optional, required};
use super::shapes::{controller_name, hostname, section_name};

/// The fields of the spec that do not depend on the kind of route.
pub(super) fn common_fields(channel: Channel) -> Vec<Field> {
    let mut fields =
        vec![optional("parentRefs", "The Gateways and other objects that the route attaches to.", parents(channel))];
    if channel.is_experimental() {
        let scopes = choice(&["All", "None"]);
        fields.push(optional("useDefaultGateways", "Whether the route also attaches to default Gateways.", scopes));
    }
    fields
}

/// The hostnames of HTTP and gRPC routes.
pub(super) fn hostnames() -> Field {
    let hostnames = list(hostname()).max_items(16);
    optional("hostnames", "The hosts of the requests that the route applies to; by default all.", hostnames)
}

/// The name of a rule.
pub(super) fn rule_name() -> Field {
    optional("name", "The name of the rule, unique in the route.", section_name())
}

/// Adds the rule that names are unique.
pub(super) fn with_unique_names(rules: Schema) -> Schema {
    rules.rule(
        "Rule name must be unique within the route",
        "self.all(a, !has(a.name) || self.exists_one(b, has(b.name) && b.name == a.name))",
    )
}

/// The message of the bound for all matches of a route.
pub(super) const TOO_MANY_MATCHES: &str = "While 16 rules and 64 matches per rule are allowed, the total number of \
                                           matches across all rules in a route must be less than 128";

/// The status: how each parent judged the route.
pub(super) fn status() -> Schema {
    let entry = object([
        required("conditions", "The result.", conditions().with("minItems", 1)),
        required("controllerName", "The controller that wrote the entry.", controller_name()),
        required("parentRef", "The parent, as in the spec.", parent()),
    ]);
    object([required("parents", "One entry for each parent and controller.", list(entry).max_items(32))])
}

/// The status of policies: how each ancestor of their targets judged them.
pub(super) fn policy_status() -> Schema {
    let entry = object([
        required("ancestorRef", "The ancestor, in most cases a Gateway.", parent()),
        required("conditions", "The result.", conditions().with("minItems", 1)),
        required("controllerName", "The controller that wrote the entry.", controller_name()),
    ]);
    object([required("ancestors", "One entry for each ancestor and controller.", list(entry).max_items(16))])
}
