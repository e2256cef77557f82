use proptest::prelude::*;

use super::*;
use crate::streams::cut;
use client::spdy::Packer;

fn open(packer: &mut Packer, id: u32, flags: u8, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut body = BytesMut::new();
    body.put_u32(id);
    body.put_u32(0);
    body.put_u16(0);
    body.put_slice(&packer.pack(headers));
    let mut out = frame(SYN_STREAM, &body).to_vec();
    out[4] = flags;
    out
}

fn events(bytes: &[u8]) -> Vec<Event> {
    let (mut decoder, mut input) = (Decoder::new(|_| true), BytesMut::from(bytes));
    std::iter::from_fn(|| decoder.decode(&mut input).expect("no fault"))
        .filter(|event| *event != Event::Alive)
        .collect()
}

#[test]
fn a_stream_from_its_first_frame_to_its_last() {
    let mut packer = Packer::default();
    let mut bytes = open(&mut packer, 1, 0, &[("streamtype", "data"), ("port", "80")]);
    Encoder.data(1, b"hello", false, &mut BytesMut::new());
    for (text, finish) in [("hel", false), ("lo", true)] {
        let mut out = BytesMut::new();
        Encoder.data(1, text.as_bytes(), finish, &mut out);
        bytes.extend_from_slice(&out);
    }
    let got = events(&bytes);
    let [Event::Open { id: 1, headers, finished: false, one_way: false, .. }, rest @ ..] = &got[..] else {
        panic!("{got:?}")
    };
    assert_eq!(headers, &[("streamtype".to_owned(), "data".to_owned()), ("port".to_owned(), "80".to_owned())]);
    let data = |text: &'static str| Event::Data { id: 1, bytes: text.into() };
    assert_eq!(rest, [data("hel"), data("lo"), Event::Finish { id: 1 }]);
}

#[test]
fn flags_of_a_new_stream() {
    let mut packer = Packer::default();
    let bytes = [open(&mut packer, 1, FIN, &[]), open(&mut packer, 3, ONE_WAY, &[])].concat();
    let flags: Vec<(bool, bool)> = events(&bytes)
        .into_iter()
        .map(|event| match event {
            Event::Open { finished, one_way, .. } => (finished, one_way),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(flags, [(true, false), (false, true)]);
}

#[test]
fn after_a_goaway_no_stream_is_opened() {
    let mut packer = Packer::default();
    let bytes = [goaway(0, 0).to_vec(), open(&mut packer, 1, 0, &[])].concat();
    assert_eq!(events(&bytes), [Event::Answer(reset(1, REFUSED_STREAM))]);
}

#[test]
fn ignored_header_blocks_are_decompressed() {
    let mut packer = Packer::default();
    let mut bytes = open(&mut packer, 1, 0, &[("streamtype", "error")]);
    let mut body = BytesMut::new();
    body.put_u32(1);
    body.put_slice(&packer.pack(&[("x", "y")]));
    bytes.extend_from_slice(&frame(HEADERS, &body));
    bytes.extend(open(&mut packer, 3, 0, &[("streamtype", "stdout")]));
    assert_eq!(events(&bytes).len(), 2);
}

proptest! {
    #[test]
    fn decoding_is_independent_of_chunk_boundaries(
        cut in 1u8..40,
        frames in proptest::collection::vec((0u8..13, any::<u8>(), 0u32..12, proptest::collection::vec(any::<u8>(), 0..80)), 0..10),
    ) {
        let mut packer = Packer::default();
        let mut data = vec![0, cut];
        for (kind, flags, id, body) in frames {
            match kind {
                0..=3 => {
                    let mut out = BytesMut::new();
                    Encoder.data(id, &body, flags & 1 != 0, &mut out);
                    data.extend_from_slice(&out);
                }
                4..=6 => data.extend(open(&mut packer, id, flags & 3, &[("streamtype", "data"), ("requestid", &id.to_string())])),
                _ => data.extend_from_slice(&frame(u16::from(kind) - 6, &body)),
            }
        }
        cut::fuzz(&data);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(data in proptest::collection::vec(any::<u8>(), 0..400)) {
        cut::fuzz(&data);
    }
}
