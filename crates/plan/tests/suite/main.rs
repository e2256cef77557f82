//! The rules of the proxy, held against the planner and the oracle: from objects as a server sends them to what must
//! happen to a packet.

mod choosing;
mod following;
mod matrix;
mod node;
mod oddities;
mod properties;
mod reading;
mod refusals;
mod why;
mod world;
