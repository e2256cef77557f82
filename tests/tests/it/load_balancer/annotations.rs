//! S47: the examples of the Kubernetes documentation, as they stand there.

use testbed::session::text;

use super::desk::{Desk, condition, pool};

/// The examples; `[...]` stands for what is left out.
const EXAMPLES: [(&str, &str); 10] = [
    (
        "GCP",
        "[...]\nmetadata:\n    name: my-service\n    annotations:\n        networking.gke.io/load-balancer-type: \"Internal\"\n[...]\n",
    ),
    (
        "AWS",
        "[...]\nmetadata:\n    name: my-service\n    annotations:\n        service.beta.kubernetes.io/aws-load-balancer-internal: \"true\"\n[...]\n",
    ),
    (
        "AWS before",
        "[...]\nmetadata: \n    name: my-service\n    annotations: \n        service.beta.kubernetes.io/aws-load-balancer-internal: 0.0.0.0/0\n[...]\n",
    ),
    (
        "Azure",
        "[...]\nmetadata:\n    name: my-service\n    annotations:\n        service.beta.kubernetes.io/azure-load-balancer-internal: \"true\"\n[...]\n",
    ),
    (
        "IBM Cloud",
        "[...]\nmetadata:\n    name: my-service\n    annotations:\n        service.kubernetes.io/ibm-load-balancer-cloud-provider-ip-type: \"private\"\n[...]\n",
    ),
    (
        "OpenStack",
        "[...]\nmetadata:\n    name: my-service\n    annotations:\n        service.beta.kubernetes.io/openstack-internal-load-balancer: \"true\"\n[...]\n",
    ),
    (
        "Baidu",
        "[...]\nmetadata:\n    name: my-service\n    annotations:\n        service.beta.kubernetes.io/cce-load-balancer-internal-vpc: \"true\"\n[...]\n",
    ),
    (
        "Tencent",
        "[...]\nmetadata:\n  annotations:\n    service.kubernetes.io/qcloud-loadbalancer-internal-subnetid: subnet-xxxxx\n[...]\n",
    ),
    (
        "Alibaba",
        "[...]\nmetadata:\n  annotations:\n    service.beta.kubernetes.io/alibaba-cloud-loadbalancer-address-type: \"intranet\"\n[...]\n",
    ),
    (
        "OCI",
        "[...]\nmetadata:\n    name: my-service\n    annotations:\n        service.beta.kubernetes.io/oci-load-balancer-internal: true\n[...]\n",
    ),
];

/// An example with what it leaves out.
fn whole(example: &str) -> String {
    let rest = "spec: {type: LoadBalancer, selector: {app: web}, ports: [{port: 80}]}\n";
    let rest = if example.contains("name:") { rest.to_owned() } else { format!("  name: my-service\n{rest}") };
    let (head, tail) = example.split_once("[...]\n").expect("an opening");
    format!("{head}apiVersion: v1\nkind: Service\n{}", tail.replace("[...]\n", &rest))
}

#[test]
fn s47_the_examples_of_nine_clouds_get_internal_addresses() {
    let mut desk = Desk::with_pools(
        &[pool("public", "198.51.100.0/28", ""), pool("private", "10.9.0.0/28", "internal: true")].concat(),
    );
    for (cloud, example) in EXAMPLES {
        let mut document = whole(example);
        if cloud == "OCI" {
            // As it stands there it is no annotation: kubectl refuses it before any server sees it.
            let said = desk.fails_with("apply -f -", &document);
            assert!(said.contains("annotations") && said.contains("bool"), "{said}");
            document = document.replace("internal: true", "internal: \"true\"");
        }
        desk.ok_with("apply -f -", &document);
        assert_eq!(desk.assigned("my-service"), "10.9.0.0", "{cloud}");
        let service = desk.service("my-service");
        assert_eq!(text(condition(&service), "/message"), "10.9.0.0 from pool private", "{cloud}");
        desk.ok("delete service my-service");
    }
}

#[test]
fn s47_two_services_split_the_horizon_and_never_cross_it() {
    let mut desk = Desk::with_pools(&pool("public", "198.51.100.0/30", ""));
    let internal = "networking.gke.io/load-balancer-type: Internal";
    desk.balancer("inside", internal, "selector: {app: web}");
    let (reason, message) = desk.pending("inside");
    assert_eq!(reason, "NoInternalPool");
    assert!(message.contains("networking.gke.io/load-balancer-type asks for an internal load balancer"), "{message}");
    desk.balancer("outside", "", "selector: {app: web}");
    assert_eq!(desk.assigned("outside"), "198.51.100.0");
    desk.ok_with("apply -f -", &pool("private", "10.9.0.0/30", "internal: true, priority: -100"));
    assert_eq!(desk.assigned("inside"), "10.9.0.0");
    // Even with nothing else left, the private ones are for those who ask for them.
    for name in ["a", "b", "c", "d"] {
        desk.balancer(name, "", "");
    }
    let all: Vec<String> = ["a", "b", "c"].iter().map(|name| desk.assigned(name)).collect();
    assert!(all.iter().all(|ip| ip.starts_with("198.51.100.")), "{all:?}");
    assert_eq!(desk.pending("d").0, "Exhausted");
    // A Service that changes its mind changes sides.
    desk.ok("annotate service outside networking.gke.io/load-balancer-type=Internal");
    desk.until("outside", "it is inside", |service| super::desk::addresses(service) == "10.9.0.1");
    assert_eq!(desk.assigned("d"), "198.51.100.0", "and what it had is for the next");
}
