//! Requests from few hosts, paths and values, chosen by the bytes of an input: conditions of routes that are chosen from the same sets often hold.

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use routing::http_table::RequestView;

/// Paths of requests, and of conditions on them; empty is that of CONNECT, and `*` that of OPTIONS.
pub const PATHS: [&str; 11] = ["/", "/a", "/a/", "/a/b", "/a/b/", "/a/b/c", "/ab", "/b", "/a//b", "", "*"];
/// Hosts of requests.
const HOSTS: [&str; 10] =
    ["a.b.c", "b.c", "y.x.b.c", "x.c", "c", "other", "z.y.x.b.c", "", ".b.c", "a-much-longer-name.b.c"];
const QUERIES: [&str; 10] =
    ["q=1", "q=2&r=1", "r=1&q=1&q=2", "q", "&&q=1,2", "%71=%31", "a+b=1+2", "q=%3", "q==1", "a%20b=1%2C2&r"];
const VALUES: [&str; 6] = ["1", "2", "1,2", "", "1 2", "1,"];

/// A request that is to be routed.
#[derive(Clone, Debug)]
pub struct Requested {
    /// Its method.
    pub method: Method,
    /// Its host, in lower case and without port.
    pub host: String,
    /// Its path, without query.
    pub path: String,
    /// Its query.
    pub query: Option<String>,
    /// Its headers.
    pub headers: HeaderMap,
}

impl Requested {
    /// The request as tables see it.
    #[must_use]
    pub fn view(&self) -> RequestView<'_> {
        let Self { method, host, path, query, headers } = self;
        RequestView { method, host, path, query: query.as_deref(), headers }
    }
}

/// A request.
///
/// # Errors
/// When the input ends.
pub fn requested(input: &mut Unstructured<'_>) -> Result<Requested> {
    let method = input.choose(&[Method::GET, Method::GET, Method::POST, Method::OPTIONS])?.clone();
    let host = (*input.choose(&HOSTS)?).to_owned();
    let path = match input.ratio(1, 4)? {
        true => (0..input.int_in_range(1..=5u8)?)
            .map(|_| Ok(*input.choose(&["/", "/a", "/b", "/ab", "/c", "/A", "/%61"])?))
            .collect::<Result<String>>()?,
        false => (*input.choose(&PATHS)?).to_owned(),
    };
    let query = match input.ratio(1, 2)? {
        true => Some((*input.choose(&QUERIES)?).to_owned()),
        false => None,
    };
    let mut headers = HeaderMap::new();
    for _ in 0..input.int_in_range(0..=3u8)? {
        let name = HeaderName::from_static(input.choose(&["x-a", "x-b"])?);
        headers.append(name, HeaderValue::from_static(input.choose(&VALUES)?));
    }
    Ok(Requested { method, host, path, query, headers })
}
