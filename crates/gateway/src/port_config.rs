//! Configuration and state of one port of a Service. Connections read it without locks; the worker of the Service
//! updates it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderValue;
use rustls::ServerConfig;
use tokio::sync::watch;

use crate::annotations::{ClientProtocol, Mode, Port};
use crate::balance::Backends;
use crate::limits::Limits;
use crate::metrics::ServiceMetrics;
use crate::source_ranges::SourceRanges;
use crate::tls::{Certificate, UpstreamTls, server_config};

/// Configuration and state of one port.
pub(crate) struct PortConfig {
    /// `namespace/name` of the Service.
    pub(crate) service: Box<str>,
    /// `name.namespace.svc`, the Host header of requests without one.
    pub(crate) service_name: Box<str>,
    pub(crate) port: Port,
    pub(crate) limits: Limits,
    /// TLS configuration towards clients.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// TLS configurations towards pods.
    pub(crate) upstream_tls: UpstreamTls,
    pub(crate) backends: ArcSwap<Backends>,
    pub(crate) sources: ArcSwap<SourceRanges>,
    /// Values of `X-Forwarded-Port` and `X-Forwarded-Proto`.
    pub(crate) forwarded: (HeaderValue, HeaderValue),
    /// Whether connections should close.
    closing: watch::Sender<bool>,
    open: AtomicUsize,
    pub(crate) metrics: Arc<ServiceMetrics>,
}

/// Counts an open connection until it is dropped.
pub(crate) struct ConnectionGuard(Arc<PortConfig>);

impl PortConfig {
    /// # Errors
    /// When the TLS configuration is invalid, which is a bug.
    pub(crate) fn new(
        service: &str,
        port: Port,
        limits: Limits,
        certificate: &Arc<Certificate>,
        upstream_tls: &UpstreamTls,
    ) -> Result<Self, rustls::Error> {
        let tls = match port.front {
            ClientProtocol::Tls => Some(server_config(Arc::clone(certificate), port.mode)?),
            ClientProtocol::Plain => None,
        };
        let proto = HeaderValue::from_static(if tls.is_some() { "https" } else { "http" });
        let (namespace, name) = service.split_once('/').unwrap_or(("", service));
        Ok(Self {
            service: service.into(),
            service_name: format!("{name}.{namespace}.svc").into(),
            forwarded: (HeaderValue::from(port.number), proto),
            port,
            limits,
            tls,
            upstream_tls: upstream_tls.clone(),
            backends: ArcSwap::default(),
            sources: ArcSwap::default(),
            closing: watch::Sender::new(false),
            open: AtomicUsize::new(0),
            metrics: Arc::default(),
        })
    }

    /// Idle timeout.
    pub(crate) fn idle(&self) -> Duration {
        let usual = match self.port.mode {
            Mode::Http => self.limits.http_idle,
            Mode::Tcp => self.limits.tcp_idle,
        };
        self.port.idle.unwrap_or(usual)
    }

    /// Idle timeout of an upgraded connection.
    pub(crate) fn tcp_idle(&self) -> Duration {
        self.port.idle.unwrap_or(self.limits.tcp_idle)
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
