//! Gzip compression of large responses.
//!
//! Small responses are sent as they are, and streams are not compressed. Compression runs on a blocking thread: a list of ten thousand objects
//! takes longer than other requests should wait.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header;

use crate::reply::{Body, Reply};

/// Responses up to this size in bytes are not compressed.
const THRESHOLD: usize = 128 * 1024;

/// Compresses a large response.
pub(crate) async fn large(mut reply: Reply) -> Reply {
    let Body::Whole(Some(plain)) = &reply.body else { return reply };
    let compressed_already = reply.headers.iter().any(|(name, _)| *name == header::CONTENT_ENCODING);
    if plain.len() <= THRESHOLD || compressed_already {
        return reply;
    }
    let plain = plain.clone();
    if let Ok(Some(smaller)) = tokio::task::spawn_blocking(move || gzip(&plain)).await {
        reply.body = Body::Whole(Some(smaller));
        reply.headers.push((header::CONTENT_ENCODING, "gzip".to_owned()));
        reply.headers.push((header::VARY, "Accept-Encoding".to_owned()));
    }
    reply
}

fn gzip(plain: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(plain.len() / 8), Compression::fast());
    encoder.write_all(plain).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[tokio::test]
    async fn only_large_documents_are_compressed() {
        let small = large(Reply::bytes(200, "text/plain", "x".repeat(THRESHOLD))).await;
        assert!(small.headers.is_empty());
        let text = "waypost ".repeat(THRESHOLD);
        let reply = large(Reply::bytes(200, "text/plain", text.clone())).await;
        let Body::Whole(Some(bytes)) = reply.body else { panic!("a whole body") };
        let mut read = String::new();
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut read).expect("gzip");
        assert_eq!(read, text);
        assert!(bytes.len() * 10 < text.len());
    }
}
