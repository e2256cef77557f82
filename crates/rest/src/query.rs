//! Query strings and percent-encoding.

/// The parameters of a query string, decoded, in order.
pub(crate) fn parse(query: &str) -> Vec<(String, String)> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key, true), decode(value, true))
        })
        .collect()
}

/// The first value of a parameter.
pub(crate) fn first<'a>(query: &'a [(String, String)], name: &str) -> Option<&'a str> {
    query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

/// Whether a list is a watch; the parameter without a value counts too.
pub(crate) fn wants_watch(query: &[(String, String)]) -> bool {
    matches!(first(query, "watch"), Some("" | "1" | "true" | "True" | "TRUE" | "t" | "T"))
}

/// Percent-encodes a value for a query.
pub(crate) fn encode(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Percent-decodes a path.
pub(crate) fn decode_path(path: &str) -> String {
    if path.contains('%') { decode(path, false) } else { path.to_owned() }
}

fn decode(text: &str, plus_is_space: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let hex = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        match bytes[index] {
            b'%' => match (hex(index + 1), hex(index + 2)) {
                (Some(high), Some(low)) => {
                    out.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
                    index += 2;
                }
                _ => out.push(b'%'),
            },
            b'+' if plus_is_space => out.push(b' '),
            byte => out.push(byte),
        }
        index += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_in_order() {
        let query = parse("labelSelector=a%3Db%2Cc+in+%28d%29&watch&dryRun=All&dryRun=x");
        assert_eq!(first(&query, "labelSelector"), Some("a=b,c in (d)"));
        assert!(wants_watch(&query));
        assert_eq!(query.iter().filter(|(key, _)| key == "dryRun").count(), 2);
        assert!(!wants_watch(&parse("watch=false")));
    }

    #[test]
    fn encoding_round_trips() {
        let text = "a b&c=d+%\u{e9}\n/?";
        assert_eq!(parse(&format!("x={}", encode(text))), [("x".to_owned(), text.to_owned())]);
    }

    #[test]
    fn invalid_percent_encoding_is_kept() {
        assert_eq!(decode_path("/a%zz%2"), "/a%zz%2");
        assert_eq!(decode_path("/%2e%2e"), "/..");
    }
}
