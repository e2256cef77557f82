//! What connections to one port of one Service need to know. Connections read it without locks; the Service's task changes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderValue;
use rustls::ServerConfig;
use tokio::sync::watch;

use crate::balance::Backends;
use crate::limits::Limits;
use crate::metrics::Counts;
use crate::sources::Sources;
use crate::tls::{Back, Certificate, front};
use crate::wanted::{Front, Mode, Port};

/// See the module.
pub(crate) struct Lane {
    /// `namespace/name` of the Service.
    pub(crate) service: Box<str>,
    /// Its name and its namespace, as a host.
    pub(crate) service_name: Box<str>,
    pub(crate) port: Port,
    pub(crate) limits: Limits,
    /// TLS towards clients.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// TLS towards pods.
    pub(crate) back: Back,
    pub(crate) backends: ArcSwap<Backends>,
    pub(crate) sources: ArcSwap<Sources>,
    /// What pods are told of the port and the protocol.
    pub(crate) forwarded: (HeaderValue, HeaderValue),
    /// Whether its connections should come to an end.
    closing: watch::Sender<bool>,
    open: AtomicUsize,
    pub(crate) counts: Arc<Counts>,
}

/// A connection that counts while this lives.
pub(crate) struct Place(Arc<Lane>);

impl Lane {
    /// # Errors
    /// When TLS cannot be had, which would be a fault in the program.
    pub(crate) fn new(
        service: &str,
        port: Port,
        limits: Limits,
        certificate: &Arc<Certificate>,
        back: &Back,
    ) -> Result<Self, rustls::Error> {
        let tls = match port.front {
            Front::Tls => Some(front(Arc::clone(certificate), port.mode)?),
            Front::Plain => None,
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
            back: back.clone(),
            backends: ArcSwap::default(),
            sources: ArcSwap::default(),
            closing: watch::Sender::new(false),
            open: AtomicUsize::new(0),
            counts: Arc::default(),
        })
    }

    /// How long silence may last.
    pub(crate) fn idle(&self) -> Duration {
        let usual = match self.port.mode {
            Mode::Http => self.limits.http_idle,
            Mode::Bytes => self.limits.bytes_idle,
        };
        self.port.idle.unwrap_or(usual)
    }

    /// How long a connection may be silent that has become one of bytes.
    pub(crate) fn bytes_idle(&self) -> Duration {
        self.port.idle.unwrap_or(self.limits.bytes_idle)
    }

    /// A place for a connection more, if there is one.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Place> {
        let place = Place(Arc::clone(self));
        self.counts.entered();
        (self.open.fetch_add(1, Relaxed) < self.limits.connections).then_some(place)
    }

    /// How many connections there are.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// Asks its connections to end when they have done what they are at.
    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Whether they should.
    pub(crate) fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// Waits until they should.
    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }
}

impl std::ops::Deref for Place {
    type Target = Arc<Lane>;

    fn deref(&self) -> &Arc<Lane> {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
        self.0.counts.left();
    }
}

/// Waits until connections should end, or should have ended.
pub(crate) async fn until_closing(closing: &mut watch::Receiver<bool>) {
    // A lane that is gone wants nothing more.
    let _ = closing.wait_for(|is_closing| *is_closing).await;
}
