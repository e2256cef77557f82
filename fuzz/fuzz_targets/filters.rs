//! Filters of each kind with values that are usual, odd or arbitrary, and a request: what they make of it can be sent, and has one meaning.
#![no_main]

use api::view::gateway_api::{
    Cors, Filter, FilterKind, Fraction, Header, HeaderModifier, PathModifier, PathModifierKind, RequestMirror,
    RequestRedirect, UrlRewrite,
};
use common::{PATHS, filters, requested};
use http::{HeaderName, HeaderValue};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;

const NAMES: [&str; 12] = [
    "x",
    "X-A",
    "set-cookie",
    "vary",
    "host",
    "content-length",
    "access-control-allow-origin",
    "connection",
    ":path",
    "x y",
    "",
    "Origin",
];
const VALUES: [&str; 10] =
    ["", "*", "1", "Origin, x", "a=b; c", "\r\nx: y", "\u{e9}", " ", "GET", "access-control-allow-origin"];
const TARGETS: [&str; 10] =
    ["/", "", "/new", "/new/", "//evil.example", "new", "/a?b=c#d", "/%zz/\u{e9} ", "///", "/../x"];
const HOSTS: [&str; 8] = ["b.example", "", "[::1]", "::1", "*.example", "a/b", "a b", "b.example:80"];
const ORIGINS: [&str; 12] = [
    "*",
    "https://a.example",
    "https://*.example",
    "http://*",
    "null",
    "https://",
    "https://a.example:8443",
    "https://*:8443",
    "HTTPS://A.example",
    "https://[::1]:80",
    "https://a.example/",
    "https://a.example, https://b.example",
];

fuzz_target!(|data: &[u8]| {
    // An input that ends early has nothing to check.
    let _ = run(&mut Unstructured::new(data));
});

fn run(input: &mut Unstructured<'_>) -> Result<()> {
    let mut request = requested(input)?;
    for name in ["origin", "access-control-request-method", "access-control-request-headers", "vary"] {
        let value = text(input, if name == "origin" { &ORIGINS } else { &VALUES })?;
        if let (true, Ok(value)) = (input.ratio(2, 3)?, HeaderValue::try_from(&*value)) {
            request.headers.append(HeaderName::from_static(name), value);
        }
    }
    // The table gives a prefix that the path has.
    let has =
        |prefix: &&str| *prefix == "/" || request.path == **prefix || request.path.starts_with(&format!("{prefix}/"));
    let prefix = input.choose(&[None, Some("/"), Some("/a"), Some("/a/b"), Some("/ab")])?.filter(has);
    let all = some(input, filter)?;
    if filters::check(&all, &request.view(), prefix) {
        return Ok(());
    }
    // One that cannot be applied is not to hide the others.
    for one in all {
        filters::check(&[one], &request.view(), prefix);
    }
    Ok(())
}

fn filter(input: &mut Unstructured<'_>) -> Result<Filter> {
    let mut filter = Filter::default();
    match input.int_in_range(0..=5u8)? {
        0 => {
            (filter.kind, filter.request_header_modifier) = (FilterKind::RequestHeaderModifier, Some(modifier(input)?))
        }
        1 => {
            (filter.kind, filter.response_header_modifier) =
                (FilterKind::ResponseHeaderModifier, Some(modifier(input)?))
        }
        2 => (filter.kind, filter.request_mirror) = (FilterKind::RequestMirror, Some(mirror(input)?)),
        3 => (filter.kind, filter.request_redirect) = (FilterKind::RequestRedirect, Some(redirect(input)?)),
        4 => {
            let rewrite =
                UrlRewrite { hostname: maybe(input, |input| text(input, &HOSTS))?, path: maybe(input, path)? };
            (filter.kind, filter.url_rewrite) = (FilterKind::UrlRewrite, Some(rewrite));
        }
        _ => (filter.kind, filter.cors) = (FilterKind::Cors, Some(cors(input)?)),
    }
    Ok(filter)
}

fn modifier(input: &mut Unstructured<'_>) -> Result<HeaderModifier> {
    let header = |input: &mut Unstructured<'_>| Ok(Header { name: text(input, &NAMES)?, value: text(input, &VALUES)? });
    Ok(HeaderModifier {
        set: some(input, header)?,
        add: some(input, header)?,
        remove: some(input, |input| text(input, &NAMES))?,
    })
}

fn mirror(input: &mut Unstructured<'_>) -> Result<RequestMirror> {
    let percent = maybe(input, |input| Ok(*input.choose(&[0, 1, 50, 100, 101, u32::MAX])?))?;
    let number = |input: &mut Unstructured<'_>| Ok(*input.choose(&[0, 1, 7, u32::MAX])?);
    let fraction =
        maybe(input, |input| Ok(Fraction { numerator: number(input)?, denominator: maybe(input, number)? }))?;
    Ok(RequestMirror { percent, fraction, ..RequestMirror::default() })
}

fn redirect(input: &mut Unstructured<'_>) -> Result<RequestRedirect> {
    Ok(RequestRedirect {
        scheme: maybe(input, |input| text(input, &["http", "https", "HTTPS", "javascript", ""]))?,
        hostname: maybe(input, |input| text(input, &HOSTS))?,
        path: maybe(input, path)?,
        port: maybe(input, |input| Ok(*input.choose(&[0, 80, 443, 8080, u16::MAX])?))?,
        status_code: maybe(input, |input| Ok(*input.choose(&[301, 302, 303, 307, 308, 200, 0, 65535])?))?,
    })
}

fn path(input: &mut Unstructured<'_>) -> Result<PathModifier> {
    let kind = *input.choose(&[PathModifierKind::ReplaceFullPath, PathModifierKind::ReplacePrefixMatch])?;
    let value = maybe(input, |input| if input.ratio(1, 4)? { text(input, &PATHS) } else { text(input, &TARGETS) })?;
    Ok(PathModifier { kind, replace_full_path: value.clone(), replace_prefix_match: value })
}

fn cors(input: &mut Unstructured<'_>) -> Result<Cors> {
    let values = |input: &mut Unstructured<'_>| some(input, |input| text(input, &VALUES));
    Ok(Cors {
        allow_origins: some(input, |input| text(input, &ORIGINS))?,
        allow_credentials: maybe(input, |input| input.ratio(1, 2))?,
        allow_methods: values(input)?,
        allow_headers: values(input)?,
        expose_headers: values(input)?,
        max_age: maybe(input, |input| Ok(*input.choose(&[0, 1, u32::MAX])?))?,
    })
}

/// One of these texts, or any other.
fn text(input: &mut Unstructured<'_>, usual: &[&str]) -> Result<Box<str>> {
    if input.ratio(7, 8)? {
        return Ok((*input.choose(usual)?).into());
    }
    let length = input.int_in_range(0..=24usize)?.min(input.len());
    Ok(String::from_utf8_lossy(input.bytes(length)?).into())
}

fn maybe<T>(input: &mut Unstructured<'_>, one: impl Fn(&mut Unstructured<'_>) -> Result<T>) -> Result<Option<T>> {
    Ok(if input.ratio(1, 2)? { Some(one(input)?) } else { None })
}

/// None to three values.
fn some<T>(input: &mut Unstructured<'_>, one: impl Fn(&mut Unstructured<'_>) -> Result<T>) -> Result<Vec<T>> {
    let count = input.int_in_range(0..=3u8)?;
    (0..count).map(|_| one(input)).collect()
}
