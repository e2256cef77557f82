use proptest::prelude::*;

use super::channel::{Decoder, Encoder, Form};
use super::*;
use crate::streams::cut;
use crate::streams::wire::{Decode as _, Event};

fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    write_head(0, payload.len(), &mut out);
    out[0] = first;
    out[1] |= 0x80;
    out.put_slice(&[9, 8, 7, 6]);
    out.extend(payload.iter().zip([9, 8, 7, 6].iter().cycle()).map(|(byte, mask)| byte ^ mask));
    out.to_vec()
}

/// What we write, as a client that masks it would send it back.
fn returned(bytes: &[u8]) -> Vec<u8> {
    let head = match bytes[1] {
        126 => 4,
        127 => 10,
        _ => 2,
    };
    masked(bytes[0], &bytes[head..])
}

#[test]
fn messages_of_all_lengths_round_trip() {
    for length in [0, 1, 125, 126, 127, 65534, 65535, 65536, 100_000] {
        for form in [Form::Binary, Form::BinaryWithClose, Form::Base64] {
            let bytes = vec![42; length];
            let mut out = BytesMut::new();
            Encoder(form).message(2, &bytes, &mut out);
            let mut input = BytesMut::from(&returned(&out)[..]);
            let mut decoder = Decoder::new(form, 5);
            let mut got = Vec::new();
            while let Some(event) = decoder.decode(&mut input).expect("no fault") {
                if let Event::Data { id: 2, bytes } = event {
                    got.extend_from_slice(&bytes);
                }
            }
            assert!(got == bytes && input.is_empty(), "{form:?} {length}");
        }
    }
}

#[test]
fn close_reasons_are_truncated_at_a_character_boundary() {
    let frame = close_frame(1002, &"\u{e9}".repeat(100));
    assert_eq!(frame.len(), 2 + 2 + 122);
    assert!(std::str::from_utf8(&frame[4..]).is_ok());
}

#[test]
fn data_for_unknown_channels_is_dropped() {
    let mut decoder = Decoder::new(Form::Binary, 5);
    let mut input = BytesMut::from(&[masked(0x82, b"\x09x"), masked(0x82, b"\x01y"), masked(0x82, b"")].concat()[..]);
    let mut events = Vec::new();
    while let Some(event) = decoder.decode(&mut input).expect("no fault") {
        events.push(event);
    }
    events.retain(|event| *event != Event::Alive);
    assert_eq!(events, [Event::Data { id: 1, bytes: "y".into() }]);
}

#[test]
fn base64_messages_are_limited() {
    let mut decoder = Decoder::new(Form::Base64, 5);
    let mut input = BytesMut::from(&masked(0x81, &vec![b'A'; 1024 * 1024 + 10])[..]);
    let mut all = input.split();
    loop {
        input.extend_from_slice(&all.split_to(all.len().min(10_000)));
        match decoder.decode(&mut input) {
            Ok(_) => assert!(!all.is_empty(), "it was taken"),
            Err(fault) => return assert_eq!(fault.close_frame[2..4], 1009u16.to_be_bytes()),
        }
    }
}

proptest! {
    #[test]
    fn decoding_is_independent_of_chunk_boundaries(
        protocol in 1u8..5,
        cut in 1u8..40,
        frames in proptest::collection::vec((prop_oneof![4 => Just(0x82u8), 1 => any::<u8>()], proptest::collection::vec(any::<u8>(), 0..300)), 0..8),
    ) {
        let mut data = vec![protocol, cut];
        for (first, payload) in frames {
            data.extend(masked(first, &payload));
        }
        cut::fuzz(&data);
    }
}
