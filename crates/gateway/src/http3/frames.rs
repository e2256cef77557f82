//! What the HTTP/3 library may see of a stream: frames of limited length, whole or in order.
//!
//! In: bytes of a stream, in pieces of any size. Out: the same frames. The library buffers a frame until it is complete, whatever length it
//! declares, takes an empty DATA frame for the end of the body, and does not notice that a stream ends within a DATA frame. So frames have a
//! limit here, those of unknown types and empty ones are left out, and a stream must end where a frame does. Pure.

use bytes::{Buf as _, BufMut as _, BytesMut};

/// Frame types (RFC 9114, 7.2).
const DATA: u64 = 0x0;
const HEADERS: u64 = 0x1;
/// Other types that the library handles, most of them by rejecting them: PRIORITY, CANCEL_PUSH, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE,
/// CONTINUATION, MAX_PUSH_ID.
const KNOWN: [u64; 9] = [0x2, 0x3, 0x4, 0x5, 0x6, 0x7, 0x8, 0x9, 0xd];
/// The type of a control stream.
const CONTROL: u64 = 0x0;
/// Longest frame that is neither DATA nor HEADERS, in bytes.
const MAX_OTHER: u64 = 4 * 1024;

/// Why a stream is broken off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Violation {
    /// A frame is longer than allowed.
    #[error("a frame is too long")]
    TooLong,
    /// The stream ends within a frame.
    #[error("the stream ends within a frame")]
    Truncated,
}

/// The frames of a stream.
#[derive(Debug)]
pub(super) struct FrameFilter {
    state: State,
    /// Longest HEADERS frame in bytes.
    max_headers: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Before the type of a unidirectional stream.
    StreamType,
    /// Between frames, or within the head of one.
    Head,
    /// Within a frame of this type, of which the head has been passed on.
    Payload { rest: u64 },
    /// Within a frame that is passed on when it is complete.
    Whole { kind: u64, length: u64 },
    /// Within a frame that is left out.
    Ignored { rest: u64 },
    /// In a stream of which nothing is read.
    Opaque,
}

impl FrameFilter {
    /// Of a request.
    pub(super) const fn of_request(max_headers: usize) -> Self {
        Self { state: State::Head, max_headers: max_headers as u64 }
    }

    /// Of a unidirectional stream of the client.
    pub(super) const fn of_stream(max_headers: usize) -> Self {
        Self { state: State::StreamType, max_headers: max_headers as u64 }
    }

    /// Moves what may be passed on from `input` to `output`; returns how many bytes of it are payload of DATA frames. The type of a stream is
    /// passed on alone.
    ///
    /// # Errors
    /// When a frame is too long.
    pub(super) fn pass(&mut self, input: &mut BytesMut, output: &mut BytesMut) -> Result<usize, Violation> {
        let mut payload = 0;
        loop {
            match self.state {
                State::Opaque => {
                    input.clear();
                    return Ok(payload);
                }
                State::StreamType => {
                    let Some((kind, length)) = varint(input) else { return Ok(payload) };
                    output.extend_from_slice(&input.split_to(length));
                    self.state = if kind == CONTROL { State::Head } else { State::Opaque };
                    return Ok(payload);
                }
                State::Head => {
                    let Some((kind, length, head)) = frame_head(input) else { return Ok(payload) };
                    self.state = self.enter(kind, length)?;
                    input.advance(head);
                    if let State::Payload { .. } = self.state {
                        put_head(output, kind, length);
                    }
                }
                State::Payload { rest } => {
                    let count = piece(input, rest);
                    output.extend_from_slice(&input.split_to(count));
                    payload += count;
                    if (count as u64) < rest {
                        self.state = State::Payload { rest: rest - count as u64 };
                        return Ok(payload);
                    }
                    self.state = State::Head;
                }
                State::Whole { kind, length } => {
                    let count = piece(input, length);
                    if (count as u64) < length {
                        return Ok(payload);
                    }
                    put_head(output, kind, length);
                    output.extend_from_slice(&input.split_to(count));
                    self.state = State::Head;
                }
                State::Ignored { rest } => {
                    let count = piece(input, rest);
                    input.advance(count);
                    if (count as u64) < rest {
                        self.state = State::Ignored { rest: rest - count as u64 };
                        return Ok(payload);
                    }
                    self.state = State::Head;
                }
            }
        }
    }

    /// Checks that the stream may end here, with these bytes not passed on.
    ///
    /// # Errors
    /// When it ends within a frame.
    pub(super) fn end(&self, input: &BytesMut) -> Result<(), Violation> {
        match self.state {
            State::Head if input.is_empty() => Ok(()),
            State::StreamType | State::Opaque => Ok(()),
            _ => Err(Violation::Truncated),
        }
    }

    fn enter(&self, kind: u64, length: u64) -> Result<State, Violation> {
        match kind {
            DATA if length == 0 => Ok(State::Head),
            DATA => Ok(State::Payload { rest: length }),
            HEADERS if length > self.max_headers => Err(Violation::TooLong),
            HEADERS => Ok(State::Whole { kind, length }),
            _ if !KNOWN.contains(&kind) => Ok(State::Ignored { rest: length }),
            _ if length > MAX_OTHER => Err(Violation::TooLong),
            _ => Ok(State::Whole { kind, length }),
        }
    }
}

/// How many of the next `rest` bytes there are.
fn piece(input: &BytesMut, rest: u64) -> usize {
    usize::try_from(rest).unwrap_or(usize::MAX).min(input.len())
}

/// A variable-length integer (RFC 9000, 16) and its length.
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let length = 1 << (bytes.first()? >> 6);
    let (first, others) = bytes.get(..length)?.split_first()?;
    let value = others.iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte));
    Some((value, length))
}

