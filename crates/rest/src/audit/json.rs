//! JSON as Go's encoder writes it, so that lines of the audit log equal those of kube-apiserver.
//!
//! In: a value that serde can serialise. Out: compact JSON. Besides what JSON demands, `<`, `>`, `&`, U+2028 and U+2029 are escaped,
//! also inside objects that are copied from a request or a response.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

/// Appends a value. `out` ends with a part of it when it cannot be serialised.
pub(super) fn append(out: &mut Vec<u8>, value: &impl Serialize) -> serde_json::Result<()> {
    value.serialize(&mut Serializer::with_formatter(out, GoFormatter))
}

/// Appends a string in quotes: the same as [`append`], faster.
pub(super) fn append_text(out: &mut Vec<u8>, text: &str) {
    let is_special = |byte: &u8| *byte < b' ' || matches!(byte, b'"' | b'\\' | b'<' | b'>' | b'&' | 0xe2);
    // Without an early exit the compiler examines many bytes at once, and hardly any text has one of these.
    if text.as_bytes().iter().fold(false, |found, byte| found | is_special(byte)) {
        // Writing to memory does not fail.
        let _ = append(out, &text);
        return;
    }
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

struct GoFormatter;

impl Formatter for GoFormatter {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        write_escaped(writer, fragment.as_bytes())
    }

    /// JSON that was written by others: spaces between tokens are removed.
    fn write_raw_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let bytes = fragment.as_bytes();
        let (mut begin, mut in_string, mut is_escaped) = (0, false, false);
        for (index, byte) in bytes.iter().enumerate() {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = in_string,
                b'"' => in_string = !in_string,
                b' ' | b'\t' | b'\n' | b'\r' if !in_string => {
                    write_escaped(writer, bytes.get(begin..index).unwrap_or_default())?;
                    begin = index + 1;
                }
                _ => {}
            }
        }
        write_escaped(writer, bytes.get(begin..).unwrap_or_default())
    }
}

/// Copies text, and escapes what would be markup inside HTML or JavaScript. All of these occur inside strings only.
fn write_escaped<W: ?Sized + Write>(writer: &mut W, bytes: &[u8]) -> io::Result<()> {
    let needs_escape = |byte: &u8| matches!(byte, b'<' | b'>' | b'&' | 0xe2);
    // Without an early exit the compiler examines many bytes at once, and hardly any text has one of these.
    if !bytes.iter().fold(false, |found, byte| found | needs_escape(byte)) {
        return writer.write_all(bytes);
    }
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(needs_escape) {
        let (plain, tail) = rest.split_at(at);
        writer.write_all(plain)?;
        let (escape, length): (&[u8], usize) = match tail {
            [b'<', ..] => (b"\\u003c", 1),
            [b'>', ..] => (b"\\u003e", 1),
            [b'&', ..] => (b"\\u0026", 1),
            [0xe2, 0x80, 0xa8, ..] => (b"\\u2028", 3),
            [0xe2, 0x80, 0xa9, ..] => (b"\\u2029", 3),
            _ => (tail.get(..1).unwrap_or_default(), 1),
        };
        writer.write_all(escape)?;
        rest = tail.get(length..).unwrap_or_default();
    }
    writer.write_all(rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::value::RawValue;
    use serde_json::{Value, json};

    use super::*;

    fn line(value: &impl Serialize) -> String {
        let mut out = Vec::new();
        append(&mut out, value).expect("serialised");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn markup_and_controls_are_escaped_as_in_go() {
        let text = "a<b> & \u{2028}\u{2029} \u{e9} \u{20ac} \u{1}\u{8}\u{c}\t\"\\";
        let wanted = r#""a\u003cb\u003e \u0026 \u2028\u2029 é € \u0001\b\f\t\"\\""#;
        assert_eq!(line(&text), wanted);
        assert_eq!(line(&json!({"<k>": 1})), "{\"\\u003ck\\u003e\":1}");
    }

    #[test]
    fn raw_objects_are_compacted() {
        let raw = "{ \"a\" : \"<b> & \\u003c c\\\" \\\\\" ,\n\t\"d\": [1, 2] }";
        let raw: &RawValue = serde_json::from_str(raw).expect("JSON");
        assert_eq!(line(&raw), "{\"a\":\"\\u003cb\\u003e \\u0026 \\u003c c\\\" \\\\\",\"d\":[1,2]}");
    }

    proptest! {
        #[test]
        fn every_string_reads_back(text in any::<String>(), key in any::<String>()) {
            let value = json!({key: [&text, 1, null]});
            let direct = line(&value);
            prop_assert_eq!(&serde_json::from_str::<Value>(&direct).expect("JSON"), &value);
            let escaped = ['<', '>', '&', '\u{2028}', '\u{2029}'];
            prop_assert!(!direct.contains(escaped));
            prop_assert!(!direct.contains('\n'));
            let mut fast = Vec::new();
            append_text(&mut fast, &text);
            prop_assert_eq!(fast, line(&text).into_bytes());
            let pretty = serde_json::to_string_pretty(&value).expect("JSON");
            let raw: &RawValue = serde_json::from_str(&pretty).expect("JSON");
            prop_assert_eq!(line(&raw), direct);
        }
    }
}
