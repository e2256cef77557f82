//! Addresses of load balancers, announced by layer 2: an outside client on the same wire finds them, and finds one machine at a time.
//!
//! Real frames, real packets; the client sends ARP and NDP requests itself, several per hundredth of a second, and records who responds.

mod addresses;
mod conflict;
mod failover;
mod leftovers;
mod stage;
mod told;
mod wire;
