//! A regular expression, a template and a request: what is rendered can be sent, a rewrite happens exactly when the expression matches and begins
//! with a slash, and a URL keeps the scheme that it was written with.
#![no_main]

use std::net::{IpAddr, Ipv6Addr};

use http::HeaderValue;
use libfuzzer_sys::fuzz_target;
use routing::policy::{PathRewrite, Pattern, RequestValues, Template};

fuzz_target!(|data: &[u8]| {
    let (pattern, rest) = common::halves(data);
    let (template, request) = common::halves(rest);
    let (Ok(pattern), Ok(text)) = (std::str::from_utf8(pattern), std::str::from_utf8(template)) else { return };
    let Some(request) = common::head(request) else { return };
    let Ok(template) = Template::parse(text) else {
        assert!(Template::url(text).is_err(), "a URL that is no template");
        return;
    };
    assert_eq!(template.source(), text);
    let path = request.target.path();
    let values = RequestValues {
        scheme: "https",
        authority: &request.host,
        method: request.method.as_str(),
        path,
        query: request.target.query(),
        headers: &request.headers,
        client: IpAddr::V6(Ipv6Addr::LOCALHOST),
        port: 443,
        captures: &[],
    };
    let rendered = template.render(&values);
    assert!(HeaderValue::try_from(&rendered).is_ok(), "{rendered:?}");
    assert!(template.as_text().is_none_or(|text| text == rendered));
    if Template::url(text).is_ok() {
        assert!(rendered.starts_with("http://") || rendered.starts_with("https://"), "{rendered}");
    }
    for pattern in [Pattern::new(pattern), Pattern::at_start(pattern), Pattern::case_sensitive(pattern)] {
        let Ok(pattern) = pattern else { continue };
        let matches = pattern.is_match(path);
        let rewritten = PathRewrite { pattern, target: template.clone() }.apply(&values);
        // Expressions match the decoded path without empty and dot segments.
        if !["//", "%", "/."].iter().any(|part| path.contains(part)) {
            assert_eq!(rewritten.is_some(), matches);
        }
        if let Some(rewritten) = rewritten {
            assert!(rewritten.starts_with('/') && !rewritten.contains(char::is_control), "{rewritten:?}");
        }
    }
});
