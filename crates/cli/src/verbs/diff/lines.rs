//! The difference of two texts, as `diff -u` writes it. Pure.
//!
//! The longest common subsequence of lines is computed by dynamic programming, without the common prefix and suffix.

/// Lines of context.
const CONTEXT: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Same,
    Gone,
    New,
}

/// The difference with its header; empty if there is none.
pub(super) fn unified(from_name: &str, to_name: &str, from: &str, to: &str) -> String {
    if from == to {
        return String::new();
    }
    let (from, to): (Vec<&str>, Vec<&str>) = (from.lines().collect(), to.lines().collect());
    let script = script(&from, &to);
    let mut out = format!("--- {from_name}\n+++ {to_name}\n");
    let mut at = 0;
    while let Some(first) = script[at..].iter().position(|(mark, _)| *mark != Mark::Same).map(|next| at + next) {
        let start = first.saturating_sub(CONTEXT).max(at);
        let end = end_of_hunk(&script, first);
        out.push_str(&hunk(&script, start, end));
        at = end;
    }
    out
}

/// The end of a hunk: before enough equal lines that the next difference starts another one.
fn end_of_hunk(script: &[(Mark, &str)], first: usize) -> usize {
    let mut last = first;
    for (at, (mark, _)) in script.iter().enumerate().skip(first) {
        if *mark != Mark::Same {
            last = at;
        } else if at - last > 2 * CONTEXT {
            break;
        }
    }
    (last + 1 + CONTEXT).min(script.len())
}

fn hunk(script: &[(Mark, &str)], start: usize, end: usize) -> String {
    let count = |part: &[(Mark, &str)], without: Mark| part.iter().filter(|(mark, _)| *mark != without).count();
    let (before, part) = (&script[..start], &script[start..end]);
    let (old, new) = (count(part, Mark::New), count(part, Mark::Gone));
    // An empty side begins at the line before it.
    let first = |lines: usize, length: usize| if length == 0 { lines } else { lines + 1 };
    let mut out = format!(
        "@@ -{},{old} +{},{new} @@\n",
        first(count(before, Mark::New), old),
        first(count(before, Mark::Gone), new)
    );
    for (mark, line) in part {
        out.push(match mark {
            Mark::Same => ' ',
            Mark::Gone => '-',
            Mark::New => '+',
        });
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// The edit script: each line of both texts, in order.
fn script<'t>(from: &[&'t str], to: &[&'t str]) -> Vec<(Mark, &'t str)> {
    let head = from.iter().zip(to).take_while(|(one, other)| one == other).count();
    let tail = from[head..].iter().rev().zip(to[head..].iter().rev()).take_while(|(one, other)| one == other).count();
    let (old, new) = (&from[head..from.len() - tail], &to[head..to.len() - tail]);
    let mut common = vec![vec![0_u32; new.len() + 1]; old.len() + 1];
    for left in (0..old.len()).rev() {
        for right in (0..new.len()).rev() {
            common[left][right] = if old[left] == new[right] {
                common[left + 1][right + 1] + 1
            } else {
                common[left + 1][right].max(common[left][right + 1])
            };
        }
    }
    let mut out: Vec<(Mark, &str)> = from[..head].iter().map(|line| (Mark::Same, *line)).collect();
    let (mut left, mut right) = (0, 0);
    while left < old.len() || right < new.len() {
        if left < old.len() && right < new.len() && old[left] == new[right] {
            out.push((Mark::Same, old[left]));
            (left, right) = (left + 1, right + 1);
        } else if left < old.len() && (right == new.len() || common[left + 1][right] >= common[left][right + 1]) {
            out.push((Mark::Gone, old[left]));
            left += 1;
        } else {
            out.push((Mark::New, new[right]));
            right += 1;
        }
    }
    out.extend(from[from.len() - tail..].iter().map(|line| (Mark::Same, *line)));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_line_has_context() {
        let from = "a\nb\nc\nd\ne\nf\ng\nh\n";
        let to = "a\nb\nc\nd\nX\nf\ng\nh\n";
        let wanted = "--- f\n+++ t\n@@ -2,7 +2,7 @@\n b\n c\n d\n-e\n+X\n f\n g\n h\n";
        assert_eq!(unified("f", "t", from, to), wanted);
    }

    #[test]
    fn distant_changes_are_separate_hunks() {
        let from: String = (0..20).map(|n| format!("{n}\n")).collect();
        let to = from.replace("1\n2\n", "one\n2\n").replace("18\n", "");
        let diff = unified("f", "t", &from, &to);
        assert_eq!(diff.matches("@@ ").count(), 2, "{diff}");
        assert!(diff.contains("@@ -16,5 +16,4 @@") || diff.contains("@@ -15,5 +15,4 @@"), "{diff}");
    }

    #[test]
    fn an_added_file_starts_at_line_zero() {
        assert_eq!(unified("f", "t", "", "a\n"), "--- f\n+++ t\n@@ -0,0 +1,1 @@\n+a\n");
        assert_eq!(unified("f", "t", "a\n", "a\n"), "");
    }
}
