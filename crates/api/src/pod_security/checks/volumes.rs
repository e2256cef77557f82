//! Sources of the volumes of a Pod.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Forbidden, Pod, plural, quoted};
use crate::value::ValueExt as _;

/// The sources that restricted allows.
const ALLOWED: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// The other sources. Of a volume with several the first is named.
const RESTRICTED: [&str; 21] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

/// `hostPath` volumes are forbidden.
pub(in super::super) fn host_path(pod: &Pod<'_>) -> Option<Forbidden> {
    let bad = pod.spec.items("volumes").iter().filter(|volume| volume.has("hostPath"));
    let bad: Vec<&str> = bad.map(|volume| volume.text("name")).collect();
    (!bad.is_empty()).then(|| Forbidden { reason: "hostPath volumes", detail: volumes(&bad) })
}

/// Only volumes of [`ALLOWED`] sources may be used.
pub(in super::super) fn types(pod: &Pod<'_>) -> Option<Forbidden> {
    let has_one_of = |volume: &Value, sources: &[&str]| sources.iter().any(|source| volume.has(source));
    let bad = pod.spec.items("volumes").iter().filter(|volume| !has_one_of(volume, &ALLOWED));
    let (names, sources): (Vec<&str>, BTreeSet<&str>) =
        bad.map(|volume| (volume.text("name"), restricted_source(volume))).unzip();
    (!names.is_empty()).then(|| Forbidden {
        reason: "restricted volume types",
        detail: format!(
            "{} {} {} {}",
            volumes(&names),
            plural(names.len(), "uses", "use"),
            plural(sources.len(), "restricted volume type", "restricted volume types"),
            quoted(&sources),
        ),
    })
}

fn restricted_source(volume: &Value) -> &'static str {
    RESTRICTED.into_iter().find(|source| volume.has(source)).unwrap_or("unknown")
}

/// `volume "a"` or `volumes "a", "b"`.
fn volumes(names: &[&str]) -> String {
    format!("{} {}", plural(names.len(), "volume", "volumes"), quoted(names))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pod_security::evaluate::found;

    #[test]
    fn host_path_volumes() {
        for (volumes, expected) in [
            (json!([{"name": "a", "emptyDir": {}}, {"name": "b", "hostPath": null}]), ""),
            (json!([{"name": "a", "hostPath": {"path": "/"}}]), "hostPath volumes (volume \"a\")"),
            (
                json!([{"name": "b", "hostPath": {}}, {"name": "c", "emptyDir": {}}, {"name": "a", "hostPath": {}}]),
                "hostPath volumes (volumes \"b\", \"a\")",
            ),
        ] {
            for minor in [0, 37] {
                let spec = json!({"volumes": volumes});
                assert_eq!(found("hostPathVolumes", minor, &Value::Null, &spec), expected, "{spec}");
            }
        }
    }

    #[test]
    fn restricted_volumes() {
        let spec = |sources: &[&str]| {
            let list =
                sources.iter().enumerate().map(|(index, source)| json!({"name": index.to_string(), *source: {}}));
            json!({"volumes": list.collect::<Vec<_>>()})
        };
        assert_eq!(found("restrictedVolumes", 0, &Value::Null, &spec(&ALLOWED)), "");
        for source in RESTRICTED {
            let expected = format!("restricted volume types (volume \"0\" uses restricted volume type \"{source}\")");
            assert_eq!(found("restrictedVolumes", 37, &Value::Null, &spec(&[source])), expected);
        }
        assert_eq!(
            found("restrictedVolumes", 20, &Value::Null, &spec(&["nfs", "secret", "hostPath", "frob", "nfs"])),
            "restricted volume types (volumes \"0\", \"2\", \"3\", \"4\" use restricted volume types \"hostPath\", \"nfs\", \
             \"unknown\")"
        );
        let several = json!({"volumes": [{"name": "v", "nfs": {}, "hostPath": {}}]});
        let expected = "restricted volume types (volume \"v\" uses restricted volume type \"hostPath\")";
        assert_eq!(found("restrictedVolumes", 37, &Value::Null, &several), expected);
    }
}
