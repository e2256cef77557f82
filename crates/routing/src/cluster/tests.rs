//! Tests of the engine: scenarios of the specification, one table for each of its rules, and a comparison with a
//! recomputation from scratch.

#![expect(clippy::needless_pass_by_value, reason = "objects are written where they are used")]

mod generate;
mod incremental;
mod listener_scenarios;
mod mesh_scenarios;
mod policy_scenarios;
mod route_scenarios;
mod scale;
mod traffic_scenarios;
mod world;

#[test]
fn names_of_services_fit_and_differ() {
    let long = "a".repeat(253);
    for gateway in ["gw", "a.b", "1st", &long, &"a".repeat(55), &"a".repeat(56), "a-b"] {
        let name = super::service_name(gateway);
        assert!(name.len() <= 63 && name.ends_with("-waypost"), "{name}");
        assert_eq!(api::names::dns_1035_label(&name), Vec::<String>::new(), "{name}");
    }
    assert_eq!(super::service_name("gw"), "gw-waypost");
    let names = [super::service_name("a.b"), super::service_name("a-b"), super::service_name(&long)];
    assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
    assert_ne!(super::service_name(&long), super::service_name(&"a".repeat(252)));
}

#[test]
fn features_are_sorted_and_within_the_limit() {
    let features = crate::classes::FEATURES;
    assert!(features.is_sorted_by(|one, other| one < other));
    assert!(features.len() <= 64 && features.iter().all(|name| !name.starts_with("Mesh")));
}
