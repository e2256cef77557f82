//! The rules of the proxy, tested against the planner and the oracle: from API objects to the fate of a packet.

mod choosing;
mod incremental;
mod invalid_input;
mod layer7;
mod matrix;
mod node;
mod policies;
mod properties;
mod reading;
mod redirects;
mod refusals;
mod why;
mod world;
