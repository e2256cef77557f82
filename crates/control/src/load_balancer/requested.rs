//! The addresses and families that a Service requests.
//!
//! In: `spec.loadBalancerIP`, the annotation that replaced it, families and their policy. Out: the families to assign, whether all are required, and the
//! requested address of each.

use std::net::IpAddr;

use api::ip::{Family, parse_lenient};

use super::allocate::Refusal;
use crate::objects::load_balancer::{Request, annotations};

/// The request of a Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RequestedAddresses {
    /// The families to assign, in order.
    pub(super) families: Vec<Family>,
    /// Whether all families are required.
    pub(super) needs_all: bool,
    /// Requested addresses.
    pub(super) addresses: Vec<IpAddr>,
    /// Whether the addresses are mandatory: those of the annotation are, `spec.loadBalancerIP` is a preference.
    pub(super) is_binding: bool,
    /// Requests that cannot be satisfied by any pool: reason and message.
    pub(super) remarks: Vec<(&'static str, String)>,
}

impl RequestedAddresses {
    /// The requested address of a family.
    pub(super) fn address(&self, family: Family) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| Family::of(*address) == family)
    }
}

/// Reads the request of a Service.
pub(super) fn read(request: &Request) -> Result<RequestedAddresses, Refusal> {
    let have = if request.families.is_empty() { vec![Family::V4] } else { request.families.clone() };
    let families = if &*request.policy == "SingleStack" { vec![have[0]] } else { have };
    let needs_all = &*request.policy != "PreferDualStack";
    let wish = parse_lenient(&request.wanted);
    let Some((key, text)) = annotations::addresses(&request.annotations) else {
        let remarks = unusable(&request.wanted, wish, &families);
        let addresses = wish.into_iter().filter(|_| remarks.is_empty()).collect();
        return Ok(RequestedAddresses { families, needs_all, addresses, is_binding: false, remarks });
    };
    let refuse = |message: String| Err(Refusal::new("AddressRefused", message));
    let mut addresses = Vec::new();
    for part in text.split(',').map(str::trim) {
        let Some(address) = parse_lenient(part) else {
            return refuse(format!(
                "annotation {key}: {part:?} is no address; write one of each family, like \"192.0.2.7,2001:db8::7\""
            ));
        };
        let family = Family::of(address);
        if addresses.iter().any(|other| Family::of(*other) == family) {
            return refuse(format!(
                "annotation {key} names two {} addresses; a Service has one of each family",
                family.as_str()
            ));
        }
        if !families.contains(&family) {
            let (family, have) = (family.as_str(), names(&families));
            return refuse(format!(
                "annotation {key} names {address}, and the Service has no {family} (its spec.ipFamilies: {have})"
            ));
        }
        addresses.push(address);
    }
    if let Some(wish) = wish.filter(|wish| !addresses.contains(wish)) {
        return refuse(format!("spec.loadBalancerIP is {wish} and annotation {key} is {text}: remove one of them"));
    }
    let named: Vec<Family> =
        families.iter().copied().filter(|family| addresses.iter().any(|one| Family::of(*one) == *family)).collect();
    if &*request.policy == "RequireDualStack" && named.len() < families.len() {
        return refuse(format!(
            "annotation {key} names one address, and spec.ipFamilyPolicy RequireDualStack needs one of each family"
        ));
    }
    Ok(RequestedAddresses { families: named, needs_all: true, addresses, is_binding: true, remarks: Vec::new() })
}

/// Why `spec.loadBalancerIP` cannot be used.
fn unusable(text: &str, wish: Option<IpAddr>, families: &[Family]) -> Vec<(&'static str, String)> {
    let why = match wish {
        None if text.is_empty() => return Vec::new(),
        Some(address) if families.contains(&Family::of(address)) => return Vec::new(),
        None => "is no address".to_owned(),
        Some(_) => format!("is not of the Service's families ({})", names(families)),
    };
    vec![("LoadBalancerIPIgnored", format!("spec.loadBalancerIP {text} {why}; it gets another address"))]
}

fn names(families: &[Family]) -> String {
    families.iter().map(|family| family.as_str()).collect::<Vec<_>>().join(", ")
}
