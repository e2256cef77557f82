//! Links of a proxied response, changed so that they lead through the proxy again.
//!
//! In: the path of the proxy, the hosts by which the backend may refer to itself, and its response. Out: the response with the path of the
//! proxy in front of absolute paths, in `Location` and in the URLs of HTML. Compressed pages are left alone. The response is streamed.

use std::io;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, stream};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::html::Page;
use crate::reply::{Body, Reply};

/// Headers of the backend that would grant other origins access to the API server.
const CORS: [HeaderName; 4] = [
    header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
    header::ACCESS_CONTROL_ALLOW_HEADERS,
    header::ACCESS_CONTROL_ALLOW_METHODS,
    header::ACCESS_CONTROL_ALLOW_ORIGIN,
];

/// Where links lead.
pub(super) struct Links {
    /// The path of the proxy, without a slash at its end.
    pub(super) prefix: String,
    /// The backend, as an URL names it.
    pub(super) backend: String,
    /// The server, as the client named it.
    pub(super) server: String,
}

impl Links {
    /// The URL through the proxy. `None` if it has to stay as it is: a relative one, or one of another host.
    pub(super) fn through_proxy(&self, url: &str) -> Option<String> {
        let (origin, host, path) = split(url);
        if !path.starts_with('/') || !(host.is_empty() || host == self.backend || host == self.server) {
            return None;
        }
        let origin = if host == self.server { origin } else { "" };
        let prefix = if path.starts_with(&self.prefix) { "" } else { &self.prefix };
        Some(format!("{origin}{prefix}{path}"))
    }

    /// Changes the links of a response.
    pub(super) fn apply(self, mut reply: Reply) -> Reply {
        let Some(headers) = &mut reply.passed else { return reply };
        for name in CORS {
            headers.remove(name);
        }
        if let Some(location) = headers.get(header::LOCATION) {
            let changed = location.to_str().ok().and_then(|url| self.through_proxy(url));
            if let Some(changed) = changed.and_then(|url| HeaderValue::try_from(url).ok()) {
                headers.insert(header::LOCATION, changed);
            }
            return reply;
        }
        if is_plain_html(headers) {
            headers.remove(header::CONTENT_LENGTH);
            reply.body = match reply.body {
                Body::Passed(stream) => Body::Passed(page(stream, Page::new(self))),
                other => other,
            };
        }
        reply
    }
}

/// Scheme and authority; the host in it; the rest. The first two are empty if the URL has no host.
fn split(url: &str) -> (&str, &str, &str) {
    let scheme = url.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c)));
    let start = scheme.filter(|&at| at > 0 && url[at..].starts_with("://")).map_or(0, |at| at + 1);
    let Some(authority) = url[start..].strip_prefix("//") else { return ("", "", url) };
    let host = &authority[..authority.find(['/', '?', '#']).unwrap_or(authority.len())];
    let (origin, path) = url.split_at(start + 2 + host.len());
    (origin, host, path)
}

fn is_plain_html(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().is_some_and(|kind| kind.trim() == "text/html")
        && !headers.contains_key(header::CONTENT_ENCODING)
}

/// The body with changed links.
fn page(body: BoxStream<'static, io::Result<Bytes>>, page: Page) -> BoxStream<'static, io::Result<Bytes>> {
    let changed = stream::unfold(Some((body, page)), |state| async move {
        let (mut body, mut page) = state?;
        match body.next().await {
            Some(Ok(bytes)) => {
                let out = page.push(&bytes);
                Some((Ok(Bytes::from(out)), Some((body, page))))
            }
            Some(Err(error)) => Some((Err(error), None)),
            None => Some((Ok(Bytes::from(page.finish())), None)),
        }
    });
    // An empty chunk would be the end of the response in some encodings.
    changed.filter(|chunk| std::future::ready(!matches!(chunk, Ok(bytes) if bytes.is_empty()))).boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links() -> Links {
        let prefix = "/api/v1/namespaces/a/pods/web:80/proxy".to_owned();
        Links { prefix, backend: "10.1.0.7:80".to_owned(), server: "localhost:6443".to_owned() }
    }

    #[test]
    fn absolute_paths_of_the_backend_lead_through_the_proxy() {
        let through = |url: &str| links().through_proxy(url).unwrap_or_else(|| "unchanged".to_owned());
        let prefix = links().prefix;
        assert_eq!(through("/"), format!("{prefix}/"));
        assert_eq!(through("/a/?q=http://x#y"), format!("{prefix}/a/?q=http://x#y"));
        assert_eq!(through("http://10.1.0.7:80/a"), format!("{prefix}/a"));
        assert_eq!(through("//10.1.0.7:80/a"), format!("{prefix}/a"));
        assert_eq!(through("https://localhost:6443/a"), format!("https://localhost:6443{prefix}/a"));
        assert_eq!(through(&format!("{prefix}/a")), format!("{prefix}/a"));
        assert_eq!(through(&format!("http://10.1.0.7:80{prefix}/a")), format!("{prefix}/a"));
        for other in [
            "",
            "a/b",
            "?q=/a",
            "#a",
            "mailto:a@b",
            "http://example.com/a",
            "//example.com/a",
            "http://10.1.0.7:80",
            "http://u@10.1.0.7:80/a",
        ] {
            assert_eq!(through(other), "unchanged", "{other}");
        }
    }

    fn answer(headers: &[(HeaderName, &'static str)], body: &'static str) -> Reply {
        let headers = headers.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect();
        let pieces = body.as_bytes().chunks(3).map(|piece| Ok(Bytes::from_static(piece)));
        Reply::passed(200, headers, Body::Passed(stream::iter(pieces).boxed()))
    }

    async fn body(reply: Reply) -> String {
        let Body::Passed(stream) = reply.body else { panic!("not a stream") };
        let pieces: Vec<Bytes> = stream.map(|piece| piece.expect("no error")).collect().await;
        assert!(pieces.iter().all(|piece| !piece.is_empty()));
        String::from_utf8(pieces.concat()).expect("text")
    }

    #[tokio::test]
    async fn pages_and_redirects_are_changed_and_nothing_else() {
        const LINK: &str = r#"<a href="/x">"#;
        let changed = format!(r#"<a href="{}/x">"#, links().prefix);
        let html = (header::CONTENT_TYPE, "text/html; charset=utf-8");
        let reply = links().apply(answer(
            &[html.clone(), (header::CONTENT_LENGTH, "13"), (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*")],
            LINK,
        ));
        assert_eq!(reply.passed.as_ref().expect("headers").keys().collect::<Vec<_>>(), [header::CONTENT_TYPE]);
        assert_eq!(body(reply).await, changed);

        let plain =
            links().apply(answer(&[(header::CONTENT_TYPE, "text/plain"), (header::CONTENT_LENGTH, "13")], LINK));
        assert_eq!(plain.passed.as_ref().expect("headers")[header::CONTENT_LENGTH], "13");
        assert_eq!(body(plain).await, LINK);

        let packed = links().apply(answer(&[html, (header::CONTENT_ENCODING, "gzip")], LINK));
        assert_eq!(body(packed).await, LINK);

        let redirect = links().apply(answer(&[(header::LOCATION, "/login?to=/x")], ""));
        assert_eq!(redirect.passed.expect("headers")[header::LOCATION], format!("{}/login?to=/x", links().prefix));
        let elsewhere = links().apply(answer(&[(header::LOCATION, "https://example.com/")], ""));
        assert_eq!(elsewhere.passed.expect("headers")[header::LOCATION], "https://example.com/");
    }
}
