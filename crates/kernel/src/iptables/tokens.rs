//! Words of a line of iptables: separated by spaces, with quotes around those that have some inside.

/// The words of a line; nothing when a quote does not end.
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

/// A word as it is written into a line.
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
        fn words_that_were_quoted_are_read_again(words in prop::collection::vec("[ -~]{0,20}", 0..5)) {
            let line = words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ");
            prop_assert_eq!(split(&line), Some(words));
        }
    }

    #[test]
    fn an_open_quote_is_no_line() {
        assert_eq!(split("-A X \"open"), None);
        assert_eq!(split("  -A  X "), Some(vec!["-A".to_owned(), "X".to_owned()]));
    }
}
