//! Invariants of all decoders, for the fuzzer and property tests: results do not depend on how the input is split, and buffering is bounded.

use bytes::{Bytes, BytesMut};

use super::spdy;
use super::wire::{Decode, Event};
use super::ws::channel::{self, Form};

/// The most bytes that a decoder leaves buffered: a control frame with its header.
const MAX_BUFFERED: usize = 64 * 1024 + 16;

/// Decodes bytes whole and in chunks. The first byte selects the protocol, the second the chunk size.
///
/// # Panics
/// When the results differ.
pub fn fuzz(data: &[u8]) {
    let Some(([protocol, cut], bytes)) = data.split_first_chunk() else { return };
    let whole = replay(*protocol, bytes, bytes.len().max(1));
    let pieces = replay(*protocol, bytes, usize::from(*cut).max(1));
    assert_eq!(whole, pieces, "same bytes, split differently");
}

fn decoder(protocol: u8) -> Box<dyn Decode> {
    match protocol % 5 {
        0 => Box::new(spdy::Decoder::new(|_| true)),
        1 => Box::new(channel::Decoder::new(Form::Binary, 5)),
        2 => Box::new(channel::Decoder::new(Form::BinaryWithClose, 5)),
        3 => Box::new(channel::Decoder::new(Form::Base64, 5)),
        _ => Box::new(channel::Decoder::new(Form::Tunnel, 1)),
    }
}

/// All events, with consecutive data of one stream merged, and the protocol error, if any.
fn replay(protocol: u8, bytes: &[u8], cut: usize) -> (Vec<Event>, Option<String>) {
    let mut decoder = decoder(protocol);
    let (mut input, mut events) = (BytesMut::new(), Vec::new());
    for piece in bytes.chunks(cut) {
        input.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut input) {
                Ok(Some(event)) => add(&mut events, event),
                Ok(None) => break,
                Err(fault) => return (events, Some(fault.why)),
            }
        }
        assert!(input.len() <= MAX_BUFFERED, "{} bytes wait for more", input.len());
    }
    (events, None)
}

fn add(events: &mut Vec<Event>, event: Event) {
    match (event, events.last_mut()) {
        (Event::Alive, _) => {}
        (Event::Data { id, bytes }, Some(Event::Data { id: before, bytes: have })) if id == *before => {
            *have = Bytes::from([&have[..], &bytes[..]].concat());
        }
        (event, _) => events.push(event),
    }
}
