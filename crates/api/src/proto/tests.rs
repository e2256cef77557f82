//! Bytes of real clients, generated objects, and garbage.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;
use crate::decode::{check, prune};
use crate::schema::Shape;

fn bytes(base64: &str) -> Vec<u8> {
    STANDARD.decode(base64).expect("base64")
}

/// A Service as a Go client writes it.
const SERVICE: &str = "azhzAAoNCgJ2MRIHU2VydmljZRJgChsKA3dlYhIAGgAiACoAMgA4AEIAWgYKAWESAWISPQoYCgRodHRwEgNUQ1AYUCIHCAAQkD8a\
ACgAEggKA2FwcBIBeBoAIglDbHVzdGVySVA6AEIAUgBaAGAAaAAaAgoAGgAiAA==";

#[test]
fn a_service_of_a_go_client_is_read_and_written_alike() {
    let document = bytes(SERVICE);
    let envelope = decode_envelope(&document).expect("an envelope");
    assert_eq!((envelope.api_version.as_str(), envelope.kind.as_str()), ("v1", "Service"));
    let ty = schema::named("core.Service");
    let value = decode(ty, envelope.raw).expect("a Service");
    assert_eq!(
        value,
        json!({"metadata": {"name": "web", "labels": {"a": "b"}}, "status": {"loadBalancer": {}},
            "spec": {"ports": [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080}],
                "selector": {"app": "x"}, "type": "ClusterIP"}})
    );
    assert_eq!(encode_envelope("v1", "Service", &encode(ty, &value)), document);
}

/// Discovery documents as a Go server writes them: the kind, the message and its JSON.
#[test]
fn discovery_documents_are_written_as_by_a_go_server() {
    let version = json!({"groupVersion": "discovery.k8s.io/v1", "version": "v1"});
    let group = json!({"name": "discovery.k8s.io", "versions": [version], "preferredVersion": version});
    let documents = [
        (
            "azhzAAoOCgJ2MRIIQVBJR3JvdXASSAoQZGlzY292ZXJ5Lms4cy5pbxIZChNkaXNjb3ZlcnkuazhzLmlvL3YxEgJ2MRoZChNkaXNjb3Zlcnku\
azhzLmlvL3YxEgJ2MRoAIgA=",
            group.clone(),
        ),
        (
            "azhzAAoSCgJ2MRIMQVBJR3JvdXBMaXN0EkoKSAoQZGlzY292ZXJ5Lms4cy5pbxIZChNkaXNjb3ZlcnkuazhzLmlvL3YxEgJ2MRoZChNkaXNj\
b3ZlcnkuazhzLmlvL3YxEgJ2MRoAIgA=",
            json!({"groups": [group]}),
        ),
        (
            "azhzAAoPCgASC0FQSVZlcnNpb25zEiAKAnYxEhoKCTAuMC4wLjAvMBINMTAuMC4wLjE6NjQ0MxoAIgA=",
            json!({"versions": ["v1"], "serverAddressByClientCIDRs":
                [{"clientCIDR": "0.0.0.0/0", "serverAddress": "10.0.0.1:6443"}]}),
        ),
        (
            "azhzAAoTCgASD0FQSVJlc291cmNlTGlzdBKEAQoCdjESRwoIc2VydmljZXMQARoHU2VydmljZSILCgNnZXQKBGxpc3QqA3N2YzIHc2Vydmlj\
ZToDYWxsQgBKAFIMMC9DTzFsaGtFQkk9EjUKDXBvZHMvZXZpY3Rpb24QARoIRXZpY3Rpb24iCAoGY3JlYXRlMgBCBnBvbGljeUoCdjFSABoAIgA=",
            json!({"groupVersion": "v1", "resources": [
                {"name": "services", "singularName": "service", "namespaced": true, "kind": "Service",
                    "verbs": ["get", "list"], "shortNames": ["svc"], "categories": ["all"],
                    "storageVersionHash": "0/CO1lhkEBI="},
                {"name": "pods/eviction", "namespaced": true, "kind": "Eviction", "group": "policy", "version": "v1",
                    "verbs": ["create"]}]}),
        ),
    ];
    for (document, json) in documents {
        let document = bytes(document);
        let envelope = decode_envelope(&document).expect("an envelope");
        let ty = schema::named(&format!("meta.{}", envelope.kind));
        assert_eq!(decode(ty, envelope.raw).expect("a message"), json);
        assert_eq!(encode_envelope(&envelope.api_version, &envelope.kind, &encode(ty, &json)), document);
    }
}

