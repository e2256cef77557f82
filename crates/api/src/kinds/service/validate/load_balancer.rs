//! What only load balancers have: source ranges, the choice whether node ports are allocated, and the class.

use serde_json::Value;

use super::only_for_load_balancers;
use crate::field::{Errors, Path};
use crate::ip::check_cidr;
use crate::kinds::service::fields::{SPEC, is_load_balancer};
use crate::names;
use crate::value::ValueExt as _;

/// The annotation that the field replaced; it counts only while the field is empty.
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// Checks source ranges, node port allocation and class.
pub(super) fn validate(service: &Value, old: Option<&Value>, errors: &mut Errors) {
    if !service.items("spec.loadBalancerSourceRanges").is_empty() {
        check_ranges(service, old, errors);
    } else if let Some(text) = service.at("metadata.annotations").get(SOURCE_RANGES) {
        check_annotation(service, text.as_str().unwrap_or_default(), old, errors);
    }
    let allocate = "allocateLoadBalancerNodePorts";
    if service.at("spec").has(allocate) {
        only_for_load_balancers(service, &SPEC.child(allocate), errors);
    } else if is_load_balancer(service) {
        errors.required(&Path::Root(allocate), "");
    }
    validate_class(service, errors);
}

/// Values may be padded with spaces, as they could be in the annotation. The path is spelt as in Kubernetes.
fn check_ranges(service: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = SPEC.child("LoadBalancerSourceRanges");
    only_for_load_balancers(service, &path, errors);
    let mut before = old.map(|old| old.texts("spec.loadBalancerSourceRanges")).unwrap_or_default();
    for range in &mut before {
        *range = range.trim();
    }
    for (index, range) in service.texts("spec.loadBalancerSourceRanges").into_iter().enumerate() {
        check_cidr(&path.index(index), range.trim(), &before, errors);
    }
}

fn check_annotation(service: &Value, text: &str, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::Root("metadata");
    let path = path.child("annotations");
    let path = path.key(SOURCE_RANGES);
    only_for_load_balancers(service, &path, errors);
    let before = old.and_then(|old| old.at("metadata.annotations").get(SOURCE_RANGES)).and_then(Value::as_str);
    // Nothing that splits into no ranges can be wrong; an absent annotation reads as an empty one.
    if (old.is_some() && before.unwrap_or_default() == text) || text.trim().is_empty() {
        return;
    }
    for range in text.trim().split(',') {
        check_cidr(&path, range.trim(), &[], errors);
    }
}

/// The class is a qualified name, and only load balancers have one.
pub(in crate::kinds::service) fn validate_class(service: &Value, errors: &mut Errors) {
    let Some(class) = service.at("spec.loadBalancerClass").as_str() else { return };
    let path = SPEC.child("loadBalancerClass");
    only_for_load_balancers(service, &path, errors);
    if is_load_balancer(service) {
        for why in names::qualified_name(class) {
            errors.invalid(&path, class, &why);
        }
    }
}
