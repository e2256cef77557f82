//! Kinds that CustomResourceDefinitions define, in addition to the static table.
//!
//! In: CustomResourceDefinition objects. Out: a [`Kind`] for each of their versions, with [`CustomRules`] that follow the
//! definition, and [`Kinds`], the kinds that a server has at one moment. The verbs of the server treat them as all others.
//!
//! Names of kinds are `&'static`, as in the static table. What a definition names is therefore leaked, once for each
//! distinct set of names ([`Interner`]): some hundred bytes. Schemas, rules and columns are not leaked: they are behind
//! [`CustomRules`] and are replaced when the definition changes.

mod catalog;
mod definition;
mod kinds;
mod rules;
#[cfg(test)]
mod tests;

pub use catalog::Catalog;
pub use definition::Definition;
pub use kinds::{Defined, Interner, Kinds, facts_of, resource_of_table};
pub use rules::CustomRules;
