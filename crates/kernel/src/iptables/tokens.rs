//! Splits iptables lines into words, and quotes words.

/// The words of a line; none for an unterminated quote.
pub(super) fn split(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut letters = line.chars().peekable();
    loop {
        while letters.next_if(|c| c.is_whitespace()).is_some() {}
        let Some(first) = letters.peek().copied() else { return Some(words) };
        let mut word = String::new();
        if first == '"' {
            letters.next();
            loop {
                match letters.next()? {
                    '"' => break,
                    '\\' => word.push(letters.next()?),
                    letter => word.push(letter),
                }
            }
        } else {
            while let Some(letter) = letters.next_if(|c| !c.is_whitespace()) {
                word.push(letter);
            }
        }
        words.push(word);
    }
}

/// A word, quoted if needed.
pub(super) fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/,+[]".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn quoted_words_round_trip(words in prop::collection::vec("[ -~]{0,20}", 0..5)) {
            let line = words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ");
            prop_assert_eq!(split(&line), Some(words));
        }
    }

    #[test]
    fn an_unterminated_quote_is_invalid() {
        assert_eq!(split("-A X \"open"), None);
        assert_eq!(split("  -A  X "), Some(vec!["-A".to_owned(), "X".to_owned()]));
    }
}
