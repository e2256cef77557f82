//! Cluster IPs: which addresses a Service claims, and which it gives back.
//!
//! The families are settled by now; the list of addresses is filled up to them. A failed claim ends the request, and
//! the caller releases what was claimed so far.

use std::net::IpAddr;

use serde_json::Value;

use super::families::keeps_preference;
use super::fields::{NONE, SPEC, is_external_name, refuse};
use crate::claims::{ClaimError, Claims};
use crate::ip::{Family, parse_lenient};
use crate::status::Status;
use crate::value::ValueExt as _;

/// Claims an address for each family.
///
/// # Errors
/// 422 when a chosen address cannot be had, 500 when there are none left.
pub(super) fn claim_all(service: &mut Value, claims: &mut dyn Claims) -> Result<(), Status> {
    if is_external_name(service) || service.items("spec.clusterIPs").first().is_some_and(|ip| ip == NONE) {
        return Ok(());
    }
    claim_from(service, 0, claims)
}

/// Claims and gives back what a change needs; returns what is to be given back.
///
/// # Errors
/// As [`claim_all`].
pub(super) fn change(new: &mut Value, old: &Value, claims: &mut dyn Claims) -> Result<Vec<IpAddr>, Status> {
    if keeps_preference(new, old) {
        return Ok(Vec::new());
    }
    match (is_external_name(old), is_external_name(new)) {
        (true, true) => return Ok(Vec::new()),
        (true, false) => return claim_all(new, claims).map(|()| Vec::new()),
        (false, true) => return Ok(held(old)),
        (false, false) => {}
    }
    if old.items("spec.clusterIPs").first().is_some_and(|ip| ip == NONE) {
        return Ok(Vec::new());
    }
    match (old.items("spec.ipFamilies").len(), new.items("spec.ipFamilies").len()) {
        (1, 2) => claim_from(new, 1, claims).map(|()| Vec::new()),
        (2, 1) => Ok(held(old).into_iter().skip(1).collect()),
        _ => Ok(Vec::new()),
    }
}

/// The addresses a Service holds.
pub(super) fn held(service: &Value) -> Vec<IpAddr> {
    if is_external_name(service) {
        return Vec::new();
    }
    service.texts("spec.clusterIPs").into_iter().filter_map(parse_lenient).collect()
}

/// Claims the addresses of the families from this one on.
fn claim_from(service: &mut Value, from: usize, claims: &mut dyn Claims) -> Result<(), Status> {
    let families: Vec<Family> = service.texts("spec.ipFamilies").into_iter().filter_map(Family::named).collect();
    let mut list: Vec<String> = service.texts("spec.clusterIPs").into_iter().map(str::to_owned).collect();
    if list.len() < families.len() {
        list.resize(families.len(), String::new());
    }
    let asked = list.clone();
    for (index, family) in families.into_iter().enumerate().skip(from) {
        if let Some(claimed) = claim(service, family, index, &asked, claims)? {
            list[index] = claimed;
        }
    }
    if from == 0
        && let Some(first) = list.first()
    {
        service.put("spec.clusterIP", first.as_str());
    }
    service.put("spec.clusterIPs", list);
    Ok(())
}

/// Claims one address; a chosen one stays written as it is.
fn claim(
    service: &Value,
    family: Family,
    index: usize,
    asked: &[String],
    claims: &mut dyn Claims,
) -> Result<Option<String>, Status> {
    let (namespace, name) = (service.text("metadata.namespace"), service.text("metadata.name"));
    let text = asked[index].as_str();
    let fail =
        |why: String| refuse(service, |errors| errors.invalid(&SPEC.child("clusterIPs"), Value::from(asked), &why));
    if text.is_empty() {
        return match claims.claim_address(family, None, namespace, name) {
            Ok(address) => Ok(Some(address.to_string())),
            Err(ClaimError::Full) => {
                let why = format!("failed to allocate a serviceIP for Service \"{name}\": {}", ClaimError::Full);
                Err(Status::internal(why))
            }
            Err(error) => Err(fail(format!("failed to allocate IP: {error}"))),
        };
    }
    let Some(address) = parse_lenient(text) else {
        return Err(Status::internal(format!("failed to parse service IP \"{text}\"")));
    };
    match claims.claim_address(family, Some(address), namespace, name) {
        Ok(_) => Ok(None),
        Err(error) => Err(fail(format!("failed to allocate IP {text}: {error}"))),
    }
}
