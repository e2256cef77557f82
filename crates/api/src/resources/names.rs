//! Names of resources: classification and validation.
//!
//! In: a name such as `cpu`, `requests.memory`, `count/pods` or `example.com/gpu`. Out: what kind of resource it names,
//! or field errors with Kubernetes' messages.

use crate::field::{Errors, Path};
use crate::names::qualified_name;

/// Prefix of quota resources that limit the sum of requests.
pub const REQUESTS_PREFIX: &str = "requests.";
/// Prefix of quota resources that limit the sum of limits.
pub const LIMITS_PREFIX: &str = "limits.";
const HUGE_PAGES_PREFIX: &str = "hugepages-";
const REQUESTS_HUGE_PAGES_PREFIX: &str = "requests.hugepages-";
/// Domain of devices that are requested by device class.
const DEVICE_CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";
const NATIVE_DOMAIN: &str = "kubernetes.io/";

/// Quota resources that count objects: amounts are integers.
const COUNTED: [&str; 9] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];
/// Resources that containers may request.
const CONTAINER: [&str; 3] = ["cpu", "ephemeral-storage", "memory"];
const STORAGE: &str = "storage";

/// Whether the name is in the domain of Kubernetes: it has no domain, or a `kubernetes.io` one.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains(NATIVE_DOMAIN)
}

/// Whether it is the name of huge pages in the resources of a container.
#[must_use]
pub fn is_huge_pages(name: &str) -> bool {
    name.starts_with(HUGE_PAGES_PREFIX)
}

/// Whether it is the name of huge pages in a quota.
#[must_use]
pub fn is_quota_huge_pages(name: &str) -> bool {
    is_huge_pages(name) || name.starts_with(REQUESTS_HUGE_PAGES_PREFIX)
}

/// Whether it is an extended resource: one of a domain other than Kubernetes'.
fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with(REQUESTS_PREFIX)
        && qualified_name(&format!("{REQUESTS_PREFIX}{name}")).is_empty()
}

/// Whether it is an extended resource or a device class.
#[must_use]
pub fn is_extended_or_device(name: &str) -> bool {
    is_extended(name) || name.starts_with(DEVICE_CLASS_PREFIX)
}

/// Whether it is the quota name of an extended resource or a device class (`requests.example.com/gpu`).
#[must_use]
pub fn is_quota_extended(name: &str) -> bool {
    let requested = name.strip_prefix(REQUESTS_PREFIX);
    requested.is_some_and(|requested| !is_native(name) || requested.starts_with(DEVICE_CLASS_PREFIX))
}

/// Whether limits of the resource may be greater than requests.
#[must_use]
pub fn is_overcommit_allowed(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

/// Whether the resource may be set at Pod level.
#[must_use]
pub fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_pages(name)
}

/// Whether amounts of the resource must be integers.
#[must_use]
pub fn is_integer(name: &str) -> bool {
    COUNTED.contains(&name) || is_extended(name)
}

/// Whether it is a quota resource without a domain.
#[must_use]
pub fn is_standard_quota(name: &str) -> bool {
    let requested = name.strip_prefix(REQUESTS_PREFIX).or_else(|| name.strip_prefix(LIMITS_PREFIX));
    COUNTED.contains(&name)
        || CONTAINER.contains(&requested.unwrap_or(name))
        || name == "requests.storage"
        || is_quota_huge_pages(name)
}

fn is_standard(name: &str) -> bool {
    name == STORAGE || is_standard_quota(name)
}

fn has_one_part(name: &str) -> bool {
    !name.contains('/')
}

/// Checks the name of a resource.
pub fn validate(path: &Path<'_>, name: &str, errors: &mut Errors) {
    let wrong = qualified_name(name);
    if wrong.is_empty() && has_one_part(name) && !is_standard(name) {
        errors.invalid(path, name, "must be a standard resource type or fully qualified");
    }
    for detail in wrong {
        errors.invalid(path, name, &detail);
    }
}

/// Checks the name of a resource of a container.
pub fn validate_of_container(path: &Path<'_>, name: &str, errors: &mut Errors) {
    validate(path, name, errors);
    if has_one_part(name) {
        if !CONTAINER.contains(&name) && !is_huge_pages(name) {
            errors.invalid(path, name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.invalid(path, name, "doesn't follow extended resource name standard");
    }
}

/// Checks the name of a resource of a quota.
pub fn validate_of_quota(path: &Path<'_>, name: &str, errors: &mut Errors) {
    validate(path, name, errors);
    if has_one_part(name) && !is_standard_quota(name) {
        errors.invalid(path, name, "must be a standard resource for quota");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Check = fn(&Path<'_>, &str, &mut Errors);

    fn wrong(check: Check, name: &str) -> Vec<String> {
        let mut errors = Errors::default();
        check(&Path::Root("r"), name, &mut errors);
        errors.0.into_iter().filter_map(|error| Some(error.body.rsplit_once(": ")?.1.to_owned())).collect()
    }

    #[test]
    fn names_are_validated_by_place() {
        for name in ["pods", "count/widgets.example.com", "requests.example.com/gpu", "hugepages-2Mi", "limits.cpu"] {
            assert_eq!(wrong(validate_of_quota, name), Vec::<String>::new(), "{name}");
        }
        assert_eq!(wrong(validate_of_quota, "storage"), ["must be a standard resource for quota"]);
        assert_eq!(
            wrong(validate_of_quota, "frobs"),
            ["must be a standard resource type or fully qualified", "must be a standard resource for quota"]
        );
        assert!(wrong(validate, "storage").is_empty() && wrong(validate_of_container, "example.com/gpu").is_empty());
        assert_eq!(wrong(validate_of_container, "pods"), ["must be a standard resource for containers"]);
        let long = format!("{}.com/x", "a".repeat(243));
        assert!(qualified_name(&long).is_empty());
        assert_eq!(wrong(validate_of_container, &long), ["doesn't follow extended resource name standard"]);
    }

    #[test]
    fn resources_are_classified() {
        assert!(is_integer("count/pods") && is_integer("services.nodeports") && is_integer("example.com/gpu"));
        assert!(!is_integer("requests.example.com/gpu") && !is_integer("requests.storage"));
        assert!(is_quota_extended("requests.example.com/gpu") && !is_quota_extended("requests.cpu"));
        assert!(
            is_quota_extended("requests.deviceclass.resource.kubernetes.io/a") && !is_quota_extended("example.com/gpu")
        );
        assert!(is_overcommit_allowed("cpu") && !is_overcommit_allowed("hugepages-2Mi"));
        assert!(!is_overcommit_allowed("example.com/gpu"));
    }
}
