//! What a client of HTTP/1.1 receives: responses one after the other, of which only the last may be incomplete.

/// Checks responses.
///
/// # Panics
/// When a response is malformed, or two clients could disagree about its end.
pub fn check(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            let is_begun = bytes.iter().zip(b"HTTP/1.").all(|(byte, expected)| byte == expected);
            assert!(is_begun, "not a response: {}", bytes.escape_ascii());
            return;
        };
        let (head, rest) = (&bytes[..end], &bytes[end + 4..]);
        let Some(after) = body(head, rest) else { return };
        bytes = after;
    }
}

/// What follows the body of a response, unless nothing does.
fn body<'a>(head: &[u8], rest: &'a [u8]) -> Option<&'a [u8]> {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    assert!(first.starts_with("HTTP/1.1 ") || first.starts_with("HTTP/1.0 "), "a status line: {text:?}");
    let status: u16 =
        first.get(9..12).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("a status: {text:?}"));
    let (mut lengths, mut codings) = (Vec::new(), Vec::new());
    for line in lines {
        let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("a header without a colon: {text:?}"));
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':');
        assert!(is_name && !value.contains(|one: char| one != '\t' && one.is_ascii_control()), "a header: {text:?}");
        match name.to_ascii_lowercase().as_str() {
            "content-length" => {
                lengths.push(value.trim().parse::<usize>().unwrap_or_else(|_| panic!("a length: {text:?}")))
            }
            "transfer-encoding" => codings.push(value.trim()),
            _ => {}
        }
    }
    assert!(lengths.len() + codings.len() <= 1, "the length of the body is ambiguous: {text:?}");
    let is_empty = (100..200).contains(&status) && status != 101 || status == 204 || status == 304;
    // The response to HEAD has no body, whatever it says: a body of this pod does not begin like a response.
    if is_empty || rest.starts_with(b"HTTP/1.") {
        return Some(rest);
    }
    match (lengths.first(), codings.first()) {
        (_, Some(coding)) => {
            assert_eq!(*coding, "chunked", "{text:?}");
            chunks(rest)
        }
        (Some(length), None) => rest.get(*length..),
        // Until the end.
        (None, None) => None,
    }
}

/// What follows the chunks and trailers of a body; none when they are incomplete.
fn chunks(mut bytes: &[u8]) -> Option<&[u8]> {
    loop {
        let end = bytes.windows(2).position(|two| two == b"\r\n")?;
        let length = std::str::from_utf8(&bytes[..end]).ok().and_then(|line| usize::from_str_radix(line, 16).ok());
        let length = length.unwrap_or_else(|| panic!("the length of a chunk: {}", bytes.escape_ascii()));
        if length == 0 {
            let trailers = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
            return bytes.get(trailers + 4..);
        }
        let data = bytes.get(end + 2..)?;
        let after = data.get(length..)?;
        assert!(after.is_empty() || after.starts_with(b"\r"), "the end of a chunk: {}", bytes.escape_ascii());
        bytes = after.strip_prefix(b"\r\n")?;
    }
}