#[test]
fn unknown_fields_are_skipped() {
    let document = bytes(
        "azhzAAoNCgJ2MRIHU2VydmljZRJAChMKA3dlYhIAGgAiACoAMgA4AEIAEiYKEAoAEgAYUCIGCAAQABoAKAAaACIAOgBCAFIAWgBgAGgAuj4BeOgEBRoAIgA=",
    );
    let envelope = decode_envelope(&document).expect("an envelope");
    let value = decode(schema::named("core.Service"), envelope.raw).expect("a Service");
    assert_eq!(value, json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}));
}

#[test]
fn named_ports_and_options_are_read() {
    let document = bytes(
        "azhzAAoNCgJ2MRIHU2VydmljZRJPChMKA3dlYhIAGgAiACoAMgA4AEIAEjgKHgoDZG5zEgNVRFAYNSIOCAEQABoIZG5zLXBvcnQoABoAIghOb2RlUG9ydDoAQgBSAFoAYABoABoAIgA=",
    );
    let envelope = decode_envelope(&document).expect("an envelope");
    let value = decode(schema::named("core.Service"), envelope.raw).expect("a Service");
    assert_eq!(value["spec"]["ports"][0]["targetPort"], "dns-port");
    let document = bytes("azhzAAoTCgJ2MRINRGVsZXRlT3B0aW9ucxIMIgpCYWNrZ3JvdW5kGgAiAA==");
    let envelope = decode_envelope(&document).expect("an envelope");
    let value = decode(schema::named("meta.DeleteOptions"), envelope.raw).expect("options");
    assert_eq!(value, json!({"propagationPolicy": "Background"}));
}

#[test]
fn what_is_no_envelope_is_told() {
    assert_eq!(decode_envelope(b""), Err(ProtoError::EmptyData));
    assert_eq!(decode_envelope(b"k8s\0"), Err(ProtoError::EmptyBody));
    let error = decode_envelope(&[0, 0, 0]).expect_err("no prefix").to_string();
    assert_eq!(error, "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]");
    assert_eq!(decode_envelope(&bytes("azhzAAr/")).expect_err("cut").to_string(), "unexpected EOF");
}

#[test]
fn hostile_bytes_are_refused() {
    let ty = schema::named("core.Service");
    let refused = |raw: &[u8]| decode(ty, raw).expect_err("hostile").to_string();
    assert_eq!(refused(&[0x0a, 0xff, 0xff, 0xff, 0x7f]), "unexpected EOF");
    assert_eq!(refused(&[0xff; 20]), "proto: integer overflow");
    assert_eq!(refused(&[0x08, 0x01]), "proto: wrong wireType = 0 for field Metadata");
    assert_eq!(refused(&[0x0c]), "proto: Service: wiretype end group for non-group");
    assert_eq!(refused(&[0x00, 0x00]), "proto: Service: illegal tag 0 (wire type 0)");
    assert_eq!(refused(&[0x0f]), "proto: illegal wireType 7");
    assert_eq!(refused(&vec![0x7b; 100_000]), "unexpected EOF");
}

#[test]
fn numbers_may_come_packed() {
    let ty = schema::named("core.PodSecurityContext");
    let field = ty.get().field("supplementalGroups").expect("a list of numbers");
    let mut packed = Writer::default();
    packed.bytes(field.number, &[1, 0x80, 0x01, 3]);
    packed.int(field.number, -7);
    let value = decode(ty, &packed.into_bytes()).expect("reads");
    assert_eq!(value, json!({"supplementalGroups": [1, 128, 3, -7]}));
}

#[test]
fn a_message_in_pieces_is_merged() {
    let ty = schema::named("core.Service");
    let mut raw = encode(ty, &json!({"metadata": {"labels": {"a": "1"}, "name": "x"}}));
    let mut more = Writer::default();
    more.nested(1, |out| out.bytes(3, b"default"));
    raw.extend(more.into_bytes());
    let value = decode(ty, &raw).expect("reads");
    assert_eq!(value["metadata"], json!({"labels": {"a": "1"}, "name": "x", "namespace": "default"}));
}

