//! YAML in and out, as kube-apiserver understands it.
//!
//! In: YAML 1.1 with its many booleans and octal numbers. Out: the same value as JSON, or a value as YAML text with
//! sorted keys. One table of what a plain word means (`resolve`) serves both ways: the reader to find the type, the
//! writer to know what needs quotes.

mod read;
mod resolve;
mod write;

#[cfg(test)]
mod tests;

pub use read::{YamlError, from_yaml};
pub use write::to_yaml;
