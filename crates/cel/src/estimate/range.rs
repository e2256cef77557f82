//! Ranges of sizes and costs. Arithmetic saturates: more than fits is the largest number.

/// The least and the most of something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// The least.
    pub min: u64,
    /// The most; the largest number when there is no limit.
    pub max: u64,
}

impl Range {
    /// Nothing is known.
    pub(super) const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    pub(super) const fn fixed(value: u64) -> Self {
        Self { min: value, max: value }
    }

    pub(super) fn add(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub(super) fn multiply(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    pub(super) fn scale(self, factor: f64) -> Self {
        Self { min: scaled(self.min, factor), max: scaled(self.max, factor) }
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// A number times a factor, rounded up.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes are computed in floating point as the reference does, and conversions saturate"
)]
fn scaled(value: u64, factor: f64) -> u64 {
    (value as f64 * factor).ceil() as u64
}
