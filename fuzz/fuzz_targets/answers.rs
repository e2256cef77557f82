//! What a pod answers by HTTP/1.1: however it is cut, it means the same, or is refused for the same reason.
#![no_main]

use bytes::BytesMut;
use gateway::http1::head::{ProtocolError, Head, read};
use gateway::http1::chunked::{Decoded, BodyDecoder};
use http::Method;
use libfuzzer_sys::fuzz_target;

/// Everything that is parsed, as text, when the input arrives in chunks of this length.
fn decode(data: &[u8], step: usize, method: &Method) -> (Vec<String>, Option<ProtocolError>) {
    let (mut parsed, mut body, mut buffer) = (Vec::new(), Vec::new(), BytesMut::new());
    let mut decoder = None;
    let mut bad = None;
    for piece in data.chunks(step) {
        buffer.extend_from_slice(piece);
        bad = step_decode(&mut buffer, &mut decoder, method, &mut parsed, &mut body).err();
        if bad.is_some() {
            break;
        }
    }
    parsed.push(format!("{body:?}"));
    (parsed, bad)
}

fn step_decode(
    buffer: &mut BytesMut,
    decoder: &mut Option<BodyDecoder>,
    method: &Method,
    parsed: &mut Vec<String>,
    body: &mut Vec<u8>,
) -> Result<(), ProtocolError> {
    if decoder.is_none() && !buffer.is_empty() {
        let Some(Head { status, headers, body_length, keep_alive }) = read(buffer, method)? else { return Ok(()) };
        parsed.push(format!("{status} {headers:?} {body_length:?} {keep_alive}"));
        *decoder = Some(BodyDecoder::new(body_length));
    }
    let Some(decoder) = decoder else { return Ok(()) };
    loop {
        match decoder.next(buffer)? {
            Decoded::Data(piece) => body.extend_from_slice(&piece),
            Decoded::Trailers(fields) => parsed.push(format!("{fields:?}")),
            Decoded::Incomplete | Decoded::Done => return Ok(()),
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((flags, data)) = data.split_first() else { return };
    let method = if flags & 1 == 0 { Method::GET } else { Method::HEAD };
    let step = usize::from(flags >> 1).max(1);
    assert_eq!(decode(data, step, &method), decode(data, data.len().max(1), &method));
});
