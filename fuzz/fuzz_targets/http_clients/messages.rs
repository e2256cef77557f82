//! Connections that an input chooses instead of containing: requests of HTTP/1.1 whose lines are valid or odd in one place, and frames of HTTP/2 whose
//! lengths are right and whose header blocks decode. Random bytes seldom get past a parser; these get to what is behind it.

use libfuzzer_sys::arbitrary::{Result, Unstructured};

/// Targets of rules of the Gateway, and odd ones.
const TARGETS: [&str; 14] = [
    "/",
    "/shared",
    "/shared/x?y",
    "/rewritten/x?y",
    "/redirected/x?y",
    "/none",
    "*",
    "http://b.example/rewritten",
    "/rewritten//evil.example",
    "/a/../b",
    "/%2e%2e/%zz",
    "?q",
    "a.example:443",
    "/x#y",
];
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "OPTIONS", "CONNECT", "TRACE", "get", "A-B"];
const HOSTS: [&str; 8] =
    ["a.example", "a.example:80", "[::1]:80", "", "a@b", "a b", "a.example,b.example", "A.EXAMPLE."];
/// Headers that say something about the message or the connection, and some that do not.
const HEADERS: [(&str, &str); 32] = [
    ("content-length", "5"),
    ("content-length", "0"),
    ("content-length", "+5"),
    ("content-length", "5, 5"),
    ("content-length", "18446744073709551616"),
    ("transfer-encoding", "chunked"),
    ("transfer-encoding", "gzip, chunked"),
    ("transfer-encoding", "identity"),
    ("transfer-encoding", "\u{b}chunked"),
    ("connection", "close"),
    ("connection", "keep-alive, x-mark"),
    ("connection", "upgrade"),
    ("connection", "te, x-forwarded-for"),
    ("upgrade", "websocket"),
    ("upgrade", "h2c"),
    ("http2-settings", "AAMAAABkAAQAAP__"),
    ("expect", "100-continue"),
    ("te", "trailers"),
    ("te", "gzip"),
    ("trailer", "x-sum"),
    ("host", "b.example"),
    ("x-forwarded-for", "192.0.2.1"),
    ("x-forwarded-proto", "https"),
    ("x-mark", "1"),
    ("x_mark", "1"),
    ("x-removed", "1"),
    ("content-type", "application/grpc"),
    ("grpc-timeout", "1m"),
    ("origin", "https://a.example"),
    ("access-control-request-method", "PUT"),
    ("cookie", "a=b"),
    ("keep-alive", "timeout=5"),
];
/// What a body of HTTP/1.1 consists of.
const PARTS: [&str; 12] = [
    "hello",
    "5\r\nhello\r\n",
    "0\r\n\r\n",
    "0\r\nx-sum: 1\r\n\r\n",
    "5;a=b\r\nhello\r\n",
    "05\r\nhello\r\n",
    "5\nhello\n",
    "ffffffffffffffff\r\n",
    "-1\r\n",
    "\r\n",
    "0\r\ncontent-length: 5\r\n\r\n",
    "5 \r\nhello\r\n",
];

/// Requests, one after the other.
pub fn http1(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut sent = Vec::new();
    while !input.is_empty() && sent.len() < 8192 {
        let version = input.choose(&["1.1", "1.1", "1.1", "1.0", "2.0"])?;
        let (method, target) = (input.choose(&METHODS)?, input.choose(&TARGETS)?);
        sent.extend_from_slice(format!("{method} {target} HTTP/{version}\r\n").as_bytes());
        if input.ratio(7, 8)? {
            sent.extend_from_slice(format!("Host: {}\r\n", input.choose(&HOSTS)?).as_bytes());
        }
        for _ in 0..input.int_in_range(0..=4u8)? {
            let (name, value) = header(input)?;
            let separator = input.choose(&[": ", ": ", ": ", ":", " : ", ":\r\n "])?;
            let end = input.choose(&["\r\n", "\r\n", "\r\n", "\n", "\r"])?;
            sent.extend([&name[..], separator.as_bytes(), &value, end.as_bytes()].concat());
        }
        sent.extend_from_slice(b"\r\n");
        for _ in 0..input.int_in_range(0..=3u8)? {
            sent.extend_from_slice(input.choose(&PARTS)?.as_bytes());
        }
    }
    Ok(sent)
}

/// Frames, without the preface.
pub fn http2(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut sent = Vec::new();
    while !input.is_empty() && sent.len() < 8192 {
        let stream = match input.int_in_range(0..=15u8)? {
            0 => input.arbitrary()?,
            number @ 1..=3 => u32::from(number - 1),
            number => u32::from(number % 6) * 2 + 1,
        };
        match input.int_in_range(0..=15u8)? {
            0..=4 => request(input, stream, &mut sent)?,
            5..=7 => data(input, stream, &mut sent)?,
            8 => frame(2, 0, stream, &[&stream.to_be_bytes()[..], &[input.arbitrary()?]].concat(), &mut sent),
            9 => frame(3, 0, stream, &u32::from(input.int_in_range(0..=14u8)?).to_be_bytes(), &mut sent),
            10 => settings(input, &mut sent)?,
            11 => frame(6, *input.choose(&[0, 1])?, 0, b"12345678", &mut sent),
            12 => frame(7, 0, 0, &[&stream.to_be_bytes()[..], &[0; 4], b"bye"].concat(), &mut sent),
            13 => {
                let increment = input.choose(&[1, 0, 65_535, 1 << 20, (1 << 31) - 1, u32::MAX])?;
                frame(8, 0, *input.choose(&[0, stream])?, &increment.to_be_bytes(), &mut sent);
            }
            14 => frame(5, 4, stream, &[0, 0, 0, 2, 0x82], &mut sent),
            _ => {
                let length = usize::from(input.arbitrary::<u8>()?).min(input.len());
                let (kind, flags) = (input.int_in_range(0..=12u8)?, input.arbitrary()?);
                let length = length.min(input.len());
                frame(kind, flags, stream, input.bytes(length)?, &mut sent);
            }
        }
    }
    Ok(sent)
}

