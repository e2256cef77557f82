//! Error messages for unsuccessful responses, as in Go clients.

use api::field::quote;
use api::value::ValueExt as _;
use http::StatusCode;
use serde_json::Value;

/// How much of a body is quoted in a message, in characters.
const MAX_SHOWN: usize = 1024;

/// The error text for a status code and its body: the message of a Status object, or the general message for the code.
pub(super) fn told(status: StatusCode, body: &[u8]) -> String {
    let object: Value = serde_json::from_slice(body).unwrap_or_default();
    let message = object.text("message");
    if object.text("kind") == "Status" && !message.is_empty() {
        return message.to_owned();
    }
    let text = String::from_utf8_lossy(body);
    let shown: String = text.trim().chars().take(MAX_SHOWN).collect();
    let shown = if shown.is_empty() { "unknown" } else { &shown };
    let words = match status.as_u16() {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        403 => return shown.to_owned(),
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        406 => "the server was unable to respond with a content type that the client supports",
        409 => "the server reported a conflict",
        415 => "the server was unable to understand the content type that the client supports",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        500.. => {
            return format!("an error on the server ({}) has prevented the request from succeeding", quote(shown));
        }
        code => return format!("the server responded with the status code {code} but did not return more information"),
    };
    words.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_codes_have_messages() {
        let told = |code: u16, body: &str| told(StatusCode::from_u16(code).unwrap(), body.as_bytes());
        assert_eq!(told(404, "404 page not found"), "the server could not find the requested resource");
        assert_eq!(told(500, "oh\n"), "an error on the server (\"oh\") has prevented the request from succeeding");
        assert_eq!(told(403, ""), "unknown");
        assert_eq!(told(302, ""), "the server responded with the status code 302 but did not return more information");
        assert_eq!(told(500, "{\"kind\": \"Status\", \"message\": \"no\"}"), "no");
    }
}
