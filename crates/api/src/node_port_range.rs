//! Node ports of a namespace: the annotation [`ANNOTATION`] of a Namespace reserves a range of them for its Services.
//!
//! In: the text of the annotation. Out: a range. Who has which range is decided by [`crate::claims::Claims`], in the
//! transaction of the Namespace: the first one has it.

use std::fmt;
use std::ops::RangeInclusive;

/// Reserves node ports, `FIRST-LAST`, for the Services of a Namespace.
pub const ANNOTATION: &str = "waypost.dev/node-port-range";

/// The largest number of ports that one namespace may reserve: whoever may change a Namespace takes no more from the others.
pub const MAX_PORTS: usize = 256;

/// A range of node ports, from the first to the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodePortRange {
    /// The first port.
    pub first: u16,
    /// The last port, included.
    pub last: u16,
}

/// Why a text is no range of node ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NodePortRangeError {
    /// It is not two ports.
    #[error("must be two ports, FIRST-LAST, such as 31000-31099")]
    Syntax,
    /// It is larger than [`MAX_PORTS`].
    #[error("must have at most {MAX_PORTS} ports")]
    TooLarge,
}

impl NodePortRange {
    /// Parses `31000-31099`.
    ///
    /// # Errors
    /// When it is something else, or too large.
    pub fn parse(text: &str) -> Result<Self, NodePortRangeError> {
        let (first, last) = text.split_once('-').ok_or(NodePortRangeError::Syntax)?;
        let number = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
        match (number(first), number(last)) {
            (Some(first), Some(last)) if last < first => Err(NodePortRangeError::Syntax),
            (Some(first), Some(last)) if usize::from(last - first) >= MAX_PORTS => Err(NodePortRangeError::TooLarge),
            (Some(first), Some(last)) => Ok(Self { first, last }),
            _ => Err(NodePortRangeError::Syntax),
        }
    }

    /// Its ports.
    #[must_use]
    pub const fn ports(self) -> RangeInclusive<u16> {
        self.first..=self.last
    }

    /// Whether some port is in both.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

impl fmt::Display for NodePortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s55_a_range_of_node_ports_is_two_ports_and_not_too_many() {
        assert_eq!(NodePortRange::parse("31000-31099"), Ok(NodePortRange { first: 31000, last: 31099 }));
        assert_eq!(
            NodePortRange::parse(" 31000 - 31000 ").map(|range| range.to_string()).as_deref(),
            Ok("31000-31000")
        );
        for text in ["", "31000", "31000-", "31099-31000", "0-5", "31000-70000", "a-b", "31000-31010-31020"] {
            assert_eq!(NodePortRange::parse(text), Err(NodePortRangeError::Syntax), "{text}");
        }
        assert!(NodePortRange::parse("31000-31255").is_ok());
        assert_eq!(NodePortRange::parse("31000-31256"), Err(NodePortRangeError::TooLarge));
    }
}
