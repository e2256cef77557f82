//! Changes of modes with IPVS among them.

#[test]
#[ignore = "runs inside the virtual machine that the tests of ipvs.rs boot"]
fn a_change_of_modes_costs_no_connection() {
    crate::proxy::handover::goes_through(&["ipvs", "nftables", "ipvs", "iptables", "ipvs", "userspace", "ipvs"]);
}