#[test]
fn lists_and_frames_have_their_shape() {
    let service = json!({"metadata": {"name": "a"}});
    let list = encode_list(schema::named("core.Service"), &json!({"resourceVersion": "7"}), [&service, &service]);
    let mut reader = Reader::new(&list);
    let mut items = 0;
    while let Some((number, payload)) = reader.field("List").expect("a list") {
        let raw = payload.bytes("item").expect("a message");
        if number == 1 {
            assert_eq!(decode(*LIST_META, raw), Ok(json!({"resourceVersion": "7"})));
        } else {
            assert_eq!(decode(schema::named("core.Service"), raw).expect("an item")["metadata"], json!({"name": "a"}));
            items += 1;
        }
    }
    assert_eq!(items, 2);
    let partial = encode_partial(&service);
    assert_eq!(encode_partial_list(&json!({}), [&service]).len(), 8 + 2 + partial.len());
    let frame = encode_watch_frame("ADDED", &encode_envelope("v1", "Service", &partial));
    assert_eq!(frame[..4], u32::try_from(frame.len() - 4).expect("small").to_be_bytes());
    assert_eq!(&frame[4..11], b"\x0a\x05ADDED");
}

#[test]
fn lists_are_read_as_they_were_written() {
    let (service, meta) = (json!({"metadata": {"name": "a"}}), json!({"resourceVersion": "7"}));
    let ty = schema::named("core.Service");
    let (metadata, items) = decode_list(ty, &encode_list(ty, &meta, [&service, &service])).expect("a list");
    assert_eq!((metadata, items.len()), (meta.clone(), 2));
    assert_eq!(items[1]["metadata"], service["metadata"]);
    assert_eq!(decode_partial(&encode_partial(&service)), Ok(service.clone()));
    let partial = encode_partial_list(&meta, [&service]);
    assert_eq!(decode_partial_list(&partial), Ok((meta, vec![service])));
    assert!(decode_list(ty, &partial[..partial.len() - 1]).is_err());
}

/// Turns random bytes into choices.
struct Choices<'a>(&'a [u8], usize);

impl Choices<'_> {
    fn pick(&mut self, below: usize) -> usize {
        self.1 += 1;
        usize::from(self.0.get(self.1 % self.0.len().max(1)).copied().unwrap_or_default()).wrapping_add(self.1) % below
    }
}

/// An object of this type with some of its fields.
fn object(ty: TypeId, choices: &mut Choices<'_>, depth: usize) -> Value {
    let mut map = Map::new();
    for field in ty.get().json_fields() {
        if depth < 5 && choices.pick(3) == 0 {
            map.insert(field.json.to_owned(), value(&field.shape, choices, depth + 1));
        }
    }
    map.into()
}

fn value(shape: &Shape, choices: &mut Choices<'_>, depth: usize) -> Value {
    match shape {
        Shape::String => ["", "a", "äöü", "long ".repeat(40).as_str()][choices.pick(4)].into(),
        Shape::Bool => (choices.pick(2) == 0).into(),
        Shape::Int32 => [0, 1, -1, i32::MAX, i32::MIN][choices.pick(5)].into(),
        Shape::Int64 => [0, 300, -1, i64::MAX, i64::MIN][choices.pick(5)].into(),
        Shape::Float64 => [json!(1.5), json!(0), json!(-3), json!(1e300)][choices.pick(4)].clone(),
        Shape::Bytes => STANDARD.encode(vec![7; choices.pick(5)]).into(),
        Shape::Time => ["1969-12-31T23:59:59Z", "2024-02-29T12:00:00Z"][choices.pick(2)].into(),
        Shape::MicroTime => ["2024-01-01T00:00:00.000001Z", "2024-01-01T00:00:00.000000Z"][choices.pick(2)].into(),
        Shape::Duration => "1m30s".into(),
        Shape::Quantity => ["500m", "1Gi", "0", "12e6"][choices.pick(4)].into(),
        Shape::IntOrString => [json!(0), json!(80), json!(""), json!("http")][choices.pick(4)].clone(),
        Shape::Raw | Shape::FieldsV1 => json!({"f:spec": {"f:ports": {}}}),
        Shape::Json => [json!({"a": [null, 1.5]}), json!("text"), json!(false), json!([])][choices.pick(4)].clone(),
        Shape::Union(ty, other) => match (choices.pick(2), &**other) {
            (0, _) => object(*ty, choices, depth),
            (_, Shape::List(item)) => json!([value(item, choices, depth)]),
            (_, other) => value(other, choices, depth),
        },
        Shape::Object(ty) => object(*ty, choices, depth),
        Shape::List(inner) => (0..choices.pick(3)).map(|_| value(inner, choices, depth)).collect(),
        Shape::Map(inner) => {
            (0..choices.pick(3)).map(|key| (format!("k{key}"), value(inner, choices, depth))).collect()
        }
    }
}

