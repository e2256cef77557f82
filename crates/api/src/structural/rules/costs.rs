//! The cost limits of the rules of a schema, and the errors for rules that exceed them.

/// The largest estimated cost of one rule, with all values that it applies to.
const RULE_LIMIT: u64 = 10_000_000;
/// The largest estimated cost of all rules of a schema.
const TOTAL_LIMIT: u64 = 100_000_000;
/// Rules that are named when the total is too large.
const NAMED: usize = 4;

/// The costs of rules, added up.
#[derive(Debug, Default)]
pub(super) struct Costs {
    total: u64,
    /// The most expensive rules with their costs, the first being the most expensive.
    largest: Vec<(String, u64)>,
}

impl Costs {
    /// Adds the cost of a rule at a path. Those below one per cent of the limit are not named.
    pub(super) fn observe(&mut self, path: impl FnOnce() -> String, cost: u64) {
        self.total = self.total.saturating_add(cost);
        if cost < TOTAL_LIMIT / 100 {
            return;
        }
        self.largest.push((path(), cost));
        self.largest.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
        self.largest.truncate(NAMED);
    }

    /// The paths of the most expensive rules and what is wrong, if the total is too large.
    pub(super) fn excess(&self) -> Option<(impl Iterator<Item = &str>, String)> {
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        (self.total > TOTAL_LIMIT)
            .then(|| (self.largest.iter().map(|(path, _)| path.as_str()), message(name, self.total, TOTAL_LIMIT)))
    }
}

/// What is wrong with the cost of a rule or a `messageExpression`.
pub(super) fn excess(name: &str, cost: u64) -> Option<String> {
    (cost > RULE_LIMIT).then(|| message(name, cost, RULE_LIMIT))
}

#[expect(clippy::cast_precision_loss, reason = "the factor is shown with a few digits")]
fn message(name: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_have_as_many_digits_as_they_need() {
        let factor = |cost| {
            excess("estimated rule cost", cost).map(|text| text.split(' ').nth(8).unwrap_or_default().to_owned())
        };
        assert_eq!(factor(10_000_000), None);
        assert_eq!(factor(10_000_001).as_deref(), Some("1.000000x"));
        assert_eq!(factor(14_000_000).as_deref(), Some("1.400000x"));
        assert_eq!(factor(15_000_000).as_deref(), Some("1.5x"));
        assert_eq!(factor(999_960_000).as_deref(), Some("100.0x"));
        assert!(excess("n", u64::MAX).is_some_and(|text| text.contains("factor of more than 100x (")));
    }

    #[test]
    fn the_most_expensive_rules_are_named() {
        let mut costs = Costs::default();
        for (index, cost) in [999_999, 30_000_000, 40_000_000, 30_000_000, 1_000_000, 2_000_000].into_iter().enumerate()
        {
            costs.observe(|| index.to_string(), cost);
        }
        let (named, text) = costs.excess().expect("too large");
        assert_eq!(named.collect::<Vec<_>>(), ["2", "1", "3", "5"]);
        assert!(text.starts_with("x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of 1.040000x (try"), "{text}");
        assert!(Costs::default().excess().is_none());
    }
}
