//! Addresses of load balancers, announced by layer 2: an outside client on the same wire finds them, and finds one machine at a time.
//!
//! Real frames, real packets; the client asks by itself who has an address, several times in a hundredth of a second, and notes who says so.

mod addresses;
mod conflict;
mod failover;
mod leftovers;
mod stage;
mod told;
mod wire;
