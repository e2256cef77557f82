//! Custom resources: how fast their objects are created, listed and watched when rules in CEL check them, and what many definitions
//! cost: memory, the time until they are served, discovery and OpenAPI.

pub mod definitions;
pub mod documents;
pub mod manifests;
pub mod measure;
pub mod rows;
