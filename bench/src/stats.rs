//! What many samples come to: medians and percentiles.

use std::time::Duration;

/// The value below which this part of the samples lies (nearest rank); 0 without samples.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the rank lies between 0 and the number of samples"
)]
pub fn percentile(samples: &[f64], part: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// The middle sample; the lower one of two.
#[must_use]
pub fn median(samples: &[f64]) -> f64 {
    percentile(samples, 0.5)
}

/// Durations in seconds.
#[must_use]
pub fn seconds(durations: &[Duration]) -> Vec<f64> {
    durations.iter().map(Duration::as_secs_f64).collect()
}

/// Microseconds per operation.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "fewer than 2^52")]
pub fn each(time: Duration, count: usize) -> f64 {
    time.as_secs_f64() * 1e6 / count.max(1) as f64
}

/// Bytes in megabytes.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "fewer bytes than 2^52")]
pub fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples_that_were_seen() {
        let samples: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!((median(&samples), percentile(&samples, 0.99), percentile(&samples, 1.0)), (50.0, 99.0, 100.0));
        assert_eq!((median(&[7.0]), percentile(&[7.0], 0.99)), (7.0, 7.0));
    }

    #[test]
    fn no_samples_come_to_nothing() {
        assert_eq!((median(&[]), percentile(&[], 0.99)), (0.0, 0.0));
    }
}
