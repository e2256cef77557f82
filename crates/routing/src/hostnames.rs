//! Which hostnames of a route a listener serves.

/// Whether some host matches both the hostname of a listener (none: all hosts) and a hostname of a route. Both are in
/// lower case; `*.example.com` matches hosts with any number of labels before `.example.com`.
pub(crate) fn intersects(listener: Option<&str>, route: &str) -> bool {
    let Some(listener) = listener else { return true };
    match (listener.strip_prefix('*'), route.strip_prefix('*')) {
        (None, None) => listener == route,
        (Some(suffix), None) => route.len() > suffix.len() && route.ends_with(suffix),
        (None, Some(suffix)) => listener.len() > suffix.len() && listener.ends_with(suffix),
        (Some(one), Some(other)) => one.ends_with(other) || other.ends_with(one),
    }
}
