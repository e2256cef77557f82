//! Text: numbers with nouns, lists, truncated text, shell quoting.

/// The longest message of a condition. Kubernetes allows 32768, which is too long to read.
pub const LONGEST: usize = 1024;

/// `1 pod`, `3 pods`.
#[must_use]
pub fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// `a`, `a and b`, `a, b and c`, `a, b, c and 4 more`: at most `most` of them.
#[must_use]
pub fn list<T: AsRef<str>>(items: &[T], most: usize) -> String {
    let shown: Vec<&str> = items.iter().take(most).map(AsRef::as_ref).collect();
    let more = items.len().saturating_sub(shown.len());
    match (&shown[..], more) {
        ([], _) => String::new(),
        (all, 1..) => format!("{} and {more} more", all.join(", ")),
        ([one], 0) => (*one).to_owned(),
        ([first @ .., last], 0) => format!("{} and {last}", first.join(", ")),
    }
}

/// Text from other sources on one line, truncated.
#[must_use]
pub fn quote(text: &str, longest: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    shorten(words.join(" ").trim_end_matches('.').to_owned(), longest)
}

/// Text of at most so many bytes; the removed end is an ellipsis.
#[must_use]
pub fn shorten(mut text: String, longest: usize) -> String {
    const ELLIPSIS: char = '…';
    if text.len() > longest {
        let mut end = longest.saturating_sub(ELLIPSIS.len_utf8());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push(ELLIPSIS);
    }
    text
}

/// A word quoted for a shell.
#[must_use]
pub fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,@".contains(&byte);
    match !word.is_empty() && word.bytes().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular_and_all_else_plural() {
        assert_eq!([0, 1, 2].map(|number| count(number, "pod")), ["0 pods", "1 pod", "2 pods"]);
    }

    #[test]
    fn lists_end_with_and() {
        let said = |most| list(&["a", "b", "c", "d"], most);
        assert_eq!([said(4), said(3), said(1)], ["a, b, c and d", "a, b, c and 1 more", "a and 3 more"]);
        assert_eq!([list(&["a"], 3), list(&["a", "b"], 3), list::<&str>(&[], 3)], ["a", "a and b", ""]);
    }

    #[test]
    fn texts_end_between_letters() {
        assert_eq!(shorten("abcdef".to_owned(), 6), "abcdef");
        assert_eq!(shorten("abcdefg".to_owned(), 6), "abc…");
        assert_eq!(shorten("ääää".to_owned(), 7), "ää…");
        assert_eq!(shorten("abc".to_owned(), 0), "…", "never empty: something was there");
        assert_eq!(quote(" two\n lines. ", 100), "two lines");
    }

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        assert_eq!(quoted("app=web"), "app=web");
        assert_eq!(quoted(r#"{"a":"it's"}"#), r#"'{"a":"it'\''s"}'"#);
    }
}
