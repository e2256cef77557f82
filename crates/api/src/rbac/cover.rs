//! Whether the rules of a user cover the rules that they want to grant.
//!
//! Rules are split into the smallest ones; each must be covered by a single rule of the owner. What is not covered is merged again, by
//! resource, and formatted as Kubernetes formats it.

use std::collections::BTreeSet;

use super::{ALL, PolicyRule, path_matches};
use crate::field::quote;

/// The parts of `wanted` that none of the `owned` rules covers; empty when all are covered.
#[must_use]
pub fn missing(owned: &[PolicyRule], wanted: &[PolicyRule]) -> Vec<PolicyRule> {
    wanted.iter().flat_map(parts).filter(|part| !owned.iter().any(|rule| covers(rule, part))).collect()
}

/// Rules as the refusal of a grant lists them: one line each, sorted.
#[must_use]
pub fn describe(rules: &[PolicyRule]) -> String {
    let lines: BTreeSet<String> = compact(rules).iter().map(line).collect();
    lines.into_iter().collect::<Vec<_>>().join("\n")
}

/// A rule as the smallest rules that say the same: one verb on one resource, name or path each.
fn parts(rule: &PolicyRule) -> Vec<PolicyRule> {
    let one = |text: &String| vec![text.clone()];
    let mut out = Vec::new();
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                let part = PolicyRule {
                    verbs: one(verb),
                    api_groups: one(group),
                    resources: one(resource),
                    ..PolicyRule::default()
                };
                if rule.resource_names.is_empty() {
                    out.push(part.clone());
                }
                out.extend(
                    rule.resource_names.iter().map(|name| PolicyRule { resource_names: one(name), ..part.clone() }),
                );
            }
        }
    }
    for path in &rule.non_resource_urls {
        let on_path = |verb| PolicyRule { verbs: one(verb), non_resource_urls: one(path), ..PolicyRule::default() };
        out.extend(rule.verbs.iter().map(on_path));
    }
    out
}

fn covers(owner: &PolicyRule, part: &PolicyRule) -> bool {
    let all = |own: &[String], wanted: &[String]| {
        own.iter().any(|word| word == ALL) || wanted.iter().all(|word| own.contains(word))
    };
    let names = match (owner.resource_names.is_empty(), part.resource_names.is_empty()) {
        (true, _) => true,
        (false, true) => false,
        (false, false) => part.resource_names.iter().all(|name| owner.resource_names.contains(name)),
    };
    let path = |wanted: &String| owner.non_resource_urls.iter().any(|own| path_matches(own, wanted));
    names
        && all(&owner.verbs, &part.verbs)
        && all(&owner.api_groups, &part.api_groups)
        && part.resources.iter().all(|wanted| covers_resource(&owner.resources, wanted))
        && part.non_resource_urls.iter().all(path)
}

/// `*` covers all, `*/status` that subresource of all.
fn covers_resource(owned: &[String], wanted: &str) -> bool {
    let of_all = wanted.split_once('/').map(|(_, part)| format!("{ALL}/{part}"));
    owned.iter().any(|own| own == ALL || own == wanted || Some(own) == of_all.as_ref())
}

/// Puts rules about the same resource, or the same object, together.
pub(super) fn compact(rules: &[PolicyRule]) -> Vec<PolicyRule> {
    let mut out: Vec<PolicyRule> = Vec::new();
    for rule in rules {
        let same = |other: &&mut PolicyRule| PolicyRule { verbs: rule.verbs.clone(), ..(**other).clone() } == *rule;
        match out.iter_mut().find(same).filter(|_| rule.non_resource_urls.is_empty()) {
            Some(found) => found.verbs.extend(rule.verbs.iter().cloned()),
            None => out.push(rule.clone()),
        }
    }
    out
}

fn line(rule: &PolicyRule) -> String {
    let lists = [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.non_resource_urls),
        ("ResourceNames", &rule.resource_names),
        ("Verbs", &rule.verbs),
    ];
    let printed = lists.iter().filter(|(_, list)| !list.is_empty()).map(|(name, list)| {
        let words: Vec<String> = list.iter().map(|word| quote(word)).collect();
        format!("{name}:[{}]", words.join(" "))
    });
    format!("{{{}}}", printed.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn rules(list: &Value) -> Vec<PolicyRule> {
        PolicyRule::read_all(&json!({"rules": list}))
    }

    fn refused(owned: &Value, wanted: &Value) -> String {
        describe(&missing(&rules(owned), &rules(wanted)))
    }

    #[test]
    fn what_is_missing_is_listed_by_resource() {
        let wanted = json!([
            {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["secrets", "pods"]},
            {"verbs": ["get"], "nonResourceURLs": ["/metrics"]},
        ]);
        assert_eq!(
            refused(
                &json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["get"], "nonResourceURLs": ["/*"]}]),
                &wanted
            ),
            ""
        );
        assert_eq!(
            refused(&json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]), &wanted),
            "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\"]}\n\
             {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}\n\
             {NonResourceURLs:[\"/metrics\"], Verbs:[\"get\"]}"
        );
    }

    #[test]
    fn names_narrow() {
        let owned =
            json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a", "b"]}]);
        let with = |names: &Value| {
            refused(
                &owned,
                &json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": names}]),
            )
        };
        assert_eq!(with(&json!(["a"])), "");
        assert_eq!(
            with(&json!(["a", "c"])),
            "{APIGroups:[\"\"], Resources:[\"secrets\"], ResourceNames:[\"c\"], Verbs:[\"get\"]}"
        );
        assert_eq!(with(&json!([])), "{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}");
    }

    #[test]
    fn a_list_does_not_cover_a_star() {
        let owned = json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["secrets", "*/status"]}]);
        let star = json!([{"verbs": ["*"], "apiGroups": [""], "resources": ["secrets"]}]);
        assert_eq!(refused(&owned, &star), "{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"*\"]}");
        let status = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["services/status"]}]);
        assert_eq!(refused(&owned, &status), "");
    }

    fn word() -> impl Strategy<Value = String> {
        prop::sample::select(vec!["*", "a", "b", "a/s", "*/s"]).prop_map(str::to_owned)
    }

    fn any_rule() -> impl Strategy<Value = PolicyRule> {
        let list = || prop::collection::vec(word(), 1..3);
        (list(), list(), list(), prop::collection::vec(word(), 0..2)).prop_map(
            |(verbs, api_groups, resources, resource_names)| PolicyRule {
                verbs,
                api_groups,
                resources,
                resource_names,
                non_resource_urls: Vec::new(),
            },
        )
    }

    proptest! {
        // Few pairs of random rules cover each other.
        #![proptest_config(ProptestConfig::with_cases(8192))]
        /// A grant of covered rules allows no request that its author could not make.
        #[test]
        fn covered_rules_allow_nothing_more(
            owned in prop::collection::vec(any_rule(), 0..3), wanted in any_rule(),
            verb in word(), group in word(), resource in word(), part in prop::sample::select(vec!["", "s"]), name in word(),
        ) {
            let covered = missing(&owned, std::slice::from_ref(&wanted)).is_empty();
            let request = crate::rbac::Request::Resource { verb: &verb, group: &group, resource: &resource, subresource: part, name: &name };
            if covered && wanted.allows(&request) {
                prop_assert!(owned.iter().any(|rule| rule.allows(&request)), "{owned:?} {wanted:?} {request:?}");
            }
        }
    }
}
