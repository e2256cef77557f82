//! Formatting of lists in messages.

pub(super) use diagnose::words::count;

/// Items separated by commas; of many the first few and a count.
pub(super) fn listed<T: AsRef<str>>(words: &[T]) -> String {
    const FEW: usize = 4;
    let first: Vec<&str> = words.iter().take(FEW).map(AsRef::as_ref).collect();
    match words.len().saturating_sub(FEW) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_shortened() {
        assert_eq!(listed(&["a", "b"]), "a, b");
        assert_eq!(listed(&["a", "b", "c", "d", "e", "f"]), "a, b, c, d and 2 more");
    }
}
