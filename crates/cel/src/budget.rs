//! What an evaluation may spend, and how it stops.
//!
//! Two things are counted. The *cost* is Kubernetes' cost of an expression: the caller sees it, and the limit of a call is
//! Kubernetes'. The *work* is what this implementation really does, in elements and in pieces of strings; operations that
//! Kubernetes takes for cheap cannot exceed it, so an evaluation ends soon whatever the expression and the input are.

use std::fmt;

use crate::library::regex::Patterns;

/// Kubernetes' limit for one evaluation of an expression.
pub const PER_CALL_LIMIT: u64 = 1_000_000;
/// Kubernetes' limit for all expressions of a policy with one binding, or of a custom resource.
pub const RUNTIME_COST_BUDGET: u64 = 10_000_000;
/// Kubernetes' limit for all match conditions of a webhook or a policy.
pub const MATCH_CONDITIONS_COST_BUDGET: u64 = 2_500_000;

/// Work that one evaluation may do.
const WORK: u64 = 20_000_000;
/// Bytes of a string that count as much as one element when they are looked at.
const SEEN: usize = 16;
/// Bytes of a string that count as much as one element when they are made.
const MADE: usize = 2;
/// Elements that making one element counts as.
const ELEMENT: usize = 8;

/// Why an evaluation has no value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EvalError {
    /// The expression fails for this input.
    Failed(String),
    /// The expression costs more than it may.
    CostLimitExceeded,
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(message) => f.write_str(message),
            Self::CostLimitExceeded => f.write_str("operation cancelled: actual cost limit exceeded"),
        }
    }
}

impl std::error::Error for EvalError {}

/// Why a part of an expression has no value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// An error, which logical operators may absorb.
    Error(String),
    /// An error that nothing absorbs.
    Fatal(String),
    /// The budget is spent.
    Cancelled,
}

impl Stop {
    pub(crate) fn no_such_overload() -> Self {
        "no such overload".into()
    }
}

impl From<&str> for Stop {
    fn from(message: &str) -> Self {
        Self::Error(message.to_owned())
    }
}

impl From<String> for Stop {
    fn from(message: String) -> Self {
        Self::Error(message)
    }
}

impl From<Stop> for EvalError {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Error(message) | Stop::Fatal(message) => Self::Failed(message),
            Stop::Cancelled => Self::CostLimitExceeded,
        }
    }
}

/// What an evaluation has spent.
#[derive(Debug)]
pub(crate) struct Budget {
    cost: u64,
    limit: u64,
    work: u64,
    /// Patterns that were compiled so far.
    pub(crate) patterns: Patterns,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Self {
        Self { cost: 0, limit, work: 0, patterns: Patterns::default() }
    }

    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    /// Adds to the cost.
    pub(crate) fn charge(&mut self, cost: u64) -> Result<(), Stop> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit { Err(Stop::Cancelled) } else { Ok(()) }
    }

    /// Takes back a part of the cost.
    pub(crate) fn refund(&mut self, cost: u64) {
        self.cost = self.cost.saturating_sub(cost);
    }

    /// Counts elements that are looked at.
    pub(crate) fn work(&mut self, elements: usize) -> Result<(), Stop> {
        self.work = self.work.saturating_add(u64::try_from(elements).unwrap_or(u64::MAX));
        if self.work > WORK { Err(Stop::Cancelled) } else { Ok(()) }
    }

    /// Counts bytes that are looked at.
    pub(crate) fn bytes(&mut self, bytes: usize) -> Result<(), Stop> {
        self.work(1 + bytes / SEEN)
    }

    /// Counts elements that are made; at most some 80 MB of them.
    pub(crate) fn make(&mut self, elements: usize) -> Result<(), Stop> {
        self.work(elements.saturating_mul(ELEMENT))
    }

    /// Counts bytes that are made; at most 40 MB of them.
    pub(crate) fn make_bytes(&mut self, bytes: usize) -> Result<(), Stop> {
        self.work(1 + bytes / MADE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_and_work_are_limited_apart() {
        let mut budget = Budget::new(5);
        assert_eq!(budget.charge(5), Ok(()));
        assert_eq!(budget.work(1_000), Ok(()));
        assert_eq!(budget.charge(1), Err(Stop::Cancelled));
        assert_eq!(budget.cost(), 6);
        let mut budget = Budget::new(u64::MAX);
        assert_eq!(budget.bytes(usize::MAX), Err(Stop::Cancelled));
        assert_eq!(EvalError::from(Stop::Cancelled).to_string(), "operation cancelled: actual cost limit exceeded");
    }
}
