//! The annotations of ingress-nginx, and what becomes of each: one row per annotation.

use api::view::StringMap;
use api::view::ingress::NGINX;

use super::{Finding, Reason};

/// What becomes of an annotation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Support {
    /// It is honoured.
    Honoured,
    /// It has an effect on nginx only: there is nothing to do, or what it asks for is always the case.
    NothingToDo,
    /// It is not honoured, for this reason, or with this as the alternative.
    NotHonoured(&'static str),
}

use Support::{Honoured, NotHonoured, NothingToDo};

const BACKEND_TLS: Support = NotHonoured("attach a BackendTLSPolicy to the Service");
const CLIENT_CERTIFICATES: Support = NotHonoured("use a Gateway with spec.tls.frontend.validation");
const ERROR_PAGES: Support = NotHonoured("responses of backends are passed on as they are");
const HASHING: Support = NotHonoured("use affinity: cookie for sticky sessions");
const HEADERS: Support = NotHonoured("use waypost.dev/response-headers");
const SNIPPET: Support = NotHonoured(
    "configuration of nginx cannot be applied; for headers use waypost.dev/request-headers and waypost.dev/response-headers, for \
     redirects permanent-redirect and temporal-redirect",
);
const TRACES: Support = NotHonoured("traces are configured for the whole gateway");
const FIREWALL: Support = NotHonoured("there is no web application firewall");
const CIPHERS: Support =
    NotHonoured("cipher suites cannot be selected; TLS 1.2 and 1.3 are offered with secure ones only");
const BANDWIDTH: Support =
    NotHonoured("bandwidth is not limited; limit-rps, limit-rpm and limit-connections are honoured");
const MIRROR: Support = NotHonoured("use an HTTPRoute with a RequestMirror filter");
const COOKIES: Support = NotHonoured("cookies of backends are passed on as they are");
const LOCATION: Support = NotHonoured("the header Location of backends is passed on as it is");
const AUTH_CACHE: Support = NotHonoured("each request is authorised; responses are not cached");
const FASTCGI: Support = NotHonoured("FastCGI is not supported; serve the application by HTTP");

