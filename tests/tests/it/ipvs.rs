//! The IPVS mode, seen by real packets in a virtual machine: not every kernel has IPVS, and the one that runs these tests may lack it.

mod inside;

use std::process::Command;

use testbed::{run, vm};

/// The cases that are made for the machine, and ignored elsewhere.
const INSIDE: [&str; 2] = ["--ignored", "ipvs::inside::"];

/// How many cases a choice has.
fn cases(choice: &[&str]) -> usize {
    let own = std::env::current_exe().expect("the path of this test");
    let listed = run(Command::new(own).arg("--list").args(choice), "").success();
    listed.lines().filter(|line| line.ends_with(": test")).count()
}

#[test]
#[ignore = "boots a virtual machine that needs all processors; ./scripts/test runs it alone"]
fn s23_ipvs_does_in_a_virtual_machine_what_it_should() {
    let wanted = cases(&INSIDE);
    let outcome = vm::run_inside(&INSIDE, &[("WAYPOST_TEST_PROXY_MODE", "ipvs")]);
    assert!(outcome.ok && wanted > 0 && outcome.passed == wanted, "{wanted} cases, {outcome:?}");
}

/// Pods come and go on three machines, and clients notice nothing.
#[test]
#[ignore = "boots a virtual machine for minutes; ./scripts/test --everything runs it"]
fn s05_updates_lose_no_request_with_ipvs() {
    let outcome = vm::run_inside(&["--ignored", "--exact", "workloads::rolling::inside"], &[]);
    assert!(outcome.ok && outcome.passed == 1, "{outcome:?}");
}

/// Chooses among the cases of all modes; without it, all of them run.
const CHOICE: &str = "WAYPOST_TEST_VM_CASES";

/// What every mode is held to, in this one.
#[test]
#[ignore = "boots a virtual machine for twenty minutes; ./scripts/test --everything runs it"]
fn s23_the_suite_of_all_modes_holds_under_ipvs() {
    let names = std::env::var(CHOICE).unwrap_or_else(|_| "proxy::".to_owned());
    let choice: Vec<&str> = names.split_whitespace().chain(["--skip", "proxy::nftables::"]).collect();
    let wanted = cases(&choice);
    let outcome = vm::run_inside(&choice, &[("WAYPOST_TEST_PROXY_MODE", "ipvs")]);
    assert!(outcome.ok && wanted > 0 && outcome.passed == wanted, "{wanted} cases, {outcome:?}");
}
