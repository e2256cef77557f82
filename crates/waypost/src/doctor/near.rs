//! How near two words are, and words for a shell.

/// How many letters must be added, left out, changed or swapped with the next to make one word the other; capitals are no difference.
pub(super) fn distance(one: &str, other: &str) -> usize {
    let [one, other] = [one, other].map(|word| word.to_lowercase().chars().collect::<Vec<char>>());
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for i in 1..=one.len() {
        let mut row = vec![i];
        for j in 1..=other.len() {
            let change = rows[i - 1][j - 1] + usize::from(one[i - 1] != other[j - 1]);
            let mut least = change.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

/// Whether one word is probably meant to be the other.
pub(super) fn is_near(one: &str, other: &str) -> bool {
    let longest = one.chars().count().max(other.chars().count());
    distance(one, other) <= if longest < 4 { 1 } else { 2 }
}

/// A word as a shell reads it back.
pub(super) fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,@".contains(&byte);
    match !word.is_empty() && word.bytes().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Several words as a sentence has them; of many the first few.
pub(super) fn listed<T: AsRef<str>>(words: &[T]) -> String {
    const FEW: usize = 4;
    let first: Vec<&str> = words.iter().take(FEW).map(AsRef::as_ref).collect();
    match words.len().saturating_sub(FEW) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// A number of things.
pub(super) fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_nearly_the_same_are_near() {
        for (one, other, far) in
            [("web", "web", 0), ("wbe", "web", 1), ("Web", "web", 0), ("web", "webs", 1), ("", "ab", 2)]
        {
            assert_eq!(distance(one, other), far, "{one} {other}");
        }
        assert!(is_near("frontend", "fronted") && is_near("we", "web") && !is_near("api", "web"));
    }

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        assert_eq!(quoted("app=web"), "app=web");
        assert_eq!(quoted(r#"{"a":"it's"}"#), r#"'{"a":"it'\''s"}'"#);
    }

    #[test]
    fn of_many_words_the_first_are_listed() {
        assert_eq!(listed(&["a", "b"]), "a, b");
        assert_eq!(listed(&["a", "b", "c", "d", "e", "f"]), "a, b, c, d and 2 more");
    }
}
