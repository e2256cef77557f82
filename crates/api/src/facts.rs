//! What selectors ask of an object, taken out of it once so that lists and watches need not decode it again.

/// Labels and selectable fields of one object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// Labels, sorted by key.
    pub labels: Box<[(Box<str>, Box<str>)]>,
    /// The values of the kind's selectable fields, in the order of its table.
    pub fields: Box<[Box<str>]>,
}

impl Facts {
    /// The value of a label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        let index = self.labels.binary_search_by(|(have, _)| have.as_ref().cmp(key)).ok()?;
        Some(&self.labels[index].1)
    }
}
