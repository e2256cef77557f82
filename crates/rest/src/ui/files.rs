//! The files of the web UI, embedded in the binary.
//!
//! In: a name below `/page/`. Out: the file, its content type and caching headers. The build of `page/` makes the files and their table;
//! they are committed, so that building Waypost needs no JavaScript tools.

use std::sync::LazyLock;

use http::header;

use crate::reply::Reply;

/// A file: name, content type, bytes.
type File = (&'static str, &'static str, &'static [u8]);

const FILES: &[File] = include!("../../page/table.in");

/// The Content-Security-Policy: what may be loaded from where, and no framing.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

/// The ETag of each file, in the order of the table.
static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| FILES.iter().map(|(_, _, bytes)| tag(bytes)).collect());

fn tag(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let text: String = digest.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\"{text}\"")
}

/// A file of the UI; `have` is the ETag that the browser has cached.
pub(super) fn file(name: &str, have: Option<&str>) -> Option<Reply> {
    let name = if name.is_empty() { "index.html" } else { name };
    let at = FILES.iter().position(|(own, _, _)| *own == name)?;
    let (_, content_type, bytes) = FILES[at];
    let reply = match have.is_some_and(|have| have == TAGS[at]) {
        true => Reply::bytes(304, content_type, bytes::Bytes::new()),
        false => Reply::bytes(200, content_type, bytes),
    };
    // Names with a hash are immutable; the others are revalidated each time.
    let kept = if name.starts_with("assets/") { "public, max-age=31536000, immutable" } else { "no-cache" };
    Some(guarded(reply).with(header::ETAG, TAGS[at].clone()).with(header::CACHE_CONTROL, kept))
}

/// Adds the security headers.
pub(super) fn guarded(reply: Reply) -> Reply {
    let mut reply = reply
        .with(header::CONTENT_SECURITY_POLICY, POLICY)
        .with(header::X_CONTENT_TYPE_OPTIONS, "nosniff")
        .with(header::REFERRER_POLICY, "no-referrer");
    for (name, value) in
        [("cross-origin-opener-policy", "same-origin"), ("cross-origin-resource-policy", "same-origin")]
    {
        reply = reply.with(header::HeaderName::from_static(name), value);
    }
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ui_is_complete_small_and_has_no_inline_script() {
        let (_, _, index) = FILES.iter().find(|(name, _, _)| *name == "index.html").expect("an index");
        let index = std::str::from_utf8(index).expect("text");
        for reference in index.split(['"', '\'']).filter(|word| word.starts_with("/page/") && word.len() > 6) {
            assert!(file(&reference[6..], None).is_some(), "{reference} is not there");
        }
        let scripts: Vec<&str> = index.split("<script").skip(1).collect();
        assert!(
            !scripts.is_empty()
                && scripts.iter().all(|script| script.contains("src=") && script.contains("></script>"))
        );
        assert!(!index.contains("<style") && !index.contains(" style="), "{index}");
        let size: usize = FILES.iter().map(|(_, _, bytes)| bytes.len()).sum();
        assert!(size < 150_000, "{size} bytes");
    }

    #[test]
    fn cached_files_get_304() {
        let first = file("", None).expect("a page");
        let tag = first.headers.iter().find(|(name, _)| *name == header::ETAG).expect("a tag").1.clone();
        assert_eq!((first.code, file("index.html", Some(&tag)).expect("a page").code), (200, 304));
        assert_eq!(file("index.html", Some("\"old\"")).expect("a page").code, 200);
        assert!(file("../Cargo.toml", None).is_none() && file("assets/", None).is_none());
    }
}
