//! ValidatingWebhookConfiguration and MutatingWebhookConfiguration: services that are called about requests.

use serde_json::Value;

use super::{check_name, client_config, common, conditions, put_missing, rules, warn_of_name};
use crate::dynamic_admission::EXCLUDED;
use crate::dynamic_admission::expression::Compiler;
use crate::dynamic_admission::language::Cel;
use crate::field::{Errors, Path};
use crate::kind::{Kind, Rules};
use crate::kinds::workload::validate_labels_selector;
use crate::meta;
use crate::names;
use crate::table::{AGE, NAME, Table, age, integer_column, no_conditions};
use crate::value::ValueExt as _;

/// Webhooks that may refuse.
pub static VALIDATING: Kind = Kind {
    kind: "ValidatingWebhookConfiguration",
    plural: "validatingwebhookconfigurations",
    singular: "validatingwebhookconfiguration",
    schema: "admissionregistration.ValidatingWebhookConfiguration",
    table: "validatingwebhookconfigurations",
    table_view: &TABLE,
    ..common(&WebhookRules { mutating: false })
};

/// Webhooks that may change objects.
pub static MUTATING: Kind = Kind {
    kind: "MutatingWebhookConfiguration",
    plural: "mutatingwebhookconfigurations",
    singular: "mutatingwebhookconfiguration",
    schema: "admissionregistration.MutatingWebhookConfiguration",
    table: "mutatingwebhookconfigurations",
    table_view: &TABLE,
    ..common(&WebhookRules { mutating: true })
};

static TABLE: Table = Table {
    columns: &[NAME, integer_column("Webhooks", "How many webhooks there are."), AGE],
    row: |object, now| {
        vec![object.text("metadata.name").into(), object.items("webhooks").len().into(), age(object, now).into()]
    },
    conditions: no_conditions,
};

const FAILURE_POLICIES: &[&str] = &["Fail", "Ignore"];
const REINVOCATION_POLICIES: &[&str] = &["IfNeeded", "Never"];
const SIDE_EFFECTS: &[&str] = &["None", "NoneOnDryRun"];
const REVIEW_VERSIONS: &[&str] = &["v1", "v1beta1"];

struct WebhookRules {
    mutating: bool,
}

