//! Questions to the DNS server, and replies of others: read, never a panic; every reply can be read, has the question
//! that came, and is no longer than was allowed.
#![no_main]

use std::sync::{Arc, LazyLock};

use dns::snapshot::{ZoneSnapshot, Update};
use dns::zone::Config;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

static SNAPSHOT: LazyLock<Arc<ZoneSnapshot>> = LazyLock::new(|| {
    let snapshot = ZoneSnapshot::new(Config::default()).expect("zones");
    snapshot.apply(Update::Namespace("testns".into()), 1);
    let service = |name: &str, spec: Value| {
        let object = json!({"metadata": {"namespace": "testns", "name": name}, "spec": spec});
        Update::Service(Box::new(serde_json::from_value(object).expect("a Service")))
    };
    let ports = json!([{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
    snapshot.apply(service("svc1", json!({"clusterIPs": ["10.96.0.100", "fd00::1"], "ports": ports})), 1);
    snapshot.apply(service("hdls", json!({"clusterIPs": ["None"], "ports": ports})), 1);
    snapshot.apply(service("ext", json!({"type": "ExternalName", "externalName": "example.net"})), 1);
    snapshot.apply(service("ext-in", json!({"type": "ExternalName", "externalName": "svc1.testns.svc.cluster.local"})), 1);
    let endpoints: Vec<Value> = (0..60).map(|last| json!({"addresses": [format!("172.17.0.{last}")]})).collect();
    let slice = json!({"metadata": {"namespace": "testns", "name": "a", "labels": {"kubernetes.io/service-name": "hdls"}},
        "addressType": "IPv4", "endpoints": endpoints, "ports": ports});
    snapshot.apply(Update::Slice(Box::new(serde_json::from_value(slice).expect("a slice"))), 1);
    snapshot.set_ready();
    snapshot
});

fuzz_target!(|data: &[u8]| {
    dns::wire::fuzz(data);
    dns::answer::fuzz(&SNAPSHOT, data);
});
