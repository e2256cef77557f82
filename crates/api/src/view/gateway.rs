//! Which ports of a load balancer the gateway serves: all ports of the Service of a Gateway or an IngressClass, otherwise by
//! the annotations of AWS load balancers. The proxy and the gateway decide by the same functions.

use super::Protocol;
use super::annotations::{BACKEND_PROTOCOL, GATEWAY, GATEWAY_OF_CLASS, PROXY_PROTOCOL, SSL_CERT, SSL_PORTS};
use super::service::{CLASSES, Service, ServicePort};

impl Service {
    /// Whether its load balancer is implemented here.
    #[must_use]
    pub fn has_own_load_balancer(&self) -> bool {
        self.is_load_balancer()
            && self.spec.load_balancer_class.as_deref().is_none_or(|class| CLASSES.contains(&class))
            && self.proxy_name().is_none()
    }

    /// The name of the Gateway or the IngressClass whose Service it is; its endpoints are those of the routes or the
    /// Ingresses.
    #[must_use]
    pub fn gateway(&self) -> Option<&str> {
        self.metadata.annotation(GATEWAY).or_else(|| self.ingress_class())
    }

    /// The name of the IngressClass whose Service it is.
    #[must_use]
    pub fn ingress_class(&self) -> Option<&str> {
        self.metadata.annotation(GATEWAY_OF_CLASS).filter(|_| self.metadata.annotation(GATEWAY).is_none())
    }

    /// Whether clients of its load balancer use TLS on a port.
    #[must_use]
    pub fn has_tls(&self, port: &ServicePort) -> bool {
        self.metadata.annotation(SSL_CERT).is_some() && lists(self.metadata.annotation(SSL_PORTS), port)
    }

    /// Whether the load-balancer addresses of a port belong to the gateway: connections must not reach Pods without
    /// passing it, even where none runs.
    #[must_use]
    pub fn uses_gateway(&self, port: &ServicePort) -> bool {
        let annotation = |key| self.metadata.annotation(key);
        let is_annotated = || {
            self.has_tls(port)
                || annotation(PROXY_PROTOCOL) == Some("*")
                || annotation(BACKEND_PROTOCOL).is_some_and(|protocol| protocol.eq_ignore_ascii_case("http"))
        };
        let is_served = match self.gateway() {
            Some(_) => matches!(port.protocol, Some(Protocol::Tcp | Protocol::Udp)),
            None => port.is_tcp() && is_annotated(),
        };
        port.port > 0 && is_served && self.has_own_load_balancer()
    }
}

/// Whether a list of ports contains this one.
fn lists(list: Option<&str>, port: &ServicePort) -> bool {
    let Some(list) = list.filter(|list| *list != "*") else { return true };
    list.split(',').map(str::trim).any(|word| match word.parse::<u16>() {
        Ok(number) => number == port.port,
        Err(_) => !word.is_empty() && word.eq_ignore_ascii_case(&port.name),
    })
}
