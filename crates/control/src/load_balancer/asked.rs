//! The addresses and families that a Service asks for.
//!
//! In: `spec.loadBalancerIP`, the annotation that took its place, families and their policy. Out: which families it gets addresses of,
//! whether it needs all of them, and which address of each it names.

use std::net::IpAddr;

use api::ip::{Family, parse_lenient};

use super::annotations;
use super::choose::Refusal;
use super::request::Request;

/// What a Service asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Asked {
    /// The families it gets addresses of, in its order.
    pub(super) families: Vec<Family>,
    /// Whether one family alone is of no use.
    pub(super) needs_all: bool,
    /// The addresses it names.
    pub(super) addresses: Vec<IpAddr>,
    /// Whether it wants those or none: so says the annotation; the old field is only a wish.
    pub(super) is_binding: bool,
    /// What it asks for and cannot get, whatever the pools: a reason in one word, and a sentence.
    pub(super) remarks: Vec<(&'static str, String)>,
}

impl Asked {
    /// The address it names of a family.
    pub(super) fn address(&self, family: Family) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| Family::of(*address) == family)
    }
}

/// Reads what a Service asks for.
pub(super) fn read(request: &Request) -> Result<Asked, Refusal> {
    let have = if request.families.is_empty() { vec![Family::V4] } else { request.families.clone() };
    let families = if &*request.policy == "SingleStack" { vec![have[0]] } else { have };
    let needs_all = &*request.policy != "PreferDualStack";
    let wish = parse_lenient(&request.wanted);
    let Some((key, text)) = annotations::addresses(&request.annotations) else {
        let remarks = unusable(&request.wanted, wish, &families);
        let addresses = wish.into_iter().filter(|_| remarks.is_empty()).collect();
        return Ok(Asked { families, needs_all, addresses, is_binding: false, remarks });
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
    Ok(Asked { families: named, needs_all: true, addresses, is_binding: true, remarks: Vec::new() })
}

/// Why the old field can never be honoured.
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
