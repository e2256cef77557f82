//! Durations of the Gateway API (GEP-2257).

pub use api::gateway_duration::parse;
