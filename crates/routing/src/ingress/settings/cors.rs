//! Cross-origin resource sharing.

use api::view::gateway_api::{Cors, Filter, FilterKind};

use super::words;
use crate::ingress::reader::Reader;

const METHODS: &str = "GET, PUT, POST, DELETE, PATCH, OPTIONS";
const HEADERS: &str =
    "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,Authorization";
const MAX_AGE: u32 = 1_728_000;

pub(super) fn read(reader: &mut Reader<'_>) -> Option<Filter> {
    reader.flag("enable-cors").filter(|enabled| *enabled)?;
    let mut origins = reader.list("cors-allow-origin").unwrap_or_else(|| words("*"));
    if origins.iter().any(|origin| **origin == *"*") {
        origins = words("*");
    }
    let is_origin = |origin: &str| matches!(origin, "*" | "null") || origin.contains("://");
    if !origins.iter().all(|origin| is_origin(origin)) {
        reader.reject("cors-allow-origin", "the value must be origins such as https://a.example that commas separate");
        origins.retain(|origin| is_origin(origin));
    }
    // Browsers refuse credentials with the origin `*`, which is what nginx sends. A filter that allows both would send
    // the origin of the request instead, and so give every site access with the user's credentials.
    let credentials =
        reader.flag("cors-allow-credentials").unwrap_or(true) && origins.iter().all(|origin| **origin != *"*");
    let cors = Cors {
        allow_origins: origins,
        allow_credentials: Some(credentials),
        allow_methods: words(reader.text("cors-allow-methods").unwrap_or(METHODS)),
        allow_headers: words(reader.text("cors-allow-headers").unwrap_or(HEADERS)),
        expose_headers: reader.list("cors-expose-headers").unwrap_or_default(),
        max_age: Some(reader.number("cors-max-age").unwrap_or(MAX_AGE)),
    };
    Some(Filter { kind: FilterKind::Cors, cors: Some(cors), ..Filter::default() })
}