const KINDS: &[&str] = &[
    "core.Service",
    "core.Pod",
    "core.Node",
    "core.Endpoints",
    "core.Event",
    "core.ConfigMap",
    "core.Secret",
    "core.ReplicationController",
    "core.Binding",
    "core.LimitRange",
    "core.ResourceQuota",
    "apps.DaemonSet",
    "apps.Deployment",
    "apps.ReplicaSet",
    "apps.StatefulSet",
    "apps.ControllerRevision",
    "apiregistration.APIService",
    "autoscaling.HorizontalPodAutoscaler",
    "autoscaling.Scale",
    "batch.Job",
    "autoscaling_v2.HorizontalPodAutoscaler",
    "batch.CronJob",
    "core.PersistentVolume",
    "core.PersistentVolumeClaim",
    "core.PodTemplate",
    "flowcontrol.FlowSchema",
    "flowcontrol.PriorityLevelConfiguration",
    "policy.Eviction",
    "policy.PodDisruptionBudget",
    "scheduling.PriorityClass",
    "discovery.EndpointSlice",
    "networking.Ingress",
    "networking.NetworkPolicy",
    "networking.ServiceCIDR",
    "node.RuntimeClass",
    "storage.CSIDriver",
    "storage.CSINode",
    "storage.CSIStorageCapacity",
    "storage.StorageClass",
    "storage.VolumeAttachment",
    "waypost.BGPPeer",
    "waypost.IPPool",
    "waypost.TrafficPolicy",
    "coordination.Lease",
    "certificates.CertificateSigningRequest",
    "events.Event",
    "admissionregistration.ValidatingAdmissionPolicy",
    "admissionregistration.ValidatingAdmissionPolicyBinding",
    "admissionregistration.MutatingWebhookConfiguration",
    "admissionregistration.ValidatingWebhookConfiguration",
    "apiextensions.CustomResourceDefinition",
    "rbac.ClusterRole",
    "rbac.RoleBinding",
    "authentication.TokenReview",
    "authorization.SubjectAccessReview",
    "meta.Status",
    "meta.DeleteOptions",
];

proptest! {
    #[test]
    fn writing_and_reading_is_the_same_object(kind in 0..KINDS.len(), entropy in proptest::collection::vec(any::<u8>(), 1..300)) {
        let ty = schema::named(KINDS[kind]);
        let mut before = object(ty, &mut Choices(&entropy, 0), 0);
        prune(ty, &mut before);
        let mut after = decode(ty, &encode(ty, &before)).expect("reads what it wrote");
        prune(ty, &mut after);
        prop_assert_eq!(&after, &before);
        // What protobuf gives is what JSON would have given.
        prop_assert_eq!(check(ty, &mut after), Ok(Vec::new()));
        prune(ty, &mut after);
        prop_assert_eq!(after, before);
    }

    #[test]
    fn no_bytes_panic(kind in 0..KINDS.len(), raw in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(schema::named(KINDS[kind]), &raw);
        let _ = decode_envelope(&[MAGIC, &raw].concat());
    }

    #[test]
    fn damaged_objects_do_not_panic(kind in 0..KINDS.len(), entropy in proptest::collection::vec(any::<u8>(), 1..100), at in any::<usize>(), byte in any::<u8>()) {
        let ty = schema::named(KINDS[kind]);
        let mut raw = encode(ty, &object(ty, &mut Choices(&entropy, 0), 0));
        let length = raw.len().max(1);
        if let Some(place) = raw.get_mut(at % length) {
            *place = byte;
        }
        if let Ok(value) = decode(ty, &raw) {
            let _ = encode(ty, &value);
        }
    }
}
