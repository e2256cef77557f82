//! What must hold for every decoder, whatever comes: however the bytes are cut, they mean the same, and little of them is held.
//!
//! Used by the fuzzer and by the tests beside the protocols.

use bytes::{Bytes, BytesMut};

use super::spdy;
use super::wire::{Decode, Event};
use super::ws::channel::{self, Form};

/// More than any control frame and its head.
const HELD: usize = 64 * 1024 + 16;

/// Reads bytes whole and in pieces. The first byte picks the protocol, the second how long the pieces are.
///
/// # Panics
/// When it makes a difference.
pub fn fuzz(data: &[u8]) {
    let Some(([protocol, cut], bytes)) = data.split_first_chunk() else { return };
    let whole = replay(*protocol, bytes, bytes.len().max(1));
    let pieces = replay(*protocol, bytes, usize::from(*cut).max(1));
    assert_eq!(whole, pieces, "the same bytes, cut otherwise");
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

/// Everything that happens, bytes of one stream that follow each other put together; and the rule that was broken in the end.
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
        assert!(input.len() <= HELD, "{} bytes wait for more", input.len());
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
