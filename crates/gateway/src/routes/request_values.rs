//! Values of a request: cookies, query parameters, and the hash of the one that selects an endpoint.

use api::hash::mixed64 as hash;
use http::HeaderMap;
use http::header::COOKIE;
use http::request::Parts;
use routing::policy::HashKey;

/// The values of cookies with a name. Clients send several if the cookies have different paths.
pub(super) fn cookies<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let pairs = headers.get_all(COOKIE).into_iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b';'));
    pairs.filter_map(|pair| {
        let (known, value) = split(pair.trim_ascii(), b'=')?;
        (known == name.as_bytes()).then_some(value)
    })
}

/// The hash of the value that selects the endpoint; none if the request does not have it.
pub(super) fn hash_of(key: &HashKey, client: &[u8], parts: &Parts) -> Option<u64> {
    match key {
        HashKey::Source => Some(hash(client)),
        HashKey::Header(name) => parts.headers.get(name).map(|value| hash(value.as_bytes())),
        HashKey::Cookie(name) => cookies(&parts.headers, name).next().map(hash),
        HashKey::Query(name) => query(parts.uri.query()?, name).map(hash),
        HashKey::Path => Some(hash(parts.uri.path().as_bytes())),
    }
}

/// The first value of a query parameter, as it is encoded.
fn query<'a>(query: &'a str, name: &str) -> Option<&'a [u8]> {
    query.split('&').find_map(|pair| match pair.split_once('=') {
        Some((known, value)) => (known == name).then_some(value.as_bytes()),
        None => (pair == name).then_some(&b""[..]),
    })
}

fn split(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let index = text.iter().position(|byte| *byte == at)?;
    Some((text.get(..index)?, text.get(index + 1..)?))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, Request};

    use super::*;

    #[test]
    fn cookies_are_found_in_all_headers() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, "a=1; route=x=y ;b".parse().unwrap());
        headers.append(COOKIE, http::HeaderValue::from_bytes(b"c=\xff; route=; Route=z; xroute=w").unwrap());
        let found: Vec<&[u8]> = cookies(&headers, "route").collect();
        assert_eq!(found, [&b"x=y"[..], b""]);
    }

    #[test]
    fn each_key_has_its_value() {
        let request = Request::get("http://a/p/q?user=%41&x&user=2").header("x-user", "me").header("cookie", "id=7");
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let value = |key| hash_of(&key, b"10.0.0.1", &parts);
        let header = |name: &'static str| HashKey::Header(HeaderName::from_static(name));
        let query = |name: &str| HashKey::Query(name.into());
        for (key, want) in [
            (HashKey::Source, Some("10.0.0.1")),
            (HashKey::Path, Some("/p/q")),
            (header("x-user"), Some("me")),
            (header("x-other"), None),
            (HashKey::Cookie("id".into()), Some("7")),
            (HashKey::Cookie("other".into()), None),
            (query("user"), Some("%41")),
            (query("x"), Some("")),
            (query("use"), None),
        ] {
            assert_eq!(value(key.clone()), want.map(|text| hash(text.as_bytes())), "{key:?}");
        }
    }
}
