//! Load balancer annotations of a Service.
//!
//! In: the annotations. Out: whether it is internal (S47, the annotations of nine clouds), the requested pool and addresses, and the sharing key.
//! MetalLB's annotations are accepted, too.

use std::collections::BTreeMap;

use api::pool::POOL_ANNOTATION;

/// Annotations by key.
pub(crate) type Annotations = BTreeMap<Box<str>, Box<str>>;

/// The annotation with requested addresses.
pub(crate) const ADDRESSES: &str = "waypost.dev/load-balancer-ips";

const ADDRESS_KEYS: [&str; 3] = [ADDRESSES, "metallb.io/loadBalancerIPs", "metallb.universe.tf/loadBalancerIPs"];
const POOL_KEYS: [&str; 3] = [POOL_ANNOTATION, "metallb.io/address-pool", "metallb.universe.tf/address-pool"];
const SHARING_KEYS: [&str; 3] =
    ["waypost.dev/sharing-key", "metallb.io/allow-shared-ip", "metallb.universe.tf/allow-shared-ip"];

/// Which values request an internal load balancer.
#[derive(Clone, Copy)]
enum Asks {
    /// This value, case-insensitive.
    Word(&'static str),
    /// Any value except empty and `false`.
    NotFalse,
    /// Any non-empty value.
    Anything,
}

/// The annotations of the clouds.
const INTERNAL: [(&str, Asks); 9] = [
    ("networking.gke.io/load-balancer-type", Asks::Word("Internal")),
    ("service.beta.kubernetes.io/aws-load-balancer-internal", Asks::NotFalse),
    ("service.beta.kubernetes.io/azure-load-balancer-internal", Asks::Word("true")),
    ("service.kubernetes.io/ibm-load-balancer-cloud-provider-ip-type", Asks::Word("private")),
    ("service.beta.kubernetes.io/openstack-internal-load-balancer", Asks::Word("true")),
    ("service.beta.kubernetes.io/cce-load-balancer-internal-vpc", Asks::Word("true")),
    ("service.kubernetes.io/qcloud-loadbalancer-internal-subnetid", Asks::Anything),
    ("service.beta.kubernetes.io/alibaba-cloud-loadbalancer-address-type", Asks::Word("intranet")),
    ("service.beta.kubernetes.io/oci-load-balancer-internal", Asks::Word("true")),
];

/// The annotation that requests an internal load balancer, if any.
pub(crate) fn internal(annotations: &Annotations) -> Option<&'static str> {
    let asks = |(key, asks): &&(&'static str, Asks)| {
        annotations.get(*key).map(|value| value.trim()).is_some_and(|value| match asks {
            Asks::Word(word) => value.eq_ignore_ascii_case(word),
            Asks::NotFalse => !value.is_empty() && !value.eq_ignore_ascii_case("false"),
            Asks::Anything => !value.is_empty(),
        })
    };
    INTERNAL.iter().find(asks).map(|(key, _)| *key)
}

/// Whether an annotation says which address a load balancer gets.
pub(crate) fn concerns_address(key: &str) -> bool {
    let mut lists = [ADDRESS_KEYS, POOL_KEYS, SHARING_KEYS].into_iter();
    lists.any(|keys| keys.contains(&key)) || INTERNAL.iter().any(|(internal, _)| *internal == key)
}

/// The annotation and value of the requested pool.
pub(crate) fn pool(annotations: &Annotations) -> Option<(&'static str, &str)> {
    first(annotations, &POOL_KEYS)
}

/// The annotation and value of the requested addresses.
pub(crate) fn addresses(annotations: &Annotations) -> Option<(&'static str, &str)> {
    first(annotations, &ADDRESS_KEYS)
}

/// The sharing key; empty for none.
pub(crate) fn sharing_key(annotations: &Annotations) -> &str {
    first(annotations, &SHARING_KEYS).map_or("", |(_, value)| value)
}

/// The first annotation with a value.
fn first<'a>(annotations: &'a Annotations, keys: &[&'static str]) -> Option<(&'static str, &'a str)> {
    keys.iter().find_map(|key| {
        let value = annotations.get(*key)?.trim();
        (!value.is_empty()).then_some((*key, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(key: &str, value: &str) -> Annotations {
        BTreeMap::from([(key.into(), value.into())])
    }

    #[test]
    fn s47_internal_annotations_of_all_clouds_are_recognized() {
        for (key, yes, no) in [
            ("networking.gke.io/load-balancer-type", "Internal", "External"),
            ("service.beta.kubernetes.io/aws-load-balancer-internal", "true", "false"),
            ("service.beta.kubernetes.io/aws-load-balancer-internal", "0.0.0.0/0", ""),
            ("service.beta.kubernetes.io/azure-load-balancer-internal", "true", "false"),
            ("service.kubernetes.io/ibm-load-balancer-cloud-provider-ip-type", "private", "public"),
            ("service.beta.kubernetes.io/openstack-internal-load-balancer", "true", "false"),
            ("service.beta.kubernetes.io/cce-load-balancer-internal-vpc", "true", "false"),
            ("service.kubernetes.io/qcloud-loadbalancer-internal-subnetid", "subnet-xxxxx", ""),
            ("service.beta.kubernetes.io/alibaba-cloud-loadbalancer-address-type", "intranet", "internet"),
            ("service.beta.kubernetes.io/oci-load-balancer-internal", "true", "false"),
        ] {
            assert_eq!(internal(&with(key, yes)), Some(key), "{key}: {yes}");
            assert_eq!(internal(&with(key, no)), None, "{key}: {no}");
        }
        assert_eq!(internal(&Annotations::new()), None);
    }

    #[test]
    fn waypost_annotations_take_precedence_over_metallb() {
        let mut both = with("metallb.io/address-pool", "theirs");
        assert_eq!(pool(&both), Some(("metallb.io/address-pool", "theirs")));
        both.insert(POOL_ANNOTATION.into(), " ours ".into());
        assert_eq!(pool(&both), Some((POOL_ANNOTATION, "ours")));
        assert_eq!(sharing_key(&with("metallb.universe.tf/allow-shared-ip", "k")), "k");
        assert_eq!(sharing_key(&Annotations::new()), "");
        assert_eq!(addresses(&with(ADDRESSES, "")), None);
    }
}
