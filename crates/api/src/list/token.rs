//! Continue tokens: the position after a page of a list, as an opaque string for clients.
//!
//! URL-safe base64 without padding of `{"v":"meta.k8s.io/v1","rv":7,"start":"ns/name\u0000"}`. Clients may send
//! anything, so a token is validated, and errors have the messages of Kubernetes.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde_json::Value;

use crate::patch::mismatch;
use crate::status::Status;

const VERSION: &str = "meta.k8s.io/v1";

/// Where a list continues.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Continue {
    /// The version of the store that the list shows; −1: whatever is there now.
    pub version: i64,
    /// The first key, relative to the prefix of the list. A key followed by a zero byte is the next possible key
    /// after it.
    pub start: String,
}

impl Continue {
    /// The token.
    #[must_use]
    pub fn encode(&self) -> String {
        #[derive(Serialize)]
        struct Token<'a> {
            v: &'a str,
            rv: i64,
            start: &'a str,
        }
        // Numbers and strings always have a JSON form.
        let json = serde_json::to_vec(&Token { v: VERSION, rv: self.version, start: &self.start }).unwrap_or_default();
        URL_SAFE_NO_PAD.encode(json)
    }

    /// Reads a token.
    ///
    /// # Errors
    /// 400, when it is none.
    pub fn decode(text: &str) -> Result<Self, Status> {
        let bad =
            |why: String| Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
        let json = decode_base64(text).map_err(|at| bad(format!("illegal base64 data at input byte {at}")))?;
        let (format, version, start) = read(&json).map_err(bad)?;
        if format != VERSION {
            return Err(bad(format!("server does not recognize this encoded version {format}")));
        }
        if version == 0 {
            return Err(bad(format!("incorrect encoded start resourceVersion (version {VERSION})")));
        }
        if start.is_empty() {
            return Err(bad(format!("encoded start key empty (version {VERSION})")));
        }
        // A key must not climb out of its list.
        let key = start.strip_prefix('/').unwrap_or(&start);
        if !key.is_empty() && key.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(bad(start));
        }
        Ok(Self { version, start: key.to_owned() })
    }
}

/// The bytes, or where the text stops to make sense. The library is more exact than Kubernetes about the bits that
/// are left over, and counts errors otherwise.
pub(super) fn decode_base64(text: &str) -> Result<Vec<u8>, usize> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let (mut bits, mut held) = (0_u32, 0_usize);
    for (index, byte) in text.bytes().enumerate() {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            b'\r' | b'\n' => continue,
            _ => return Err(index),
        };
        bits = bits << 6 | u32::from(digit);
        held += 1;
        if held == 4 {
            out.extend_from_slice(&bits.to_be_bytes()[1..]);
            (bits, held) = (0, 0);
        }
    }
    match held {
        1 => return Err(text.len() - 1),
        2 => out.push((bits >> 4).to_be_bytes()[3]),
        3 => out.extend_from_slice(&(bits >> 2).to_be_bytes()[2..]),
        _ => {}
    }
    Ok(out)
}

/// The three members, or the error of Go's decoder.
fn read(json: &[u8]) -> Result<(String, i64, String), String> {
    let value: Value = serde_json::from_slice(json).map_err(|error| {
        let found = json.get(error.column().saturating_sub(1)).copied().unwrap_or_default();
        if error.is_eof() {
            "unexpected end of JSON input".to_owned()
        } else {
            format!("invalid character {:?} looking for beginning of value", char::from(found))
        }
    })?;
    let (mut format, mut version, mut start) = (String::new(), 0, String::new());
    let map = match value {
        Value::Null => return Ok((format, version, start)),
        Value::Object(map) => map,
        other => return Err(mismatch(&other, "value of type storage.continueToken")),
    };
    for (name, member) in map {
        match (name.as_str(), member) {
            (_, Value::Null) => {}
            ("v", Value::String(text)) => format = text,
            ("start", Value::String(text)) => start = text,
            ("rv", Value::Number(number)) => match number.as_i64() {
                Some(number) => version = number,
                None => {
                    let target = "Go struct field continueToken.rv of type int64";
                    return Err(format!("json: cannot unmarshal number {number} into {target}"));
                }
            },
            ("rv", other) => return Err(mismatch(&other, "struct field continueToken.rv of type int64")),
            (name @ ("v" | "start"), other) => {
                return Err(mismatch(&other, &format!("struct field continueToken.{name} of type string")));
            }
            _ => {}
        }
    }
    Ok((format, version, start))
}
