//! TLS of QUIC connections: the listener is selected by the server name of the ClientHello, as it is at that moment.
//!
//! In: handshake messages. Out: a session of rustls with the TLS configuration of the listener, so that certificates, certificates of clients
//! and session tickets are those of its TCP connections. The protocol is HTTP/3, without 0-RTT: such requests could be replayed.

use std::any::Any;
use std::sync::Arc;

use quinn::crypto::rustls::QuicServerConfig;
use quinn::crypto::{
    ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, ServerConfig, Session, UnsupportedVersion,
};
use quinn::{ConnectionId, Side, TransportErrorCode};
use quinn_proto::TransportError;
use quinn_proto::transport_parameters::TransportParameters;
use rustls::AlertDescription;

use crate::annotations::Mode;
use crate::port_config::{PortConfig, Serving};
use crate::routes::{ClientHello, RoutedListener};
use crate::tls::{frontend, server_config};

/// Longest ClientHello in bytes; a record of TLS, as which it is read, has room for it.
const MAX_HELLO: usize = 16 * 1024;

/// Begins the TLS of connections to a port.
pub(super) struct HelloReader {
    port_config: Arc<PortConfig>,
    /// Keys of packets before TLS; without certificates.
    initial: Arc<QuicServerConfig>,
}

/// What a ClientHello has selected.
pub(super) struct Selected {
    pub(super) listener: Arc<RoutedListener>,
    /// In lower case.
    pub(super) server_name: Option<String>,
}

impl HelloReader {
    /// # Errors
    /// When rustls rejects the settings, which is a bug.
    pub(super) fn new(port_config: Arc<PortConfig>) -> Result<Self, rustls::Error> {
        let config = server_config(Arc::default(), Mode::Tcp)?;
        let initial = QuicServerConfig::try_from(config).map_err(|error| rustls::Error::General(error.to_string()))?;
        Ok(Self { port_config, initial: Arc::new(initial) })
    }

    /// The listener of a server name, and its TLS.
    fn select(&self, server_name: Option<&str>) -> Option<(Arc<RoutedListener>, Arc<QuicServerConfig>)> {
        let Serving::Routes(port) = &self.port_config.serving else { return None };
        let listener = Arc::clone(port.table.load().https(server_name)?);
        let tls = listener.tls.load_full()?;
        let config = frontend::for_http3(&tls);
        Some((listener, Arc::new(QuicServerConfig::try_from(config).ok()?)))
    }
}

impl ServerConfig for HelloReader {
    fn initial_keys(&self, version: u32, id: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        self.initial.initial_keys(version, id)
    }

    fn retry_tag(&self, version: u32, id: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.initial.retry_tag(version, id, packet)
    }

    fn start_session(self: Arc<Self>, version: u32, parameters: &TransportParameters) -> Box<dyn Session> {
        let initial = Arc::clone(&self.initial).start_session(version, parameters);
        let awaited = Awaited { reader: self, version, parameters: *parameters, message: Vec::new() };
        Box::new(Handshake { session: initial, awaited: Some(awaited), selected: None })
    }
}

/// A TLS session whose configuration is selected by its first message.
struct Handshake {
    /// Until then one that never receives a message.
    session: Box<dyn Session>,
    awaited: Option<Awaited>,
    selected: Option<Arc<Selected>>,
}

/// A ClientHello that is not complete.
struct Awaited {
    reader: Arc<HelloReader>,
    version: u32,
    parameters: TransportParameters,
    message: Vec<u8>,
}

impl Awaited {
    /// Whether the message is complete: a type, a length of three bytes, and as many.
    fn is_complete(&self) -> Result<bool, TransportError> {
        let Some([_, a, b, c]) = self.message.first_chunk() else { return Ok(false) };
        let length = 4 + u32::from_be_bytes([0, *a, *b, *c]) as usize;
        if length > MAX_HELLO {
            return Err(alert(AlertDescription::IllegalParameter, "the ClientHello is too long"));
        }
        Ok(self.message.len() >= length)
    }

    fn select(&self) -> Result<(Box<dyn Session>, Selected), TransportError> {
        let hello = ClientHello::of_message(&self.message)
            .map_err(|_| alert(AlertDescription::DecodeError, "the ClientHello is invalid"))?;
        let found = self.reader.select(hello.server_name.as_deref());
        let (listener, config) =
            found.ok_or_else(|| alert(AlertDescription::UnrecognisedName, "no listener has this server name"))?;
        let session = config.start_session(self.version, &self.parameters);
        Ok((session, Selected { listener, server_name: hello.server_name }))
    }
}

fn alert(description: AlertDescription, reason: &str) -> TransportError {
    TransportError { code: TransportErrorCode::crypto(description.into()), frame: None, reason: reason.to_owned() }
}

impl Session for Handshake {
    fn initial_keys(&self, id: &ConnectionId, side: Side) -> Keys {
        self.session.initial_keys(id, side)
    }

    /// What was selected, as [`Selected`] in an [`Arc`].
    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.selected.as_ref().map(|selected| Box::new(Arc::clone(selected)) as _)
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.session.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.session.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.session.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    fn read_handshake(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        let Some(awaited) = &mut self.awaited else { return self.session.read_handshake(bytes) };
        awaited.message.extend_from_slice(bytes);
        if !awaited.is_complete()? {
            return Ok(false);
        }
        let (mut session, selected) = awaited.select()?;
        let is_ready = session.read_handshake(&awaited.message)?;
        (self.session, self.selected, self.awaited) = (session, Some(Arc::new(selected)), None);
        Ok(is_ready)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.session.transport_parameters()
    }

    fn write_handshake(&mut self, buffer: &mut Vec<u8>) -> Option<Keys> {
        self.session.write_handshake(buffer)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.session.next_1rtt_keys()
    }

    fn is_valid_retry(&self, id: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.session.is_valid_retry(id, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.session.export_keying_material(output, label, context)
    }
}