/// All annotations of ingress-nginx 1.15, without their prefix, in alphabetical order.
pub const ANNOTATIONS: &[(&str, Support)] = &[
    ("affinity", Honoured),
    ("affinity-canary-behavior", NotHonoured("sessions always stay with the backend that they were given first")),
    ("affinity-mode", Honoured),
    ("allowlist-source-range", Honoured),
    ("app-root", Honoured),
    ("auth-always-set-cookie", Honoured),
    ("auth-cache-duration", AUTH_CACHE),
    ("auth-cache-key", AUTH_CACHE),
    ("auth-keepalive", NothingToDo),
    ("auth-keepalive-requests", NothingToDo),
    ("auth-keepalive-share-vars", NothingToDo),
    ("auth-keepalive-timeout", NothingToDo),
    ("auth-method", Honoured),
    ("auth-proxy-set-headers", NotHonoured("the server that authorises receives the headers of the request")),
    ("auth-realm", Honoured),
    ("auth-request-redirect", Honoured),
    ("auth-response-headers", Honoured),
    ("auth-secret", Honoured),
    ("auth-secret-type", Honoured),
    ("auth-signin", Honoured),
    ("auth-signin-redirect-param", Honoured),
    ("auth-snippet", SNIPPET),
    ("auth-tls-error-page", CLIENT_CERTIFICATES),
    ("auth-tls-match-cn", CLIENT_CERTIFICATES),
    ("auth-tls-pass-certificate-to-upstream", CLIENT_CERTIFICATES),
    ("auth-tls-secret", CLIENT_CERTIFICATES),
    ("auth-tls-verify-client", CLIENT_CERTIFICATES),
    ("auth-tls-verify-depth", CLIENT_CERTIFICATES),
    ("auth-type", Honoured),
    ("auth-url", Honoured),
    ("backend-protocol", Honoured),
    ("canary", Honoured),
    ("canary-by-cookie", Honoured),
    ("canary-by-header", Honoured),
    ("canary-by-header-pattern", Honoured),
    ("canary-by-header-value", Honoured),
    ("canary-weight", Honoured),
    ("canary-weight-total", Honoured),
    ("client-body-buffer-size", NothingToDo),
    ("configuration-snippet", SNIPPET),
    ("connection-proxy-header", NotHonoured("the header Connection is that of the connection to the backend")),
    ("cors-allow-credentials", Honoured),
    ("cors-allow-headers", Honoured),
    ("cors-allow-methods", Honoured),
    ("cors-allow-origin", Honoured),
    ("cors-expose-headers", Honoured),
    ("cors-max-age", Honoured),
    ("custom-headers", HEADERS),
    ("custom-http-errors", ERROR_PAGES),
    ("default-backend", ERROR_PAGES),
    ("denylist-source-range", Honoured),
    ("disable-proxy-intercept-errors", NothingToDo),
    ("enable-access-log", NotHonoured("access logs are configured for the whole gateway")),
    ("enable-cors", Honoured),
    ("enable-global-auth", NothingToDo),
    ("enable-modsecurity", FIREWALL),
    ("enable-opentelemetry", TRACES),
    ("enable-owasp-core-rules", FIREWALL),
    ("enable-rewrite-log", NothingToDo),
    ("fastcgi-index", FASTCGI),
    ("fastcgi-params-configmap", FASTCGI),
    ("force-ssl-redirect", Honoured),
    ("from-to-www-redirect", Honoured),
    ("http2-push-preload", NothingToDo),
    ("limit-allowlist", Honoured),
    ("limit-burst-multiplier", Honoured),
    ("limit-connections", Honoured),
    ("limit-rate", BANDWIDTH),
    ("limit-rate-after", BANDWIDTH),
    ("limit-rpm", Honoured),
    ("limit-rps", Honoured),
    ("limit-whitelist", Honoured),
    ("load-balance", NotHonoured("endpoints are selected by weight and load; there is one algorithm")),
    ("mirror-host", MIRROR),
    ("mirror-request-body", MIRROR),
    ("mirror-target", MIRROR),
    ("modsecurity-snippet", FIREWALL),
    ("modsecurity-transaction-id", FIREWALL),
    ("opentelemetry-operation-name", TRACES),
    ("opentelemetry-trust-incoming-span", TRACES),
    ("permanent-redirect", Honoured),
    ("permanent-redirect-code", Honoured),
    ("preserve-trailing-slash", NothingToDo),
    ("proxy-body-size", Honoured),
    ("proxy-buffer-size", NothingToDo),
    ("proxy-buffering", NothingToDo),
    ("proxy-buffers-number", NothingToDo),
    ("proxy-busy-buffers-size", NothingToDo),
    ("proxy-connect-timeout", Honoured),
    ("proxy-cookie-domain", COOKIES),
    ("proxy-cookie-path", COOKIES),
    ("proxy-http-version", NothingToDo),
    ("proxy-max-temp-file-size", NothingToDo),
    ("proxy-next-upstream", Honoured),
    ("proxy-next-upstream-timeout", NotHonoured("the number of attempts is limited, by proxy-next-upstream-tries")),
    ("proxy-next-upstream-tries", Honoured),
    ("proxy-read-timeout", Honoured),
    ("proxy-redirect-from", LOCATION),
    ("proxy-redirect-to", LOCATION),
    ("proxy-request-buffering", NothingToDo),
    ("proxy-send-timeout", Honoured),
    ("proxy-ssl-ciphers", BACKEND_TLS),
    ("proxy-ssl-name", BACKEND_TLS),
    ("proxy-ssl-protocols", BACKEND_TLS),
    ("proxy-ssl-secret", BACKEND_TLS),
    ("proxy-ssl-server-name", BACKEND_TLS),
    ("proxy-ssl-verify", BACKEND_TLS),
    ("proxy-ssl-verify-depth", BACKEND_TLS),
    ("relative-redirects", NotHonoured("redirects have an absolute location")),
    ("rewrite-target", Honoured),
    ("satisfy", NotHonoured("address ranges and authentication must all admit a request")),
    ("server-alias", Honoured),
    ("server-snippet", SNIPPET),
    ("service-upstream", NotHonoured("connections are made to the endpoints of the Service")),
    ("session-cookie-change-on-failure", Honoured),
    ("session-cookie-conditional-samesite-none", NotHonoured("SameSite does not depend on the browser")),
    ("session-cookie-domain", Honoured),
    ("session-cookie-expires", Honoured),
    ("session-cookie-max-age", Honoured),
    ("session-cookie-name", Honoured),
    ("session-cookie-path", Honoured),
    ("session-cookie-samesite", Honoured),
    ("session-cookie-secure", Honoured),
    ("ssl-ciphers", CIPHERS),
    ("ssl-passthrough", NotHonoured("use a TLSRoute")),
    ("ssl-prefer-server-ciphers", CIPHERS),
    ("ssl-redirect", Honoured),
    ("stream-snippet", SNIPPET),
    ("temporal-redirect", Honoured),
    ("temporal-redirect-code", Honoured),
    ("upstream-hash-by", HASHING),
    ("upstream-hash-by-subset", HASHING),
    ("upstream-hash-by-subset-size", HASHING),
    ("upstream-vhost", Honoured),
    ("use-port-in-redirects", NotHonoured("redirects to https have no port")),
    ("use-regex", Honoured),
    ("whitelist-source-range", Honoured),
    ("x-forwarded-prefix", Honoured),
];

