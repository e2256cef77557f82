//! Configuration and state of one bound port: of a Service, or of a Gateway. Connections read it without locks; its
//! owner (the worker of the Service, or the controller of routes) updates it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderValue;
use ipnet::IpNet;
use rustls::ServerConfig;
use tokio::sync::watch;

use crate::access_log::{AccessLog, LoggedConnection};
use crate::annotations::{BackendProtocol, ClientProtocol, Port};
use crate::clock::Clock;
use crate::limits::Limits;
use crate::metrics::ServiceMetrics;
use crate::routes::RoutedPort;
use crate::source_ranges::SourceRanges;
use crate::tls::{Certificate, UpstreamTls, server_config};
use crate::upstream::{Counters, Upstream};

/// Configuration and state of one port.
pub(crate) struct PortConfig {
    /// `namespace/name` of the Service.
    pub(crate) service: Box<str>,
    /// Its number in the Service.
    pub(crate) number: u16,
    pub(crate) limits: Limits,
    /// Idle timeout, if configured.
    idle: Option<Duration>,
    pub(crate) serving: Serving,
    pub(crate) sources: ArcSwap<SourceRanges>,
    /// Proxies whose connections begin with a PROXY protocol header.
    pub(crate) proxies: ArcSwap<Vec<IpNet>>,
    /// Whether connections should close.
    closing: watch::Sender<bool>,
    open: AtomicUsize,
    pub(crate) metrics: Arc<ServiceMetrics>,
    pub(crate) access_log: Option<Arc<AccessLog>>,
}

/// What connections of a port lead to.
pub(crate) enum Serving {
    /// The pods of a Service, as its annotations say.
    Service(Box<ServicePort>),
    /// The backends of routes.
    Routes(Box<RoutedPort>),
}

/// Port of a Service with annotations.
pub(crate) struct ServicePort {
    pub(crate) port: Port,
    /// `name.namespace.svc`, the Host header of requests without one.
    pub(crate) default_host: Box<str>,
    /// Values of `X-Forwarded-Port` and `X-Forwarded-Proto`.
    pub(crate) forwarded: (HeaderValue, HeaderValue),
    /// TLS configuration towards clients.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) upstream: Arc<Upstream>,
}

/// Counts an open connection until it is dropped.
pub(crate) struct ConnectionGuard(Arc<PortConfig>);

impl PortConfig {
    /// Port of a Service with annotations.
    ///
    /// # Errors
    /// When the TLS configuration is invalid, which is a bug.
    pub(crate) fn of_service(
        service: &str,
        port: Port,
        limits: Limits,
        certificate: &Arc<Certificate>,
        upstream_tls: &Arc<UpstreamTls>,
        metrics: Arc<ServiceMetrics>,
    ) -> Result<Self, rustls::Error> {
        let tls = match port.front {
            ClientProtocol::Tls => Some(server_config(Arc::clone(certificate), port.mode)?),
            ClientProtocol::Plain => None,
        };
        let proto = HeaderValue::from_static(if tls.is_some() { "https" } else { "http" });
        let (namespace, name) = service.split_once('/').unwrap_or(("", service));
        let back = (port.back == BackendProtocol::Tls).then(|| Arc::clone(upstream_tls));
        let (number, idle) = (port.number, port.idle);
        let counters = Counters { failures: Arc::clone(&metrics.upstream), health: Arc::clone(&metrics.health) };
        let serving = ServicePort {
            default_host: format!("{name}.{namespace}.svc").into(),
            forwarded: (HeaderValue::from(number), proto),
            tls,
            upstream: Arc::new(Upstream::new(service, port.h2, limits, back, counters, Clock::default())),
            port,
        };
        Ok(Self::new(service, number, (limits, idle), Serving::Service(Box::new(serving)), metrics))
    }

    pub(crate) fn new(
        service: &str,
        number: u16,
        (limits, idle): (Limits, Option<Duration>),
        serving: Serving,
        metrics: Arc<ServiceMetrics>,
    ) -> Self {
        Self {
            service: service.into(),
            number,
            limits,
            idle,
            serving,
            sources: ArcSwap::default(),
            proxies: ArcSwap::default(),
            closing: watch::Sender::new(false),
            open: AtomicUsize::new(0),
            metrics,
            access_log: None,
        }
    }

    /// The port of a Service with annotations.
    pub(crate) fn service_port(&self) -> Option<&ServicePort> {
        match &self.serving {
            Serving::Service(port) => Some(port),
            Serving::Routes(_) => None,
        }
    }

    /// What the access log is to know of a connection; none without a log.
    pub(crate) fn logged(&self, client: SocketAddr) -> Option<LoggedConnection> {
        let log = self.access_log.as_ref()?;
        let (gateway, service) = match &self.serving {
            Serving::Service(_) => (None, None),
            Serving::Routes(port) => (port.gateway().cloned(), port.service().map(|service| Arc::clone(&service.key))),
        };
        let logged = LoggedConnection::new(Arc::clone(log), client, self.number, gateway);
        Some(match service {
            Some(service) => logged.to_service(service),
            None => logged,
        })
    }

    /// Idle timeout of requests, responses and keep-alive connections.
    pub(crate) fn idle(&self) -> Duration {
        self.idle.unwrap_or(self.limits.http_idle)
    }

    /// Idle timeout of TCP connections and upgraded ones.
    pub(crate) fn tcp_idle(&self) -> Duration {
        self.idle.unwrap_or(self.limits.tcp_idle)
    }

    /// Whether connections from this address begin with a PROXY protocol header.
    pub(crate) fn is_proxy(&self, peer: IpAddr) -> bool {
        self.proxies.load().iter().any(|range| range.contains(&peer.to_canonical()))
    }

    /// Registers a connection; `None` if the limit is reached.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<ConnectionGuard> {
        let guard = ConnectionGuard(Arc::clone(self));
        self.metrics.connection_opened();
        (self.open.fetch_add(1, Relaxed) < self.limits.connections).then_some(guard)
    }

    /// Number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// Signals connections to close gracefully.
    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Whether connections should close.
    pub(crate) fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// Notifies connections that should close.
    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }
}

impl std::ops::Deref for ConnectionGuard {
    type Target = Arc<PortConfig>;

    fn deref(&self) -> &Arc<PortConfig> {
        &self.0
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
        self.0.metrics.connection_closed();
    }
}

/// Waits until connections should close.
pub(crate) async fn until_closing(closing: &mut watch::Receiver<bool>) {
    // A dropped sender means closing, too.
    let _ = closing.wait_for(|is_closing| *is_closing).await;
}
