//! Changes of headers: first `remove`, then `set`, then `add`.

use api::view::gateway_api::{Header, HeaderModifier};
use http::header::{HeaderMap, HeaderName, HeaderValue, SET_COOKIE};

use super::BadValue;

/// Headers that frame a message or belong to one connection: the gateway writes them, and others must not.
const FRAMING: [&str; 7] = [
    "connection",
    "content-length",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
];

/// Changes of headers.
#[derive(Debug, Default)]
pub(super) struct Modifier {
    remove: Box<[HeaderName]>,
    set: Box<[(HeaderName, HeaderValue)]>,
    add: Box<[(HeaderName, HeaderValue)]>,
}

impl Modifier {
    pub(super) fn new(given: &HeaderModifier) -> Result<Self, BadValue> {
        Ok(Self {
            remove: given.remove.iter().map(|header| name("remove", header)).collect::<Result<_, _>>()?,
            set: pairs("set", &given.set)?,
            add: pairs("add", &given.add)?,
        })
    }

    pub(super) fn apply(&self, headers: &mut HeaderMap) {
        for name in &self.remove {
            headers.remove(name);
        }
        for (name, value) in &self.set {
            headers.insert(name.clone(), value.clone());
        }
        for (name, value) in &self.add {
            append(headers, name, value);
        }
    }
}

fn pairs(field: &'static str, given: &[Header]) -> Result<Box<[(HeaderName, HeaderValue)]>, BadValue> {
    given.iter().map(|header| Ok((name(field, &header.name)?, value(field, &header.value)?))).collect()
}

/// Appends a value to the lines of a header, as one line. Only cookies cannot be joined (RFC 9110, section 5.3).
fn append(headers: &mut HeaderMap, name: &HeaderName, value: &HeaderValue) {
    let joined = (name != SET_COOKIE && headers.contains_key(name)).then(|| {
        let lines = headers.get_all(name).iter().chain([value]);
        let lines: Vec<&[u8]> = lines.map(HeaderValue::as_bytes).filter(|line| !line.is_empty()).collect();
        HeaderValue::from_bytes(&lines.join(&b","[..])).ok()
    });
    match joined.flatten() {
        Some(joined) => drop(headers.insert(name.clone(), joined)),
        None => {
            headers.append(name.clone(), value.clone());
        }
    }
}

pub(super) fn name(field: &'static str, given: &str) -> Result<HeaderName, BadValue> {
    let bad = |reason| BadValue { field, value: given.into(), reason };
    let name = HeaderName::from_bytes(given.as_bytes()).map_err(|_| bad("it is not the name of a header"))?;
    if FRAMING.contains(&name.as_str()) {
        return Err(bad("the gateway sets this header itself"));
    }
    Ok(name)
}

pub(super) fn value(field: &'static str, given: &str) -> Result<HeaderValue, BadValue> {
    let bad = || BadValue { field, value: given.into(), reason: "it has characters that no header can have" };
    HeaderValue::from_str(given).map_err(|_| bad())
}
