//! The response of a conversion webhook: converted objects with the identity of those that were sent, or a refusal that is short.
#![no_main]

use api::crd::conversion::Exchange;
use api::value::ValueExt as _;
use libfuzzer_sys::fuzz_target;
use serde_json::json;

fuzz_target!(|data: &[u8]| {
    let object = |name: &str| {
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"a": 1},
               "metadata": {"name": name, "namespace": "n", "uid": "u", "labels": {"a": "b"}, "generation": 1}})
    };
    let sent = [object("a"), object("b")];
    for (version, objects) in [("v1", &sent[..1]), ("v1beta1", &sent[..])] {
        let exchange = Exchange { uid: "1", version, desired: "example.com/v2", objects };
        match exchange.read(data) {
            Ok(converted) => {
                assert_eq!(converted.len(), objects.len());
                for (original, converted) in objects.iter().zip(&converted) {
                    for path in ["kind", "metadata.name", "metadata.namespace", "metadata.uid", "metadata.generation"] {
                        assert_eq!(original.at(path), converted.at(path), "{path}");
                    }
                    assert_eq!(converted.text("apiVersion"), "example.com/v2");
                }
            }
            Err(error) => assert!(error.to_string().len() < 32 << 10),
        }
    }
});
