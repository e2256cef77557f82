//! Amounts of resources by name: `requests` and `limits` of containers, limits and usage of quotas.
//!
//! In: JSON maps of quantities. Out: a [`ResourceList`] for arithmetic. [`names`] classifies and validates resource
//! names, [`pod`] sums up the containers of a Pod.

pub mod names;
pub mod pod;

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use serde_json::{Map, Value};

use crate::quantity::Amount;

/// Amounts by resource name. Two lists are equal if they have the same names and equal amounts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ResourceList(pub BTreeMap<String, Amount>);

impl ResourceList {
    /// Reads a map of quantities; an absent one is empty.
    #[must_use]
    pub fn of(value: &Value) -> Self {
        let entries = value.as_object().into_iter().flatten();
        Self(entries.map(|(name, value)| (name.clone(), Amount::of(value))).collect())
    }

    /// The map of quantities, as objects have it.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let entries = self.0.iter().map(|(name, amount)| (name.clone(), amount.to_string().into()));
        Value::Object(entries.collect::<Map<String, Value>>())
    }

    /// The amount of a resource, if it is listed.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Amount> {
        self.0.get(name)
    }

    /// Sets the amount of a resource.
    pub fn set(&mut self, name: impl Into<String>, amount: Amount) {
        self.0.insert(name.into(), amount);
    }

    /// Adds every amount of another list.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            match self.0.get_mut(name) {
                Some(sum) => sum.add(amount),
                None => self.set(name, amount.clone()),
            }
        }
    }

    /// Raises each amount to that of another list where that is greater; missing names are added.
    pub fn raise_to(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            if self.get(name).is_none_or(|own| amount > own) {
                self.set(name, amount.clone());
            }
        }
    }

    /// The increase over another list: the difference where it is positive, else zero. Has the names of both lists.
    #[must_use]
    pub fn growth_since(&self, other: &Self) -> Self {
        let mut out = Self::default();
        for (name, amount) in &self.0 {
            let mut amount = amount.clone();
            if let Some(before) = other.get(name) {
                amount.subtract(before);
            }
            out.set(name, if amount > Amount::ZERO { amount } else { Amount::ZERO });
        }
        for name in other.0.keys().filter(|name| !self.0.contains_key(*name)) {
            out.set(name, Amount::ZERO);
        }
        out
    }

    /// The entries for whose names `keep` holds.
    #[must_use]
    pub fn masked(&self, keep: impl Fn(&str) -> bool) -> Self {
        let kept = self.0.iter().filter(|(name, _)| keep(name));
        Self(kept.map(|(name, amount)| (name.clone(), amount.clone())).collect())
    }
}

/// `cpu=1,memory=1Gi`.
impl Display for ResourceList {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (index, (name, amount)) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator}{name}={amount}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list(value: &Value) -> ResourceList {
        ResourceList::of(value)
    }

    #[test]
    fn lists_are_added_by_name() {
        let mut sum = list(&json!({"cpu": "600m", "memory": "0"}));
        sum.add(&list(&json!({"cpu": "400m", "memory": "512Mi", "x": "1"})));
        assert_eq!(sum.to_value(), json!({"cpu": "1", "memory": "512Mi", "x": "1"}));
        sum.raise_to(&list(&json!({"cpu": "500m", "memory": "1Gi"})));
        assert_eq!(sum.to_string(), "cpu=1,memory=1Gi,x=1");
        assert_eq!(sum.masked(|name| name == "x"), list(&json!({"x": "1000m"})));
    }

    #[test]
    fn growth_is_never_negative() {
        let (old, new) = (list(&json!({"a": "2", "b": "1", "c": "1"})), list(&json!({"a": "3", "b": "500m"})));
        assert_eq!(new.growth_since(&old).to_value(), json!({"a": "1", "b": "0", "c": "0"}));
    }
}
