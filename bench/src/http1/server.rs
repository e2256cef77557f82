//! The server of both clients: that of the benchmark `lb`, on loopback, with or without TLS.
//!
//! In: connections. Out: the same answer to each request. It has a thread for itself, so that its work is not counted as that of a client.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::Context as _;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ClientConfig, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::lb::load;
use crate::lb::pod::answer;
use crate::lb::stage::HOST;

/// A server that listens.
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    /// The configuration of its clients, when it uses TLS.
    pub tls: Option<Arc<ClientConfig>>,
}

impl Server {
    /// Starts it on a thread that ends with the program.
    ///
    /// # Errors
    /// When it cannot listen.
    pub fn start(tls: bool) -> anyhow::Result<Self> {
        let (acceptor, tls) = match tls {
            true => certificate().map(|(server, client)| (Some(TlsAcceptor::from(server)), Some(client)))?,
            false => (None, None),
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listening on loopback")?;
        let address = listener.local_addr().context("reading the address of a listener")?;
        listener.set_nonblocking(true).context("listening on loopback")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let serve = async move {
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    match acceptor {
                        None => answer(stream).await,
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                answer(stream).await;
                            }
                        }
                    }
                });
            }
        };
        std::thread::Builder::new().name("server".to_owned()).spawn(move || runtime.block_on(serve))?;
        Ok(Self { address, tls })
    }
}

/// A new certificate: the server's side, and that of its clients.
fn certificate() -> anyhow::Result<(Arc<ServerConfig>, Arc<ClientConfig>)> {
    let key = KeyPair::generate().context("making a key")?;
    let certificate = CertificateParams::new(vec![HOST.to_owned()])?.self_signed(&key)?.der().clone();
    let client = load::trusting(certificate.clone())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(|why| anyhow::anyhow!("making a key: {why}"))?;
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut server = builder.with_no_client_auth().with_single_cert(vec![certificate], key)?;
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((Arc::new(server), client))
}
