//! What a pod answers by HTTP/1.1: however it is cut, it means the same, or is refused for the same reason.
#![no_main]

use bytes::BytesMut;
use gateway::talk::head::{Bad, Head, read};
use gateway::talk::pieces::{Next, Pieces};
use http::Method;
use libfuzzer_sys::fuzz_target;

/// All that is understood, in words, when it comes in pieces of this length.
fn heard(data: &[u8], step: usize, method: &Method) -> (Vec<String>, Option<Bad>) {
    let (mut said, mut body, mut buffer) = (Vec::new(), Vec::new(), BytesMut::new());
    let mut pieces = None;
    let mut bad = None;
    for piece in data.chunks(step) {
        buffer.extend_from_slice(piece);
        bad = listen(&mut buffer, &mut pieces, method, &mut said, &mut body).err();
        if bad.is_some() {
            break;
        }
    }
    said.push(format!("{body:?}"));
    (said, bad)
}

fn listen(
    buffer: &mut BytesMut,
    pieces: &mut Option<Pieces>,
    method: &Method,
    said: &mut Vec<String>,
    body: &mut Vec<u8>,
) -> Result<(), Bad> {
    if pieces.is_none() && !buffer.is_empty() {
        let Some(Head { status, headers, measure, keeps }) = read(buffer, method)? else { return Ok(()) };
        said.push(format!("{status} {headers:?} {measure:?} {keeps}"));
        *pieces = Some(Pieces::new(measure));
    }
    let Some(pieces) = pieces else { return Ok(()) };
    loop {
        match pieces.next(buffer)? {
            Next::Piece(piece) => body.extend_from_slice(&piece),
            Next::Trailers(fields) => said.push(format!("{fields:?}")),
            Next::More | Next::Over => return Ok(()),
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((flags, data)) = data.split_first() else { return };
    let method = if flags & 1 == 0 { Method::GET } else { Method::HEAD };
    let step = usize::from(flags >> 1).max(1);
    assert_eq!(heard(data, step, &method), heard(data, data.len().max(1), &method));
});
