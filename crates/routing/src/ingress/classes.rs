//! Which class an Ingress belongs to.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::view::annotations::INGRESS_CLASS;
use api::view::{Ingress, IngressClass};

/// The class of an Ingress, if it is implemented here. The annotation wins over the member; without both it is the default
/// class, the oldest one if there are several.
pub(super) fn class_of<'a>(
    ingress: &Ingress,
    classes: &'a BTreeMap<Arc<str>, Arc<IngressClass>>,
    controllers: &[Box<str>],
) -> Option<&'a Arc<str>> {
    let named = ingress.metadata.annotation(INGRESS_CLASS).or(ingress.spec.ingress_class_name.as_deref());
    let (name, class) = match named {
        Some(name) => classes.get_key_value(name)?,
        None => {
            let defaults = classes.iter().filter(|(_, class)| class.is_default());
            defaults.min_by_key(|(name, class)| (&class.metadata.creation_timestamp, *name))?
        }
    };
    controllers.contains(&class.spec.controller).then_some(name)
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
            class("new-default", ours, "2026-01-03T00:00:00Z", true),
            class("old-default", ours, "2026-01-02T00:00:00Z", true),
        ]);
        // Member, annotation, class.
        let cases = [
            (Some("ours"), None, Some("ours")),
            (Some("other"), None, None),
            (Some("missing"), None, None),
            (Some("other"), Some("ours"), Some("ours")),
            (Some("ours"), Some("other"), None),
            (None, Some("ours"), Some("ours")),
            (None, None, Some("old-default")),
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
}
