//! Why a webhook gave no response, with the messages of Go's HTTP client.

use std::io;
use std::net::SocketAddr;

use api::field::quote;
use client::http::full;
use rustls::CertificateError;
use thiserror::Error;

use crate::service_backends::NoPort;

/// Why there is no response.
#[derive(Debug, Error)]
pub(super) enum ExchangeError {
    #[error("service {} not found", quote(.0))]
    NoService(String),
    #[error(transparent)]
    NoPort(#[from] NoPort),
    #[error("no endpoints available for service {}", quote(.0))]
    NoEndpoints(String),
    #[error("dial tcp: lookup {0}: no such host")]
    NoHost(String),
    #[error("dial tcp {address}: not allowed: {reason}")]
    NotAllowed { address: SocketAddr, reason: &'static str },
    #[error("no address to dial")]
    NoAddress,
    #[error("dial tcp {address}: connect: {}", connect_message(.source))]
    Connect { address: SocketAddr, source: io::Error },
    #[error("tls: the server name is invalid")]
    ServerName,
    #[error("{}", handshake_message(.0))]
    Handshake(io::Error),
    #[error("{}", full(.0))]
    Http(#[from] hyper::Error),
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error("unexpected error when reading response body: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    #[error("context deadline exceeded")]
    Timeout,
}

fn handshake_message(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let why = match inner {
        Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature)) => {
            "certificate signed by unknown authority".to_owned()
        }
        Some(rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => "certificate has expired or is not yet valid".to_owned(),
        Some(rustls::Error::InvalidCertificate(error)) => error.to_string(),
        Some(error) => return format!("tls: {error}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof => return "EOF".to_owned(),
        None => return format!("tls: {error}"),
    };
    format!("tls: failed to verify certificate: x509: {why}")
}

fn connect_message(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "connection reset by peer".to_owned(),
        io::ErrorKind::HostUnreachable => "no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "network is unreachable".to_owned(),
        io::ErrorKind::TimedOut => "connection timed out".to_owned(),
        _ => error.to_string(),
    }
}
