//! Warnings for endpoints that are cluster IPs.
//!
//! In: an Endpoints or EndpointSlice object and the previous one. Out: a warning for each new address that is a cluster IP of a
//! Service. A proxy that sent traffic there would load-balance again, possibly in a loop. It is a warning and not an error because the
//! address may be released, and because Kubernetes accepts such manifests.

use std::collections::HashSet;
use std::net::IpAddr;

use api::field::Path;
use api::kind::Kind;
use api::value::ValueExt as _;
use api::{ip, object};
use serde_json::Value;
use store::allocation::address_key;

use super::{Call, Registry};

/// How many addresses are listed individually.
const MAX_LISTED: usize = 5;

/// Visits every address of an object with its path.
type Walk = fn(&Value, &mut dyn FnMut(&Path<'_>, &str));

impl Registry {
    /// Warns of new addresses that are cluster IPs.
    pub(super) fn warn_of_cluster_ips(&self, call: &Call<'_>, new: &Value, old: Option<&Value>, out: &mut Vec<String>) {
        if let Some(walk) = walk_of(call.kind) {
            warn(walk, new, old, |address| self.service_at(address), out);
        }
    }

    /// The `namespace/name` of the Service that holds an address.
    fn service_at(&self, address: IpAddr) -> Option<String> {
        let entry = self.store.get(&address_key(address))?;
        let held = object::decode_light(&entry.value);
        let parent = held.at("spec.parentRef");
        let of_service = parent.text("group").is_empty() && parent.text("resource") == "services";
        of_service.then(|| format!("{}/{}", parent.text("namespace"), parent.text("name")))
    }
}

fn walk_of(kind: &Kind) -> Option<Walk> {
    match kind.plural {
        "endpoints" => Some(walk_endpoints),
        "endpointslices" => Some(walk_slice),
        _ => None,
    }
}

fn walk_endpoints(endpoints: &Value, see: &mut dyn FnMut(&Path<'_>, &str)) {
    let subsets = Path::Root("subsets");
    for (index, subset) in endpoints.items("subsets").iter().enumerate() {
        let path = subsets.index(index);
        for list in ["addresses", "notReadyAddresses"] {
            let path = path.child(list);
            for (index, address) in subset.items(list).iter().enumerate() {
                see(&path.index(index).child("ip"), address.text("ip"));
            }
        }
    }
}

fn walk_slice(slice: &Value, see: &mut dyn FnMut(&Path<'_>, &str)) {
    let endpoints = Path::Root("endpoints");
    for (index, endpoint) in slice.items("endpoints").iter().enumerate() {
        let path = endpoints.index(index);
        let path = path.child("addresses");
        for (index, address) in endpoint.items("addresses").iter().enumerate() {
            see(&path.index(index), address.as_str().unwrap_or_default());
        }
    }
}

/// Warns of addresses of `new` that `old` does not have and that have an owner, at their first path.
fn warn(walk: Walk, new: &Value, old: Option<&Value>, owner: impl Fn(IpAddr) -> Option<String>, out: &mut Vec<String>) {
    let mut known = HashSet::new();
    if let Some(old) = old {
        walk(old, &mut |_, text| known.extend(ip::parse_lenient(text)));
    }
    let mut found = 0_usize;
    walk(new, &mut |path, text| {
        let Some(address) = ip::parse_lenient(text).filter(|address| known.insert(*address)) else { return };
        let Some(service) = owner(address) else { return };
        found += 1;
        if found <= MAX_LISTED {
            out.push(format!(
                "{path}: {address} is the cluster IP of Service {service}; it will not be used as an endpoint"
            ));
        }
    });
    if found > MAX_LISTED {
        out.push(format!("and {} more: cluster IPs of Services will not be used as endpoints", found - MAX_LISTED));
    }
}

#[cfg(test)]
mod tests {
    use api::kinds::{endpoints, endpointslice, service};
    use serde_json::json;

    use super::*;

    /// The warnings of a change on a cluster whose Services have the addresses 10.96.0.0/16 and fd00::/16.
    fn said(kind: &Kind, new: &Value, old: Option<&Value>) -> Vec<String> {
        let owner = |address: IpAddr| {
            let text = address.to_string();
            (text.starts_with("10.96.") || text.starts_with("fd00:")).then(|| "default/web".to_owned())
        };
        let mut out = Vec::new();
        warn(walk_of(kind).unwrap(), new, old, owner, &mut out);
        out
    }

    fn text(place: &str, address: &str) -> String {
        format!("{place}: {address} is the cluster IP of Service default/web; it will not be used as an endpoint")
    }

    fn slice(addresses: &[&str]) -> Value {
        let endpoints: Vec<Value> = addresses.iter().map(|address| json!({"addresses": [address]})).collect();
        json!({"endpoints": endpoints})
    }

    #[test]
    fn cluster_ips_are_found_in_all_fields() {
        let object = json!({"subsets": [
            {"addresses": [{"ip": "10.0.0.1"}, {"ip": "10.96.0.10"}]},
            {"notReadyAddresses": [{"ip": "10.96.0.11"}]},
        ]});
        let wanted = [
            text("subsets[0].addresses[1].ip", "10.96.0.10"),
            text("subsets[1].notReadyAddresses[0].ip", "10.96.0.11"),
        ];
        assert_eq!(said(&endpoints::KIND, &object, None), wanted);
        let object = json!({"endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2", "10.96.0.10"]}]});
        assert_eq!(said(&endpointslice::KIND, &object, None), [text("endpoints[1].addresses[1]", "10.96.0.10")]);
    }

    #[test]
    fn spellings_of_one_address_are_one_address() {
        let object = slice(&["010.96.0.010", "::ffff:10.96.0.10", "FD00:0::1", "fd00::1"]);
        let wanted = [text("endpoints[0].addresses[0]", "10.96.0.10"), text("endpoints[2].addresses[0]", "fd00::1")];
        assert_eq!(said(&endpointslice::KIND, &object, None), wanted);
    }

    #[test]
    fn only_new_addresses_cause_warnings() {
        let old = slice(&["10.96.0.10"]);
        let new = slice(&["10.96.0.11", "10.96.0.10"]);
        assert_eq!(said(&endpointslice::KIND, &new, Some(&old)), [text("endpoints[0].addresses[0]", "10.96.0.11")]);
        assert!(said(&endpointslice::KIND, &new, Some(&new)).is_empty());
    }

    #[test]
    fn five_are_named_and_the_rest_counted() {
        let all: Vec<String> = (1..=7).map(|last| format!("10.96.0.{last}")).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        assert_eq!(said(&endpointslice::KIND, &slice(&all[..5]), None).len(), 5);
        let many = said(&endpointslice::KIND, &slice(&all), None);
        assert_eq!(many.len(), 6);
        assert_eq!(many[4], text("endpoints[4].addresses[0]", "10.96.0.5"));
        assert_eq!(many[5], "and 2 more: cluster IPs of Services will not be used as endpoints");
    }

    #[test]
    fn other_kinds_and_odd_shapes_cost_nothing() {
        assert!(walk_of(&service::KIND).is_none());
        let odd =
            json!({"endpoints": [{}, null, {"addresses": ["example.com", 7]}], "subsets": [1, {"addresses": [{}]}]});
        assert!(said(&endpoints::KIND, &odd, None).is_empty());
        assert!(said(&endpointslice::KIND, &odd, Some(&odd)).is_empty());
    }
}
