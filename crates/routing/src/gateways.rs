//! The state of a Gateway as a whole, without its listeners: parameters and addresses.
//!
//! The addresses of a Gateway are those of its Service: it is programmed when that has them.

use std::net::IpAddr;

use api::ip::parse_lenient;
use api::view::Service;
use api::view::gateway_api::{GatewayAddress, GatewaySpec};

use crate::cluster::{Address, Verdict};

/// The type of addresses that can be requested.
const IP_ADDRESS: &str = "IPAddress";

/// Why a Gateway is not accepted, whatever its listeners are.
pub(crate) fn refusal(spec: &GatewaySpec, class_accepted: bool) -> Option<Verdict> {
    if !class_accepted {
        let message = format!("GatewayClass \"{}\" is not accepted", spec.gateway_class_name);
        return Some(Verdict::bad("Invalid", message));
    }
    if let Some(parameters) = &spec.infrastructure.parameters_ref {
        let message = format!(
            "spec.infrastructure.parametersRef: {}/{} is not a kind of parameters; remove the reference",
            parameters.group, parameters.kind
        );
        return Some(Verdict::bad("InvalidParameters", message));
    }
    let unsupported = spec.addresses.iter().find(|address| !is_supported(address))?;
    let kind = unsupported.kind.as_deref().unwrap_or_default();
    let message = format!("Addresses of type \"{kind}\" are not supported; use {IP_ADDRESS}");
    Some(Verdict::bad("UnsupportedAddress", message))
}

fn is_supported(address: &GatewayAddress) -> bool {
    address.kind.as_deref().is_none_or(|kind| kind == IP_ADDRESS)
}

/// What became of the addresses of a Gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Addresses {
    /// The addresses it has.
    pub(crate) list: Vec<Address>,
    /// Condition `AddressesAssigned`.
    pub(crate) assigned: Verdict,
    /// Why it is not programmed.
    pub(crate) problem: Option<Verdict>,
}

/// Compares the requested addresses with those of the Service.
pub(crate) fn addresses(requested: &[GatewayAddress], service: Option<&Service>) -> Addresses {
    let ingress = service.into_iter().flat_map(|service| &service.status.load_balancer.ingress);
    let have: Vec<&str> = ingress.map(|ingress| &*ingress.ip).filter(|ip| !ip.is_empty()).collect();
    let parsed: Vec<IpAddr> = have.iter().filter_map(|text| parse_lenient(text)).collect();
    let values = requested.iter().filter_map(|address| address.value.as_deref()).filter(|value| !value.is_empty());
    let missing: Vec<&str> =
        values.filter(|value| parse_lenient(value).is_none_or(|address| !parsed.contains(&address))).collect();
    let list = have.iter().map(|text| Address { kind: IP_ADDRESS, value: (*text).into() }).collect();
    let (assigned, problem) = if !missing.is_empty() {
        let message = format!("Not available: {}", missing.join(", "));
        let reason = if have.is_empty() { "NotAssigned" } else { "PartiallyAssigned" };
        (Verdict::bad(reason, message.clone()), Some(Verdict::bad("AddressNotUsable", message)))
    } else if have.is_empty() {
        let message = "The Service of the Gateway has no load-balancer address yet";
        (Verdict::bad("NotAssigned", message), Some(Verdict::bad("AddressNotAssigned", message)))
    } else {
        (Verdict::good("AddressesAssigned", "All addresses are assigned"), None)
    };
    Addresses { list, assigned, problem }
}
