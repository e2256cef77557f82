//! Which class an Ingress belongs to, and the Service of a class.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::view::{Ingress, IngressClass};

/// The most characters of the name of a Service.
const LONGEST_NAME: usize = 63;

/// The class of an Ingress, if it is implemented here. The annotation wins over the member; without both it is the default
/// class ([`IngressClass::default_of`]).
pub(super) fn class_of<'a>(
    ingress: &Ingress,
    classes: &'a BTreeMap<Arc<str>, Arc<IngressClass>>,
    controllers: &[Box<str>],
) -> Option<&'a Arc<str>> {
    let default = || IngressClass::default_of(classes.values().map(|class| &**class));
    let name = ingress.class_name().or_else(|| default().map(|class| &*class.metadata.name))?;
    let (name, class) = classes.get_key_value(name)?;
    controllers.contains(&class.spec.controller).then_some(name)
}

/// The name of the Service with the addresses of a class.
pub(super) fn service_name(class: &str) -> String {
    let name = format!("ingress-{}", class.replace('.', "-"));
    if name.len() <= LONGEST_NAME && !class.contains('.') {
        return name;
    }
    let hash = format!("-{:08x}", api::hash::fnv1a32(class.as_bytes()));
    format!("{}{hash}", name.get(..LONGEST_NAME - hash.len()).unwrap_or(&name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn classes_are_selected() {
        let class = |name: &str, controller: &str, created: &str, default: bool| {
            let annotations =
                if default { json!({"ingressclass.kubernetes.io/is-default-class": "true"}) } else { json!({}) };
            let class: IngressClass = serde_json::from_value(json!({
                "metadata": {"name": name, "creationTimestamp": created, "annotations": annotations},
                "spec": {"controller": controller},
            }))
            .unwrap();
            (Arc::<str>::from(name), Arc::new(class))
        };
        let ours = "waypost.dev/ingress-controller";
        let classes = BTreeMap::from([
            class("ours", ours, "2026-01-01T00:00:00Z", false),
            class("other", "x.io/y", "2026-01-01T00:00:00Z", false),
            class("a-old-default", ours, "2026-01-02T00:00:00Z", true),
            class("c-new-default", ours, "2026-01-03T00:00:00Z", true),
            class("b-new-default", ours, "2026-01-03T00:00:00Z", true),
        ]);
        // Member, annotation, class.
        let cases = [
            (Some("ours"), None, Some("ours")),
            (Some("other"), None, None),
            (Some("missing"), None, None),
            (Some("other"), Some("ours"), Some("ours")),
            (Some("ours"), Some("other"), None),
            (None, Some("ours"), Some("ours")),
            (None, None, Some("b-new-default")),
        ];
        for (member, annotation, want) in cases {
            let annotations = annotation.map_or_else(|| json!({}), |name| json!({"kubernetes.io/ingress.class": name}));
            let ingress: Ingress = serde_json::from_value(json!({
                "metadata": {"annotations": annotations}, "spec": {"ingressClassName": member},
            }))
            .unwrap();
            let found = class_of(&ingress, &classes, &[ours.into()]);
            assert_eq!(found.map(|name| &**name), want, "{member:?} {annotation:?}");
        }
        let taken_over = class_of(
            &Ingress {
                spec: serde_json::from_value(json!({"ingressClassName": "other"})).unwrap(),
                ..Ingress::default()
            },
            &classes,
            &["x.io/y".into()],
        );
        assert_eq!(taken_over.map(|name| &**name), Some("other"));
    }

    #[test]
    fn names_of_services_are_valid_and_differ() {
        assert_eq!(service_name("waypost"), "ingress-waypost");
        let long = "n".repeat(253);
        let names = ["a.b", "a-b", "a.b.c", &long, &format!("{long}m")].map(service_name);
        assert!(names.iter().all(|name| name.len() <= LONGEST_NAME && !name.contains('.')), "{names:?}");
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len(), "{names:?}");
    }
}
