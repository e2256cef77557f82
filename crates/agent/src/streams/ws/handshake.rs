//! The WebSocket handshake: upgrade request, subprotocols, `Sec-WebSocket-Accept`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::{CONNECTION, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// The GUID of RFC 6455, 1.3.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Whether a request is an upgrade to this protocol.
#[must_use]
pub fn wants(headers: &HeaderMap, protocol: &str) -> bool {
    listed(headers, &CONNECTION).any(|word| word.eq_ignore_ascii_case("upgrade"))
        && listed(headers, &UPGRADE).any(|word| word.eq_ignore_ascii_case(protocol))
}

/// The offered subprotocols, the preferred one first.
#[must_use]
pub fn offered(headers: &HeaderMap) -> Vec<String> {
    listed(headers, &SEC_WEBSOCKET_PROTOCOL).map(str::to_owned).collect()
}

/// The value of `Sec-WebSocket-Accept`.
///
/// # Errors
/// When the request is invalid; the message for the client.
pub fn accept(headers: &HeaderMap) -> Result<String, &'static str> {
    if !listed(headers, &SEC_WEBSOCKET_VERSION).any(|version| version == "13") {
        return Err("the version of WebSocket must be 13");
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).ok_or("the key of the WebSocket handshake is missing")?;
    if STANDARD.decode(key.as_bytes()).map_or(0, |key| key.len()) != 16 {
        return Err("the key of the WebSocket handshake is not 16 bytes in base64");
    }
    let text = [key.as_bytes(), GUID.as_bytes()].concat();
    Ok(STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &text)))
}

/// The elements of a comma-separated header.
pub(crate) fn listed(headers: &HeaderMap, name: impl http::header::AsHeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|word| !word.is_empty())
}