/// What becomes of an annotation; none for one that ingress-nginx does not have.
#[must_use]
pub fn support(key: &str) -> Option<Support> {
    ANNOTATIONS
        .binary_search_by(|(have, _)| (*have).cmp(key))
        .ok()
        .and_then(|place| ANNOTATIONS.get(place))
        .map(|row| row.1)
}

/// A finding for each annotation of ingress-nginx that is not honoured.
pub(super) fn not_honoured(annotations: &StringMap) -> Vec<Finding> {
    let keys = annotations.iter().filter_map(|(key, _)| key.strip_prefix(NGINX));
    let finding = |key: &str| {
        let why = match support(key) {
            Some(Honoured | NothingToDo) => return None,
            Some(NotHonoured(why)) => why,
            None => "ingress-nginx has no such annotation",
        };
        Some(Finding {
            reason: Reason::AnnotationNotHonoured,
            message: format!("annotation {NGINX}{key} is not honoured: {why}"),
        })
    };
    keys.filter_map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted() {
        assert!(ANNOTATIONS.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!(support("use-regex"), Some(Honoured));
        assert_eq!(support("affinity"), Some(Honoured));
        assert_eq!(support("use-regexes"), None);
    }

    /// `docs/ingress.md` names each annotation that is honoured, or needs nothing, exactly once.
    #[test]
    fn annotations_are_documented() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ingress.md");
        let text = std::fs::read_to_string(path).unwrap();
        let from = text.find("## Annotations that are honoured").unwrap();
        let (honoured, without) = text[from..].split_once("## Annotations without effect").unwrap();
        let without = without.split("## Conversion").next().unwrap();
        // In a table the annotations of a row are its first cell.
        let rows = honoured.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
        let rows: String = rows.map(|row| format!("`{row} ")).collect();
        for (key, support) in ANNOTATIONS {
            let named = |text: &str| text.matches(&format!("`{key}`")).count();
            let want = match support {
                Honoured => (1, 0),
                NothingToDo => (0, 1),
                NotHonoured(_) => (0, 0),
            };
            assert_eq!((named(&rows), named(without)), want, "{key}");
        }
    }

    #[test]
    fn what_is_not_honoured_is_found() {
        let pair = |key| (key, "x");
        let annotations = StringMap::from_iter([
            pair("nginx.ingress.kubernetes.io/configuration-snippet"),
            pair("nginx.ingress.kubernetes.io/proxy-buffering"),
            pair("nginx.ingress.kubernetes.io/rewrite-target"),
            pair("nginx.ingress.kubernetes.io/typo"),
            pair("other.io/configuration-snippet"),
        ]);
        let found = not_honoured(&annotations);
        let messages: Vec<_> = found.iter().map(|finding| finding.message.as_str()).collect();
        assert_eq!(messages.len(), 2, "{messages:?}");
        assert!(messages[0].contains("configuration-snippet") && messages[0].contains("waypost.dev/response-headers"));
        assert!(messages[1].ends_with("typo is not honoured: ingress-nginx has no such annotation"));
    }
}
