//! An address that another machine has already is not announced, and an Event names its owner.

use std::time::Duration;

use testbed::net::{Family, Protocol, eventually};

use super::stage::{Stage, vip};
use super::wire::{Wire, mac_of};

#[test]
fn an_address_that_another_machine_has_is_not_announced_and_people_are_told() {
    let stage = Stage::new(&["n1", "n2"]);
    let squatter = stage.served.cluster().outside("squatter");
    for (number, family) in [(6, Family::V4), (7, Family::V6)] {
        let (name, ip) = (format!("web-{number}"), vip(number, family));
        let length = if ip.is_ipv4() { 32 } else { 128 };
        squatter.ip(&format!("addr add {ip}/{length} dev eth0\n"));
        stage.served.put(&stage.service(&name, number).json());
        let mac = mac_of(&squatter);
        eventually("people are told who has it", || {
            let told = stage.events(&name, "AddressInUse");
            told.iter().any(|event| event.contains(&ip.to_string()) && event.contains(&mac.to_string()))
        });
        let mut wire = Wire::of(&stage.outside);
        for _ in 0..10 {
            let found = wire.who_has(ip);
            assert!(found.iter().all(|who| *who == mac), "nobody answers beside it: {found:?}");
        }
        squatter.ip(&format!("addr del {ip}/{length} dev eth0\n"));
        eventually("it is announced as soon as it is free", || {
            let found = wire.who_has(ip);
            found.len() == 1 && found[0] != mac
        });
    }
}

#[test]
fn who_claims_an_announced_address_later_is_told_about() {
    let stage = Stage::new(&["n1"]);
    stage.web(8);
    let ip = vip(8, Family::V4);
    stage.reached(ip);
    let squatter = stage.served.cluster().outside("squatter");
    squatter.ip(&format!("addr add {ip}/32 dev eth0\n"));
    // The owner of an address sends from it sooner or later.
    let caller = squatter.caller().source(ip).timeout(Duration::from_secs(1));
    let _ = caller.ask(Protocol::Udp, stage.nodes[0].v4(), 9);
    let mac = mac_of(&squatter);
    eventually("people are told who claims it", || {
        let told = stage.events("web", "AddressInUse");
        told.iter().any(|event| event.contains(&mac.to_string()))
    });
}
