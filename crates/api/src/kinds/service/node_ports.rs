//! Node ports, and the port at which load balancers ask for the health of a node.
//!
//! Both come from the same pool, and a number is one resource whatever the protocol. On create, ports with the same
//! number (TCP and UDP) share a node port; on update each gets its own, since what is there must not move.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::fields::{SPEC, allocates_node_ports, has_node_ports, needs_health_check, refuse};
use crate::claims::Claims;
use crate::status::Status;
use crate::value::ValueExt as _;

/// Claims the node ports of a new Service.
///
/// # Errors
/// 422 when a chosen port cannot be had, 500 when there are none left or the health check port cannot be had.
pub(super) fn claim_all(service: &mut Value, claims: &mut dyn Claims) -> Result<(), Status> {
    if has_node_ports(service) {
        for (index, number) in choose_shared(service, claims)? {
            service.items_mut("spec.ports")[index].put("nodePort", number);
        }
    }
    if needs_health_check(service) {
        claim_health_check(service, claims)?;
    }
    Ok(())
}

/// Claims for a change; returns the ports to give back.
///
/// # Errors
/// As [`claim_all`]; 500 when two ports of one protocol ask for the same number.
pub(super) fn change(new: &mut Value, old: &Value, claims: &mut dyn Claims) -> Result<Vec<u16>, Status> {
    let held = node_ports(old);
    if has_node_ports(new) {
        for (index, number) in choose_each(new, &held, claims)? {
            new.items_mut("spec.ports")[index].put("nodePort", number);
        }
    }
    let kept: HashSet<u16> = node_ports(new).into_iter().collect();
    let mut freed: Vec<u16> = held.into_iter().filter(|port| !kept.contains(port)).collect();
    match (needs_health_check(old), needs_health_check(new)) {
        (false, true) => claim_health_check(new, claims)?,
        (true, false) => freed.extend(port_number(old.int("spec.healthCheckNodePort"))),
        _ => {}
    }
    Ok(freed)
}

/// All ports a Service holds.
pub(super) fn held(service: &Value) -> Vec<u16> {
    let mut ports = node_ports(service);
    if needs_health_check(service) {
        ports.extend(port_number(service.int("spec.healthCheckNodePort")));
    }
    ports
}

/// The node ports a Service holds, each once. An ExternalName may have numbers written down, but holds none.
fn node_ports(service: &Value) -> Vec<u16> {
    if !has_node_ports(service) {
        return Vec::new();
    }
    let mut seen = HashSet::new();
    let numbers = service.items("spec.ports").iter().filter_map(|port| port_number(port.int("nodePort")));
    numbers.filter(|number| seen.insert(*number)).collect()
}

fn port_number(number: i64) -> Option<u16> {
    u16::try_from(number).ok().filter(|number| *number != 0)
}

/// Claims with sharing; returns what to write where.
fn choose_shared(service: &Value, claims: &mut dyn Claims) -> Result<Vec<(usize, i64)>, Status> {
    let allocate = allocates_node_ports(service);
    let ports = service.items("spec.ports");
    let mut asked: HashMap<i64, i64> = HashMap::new();
    for port in ports.iter().filter(|port| port.int("nodePort") != 0) {
        asked.entry(port.int("port")).or_insert_with(|| port.int("nodePort"));
    }
    let mut chosen: HashMap<i64, i64> = HashMap::new();
    let mut out = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let (number, wanted) = (port.int("port"), port.int("nodePort"));
        if wanted == 0 && !allocate {
            continue;
        }
        match (chosen.get(&number).copied(), asked.get(&number).copied()) {
            (None, Some(explicit)) => {
                claim_explicit(service, index, explicit, claims)?;
                chosen.insert(number, explicit);
                out.push((index, explicit));
            }
            (None, None) => {
                let dynamic = claim_dynamic(claims)?;
                chosen.insert(number, dynamic);
                out.push((index, dynamic));
            }
            (Some(shared), _) if wanted == 0 => out.push((index, shared)),
            (Some(shared), _) if wanted != shared => claim_explicit(service, index, wanted, claims)?,
            (Some(_), _) => {}
        }
    }
    Ok(out)
}

/// Claims without sharing; returns what to write where.
fn choose_each(service: &Value, held: &[u16], claims: &mut dyn Claims) -> Result<Vec<(usize, i64)>, Status> {
    let allocate = allocates_node_ports(service);
    let mut ours: HashSet<i64> = held.iter().map(|port| i64::from(*port)).collect();
    let mut taken: HashSet<(&str, i64)> = HashSet::new();
    let mut out = Vec::new();
    for (index, port) in service.items("spec.ports").iter().enumerate() {
        let mut number = port.int("nodePort");
        if number == 0 {
            if !allocate {
                continue;
            }
            number = claim_dynamic(claims)?;
            out.push((index, number));
        } else if ours.insert(number) {
            claim_explicit(service, index, number, claims)?;
        }
        let protocol = port.text("protocol");
        if !taken.insert((protocol, number)) {
            return Err(Status::raw(format!("duplicate nodePort: {{{protocol} {number}}}")));
        }
    }
    Ok(out)
}

/// A number that no port can have is requested as 0, which is outside every range: the error names the range.
fn claim_explicit(service: &Value, index: usize, number: i64, claims: &mut dyn Claims) -> Result<(), Status> {
    let wanted = u16::try_from(number).unwrap_or(0);
    claims.claim_port(Some(wanted)).map(|_| ()).map_err(|error| {
        refuse(service, |errors| {
            let path = SPEC.child("ports");
            errors.invalid(&path.index(index).child("nodePort"), number, &error.to_string());
        })
    })
}

fn claim_dynamic(claims: &mut dyn Claims) -> Result<i64, Status> {
    let claimed = claims.claim_port(None);
    claimed.map(i64::from).map_err(|error| Status::internal(format!("failed to allocate a nodePort: {error}")))
}

fn claim_health_check(service: &mut Value, claims: &mut dyn Claims) -> Result<(), Status> {
    let asked = service.int("spec.healthCheckNodePort");
    if asked == 0 {
        let port = claims
            .claim_port(None)
            .map_err(|error| Status::internal(format!("failed to allocate a HealthCheck NodePort 0: {error}")))?;
        service.put("spec.healthCheckNodePort", port);
        return Ok(());
    }
    claims.claim_port(Some(u16::try_from(asked).unwrap_or(0))).map(|_| ()).map_err(|error| {
        Status::internal(format!("failed to allocate requested HealthCheck NodePort {asked}: {error}"))
    })
}