/// Type and length of a frame, and the length of its head.
fn frame_head(bytes: &[u8]) -> Option<(u64, u64, usize)> {
    let (kind, at) = varint(bytes)?;
    let (length, count) = varint(&bytes[at..])?;
    Some((kind, length, at + count))
}

/// Writes the head of a frame in its shortest form: a client cannot make it longer than the frame.
fn put_head(output: &mut BytesMut, kind: u64, length: u64) {
    for value in [kind, length] {
        match value {
            0..=0x3f => output.put_uint(value, 1),
            0x40..=0x3fff => output.put_uint(value | 0x4000, 2),
            0x4000..=0x3fff_ffff => output.put_uint(value | 0x8000_0000, 4),
            _ => output.put_u64(value | 0xc000_0000_0000_0000),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAX: usize = 100;

    fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
        let mut out = BytesMut::new();
        put_head(&mut out, kind, payload.len() as u64);
        out.extend_from_slice(payload);
        out.to_vec()
    }

    /// What is passed on of a stream that arrives in these pieces, and how it ends.
    fn passed(mut filter: FrameFilter, pieces: &[&[u8]]) -> (Vec<u8>, usize, Result<(), Violation>) {
        let (mut input, mut output, mut payload) = (BytesMut::new(), BytesMut::new(), 0);
        for piece in pieces {
            input.extend_from_slice(piece);
            match filter.pass(&mut input, &mut output) {
                Ok(count) => payload += count,
                Err(violation) => return (output.to_vec(), payload, Err(violation)),
            }
        }
        let end = filter.end(&input);
        (output.to_vec(), payload, end)
    }

    #[test]
    fn empty_and_unknown_frames_are_left_out() {
        let parts = [
            frame(HEADERS, b"head"),
            frame(0x21, b"grease"),
            frame(DATA, b""),
            frame(DATA, b"body"),
            frame(0x41, b"stream"),
            frame(HEADERS, b"tail"),
        ];
        let expected = [frame(HEADERS, b"head"), frame(DATA, b"body"), frame(HEADERS, b"tail")].concat();
        let all = passed(FrameFilter::of_request(MAX), &[&parts.concat()]);
        assert_eq!(all, (expected, 4, Ok(())));
    }

    #[test]
    fn heads_are_written_in_the_shortest_form() {
        // Type and length in eight bytes each, for one byte.
        let long = [[0xc0, 0, 0, 0, 0, 0, 0, 0], [0xc0, 0, 0, 0, 0, 0, 0, 1]].concat();
        let (output, payload, end) = passed(FrameFilter::of_request(MAX), &[&long, b"x"]);
        assert_eq!((output, payload, end), (frame(DATA, b"x"), 1, Ok(())));
    }

    #[test]
    fn frames_that_the_library_would_buffer_have_a_limit() {
        let head = |kind: u64, length: u64| {
            let mut out = BytesMut::new();
            put_head(&mut out, kind, length);
            out.to_vec()
        };
        for (kind, length, is_allowed) in [
            (HEADERS, MAX as u64, true),
            (HEADERS, MAX as u64 + 1, false),
            (HEADERS, (1 << 62) - 1, false),
            (0x4, MAX_OTHER, true),
            (0x4, MAX_OTHER + 1, false),
            (0x21, (1 << 62) - 1, true),
            (DATA, (1 << 62) - 1, true),
        ] {
            let (_, _, end) = passed(FrameFilter::of_request(MAX), &[&head(kind, length)]);
            let expected = if is_allowed { Violation::Truncated } else { Violation::TooLong };
            assert_eq!(end, Err(expected), "type {kind:#x}, {length} bytes");
        }
    }

    #[test]
    fn a_stream_that_ends_within_a_frame_is_broken_off() {
        for part in [frame(DATA, b"body"), frame(HEADERS, b"head"), frame(0x21, b"grease")] {
            for cut in 1..part.len() {
                let (_, _, end) = passed(FrameFilter::of_request(MAX), &[&part[..cut]]);
                assert_eq!(end, Err(Violation::Truncated), "after {cut} bytes of {part:?}");
            }
            assert_eq!(passed(FrameFilter::of_request(MAX), &[&part]).2, Ok(()));
        }
    }

    #[test]
    fn only_control_streams_are_read() {
        let settings = frame(0x4, b"");
        let control = [&[0][..], &settings].concat();
        let (mut filter, mut input, mut output) =
            (FrameFilter::of_stream(MAX), BytesMut::from(&*control), BytesMut::new());
        filter.pass(&mut input, &mut output).expect("a type");
        assert_eq!(&output[..], [0], "the type alone");
        filter.pass(&mut input, &mut output).expect("a frame");
        assert_eq!(&output[..], control);
        let (output, _, end) = passed(FrameFilter::of_stream(MAX), &[&[2], b"instructions of QPACK"]);
        assert_eq!((output, end), (vec![2], Ok(())));
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(
            frames in prop::collection::vec((0_u64..40, prop::collection::vec(any::<u8>(), 0..MAX)), 0..8),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let bytes = frames.iter().map(|(kind, payload)| frame(*kind, payload)).collect::<Vec<_>>().concat();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts.into_iter().chain([bytes.len()]) {
                pieces.push(&bytes[from..cut]);
                from = cut;
            }
            let whole = passed(FrameFilter::of_request(MAX), &[&bytes]);
            prop_assert_eq!(passed(FrameFilter::of_request(MAX), &pieces), whole);
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let (output, payload, _) = passed(FrameFilter::of_request(MAX), &[&bytes]);
            prop_assert!(output.len() <= bytes.len() && payload <= bytes.len());
        }
    }
}
