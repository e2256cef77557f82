//! FlowSchema and PriorityLevelConfiguration: how Kubernetes queues requests. Waypost queues them by rules of its own
//! (`rest::fairness`), which these objects do not change.

use serde_json::Value;

use super::super::common::{one_of, report};
use super::{SPEC, Stored, set};
use crate::field::{Errors, Path};
use crate::kind::{Kind, status_of};
use crate::names;
use crate::table::{AGE, NAME, Table, age, column, no_conditions, or};
use crate::value::ValueExt as _;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const API_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";
const EXEMPT: &str = "exempt";
const MAX_PRECEDENCE: i64 = 10_000;
const MAX_QUEUES: i64 = 10_000_000;

/// `FlowSchema`.
pub static FLOW_SCHEMA: Kind = Kind {
    group: GROUP,
    kind: "FlowSchema",
    plural: "flowschemas",
    singular: "flowschema",
    namespaced: false,
    schema: "flowcontrol.FlowSchema",
    table: "flowschemas",
    subresources: &[status_of("FlowSchema")],
    generation: true,
    table_view: &SCHEMA_TABLE,
    ..Kind::common(&SCHEMA_RULES)
};

static SCHEMA_RULES: Stored = Stored {
    namespaced: false,
    default: |object| {
        if object.int("spec.matchingPrecedence") == 0 {
            object.put("spec.matchingPrecedence", 1000);
        }
    },
    validate: validate_schema,
    ..Stored::new(API_VERSION, "FlowSchema")
};

/// `PriorityLevelConfiguration`.
pub static PRIORITY_LEVEL: Kind = Kind {
    group: GROUP,
    kind: "PriorityLevelConfiguration",
    plural: "prioritylevelconfigurations",
    singular: "prioritylevelconfiguration",
    namespaced: false,
    schema: "flowcontrol.PriorityLevelConfiguration",
    table: "prioritylevelconfigurations",
    subresources: &[status_of("PriorityLevelConfiguration")],
    generation: true,
    table_view: &LEVEL_TABLE,
    ..Kind::common(&LEVEL_RULES)
};

static LEVEL_RULES: Stored = Stored {
    namespaced: false,
    default: default_level,
    validate: validate_level,
    ..Stored::new(API_VERSION, "PriorityLevelConfiguration")
};

static SCHEMA_TABLE: Table = Table {
    columns: &[
        NAME,
        column("PriorityLevel", "The PriorityLevelConfiguration of the requests."),
        column("MatchingPrecedence", "Schemas with lower numbers are asked first."),
        column("DistinguisherMethod", "What tells flows apart."),
        AGE,
        column("MissingPL", "Whether the PriorityLevelConfiguration does not exist."),
    ],
    row: |object, now| {
        let dangling = object.items("status.conditions").iter().find(|one| one.text("type") == "Dangling");
        vec![
            object.text("metadata.name").into(),
            object.text("spec.priorityLevelConfiguration.name").into(),
            object.int("spec.matchingPrecedence").into(),
            or(object.text("spec.distinguisherMethod.type"), "<none>").into(),
            age(object, now).into(),
            dangling.map_or("?", |one| one.text("status")).into(),
        ]
    },
    conditions: no_conditions,
};

static LEVEL_TABLE: Table = Table {
    columns: &[
        NAME,
        column("Type", "Whether the requests are limited."),
        column("NominalConcurrencyShares", "The share of all requests at a time."),
        column("Queues", "How many queues there are."),
        column("HandSize", "How many queues a flow may use."),
        column("QueueLengthLimit", "How many requests a queue holds."),
        AGE,
    ],
    row: |object, now| {
        let limited = object.at("spec.limited");
        let cell = |value: &Value| if value.is_null() { "<none>".into() } else { value.clone() };
        vec![
            object.text("metadata.name").into(),
            object.text("spec.type").into(),
            cell(limited.at("nominalConcurrencyShares")),
            cell(limited.at("limitResponse.queuing.queues")),
            cell(limited.at("limitResponse.queuing.handSize")),
            cell(limited.at("limitResponse.queuing.queueLengthLimit")),
            age(object, now).into(),
        ]
    },
    conditions: no_conditions,
};

fn default_level(object: &mut Value) {
    for (field, shares) in [("spec.limited", 30), ("spec.exempt", 0)] {
        if object.has(field) {
            set(object, &format!("{field}.nominalConcurrencyShares"), shares);
            set(object, &format!("{field}.lendablePercent"), 0);
        }
    }
    let Some(queuing) = object.at_mut("spec.limited.limitResponse.queuing").filter(|queuing| queuing.is_object())
    else {
        return;
    };
    for (field, value) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
        if queuing.int(field) == 0 {
            queuing.put(field, value);
        }
    }
}