impl Rules for WebhookRules {
    fn default(&self, object: &mut Value) {
        for webhook in object.items_mut("webhooks") {
            put_missing(webhook, "failurePolicy", "Fail");
            rules::default_match(webhook);
            put_missing(webhook, "timeoutSeconds", 10);
            if self.mutating {
                put_missing(webhook, "reinvocationPolicy", "Never");
            }
            webhook.items_mut("rules").iter_mut().for_each(rules::default_rule);
            if let Some(service @ Value::Object(_)) = webhook.at_mut("clientConfig.service") {
                put_missing(service, "port", 443);
            }
        }
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate(object, None, self.mutating, &Cel, errors);
        check_name(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        validate(new, Some(old), self.mutating, &Cel, errors);
    }

    fn warnings(&self, new: &Value, old: Option<&Value>, out: &mut Vec<String>) {
        warn_of_name(new, old, out);
        warn_of_excluded(new, out);
    }

    fn new_generation(&self, new: &Value, old: &Value) -> bool {
        new.at("webhooks") != old.at("webhooks")
    }
}

/// Checks a configuration. Match conditions that do not change are not compiled again.
pub(super) fn validate(
    object: &Value,
    old: Option<&Value>,
    mutating: bool,
    compiler: &dyn Compiler,
    errors: &mut Errors,
) {
    meta::validate(object, false, names::name_is_subdomain, errors);
    let (list, webhooks) = (Path::Root("webhooks"), object.items("webhooks"));
    let before = old.map_or(&[][..], |old| old.items("webhooks"));
    let accepted: Vec<&str> =
        before.iter().flat_map(|webhook| conditions::texts(webhook.items("matchConditions"))).collect();
    let same_conditions = old.is_some()
        && webhooks.len() == before.len()
        && webhooks.iter().zip(before).all(|(new, old)| new.items("matchConditions") == old.items("matchConditions"));
    for (index, webhook) in webhooks.iter().enumerate() {
        let (path, name) = (list.index(index), webhook.text("name"));
        validate_webhook(&path, webhook, mutating, errors);
        client_config::validate(&path.child("clientConfig"), webhook.at("clientConfig"), errors);
        if !same_conditions {
            let (path, all) = (path.child("matchConditions"), webhook.items("matchConditions"));
            conditions::validate(&path, all, false, &accepted, compiler, errors);
        }
        validate_versions(&path.child("admissionReviewVersions"), webhook, errors);
        let repeated = webhooks[..index].iter().any(|earlier| earlier.text("name") == name);
        if !name.is_empty() && repeated {
            errors.duplicate(&path.child("name"), name);
        }
    }
}

fn validate_webhook(path: &Path<'_>, webhook: &Value, mutating: bool, errors: &mut Errors) {
    validate_webhook_name(&path.child("name"), webhook.text("name"), errors);
    let rules_path = path.child("rules");
    for (index, rule) in webhook.items("rules").iter().enumerate() {
        rules::validate_rule(&rules_path.index(index), rule, errors);
    }
    if webhook.has("failurePolicy") && !FAILURE_POLICIES.contains(&webhook.text("failurePolicy")) {
        errors.not_supported(&path.child("failurePolicy"), webhook.text("failurePolicy"), FAILURE_POLICIES);
    }
    rules::validate_match_policy(path, webhook, errors);
    if !webhook.has("sideEffects") {
        errors.required(&path.child("sideEffects"), &format!("must specify one of {}", SIDE_EFFECTS.join(", ")));
    } else if !SIDE_EFFECTS.contains(&webhook.text("sideEffects")) {
        errors.not_supported(&path.child("sideEffects"), webhook.text("sideEffects"), SIDE_EFFECTS);
    }
    let timeout = webhook.at("timeoutSeconds").as_i64();
    if let Some(seconds) = timeout.filter(|seconds| !(1..=30).contains(seconds)) {
        let why = "the timeout value must be between 1 and 30 seconds";
        errors.invalid(&path.child("timeoutSeconds"), seconds, why);
    }
    for selector in ["namespaceSelector", "objectSelector"] {
        validate_labels_selector(&path.child(selector), webhook.at(selector), errors);
    }
    let reinvocation = webhook.text("reinvocationPolicy");
    if mutating && webhook.has("reinvocationPolicy") && !REINVOCATION_POLICIES.contains(&reinvocation) {
        errors.not_supported(&path.child("reinvocationPolicy"), reinvocation, REINVOCATION_POLICIES);
    }
}

fn validate_webhook_name(path: &Path<'_>, name: &str, errors: &mut Errors) {
    let wrong = names::dns_subdomain(name);
    if name.is_empty() {
        errors.required(path, "");
    } else if !wrong.is_empty() {
        errors.invalid(path, name, &wrong.join(","));
    } else if name.split('.').count() < 3 {
        errors.invalid(path, name, "should be a domain with at least three segments separated by dots");
    }
}

fn validate_versions(path: &Path<'_>, webhook: &Value, errors: &mut Errors) {
    let versions = webhook.texts("admissionReviewVersions");
    let all = REVIEW_VERSIONS.join(", ");
    if versions.is_empty() {
        return errors.required(path, &format!("must specify one of {all}"));
    }
    for (index, version) in versions.iter().enumerate() {
        if versions[..index].contains(version) {
            errors.invalid(&path.index(index), *version, "duplicate version");
            continue;
        }
        for why in names::dns_1035_label(version) {
            errors.invalid(&path.index(index), *version, &why);
        }
    }
    if !versions.iter().any(|version| REVIEW_VERSIONS.contains(version)) {
        errors.invalid(path, webhook.at("admissionReviewVersions"), &format!("must include at least one of {all}"));
    }
}

/// Warns of rules about requests that are never given to webhooks.
fn warn_of_excluded(object: &Value, out: &mut Vec<String>) {
    for (index, webhook) in object.items("webhooks").iter().enumerate() {
        for (rule_index, rule) in webhook.items("rules").iter().enumerate() {
            let (groups, resources) = (rule.texts("apiGroups"), rule.texts("resources"));
            if groups.contains(&"*") || resources.contains(&"*") {
                continue;
            }
            let pairs = groups.iter().flat_map(|group| resources.iter().map(move |resource| (*group, *resource)));
            for (group, resource) in pairs.filter(|pair| EXCLUDED.contains(pair)) {
                let text = format!(
                    "webhooks[{index}].rules[{rule_index}]: {resource}.{group} is excluded from admission webhooks; this \
                     rule will have no effect"
                );
                if !out.contains(&text) {
                    out.push(text);
                }
            }
        }
    }
}
