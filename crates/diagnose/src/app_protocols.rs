//! Services that ask for layer 7 with ports that cannot be served there.
//!
//! Only ports that probably are HTTP count: those whose `appProtocol` is missing, and those with TLS, which does not end at the
//! gateway. A port with another protocol stays at layer 4 as expected.

use api::view::annotations::LAYER_7;
use api::view::service::ServicePort;
use routing::mesh::{is_tls, opts_in};

use crate::finding::{Finding, Level, code};
use crate::model::{Service, port_name};
use crate::words::list;

/// How many ports are named.
const NAMED: usize = 3;

/// The finding for a Service with the annotation.
pub(crate) fn find(service: &Service) -> Option<Finding> {
    if !opts_in(service) {
        return None;
    }
    let finding = |message: String| Finding::new(code::NOT_AT_LAYER_7, message, service.edit()).at(Level::Degraded);
    if service.is_headless() || service.is_external_name() {
        let why = "the Service has no cluster IP, so that its clients use no proxy";
        return Some(finding(format!("annotation {LAYER_7} has no effect: {why}")));
    }
    let named = |fits: fn(&str) -> bool| -> Vec<String> {
        let app = |port: &&ServicePort| fits(port.app_protocol.as_deref().unwrap_or_default());
        service.ports().iter().filter(|port| port.is_tcp()).filter(app).map(port_name).collect()
    };
    let (unknown, with_tls) = (named(str::is_empty), named(is_tls));
    let unknown = (!unknown.is_empty()).then(|| {
        format!("port {} has no appProtocol, such as http, http2, grpc or kubernetes.io/h2c", list(&unknown, NAMED))
    });
    let with_tls = (!with_tls.is_empty()).then(|| {
        format!("the appProtocol of port {} has TLS, which does not end at the gateway", list(&with_tls, NAMED))
    });
    let why: Vec<String> = unknown.into_iter().chain(with_tls).collect();
    (!why.is_empty())
        .then(|| finding(format!("not served at layer 7 in spite of annotation {LAYER_7}: {}", why.join("; "))))
}