fn validate_schema(object: &Value, errors: &mut Errors) {
    let (spec, path) = (object.at("spec"), SPEC.child("matchingPrecedence"));
    let precedence = spec.int("matchingPrecedence");
    if precedence <= 0 {
        errors.invalid(&path, precedence, "must be a positive value");
    }
    if precedence > MAX_PRECEDENCE {
        errors.invalid(&path, precedence, &format!("must not be greater than {MAX_PRECEDENCE}"));
    }
    if precedence == 1 && object.text("metadata.name") != EXEMPT {
        errors.invalid(&path, precedence, "only the schema named 'exempt' may have matchingPrecedence 1");
    }
    let method = spec.text("distinguisherMethod.type");
    if spec.has("distinguisherMethod") && !matches!(method, "ByNamespace" | "ByUser") {
        let path = SPEC.child("distinguisherMethod");
        errors.not_supported(&path.child("type"), method, &["ByNamespace", "ByUser"]);
    }
    let level = SPEC.child("priorityLevelConfiguration");
    match spec.text("priorityLevelConfiguration.name") {
        "" => errors.required(&level.child("name"), "must reference a priority level"),
        name => report(&level.child("name"), name, names::dns_subdomain(name), errors),
    }
    let list = SPEC.child("rules");
    for (index, rule) in spec.items("rules").iter().enumerate() {
        validate_rule(&list.index(index), rule, errors);
    }
}

fn validate_rule(path: &Path<'_>, rule: &Value, errors: &mut Errors) {
    let (list, subjects) = (path.child("subjects"), rule.items("subjects"));
    if subjects.is_empty() {
        errors.required(&list, "subjects must contain at least one value");
    }
    for (index, subject) in subjects.iter().enumerate() {
        let (path, kind) = (list.index(index), subject.text("kind"));
        let field = match kind {
            "User" => "user",
            "Group" => "group",
            "ServiceAccount" => "serviceAccount",
            _ => {
                errors.not_supported(&path.child("kind"), kind, &["Group", "ServiceAccount", "User"]);
                continue;
            }
        };
        if !subject.has(field) {
            errors.required(&path.child(field), &format!("{field} is required when subject kind is '{kind}'"));
        } else if subject.at(field).text("name").is_empty() {
            errors.required(&path.child(field).child("name"), "");
        }
    }
    if rule.items("resourceRules").is_empty() && rule.items("nonResourceRules").is_empty() {
        errors.required(path, "at least one of resourceRules and nonResourceRules has to be non-empty");
    }
}

fn validate_level(object: &Value, errors: &mut Errors) {
    let (spec, kind) = (object.at("spec"), object.text("spec.type"));
    if (object.text("metadata.name") == EXEMPT) != (kind == "Exempt") {
        errors.invalid(&SPEC.child("type"), kind, "must be 'Exempt' if and only if `name` is 'exempt'");
    }
    let (limited, exempt) = (SPEC.child("limited"), SPEC.child("exempt"));
    match kind {
        "Exempt" if spec.has("limited") => errors.forbidden(&limited, "must be nil if the type is not Limited"),
        "Exempt" => {}
        "Limited" => {
            if spec.has("exempt") {
                errors.forbidden(&exempt, "must be nil if the type is Limited");
            }
            if spec.has("limited") {
                validate_limited(&limited, spec.at("limited"), errors);
            } else {
                errors.required(&limited, "must not be empty when type is Limited");
            }
        }
        _ => one_of(&SPEC.child("type"), kind, &["Exempt", "Limited"], errors),
    }
}

fn validate_limited(path: &Path<'_>, limited: &Value, errors: &mut Errors) {
    let shares = limited.int("nominalConcurrencyShares");
    if shares < 0 {
        errors.invalid(&path.child("nominalConcurrencyShares"), shares, "must be a non-negative integer");
    }
    let (response, path_of_response) = (limited.at("limitResponse"), path.child("limitResponse"));
    let queuing = path_of_response.child("queuing");
    match (response.text("type"), response.has("queuing")) {
        ("Reject", true) => errors.forbidden(&queuing, "must be nil if limited.limitResponse.type is not Limited"),
        ("Reject", false) => {}
        ("Queue", true) => validate_queuing(&queuing, response.at("queuing"), errors),
        ("Queue", false) => errors.required(&queuing, "must not be empty if limited.limitResponse.type is Limited"),
        (kind, _) => one_of(&path_of_response.child("type"), kind, &["Queue", "Reject"], errors),
    }
    let lendable = limited.int("lendablePercent");
    if !(0..=100).contains(&lendable) {
        errors.invalid(&path.child("lendablePercent"), lendable, "must be between 0 and 100, inclusive");
    }
    let borrowing = limited.int("borrowingLimitPercent");
    if borrowing < 0 {
        let detail = "if specified, must be a non-negative integer";
        errors.invalid(&path.child("borrowingLimitPercent"), borrowing, detail);
    }
}

fn validate_queuing(path: &Path<'_>, queuing: &Value, errors: &mut Errors) {
    let [length, queues, hand] = ["queueLengthLimit", "queues", "handSize"].map(|field| queuing.int(field));
    if length <= 0 {
        errors.invalid(&path.child("queueLengthLimit"), length, "must be positive");
    }
    if queues <= 0 {
        errors.invalid(&path.child("queues"), queues, "must be positive");
    } else if queues > MAX_QUEUES {
        errors.invalid(&path.child("queues"), queues, &format!("must not be greater than {MAX_QUEUES}"));
    }
    if hand <= 0 {
        errors.invalid(&path.child("handSize"), hand, "must be positive");
    } else if hand > queues {
        errors.invalid(&path.child("handSize"), hand, &format!("should not be greater than queues ({queues})"));
    }
}