/// HEADERS, possibly padded and with CONTINUATION.
fn request(input: &mut Unstructured<'_>, stream: u32, sent: &mut Vec<u8>) -> Result<()> {
    let block = block(input)?;
    let end_stream = u8::from(input.ratio(1, 2)?);
    let (flags, before, after): (u8, &[u8], &[u8]) = match input.int_in_range(0..=7u8)? {
        0 => (0x08, &[3], &[0; 3]),
        1 => (0x20, &[0x80, 0, 0, 1, 16], &[]),
        2 => (0x28, &[200, 0, 0, 0, 0, 0], &[]),
        _ => (0, &[], &[]),
    };
    let parts = input.int_in_range(0..=3u8)?;
    if parts == 0 {
        frame(1, flags | end_stream | 4, stream, &[before, &block, after].concat(), sent);
        return Ok(());
    }
    let (first, mut rest) = block.split_at(block.len() / 2);
    frame(1, flags | end_stream, stream, &[before, first, after].concat(), sent);
    for _ in 1..parts {
        let (part, left) = rest.split_at(rest.len() / 2);
        frame(9, 0, stream, part, sent);
        rest = left;
    }
    // One that is never ended is followed by something else.
    frame(9, if input.ratio(15, 16)? { 4 } else { 0 }, stream, rest, sent);
    Ok(())
}

/// A header block: mostly all pseudo-headers that a request needs, then fields.
fn block(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut block = Vec::new();
    if input.ratio(15, 16)? {
        block.push(*input.choose(&[0x82, 0x83])?);
        block.push(*input.choose(&[0x86, 0x87])?);
        field(b":path", input.choose(&TARGETS)?.as_bytes(), &mut block);
        field(b":authority", input.choose(&HOSTS)?.as_bytes(), &mut block);
    }
    for _ in 0..input.int_in_range(0..=5u8)? {
        match input.int_in_range(0..=9u8)? {
            // By index, of the static or of the dynamic table.
            0 => block.push(0x80 | input.arbitrary::<u8>()?),
            // The size of the dynamic table.
            1 => block.push(0x20 | input.int_in_range(0..=30u8)?),
            2 => {
                let name = *input.choose(&[
                    ":method",
                    ":path",
                    ":scheme",
                    ":authority",
                    ":status",
                    ":protocol",
                    "",
                    "X-A",
                    "a b",
                ])?;
                field(name.as_bytes(), input.choose(&METHODS)?.as_bytes(), &mut block);
            }
            _ => {
                let (name, value) = header(input)?;
                // With an entry in the dynamic table.
                block.push(0x40);
                literal(&name, &mut block);
                literal(&value, &mut block);
            }
        }
    }
    Ok(block)
}

fn data(input: &mut Unstructured<'_>, stream: u32, sent: &mut Vec<u8>) -> Result<()> {
    let bytes = input.choose(&[
        &b"hello"[..],
        b"",
        b"\0\0\0\0\x05hello",
        b"0\r\n\r\nGET /evil HTTP/1.1\r\nHost: a\r\n\r\n",
        &[b'x'; 600],
    ])?;
    let (flags, payload) = match input.int_in_range(0..=3u8)? {
        0 => (8, [&[2][..], bytes, &[0; 2]].concat()),
        _ => (0, bytes.to_vec()),
    };
    frame(0, flags | u8::from(input.ratio(1, 2)?), stream, &payload, sent);
    Ok(())
}

fn settings(input: &mut Unstructured<'_>, sent: &mut Vec<u8>) -> Result<()> {
    if input.ratio(1, 4)? {
        frame(4, 1, 0, b"", sent);
        return Ok(());
    }
    let mut payload = Vec::new();
    for _ in 0..input.int_in_range(0..=4u8)? {
        let (key, value) = (
            u16::from(input.int_in_range(0..=9u8)?),
            *input.choose(&[0, 1, 100, 16_384, 65_535, 1 << 24, (1 << 31) - 1, u32::MAX])?,
        );
        payload.extend(key.to_be_bytes());
        payload.extend(value.to_be_bytes());
    }
    frame(4, 0, 0, &payload, sent);
    Ok(())
}

/// A header that is usual or arbitrary.
fn header(input: &mut Unstructured<'_>) -> Result<(Vec<u8>, Vec<u8>)> {
    if input.ratio(7, 8)? {
        let (name, value) = input.choose(&HEADERS)?;
        return Ok((name.as_bytes().to_vec(), value.as_bytes().to_vec()));
    }
    let mut text = |most: usize| -> Result<Vec<u8>> {
        let length = input.int_in_range(0..=most)?.min(input.len());
        Ok(input.bytes(length)?.to_vec())
    };
    Ok((text(12)?, text(40)?))
}

/// A field that is not indexed.
fn field(name: &[u8], value: &[u8], block: &mut Vec<u8>) {
    block.push(0);
    literal(name, block);
    literal(value, block);
}

/// A literal of less than 127 bytes.
fn literal(text: &[u8], block: &mut Vec<u8>) {
    let text = &text[..text.len().min(126)];
    block.push(u8::try_from(text.len()).unwrap_or_default());
    block.extend_from_slice(text);
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8], sent: &mut Vec<u8>) {
    let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    sent.extend_from_slice(&length[1..]);
    sent.extend([kind, flags]);
    sent.extend(stream.to_be_bytes());
    sent.extend_from_slice(payload);
}
