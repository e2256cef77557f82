//! The endpoints of a Service for connections of the server itself: `services/proxy` and webhooks.
//!
//! In: a Service and one of its ports. Out: addresses of ready Pods of the same namespace that [`crate::dial`] allows: otherwise
//! users who may write EndpointSlices could make the server connect to anything.

use std::net::{IpAddr, SocketAddr};

use api::field::quote;
use api::kinds;
use api::object;
use api::value::ValueExt as _;
use api::view::labels::SERVICE_NAME;
use ipnet::IpNet;
use serde_json::Value;
use store::allocation::Ranges;
use store::{Key, Store, Table};
use thiserror::Error;

use crate::dial::DialPolicy;

/// Looks up Pods and Services.
#[derive(Clone, Copy)]
pub(crate) struct ServiceBackends<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) ranges: &'a Ranges,
    pub(crate) dial: &'a DialPolicy,
}

/// A Service does not have a port.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("no service port {number} found for service {}", quote(.service))]
pub(crate) struct NoPort {
    pub(crate) service: String,
    pub(crate) number: i64,
}

/// The name of a port of a Service, which may be empty.
///
/// # Errors
/// When the Service has no such port.
pub(crate) fn port_name(service: &Value, name: &str, number: i64) -> Result<String, NoPort> {
    let found = service.items("spec.ports").iter().find(|port| port.int("port") == number);
    let missing = || NoPort { service: name.to_owned(), number };
    Ok(found.ok_or_else(missing)?.text("name").to_owned())
}

impl ServiceBackends<'_> {
    /// A Service.
    pub(crate) fn service(&self, namespace: &str, name: &str) -> Option<Value> {
        self.stored(kinds::service::KIND.table, &format!("{namespace}/{name}"))
    }

    /// Ready endpoints of a Service that are Pods of its namespace.
    pub(crate) fn ready(&self, namespace: &str, service: &str, port_name: &str) -> Vec<SocketAddr> {
        let prefix = format!("{namespace}/");
        let Ok(slices) = self.store.range(Table::named("endpointslices"), &prefix, None) else { return Vec::new() };
        let ranges = self.service_ranges();
        let mut out = Vec::new();
        for entry in slices.entries {
            if entry.facts.label(SERVICE_NAME) != Some(service) {
                continue;
            }
            let slice = object::decode_light(&entry.value);
            let ports = slice.items("ports").iter().filter(|port| port.text("name") == port_name);
            for port in ports.filter_map(|port| u16::try_from(port.int("port")).ok()) {
                for endpoint in slice.items("endpoints") {
                    let ready = endpoint.at("conditions.ready").as_bool().unwrap_or(true);
                    let addresses = endpoint.texts("addresses");
                    let of_pod = |address: &&&str| self.is_of_pod(namespace, endpoint.at("targetRef"), address);
                    let address = addresses.iter().find(of_pod).and_then(|text| text.parse::<IpAddr>().ok());
                    let at = address.map(|address| SocketAddr::new(address, port));
                    out.extend(at.filter(|at| ready && self.dial.pod(*at, &ranges).is_ok()));
                }
            }
        }
        out
    }

    fn is_of_pod(&self, namespace: &str, reference: &Value, address: &str) -> bool {
        let same_namespace = matches!(reference.text("namespace"), "") || reference.text("namespace") == namespace;
        if reference.text("kind") != "Pod" || !same_namespace {
            return false;
        }
        let pod = self.stored(kinds::pod::KIND.table, &format!("{namespace}/{}", reference.text("name")));
        pod.is_some_and(|pod| pod.items("status.podIPs").iter().any(|have| have.text("ip") == address))
    }

    /// The Service CIDRs of the command line and of ServiceCIDR objects.
    pub(crate) fn service_ranges(&self) -> Vec<IpNet> {
        let mut ranges = self.ranges.addresses.clone();
        let Ok(found) = self.store.range(Table::named("servicecidrs"), "", None) else { return ranges };
        for entry in found.entries {
            let object = object::decode_light(&entry.value);
            ranges.extend(object.texts("spec.cidrs").iter().filter_map(|range| range.parse::<IpNet>().ok()));
        }
        ranges
    }

    /// An object of a table.
    pub(crate) fn stored(&self, table: &'static str, name: &str) -> Option<Value> {
        let kind = kinds::by_table(table)?;
        let entry = self.store.get(&Key { table: Table::named(table), name: name.into() })?;
        Some(object::decode(kind, &entry.value, entry.modified))
    }
}
