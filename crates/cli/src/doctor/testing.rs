//! Fixtures for tests of checks: a cluster of two nodes, checked on the first, with every measurement present.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use api::value::ValueExt as _;
use serde_json::{Value, json};

use super::evidence::{Cluster, Evidence, Probes, Unmeasured};
use super::machine::{DropRule, Firewall, Hook, Machine, Packet, Rules};
use super::verdict::CheckResult;

/// A firewall without rules.
#[derive(Debug)]
struct NoRules;

impl Firewall for NoRules {
    fn drops(&self, _: &Packet, _: Hook, _: Range<i32>) -> Vec<DropRule> {
        Vec::new()
    }

    fn tables(&self) -> Vec<String> {
        Vec::new()
    }
}

/// See the module.
pub(super) struct Fixture {
    pub(super) cluster: Cluster,
    pub(super) machine: Machine,
    pub(super) probes: Probes,
}

impl Fixture {
    pub(super) fn new() -> Self {
        let node = |name: &str, ip: &str| json!({"metadata": {"name": name}, "status": {"addresses": [{"type": "InternalIP", "address": ip}]}});
        let namespace = |name: &str| json!({"metadata": {"name": name}});
        let cluster = Cluster {
            namespaces: ["default", "shop", "prod"].map(namespace).to_vec(),
            nodes: vec![node("n1", "192.0.2.11"), node("n2", "192.0.2.12")],
            ranges: vec![json!({"spec": {"cidrs": ["10.96.0.0/16"]}})],
            domain: "cluster.local".to_owned(),
            ..Cluster::default()
        };
        let nothing = || Unmeasured { why: "the test measured nothing".to_owned(), how: "measure".to_owned() };
        let machine = Machine {
            node: Ok("n1".to_owned()),
            proxy: Ok(true),
            rules: Ok(Rules { mode: "nftables".to_owned(), ..Rules::default() }),
            flows: Ok(Vec::new()),
            room: Ok((1, 100)),
            firewall: Ok(Arc::new(NoRules)),
            legacy: None,
            settings: BTreeMap::new(),
            networks: Vec::new(),
            from: None,
        };
        let probes = Probes {
            backends: Ok(BTreeMap::new()),
            left_out: 0,
            no_route: BTreeMap::new(),
            frontends: Ok(BTreeMap::new()),
            name: Err(nothing()),
        };
        Self { cluster, machine, probes }
    }

    /// Makes this machine one that is no node.
    pub(super) fn not_a_node(&mut self) {
        let why = || Unmeasured { why: "this machine is no node".to_owned(), how: "run it on one".to_owned() };
        self.machine.node = Err(why());
        self.machine.proxy = Err(why());
        self.machine.rules = Err(why());
        self.machine.flows = Err(why());
        self.machine.firewall = Err(why());
        self.probes.backends = Err(why());
        self.probes.frontends = Err(why());
        self.probes.name = Err(why());
    }

    pub(super) fn service(&mut self, namespace: &str, name: &str, mut spec: Value) {
        if !spec.has("type") {
            spec.put("type", "ClusterIP");
        }
        self.cluster.services.push(json!({"metadata": {"name": name, "namespace": namespace}, "spec": spec}));
    }

    /// A Pod that runs and is ready; the n-th has the n-th address of 10.244.0.0/24.
    pub(super) fn pod(&mut self, namespace: &str, name: &str, labels: Value) {
        let ip = format!("10.244.0.{}", self.cluster.pods.len() + 1);
        let mut pod = json!({
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"nodeName": "n1", "containers": [{"name": "main", "ports": [{"name": "http", "containerPort": 8080}]}]},
            "status": {"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]},
        });
        pod.put("metadata.labels", labels);
        self.cluster.pods.push(pod);
    }

    pub(super) fn unready(&mut self, index: usize) {
        self.cluster.pods[index].put("status.conditions", json!([{"type": "Ready", "status": "False"}]));
    }

    pub(super) fn workload(&mut self, namespace: &str, name: &str, replicas: u32, labels: &Value) {
        let template = json!({
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "ports": [{"containerPort": 8080}]}]},
        });
        self.cluster.workloads.push(json!({
            "kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
            "spec": {"replicas": replicas, "template": template},
        }));
    }

    /// A slice of TCP with addresses, whether each is ready, and its node.
    pub(super) fn slice(&mut self, namespace: &str, service: &str, port: u16, endpoints: &[(&str, bool, &str)]) {
        let endpoints: Vec<Value> = endpoints
            .iter()
            .map(|(ip, ready, node)| json!({"addresses": [ip], "conditions": {"ready": ready}, "nodeName": node}))
            .collect();
        self.cluster.slices.push(json!({
            "metadata": {"name": format!("{service}-1"), "namespace": namespace, "labels": {"kubernetes.io/service-name": service}},
            "ports": [{"name": "", "port": port, "protocol": "TCP"}], "endpoints": endpoints,
        }));
    }

    pub(super) fn check(&self, namespace: &str, name: &str, check: fn(&Evidence<'_>) -> CheckResult) -> CheckResult {
        check(&self.evidence(namespace, name))
    }

    pub(super) fn evidence<'a>(&'a self, namespace: &'a str, name: &'a str) -> Evidence<'a> {
        Evidence {
            namespace,
            name,
            cluster: &self.cluster,
            machine: &self.machine,
            probes: &self.probes,
            diagnosis: None,
        }
        .diagnosed(&self.cluster.snapshot())
    }
}

#[track_caller]
pub(super) fn passed(result: CheckResult) -> String {
    match result {
        CheckResult::Passed(saw) => saw,
        other => panic!("not passed: {other:?}"),
    }
}

/// The message with the evidence, and the command that repairs it.
#[track_caller]
pub(super) fn failed(result: CheckResult) -> (String, String) {
    match result {
        CheckResult::Failed(finding) => ([&[finding.message][..], &finding.evidence].concat().join("\n"), finding.fix),
        other => panic!("not failed: {other:?}"),
    }
}

/// Not measured, although it could be.
#[track_caller]
pub(super) fn not_measured(result: CheckResult) -> String {
    match result {
        CheckResult::NotMeasured(Unmeasured { why, how }) if !how.is_empty() => why,
        other => panic!("measured: {other:?}"),
    }
}

/// Not measured, because there is nothing to measure.
#[track_caller]
pub(super) fn not_applicable(result: CheckResult) {
    match result {
        CheckResult::NotMeasured(Unmeasured { how, .. }) if how.is_empty() => {}
        other => panic!("measured: {other:?}"),
    }
}
