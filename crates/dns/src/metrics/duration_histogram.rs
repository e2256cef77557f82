//! Histogram of durations with exponential buckets, for use outside the hot path.

use std::time::Duration;

use super::encode::HistogramValue;

/// Histogram of durations.
#[derive(Clone, Debug)]
pub struct DurationHistogram {
    first: Duration,
    factor: u32,
    /// Count per bucket; the last is +Inf.
    counts: Box<[u64]>,
    sum: f64,
}

impl DurationHistogram {
    /// Empty histogram; each bound is the previous one times `factor`.
    #[must_use]
    pub fn new(first: Duration, factor: u32, bounds: usize) -> Self {
        Self { first, factor, counts: vec![0; bounds + 1].into(), sum: 0.0 }
    }

    /// Buckets of CoreDNS for request durations: 0.25 ms, doubled 15 times.
    #[must_use]
    pub fn for_requests() -> Self {
        Self::new(Duration::from_micros(250), 2, 16)
    }

    /// Records a duration.
    pub fn add(&mut self, duration: Duration) {
        let bucket = self.bounds().position(|bound| duration <= bound).unwrap_or(self.counts.len() - 1);
        self.counts[bucket] += 1;
        self.sum += duration.as_secs_f64();
    }

    /// Bounds without +Inf.
    fn bounds(&self) -> impl Iterator<Item = Duration> + use<> {
        let (first, factor) = (self.first, self.factor);
        (0..self.counts.len() - 1).scan(first, move |bound, _| {
            let this = *bound;
            *bound = this * factor;
            Some(this)
        })
    }

    /// Value for encoding.
    pub(crate) fn value(&self) -> HistogramValue {
        let bounds = self.bounds().map(|bound| bound.as_secs_f64()).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(self.counts.iter().copied()).collect();
        HistogramValue { sum: self.sum, count: self.counts.iter().sum(), buckets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_in_the_bucket_of_their_bound() {
        let mut histogram = DurationHistogram::new(Duration::from_millis(1), 10, 3);
        for millis in [0, 1, 2, 10, 100, 101, 100_000] {
            histogram.add(Duration::from_millis(millis));
        }
        let HistogramValue { sum, count, buckets } = histogram.value();
        assert_eq!((count, buckets), (7, vec![(0.001, 2), (0.01, 2), (0.1, 1), (f64::INFINITY, 2)]));
        assert!((sum - 100.214).abs() < 1e-9, "{sum}");
    }
}
