//! How many seats a request occupies: more for a list of many bytes, as in the work estimator of Kubernetes.
//!
//! In: the attributes and the query of a request, and the size of the table that it reads.
//! Out: its width, of 1 to [`MAX_WIDTH`] seats.

use store::TableSize;

use crate::query;
use crate::request::RequestInfo;

use super::level::MAX_WIDTH;

/// One seat for so many bytes that are read at once.
const BYTES_PER_SEAT: u64 = 100_000;

/// The width of a request; `size` is read for lists, and for watches that begin with one.
pub(crate) fn width(info: &RequestInfo<'_>, query: &[(String, String)], size: impl FnOnce() -> TableSize) -> u64 {
    let param = |name| query::first(query, name);
    let lists = match &*info.verb {
        "list" => true,
        "watch" => {
            matches!(param("resourceVersion"), None | Some("" | "0"))
                || param("sendInitialEvents").is_some_and(|value| !matches!(value, "false" | "0"))
        }
        _ => false,
    };
    // One that selects a name reads one object.
    if !lists || !info.name.is_empty() {
        return 1;
    }
    let TableSize { entries, bytes } = size();
    let (entries, bytes) = (entries as u64, bytes as u64);
    let limit = param("limit").and_then(|limit| limit.parse().ok()).filter(|limit| *limit > 0);
    let read = match limit {
        Some(limit) if limit < entries => (bytes / entries).saturating_mul(limit),
        _ => bytes,
    };
    read.div_ceil(BYTES_PER_SEAT).clamp(1, MAX_WIDTH)
}

#[cfg(test)]
mod tests {
    use http::Method;
    use proptest::prelude::*;

    use super::*;

    fn width_of(method: &str, whole: &str, entries: usize, bytes: usize) -> u64 {
        let (path, query) = whole.split_once('?').unwrap_or((whole, ""));
        let query = query::parse(query);
        let info = RequestInfo::of(&Method::from_bytes(method.as_bytes()).unwrap(), path, &query);
        width(&info, &query, || TableSize { entries, bytes })
    }

    #[test]
    fn lists_are_as_wide_as_they_are_large() {
        for (method, path, wanted) in [
            ("GET", "/api/v1/pods", 5),
            ("GET", "/api/v1/namespaces/a/pods", 5),
            ("GET", "/api/v1/pods?limit=500", 3),
            ("GET", "/api/v1/pods?limit=5000", 5),
            ("GET", "/api/v1/pods?limit=0", 5),
            ("GET", "/api/v1/pods?limit=x", 5),
            ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dp", 1),
            ("GET", "/api/v1/namespaces/a/pods/p", 1),
            ("POST", "/api/v1/namespaces/a/pods", 1),
            ("DELETE", "/api/v1/namespaces/a/pods", 1),
            ("GET", "/api/v1/pods?watch=1", 5),
            ("GET", "/api/v1/pods?watch=1&resourceVersion=0", 5),
            ("GET", "/api/v1/pods?watch=1&resourceVersion=7", 1),
            ("GET", "/api/v1/pods?watch=1&resourceVersion=7&sendInitialEvents=false", 1),
            ("GET", "/api/v1/pods?watch=1&resourceVersion=7&sendInitialEvents=true", 5),
        ] {
            assert_eq!(width_of(method, path, 1000, 500_000), wanted, "{method} {path}");
        }
        assert_eq!(width_of("GET", "/api/v1/pods", 0, 0), 1);
        assert_eq!(width_of("GET", "/api/v1/pods", 10_000, 100_000_000), MAX_WIDTH);
    }

    proptest! {
        #[test]
        fn every_request_has_a_width(query in ".{0,40}", limit: i64, entries: usize, bytes: usize) {
            for query in [query, format!("limit={limit}"), format!("watch=1&limit={limit}")] {
                let width = width_of("GET", &format!("/api/v1/pods?{query}"), entries, bytes);
                prop_assert!((1..=MAX_WIDTH).contains(&width));
            }
        }
    }
}
