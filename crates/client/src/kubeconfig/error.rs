//! Why a kubeconfig cannot be used.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use api::yaml::YamlError;
use rustls::pki_types::{InvalidDnsNameError, pem};

use crate::tls::RootsError;

/// Why a kubeconfig cannot be used. A first text is the field.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// It is not YAML.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// The caller cannot use its entries.
    #[error(transparent)]
    Entries(Box<dyn Error + Send + Sync>),
    /// No context is selected.
    #[error("it has no current-context")]
    NoCurrentContext,
    /// A list has no entry of this name.
    #[error("`{name}` is not among its {list}")]
    NoEntry {
        /// The list.
        list: &'static str,
        /// The name.
        name: String,
    },
    /// The server needs a proxy.
    #[error("proxy-url: a proxy on the way to the server is not supported")]
    Proxy,
    /// The user needs something that is not supported.
    #[error("{key}{}: {why}", name.as_ref().map(|name| format!(" `{name}`")).unwrap_or_default())]
    UnsupportedUser {
        /// The field.
        key: &'static str,
        /// The name of the program or provider.
        name: Option<String>,
        /// The reason, and what to use instead.
        why: &'static str,
    },
    /// The server is not a URL.
    #[error("the server `{0}` is no URL of the form https://host:port")]
    Server(String),
    /// A token or name cannot be sent in a header.
    #[error("a token or name has characters that no header may have")]
    Header,
    /// The token file cannot be read.
    #[error("{path}: {1}", path = .0.display())]
    TokenFile(PathBuf, io::Error),
    /// An embedded certificate or key is not base64.
    #[error("{0}-data: {1}")]
    Base64(&'static str, base64::DecodeError),
    /// The file of a certificate or key cannot be read.
    #[error("{0}: {path}: {2}", path = .1.display())]
    File(&'static str, PathBuf, io::Error),
    /// A certificate or key is not PEM.
    #[error("{0}: {1}")]
    Pem(&'static str, pem::Error),
    /// The name of the server is invalid.
    #[error("tls-server-name: {0}")]
    ServerName(InvalidDnsNameError),
    /// The CA of the cluster cannot be used.
    #[error("certificate-authority: {0}")]
    CertificateAuthority(RootsError),
    /// The CAs of the machine cannot be used.
    #[error(transparent)]
    SystemRoots(#[from] RootsError),
    /// Both a CA and no verification are configured.
    #[error("a certificate-authority and insecure-skip-tls-verify cannot both be had")]
    CaAndInsecure,
    /// The client certificate or its key is missing.
    #[error("client-certificate and client-key belong together, and one is missing")]
    HalfPair,
    /// The client certificate or its key cannot be used.
    #[error("client-certificate: {0}")]
    ClientCertificate(rustls::Error),
    /// The TLS settings are invalid.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}
