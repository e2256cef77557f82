//! Values of clients as text of one line. Pure.
//!
//! In: any bytes. Out: printable ASCII without the characters that end a value.

use std::io::Write as _;

/// Appends the inside of a JSON string. Everything but printable ASCII is escaped; bytes that are no UTF-8 become U+FFFD.
pub(super) fn json(out: &mut Vec<u8>, value: &[u8]) {
    for chunk in value.utf8_chunks() {
        for character in chunk.valid().chars() {
            json_character(out, character);
        }
        if !chunk.invalid().is_empty() {
            json_character(out, char::REPLACEMENT_CHARACTER);
        }
    }
}

fn json_character(out: &mut Vec<u8>, character: char) {
    match character {
        '"' | '\\' => out.extend_from_slice(&[b'\\', character as u8]),
        ' '..='~' => out.push(character as u8),
        _ => {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to memory does not fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
}

/// Appends a value of the combined log format, as nginx and Apache do it: quotes, backslashes, control characters and
/// everything beyond ASCII become `\xHH`.
pub(super) fn common(out: &mut Vec<u8>, value: &[u8]) {
    for byte in value {
        match byte {
            b'"' | b'\\' => hexadecimal(out, *byte),
            b' '..=b'~' => out.push(*byte),
            _ => hexadecimal(out, *byte),
        }
    }
}

/// The same for a value without quotes around it, in which there is no space either.
pub(super) fn common_word(out: &mut Vec<u8>, value: &[u8]) {
    for part in value.split_inclusive(|byte| *byte == b' ') {
        match part.split_last() {
            Some((b' ', word)) => {
                common(out, word);
                hexadecimal(out, b' ');
            }
            _ => common(out, part),
        }
    }
}

fn hexadecimal(out: &mut Vec<u8>, byte: u8) {
    let _ = write!(out, "\\x{byte:02X}");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn escaped(escape: impl Fn(&mut Vec<u8>, &[u8]), value: &[u8]) -> String {
        let mut out = Vec::new();
        escape(&mut out, value);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn what_ends_a_value_is_escaped() {
        let value = b"a\"\\b\r\n\x1b[31m\x7f\xc3\xa9\xff\xf0\x9f\x98\x80 z";
        assert_eq!(escaped(json, value), "a\\\"\\\\b\\u000d\\u000a\\u001b[31m\\u007f\\u00e9\\ufffd\\ud83d\\ude00 z");
        let expected = "a\\x22\\x5Cb\\x0D\\x0A\\x1B[31m\\x7F\\xC3\\xA9\\xFF\\xF0\\x9F\\x98\\x80 z";
        assert_eq!(escaped(common, value), expected);
        assert_eq!(escaped(common_word, value), expected.replace(' ', "\\x20"));
        assert_eq!(escaped(common_word, b" a  b "), "\\x20a\\x20\\x20b\\x20");
    }

    proptest! {
        #[test]
        fn json_text_is_read_back(text in ".*") {
            let read: String = serde_json::from_str(&format!("\"{}\"", escaped(json, text.as_bytes()))).expect("JSON");
            prop_assert_eq!(read, text);
        }

        #[test]
        fn no_bytes_leave_their_value(value in proptest::collection::vec(any::<u8>(), 0..64)) {
            let is_printable = |text: &str| text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
            let json = escaped(json, &value);
            prop_assert!(is_printable(&json));
            let read = serde_json::from_str::<String>(&format!("\"{json}\""));
            prop_assert!(read.is_ok(), "{}", json);
            for text in [escaped(common, &value), escaped(common_word, &value)] {
                prop_assert!(is_printable(&text) && !text.contains('"'), "{}", text);
            }
            prop_assert!(!escaped(common_word, &value).contains(' '));
        }
    }
}
