//! Times by bound, for those who do not count on the hot path.
//!
//! In: times, one after the other, from whoever holds it. Out: the lines of a histogram. Each bound is the one before times a
//! factor.

use std::fmt::Write as _;
use std::time::Duration;

/// See the module.
#[derive(Clone, Debug)]
pub struct Spread {
    first: Duration,
    factor: u32,
    /// By bound; the last place is beyond all.
    counts: Box<[u64]>,
    sum: f64,
}

impl Spread {
    /// Nothing yet.
    #[must_use]
    pub fn new(first: Duration, factor: u32, bounds: usize) -> Self {
        Self { first, factor, counts: vec![0; bounds + 1].into(), sum: 0.0 }
    }

    /// With the bounds that CoreDNS has for answers: 0.25 ms, doubled fifteen times.
    #[must_use]
    pub fn of_answers() -> Self {
        Self::new(Duration::from_micros(250), 2, 16)
    }

    /// Counts a time.
    pub fn add(&mut self, took: Duration) {
        let place = self.bounds().position(|bound| took <= bound).unwrap_or(self.counts.len() - 1);
        self.counts[place] += 1;
        self.sum += took.as_secs_f64();
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The bounds, but for the one beyond all.
    fn bounds(&self) -> impl Iterator<Item = Duration> + use<> {
        let (first, factor) = (self.first, self.factor);
        (0..self.counts.len() - 1).scan(first, move |bound, _| {
            let this = *bound;
            *bound = this * factor;
            Some(this)
        })
    }

    /// Writes the lines; `labels` may be empty.
    pub fn write(&self, out: &mut String, name: &str, labels: &str) {
        let comma = if labels.is_empty() { "" } else { "," };
        let bounds = self.bounds().map(|bound| bound.as_secs_f64().to_string()).chain(["+Inf".to_owned()]);
        let mut below = 0;
        for (bound, count) in bounds.zip(&self.counts) {
            below += count;
            let _ = writeln!(out, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {below}");
        }
        let braced = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _ = writeln!(out, "{name}_sum{braced} {}", self.sum);
        let _ = writeln!(out, "{name}_count{braced} {below}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_below_their_bounds() {
        let mut spread = Spread::new(Duration::from_millis(1), 10, 3);
        for millis in [0, 1, 2, 10, 100, 101, 100_000] {
            spread.add(Duration::from_millis(millis));
        }
        let mut text = String::new();
        spread.write(&mut text, "x", "a=\"b\"");
        let wanted = "x_bucket{a=\"b\",le=\"0.001\"} 2\nx_bucket{a=\"b\",le=\"0.01\"} 4\nx_bucket{a=\"b\",le=\"0.1\"} 5\n\
                      x_bucket{a=\"b\",le=\"+Inf\"} 7\nx_sum{a=\"b\"} 100.214\nx_count{a=\"b\"} 7\n";
        assert_eq!((text.as_str(), spread.count()), (wanted, 7));
        let mut bare = String::new();
        Spread::new(Duration::from_millis(1), 2, 1).write(&mut bare, "y", "");
        assert_eq!(bare, "y_bucket{le=\"0.001\"} 0\ny_bucket{le=\"+Inf\"} 0\ny_sum 0\ny_count 0\n");
    }
}
