//! Ingresses that an input chooses: few hosts and paths, so that Ingresses meet, and annotations with values that are usual, odd or arbitrary.

use std::sync::LazyLock;

use api::view::ingress::{
    IngressBackend, IngressPath, IngressPaths, IngressPort, IngressRule, IngressService, IngressSpec, IngressTls,
    NGINX, OWN, PathType,
};
use api::view::{Ingress, ObjectMeta, StringMap};
use common::{Head, requested};
use http::uri::PathAndQuery;
use http::{HeaderValue, Uri};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use routing::ingress::catalogue::{ANNOTATIONS, Support};

const HOSTS: [&str; 10] = ["a.b.c", "b.c", "*.b.c", "*.c", "", "www.b.c", "x.c", "A.B.C", "www.a.b.c", "z.y.x.b.c"];
const PATHS: [&str; 14] =
    ["/", "/a", "/a/", "/a/b", "", "/a(/|$)(.*)", "/(a|b)/?(.*)", "/a.*", "(", "/A", "/a//b", "a", "/(?i)a", "/%61"];
const VALUES: [&str; 40] = [
    "true",
    "false",
    "0",
    "1",
    "10",
    "50",
    "100",
    "-1",
    "4294967296",
    "1m",
    "8k",
    "10s",
    "always",
    "never",
    "cookie",
    "basic",
    "GRPC",
    "HTTPS",
    "/$1",
    "/$2",
    "$scheme://$host$request_uri",
    "https://b.example$escaped_request_uri",
    "https://$http_host/",
    "//evil.example",
    "${arg_q}$is_args$args",
    "web/tls",
    "tls",
    "10.0.0.0/8, ::/0",
    "127.0.0.1",
    "!127.0.0.0/8",
    "300",
    "301",
    "308",
    "*",
    "https://*.example, http://a.example:8080",
    "x-a, x-b",
    "GET, POST",
    "b.c, *.c, www.x.c",
    "error timeout http_503 non_idempotent",
    "$1$9$",
];

/// Annotations with an effect.
static HONOURED: LazyLock<Vec<&str>> = LazyLock::new(|| {
    ANNOTATIONS.iter().filter(|(_, support)| *support == Support::Honoured).map(|(name, _)| *name).collect()
});

/// Ingresses and a request.
pub fn choose(input: &mut Unstructured<'_>) -> Result<(Vec<Ingress>, Head)> {
    let count = input.int_in_range(1..=4u8)?;
    let ingresses = (0..count).map(|number| ingress(number, input)).collect::<Result<_>>()?;
    let request = requested(input)?;
    let path = if request.path.starts_with('/') { &request.path } else { "/" };
    let target = request.query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    let mut headers = request.headers;
    if input.ratio(1, 4)? {
        headers.insert("cookie", HeaderValue::from_static(input.choose(&["true=always", "a=b; x-a=1", "true=never"])?));
    }
    let target = target.parse::<PathAndQuery>().map(Uri::from).unwrap_or_default();
    Ok((ingresses, Head { method: request.method, host: request.host, target, headers }))
}

fn ingress(number: u8, input: &mut Unstructured<'_>) -> Result<Ingress> {
    let count = input.int_in_range(0..=5u8)?;
    let annotations = (0..count).map(|_| annotation(input)).collect::<Result<StringMap>>()?;
    let creation_timestamp = (*input.choose(&["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", ""])?).into();
    let metadata =
        ObjectMeta { name: format!("i{number}").into(), annotations, creation_timestamp, ..ObjectMeta::default() };
    let default_backend = if input.ratio(1, 8)? { Some(backend(input)?) } else { None };
    let count = input.int_in_range(0..=1u8)?;
    let tls = (0..count).map(|_| tls(input)).collect::<Result<_>>()?;
    let count = input.int_in_range(0..=3u8)?;
    let rules = (0..count).map(|_| rule(input)).collect::<Result<_>>()?;
    Ok(Ingress { metadata, spec: IngressSpec { ingress_class_name: None, default_backend, tls, rules } })
}

fn annotation(input: &mut Unstructured<'_>) -> Result<(String, Box<str>)> {
    // Those that change nothing are left to one try in eight.
    let name = if input.ratio(7, 8)? { *input.choose(&HONOURED)? } else { input.choose(ANNOTATIONS)?.0 };
    let prefix = if input.ratio(7, 8)? { NGINX } else { OWN };
    let value = match input.int_in_range(0..=7u8)? {
        0 => {
            let length = input.int_in_range(0..=40usize)?.min(input.len());
            String::from_utf8_lossy(input.bytes(length)?).into()
        }
        1 => input.int_in_range(0..=2000u16)?.to_string().into(),
        _ => (*input.choose(&VALUES)?).into(),
    };
    Ok((format!("{prefix}{name}"), value))
}

fn tls(input: &mut Unstructured<'_>) -> Result<IngressTls> {
    let count = input.int_in_range(0..=2u8)?;
    let hosts = (0..count).map(|_| Ok((*input.choose(&HOSTS)?).into())).collect::<Result<_>>()?;
    Ok(IngressTls { hosts, secret_name: (*input.choose(&["tls", "", "none"])?).into() })
}

fn rule(input: &mut Unstructured<'_>) -> Result<IngressRule> {
    let host = (*input.choose(&HOSTS)?).into();
    let count = input.int_in_range(0..=3u8)?;
    let paths = (0..count).map(|_| path(input)).collect::<Result<_>>()?;
    Ok(IngressRule { host, http: IngressPaths { paths } })
}

fn path(input: &mut Unstructured<'_>) -> Result<IngressPath> {
    let path_type =
        *input.choose(&[PathType::Prefix, PathType::Exact, PathType::ImplementationSpecific, PathType::Unknown])?;
    Ok(IngressPath { path: (*input.choose(&PATHS)?).into(), path_type, backend: backend(input)? })
}

fn backend(input: &mut Unstructured<'_>) -> Result<IngressBackend> {
    let (name, number) = *input.choose(&[("", 80), ("web", 0), ("", 443), ("none", 0), ("", 81)])?;
    let service = IngressService {
        name: (*input.choose(&["a", "b", "c"])?).into(),
        port: IngressPort { name: name.into(), number },
    };
    Ok(IngressBackend { service: Some(service), resource: None })
}
