//! Property names of OpenAPI schemas as identifiers of expressions.
//!
//! `__` becomes `__underscores__`, `.` becomes `__dot__`, `-` becomes `__dash__`, `/` becomes `__slash__`, and a reserved
//! word `w` becomes `__w__`. A single underscore stays.

/// Reserved words: not valid as variables or functions, but valid as field names.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

const ESCAPES: [(&str, &str); 4] = [("__", "underscores"), (".", "dot"), ("-", "dash"), ("/", "slash")];

/// Whether a word is a reserved symbol of the language.
#[must_use]
pub fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word)
}

/// The identifier under which a property is reached, or none if the name has characters that cannot be escaped.
#[must_use]
pub fn escape(name: &str) -> Option<String> {
    let first = name.chars().next()?;
    if first.is_ascii_digit() {
        return None;
    }
    if is_reserved(name) {
        return Some(format!("__{name}__"));
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some((plain, word)) = ESCAPES.iter().find(|(plain, _)| rest.starts_with(plain)) {
            out.push_str(&format!("__{word}__"));
            rest = rest.get(plain.len()..).unwrap_or_default();
        } else if c.is_ascii_alphanumeric() || c == '_' {
            out.push(c);
            rest = rest.get(1..).unwrap_or_default();
        } else {
            return None;
        }
    }
    Some(out)
}

/// The property that an identifier stands for, or none if the identifier has an unknown escape.
#[must_use]
pub fn unescape(ident: &str) -> Option<String> {
    let mut out = String::with_capacity(ident.len());
    let mut rest = ident;
    while let Some(at) = rest.find("__") {
        let (before, tail) = rest.split_at(at);
        out.push_str(before);
        let inner = tail.get(2..).unwrap_or_default();
        let word = inner.get(..inner.find('_').unwrap_or(inner.len())).unwrap_or_default();
        let closed = inner.get(word.len()..).is_some_and(|after| after.starts_with("__"));
        if word.is_empty() || !closed {
            // Not an escape: the first underscore is plain, what follows may still be one.
            out.push('_');
            rest = tail.get(1..).unwrap_or_default();
            continue;
        }
        let whole = word.len() + 4 == ident.len();
        match ESCAPES.iter().find(|(_, name)| *name == word) {
            Some((plain, _)) => out.push_str(plain),
            None if is_reserved(word) && whole => out.push_str(word),
            None => return None,
        }
        rest = inner.get(word.len() + 2..).unwrap_or_default();
    }
    out.push_str(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_escaped_as_kubernetes_does() {
        let cases = [
            ("my_field", Some("my_field")),
            ("my__field", Some("my__underscores__field")),
            ("a-b.c/d", Some("a__dash__b__dot__c__slash__d")),
            ("namespace", Some("__namespace__")),
            ("a___b", Some("a__underscores___b")),
            ("1a", None),
            ("", None),
            ("a b", None),
            ("ä", None),
        ];
        for (name, wanted) in cases {
            assert_eq!(escape(name).as_deref(), wanted, "{name}");
        }
    }

    #[test]
    fn unknown_escapes_are_refused() {
        assert_eq!(unescape("__frob__"), None);
        assert_eq!(unescape("a__namespace__"), None);
        assert_eq!(unescape("__namespace__").as_deref(), Some("namespace"));
        assert_eq!(unescape("a__b").as_deref(), Some("a__b"));
    }

    proptest! {
        #[test]
        fn escaped_names_come_back(name in "[a-zA-Z_./-][a-zA-Z0-9_./-]{0,12}") {
            let escaped = escape(&name).expect("a name that can be escaped");
            prop_assume!(!name.contains("___") && !name.starts_with('_') && !name.ends_with('_') && !name.contains("_-")
                && !name.contains("_.") && !name.contains("_/") && !name.contains("-_") && !name.contains("._") && !name.contains("/_"));
            prop_assert_eq!(unescape(&escaped), Some(name));
        }

        #[test]
        fn arbitrary_identifiers_do_not_panic(text in ".{0,24}") {
            let _ = (escape(&text), unescape(&text));
        }
    }
}
