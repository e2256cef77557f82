//! Completion indexes of a Job, as its status and its success policy write them: `1,3-5,7`.
//!
//! In: such a text, or single indexes. Out: ordered, disjoint intervals, so that the cost depends on the number of intervals and not of indexes.

use std::cmp::{max, min};
use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};

/// A set of indexes: first and last of each interval, in order, with a gap between any two.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Indexes(Vec<(i64, i64)>);

impl Indexes {
    /// Reads a text leniently: what is no interval, or not below `completions`, is ignored.
    #[must_use]
    pub fn read(text: &str, completions: i64) -> Self {
        let intervals = text.split(',').filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.parse::<i64>().ok()?, last.parse::<i64>().ok()?);
            Some((first, min(last, completions - 1)))
        });
        Self::normalized(intervals.filter(|(first, last)| *first >= 0 && first <= last).collect())
    }

    fn normalized(mut intervals: Vec<(i64, i64)>) -> Self {
        intervals.sort_unstable();
        let mut out: Vec<(i64, i64)> = Vec::with_capacity(intervals.len());
        for (first, last) in intervals {
            match out.last_mut() {
                Some(before) if first <= before.1 + 1 => before.1 = max(before.1, last),
                _ => out.push((first, last)),
            }
        }
        Self(out)
    }

    /// The indexes of both.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::normalized(self.0.iter().chain(&other.0).copied().collect())
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> i64 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it has an index.
    #[must_use]
    pub fn contains(&self, index: i64) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= index);
        after.checked_sub(1).is_some_and(|at| index <= self.0[at].1)
    }

    /// How many indexes are in both.
    #[must_use]
    pub fn common(&self, other: &Self) -> i64 {
        let (mut a, mut b, mut count) = (0, 0, 0);
        while let (Some(one), Some(two)) = (self.0.get(a), other.0.get(b)) {
            count += max(0, min(one.1, two.1) - max(one.0, two.0) + 1);
            if one.1 <= two.1 {
                a += 1;
            } else {
                b += 1;
            }
        }
        count
    }

    /// The first `count` indexes below `completions` that are not in it.
    #[must_use]
    pub fn missing(&self, count: usize, completions: i64) -> Vec<i64> {
        let (mut out, mut candidate) = (Vec::new(), 0);
        for (first, last) in self.0.iter().copied().chain([(completions, completions)]) {
            let gap = candidate..min(first, completions);
            out.extend(gap.take(count - out.len()));
            candidate = max(candidate, last + 1);
        }
        out
    }
}

impl FromIterator<i64> for Indexes {
    fn from_iter<I: IntoIterator<Item = i64>>(indexes: I) -> Self {
        let sorted: BTreeSet<i64> = indexes.into_iter().collect();
        Self::normalized(sorted.into_iter().map(|index| (index, index)).collect())
    }
}

impl Display for Indexes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (number, (first, last)) in self.0.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

/// Checks a text strictly; gives the number of its indexes.
///
/// # Errors
/// The error message of Kubernetes.
pub fn check(text: &str, completions: i64) -> Result<i64, String> {
    let (mut total, mut before) = (0, None::<i64>);
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (first, last) = interval(part, completions)?;
        if let Some(before) = before.filter(|before| *before >= first) {
            return Err(format!("non-increasing order, previous: {before}, current: {first}"));
        }
        total += last - first + 1;
        before = Some(last);
    }
    Ok(total)
}

/// The first index that is in both texts, apart from intervals that are none.
#[must_use]
pub fn overlap(one: &str, other: &str, completions: i64) -> Option<i64> {
    let read = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|part| interval(part, completions).ok()).collect()
    };
    let (one, other) = (read(one), read(other));
    let (mut a, mut b) = (0, 0);
    while let (Some(x), Some(y)) = (one.get(a), other.get(b)) {
        if x.0 <= y.1 && y.0 <= x.1 {
            return Some(max(x.0, y.0));
        }
        if x.0 <= y.0 {
            a += 1;
        } else {
            b += 1;
        }
    }
    None
}

fn interval(part: &str, completions: i64) -> Result<(i64, i64), String> {
    let limits: Vec<&str> = part.split('-').collect();
    let number = |text: &str| {
        let number = text
            .parse::<i64>()
            .map_err(|_| format!("cannot convert string to integer for index: {}", crate::field::quote(text)))?;
        if number >= completions { Err(format!("too large index: {}", crate::field::quote(text))) } else { Ok(number) }
    };
    match *limits {
        [one] => number(one).map(|one| (one, one)),
        [first, last] => {
            let (first, last) = (number(first)?, number(last)?);
            if first >= last {
                return Err(format!("non-increasing order, previous: {first}, current: {last}"));
            }
            Ok((first, last))
        }
        _ => Err(format!(
            "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
            crate::field::quote(part)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written() {
        for (text, written) in [
            ("", ""),
            ("0", "0"),
            ("0,1", "0,1"),
            ("0-1", "0,1"),
            ("1,3-5,7", "1,3-5,7"),
            ("1,2,3,5", "1-3,5"),
            ("7-99", "7-9"),
            ("a,3,4-x,5-4", "3"),
            ("10", ""),
        ] {
            assert_eq!(Indexes::read(text, 10).to_string(), written, "{text}");
        }
        assert_eq!([5, 1, 2, 2, 0].into_iter().collect::<Indexes>().to_string(), "0-2,5");
    }

    #[test]
    fn sets_are_combined() {
        let set = Indexes::read("1,3-5,8", 10);
        assert_eq!((set.count(), set.contains(4), set.contains(2), set.contains(9)), (5, true, false, false));
        assert_eq!(set.union(&Indexes::read("2,6-7", 10)).to_string(), "1-8");
        assert_eq!(set.common(&Indexes::read("0-3,8,9", 10)), 3);
        assert_eq!(set.common(&Indexes::default()), 0);
        assert_eq!(set.missing(3, 10), [0, 2, 6]);
        assert_eq!(set.missing(9, 10), [0, 2, 6, 7, 9]);
        assert_eq!(set.missing(9, 4), [0, 2]);
        assert_eq!(Indexes::default().missing(2, 1_000_000_000), [0, 1]);
    }

    #[test]
    fn strict_checks_say_what_is_wrong() {
        assert_eq!(check("", 5), Ok(0));
        assert_eq!(check("0,2-4", 5), Ok(4));
        for (text, wrong) in [
            (
                "1-2-3",
                "the fragment \"1-2-3\" violates the requirement that an index interval can have at most two parts separated by '-'",
            ),
            ("x", "cannot convert string to integer for index: \"x\""),
            ("0,", "cannot convert string to integer for index: \"\""),
            ("5", "too large index: \"5\""),
            ("3-5", "too large index: \"5\""),
            ("3-3", "non-increasing order, previous: 3, current: 3"),
            ("0,2,2", "non-increasing order, previous: 2, current: 2"),
        ] {
            assert_eq!(check(text, 5), Err(wrong.to_owned()), "{text}");
        }
        assert_eq!(overlap("0-2,4", "3,4", 5), Some(4));
        assert_eq!(overlap("0-2", "3,x,4", 5), None);
    }
}
