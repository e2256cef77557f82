//! Changes of modes with IPVS among them.

#[test]
#[ignore = "needs IPVS; runs in a virtual machine"]
fn a_change_of_modes_costs_no_connection() {
    crate::proxy::handover::goes_through(&["ipvs", "nftables", "ipvs", "iptables", "ipvs", "userspace", "ipvs"]);
}
