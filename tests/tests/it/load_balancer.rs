//! Services of type LoadBalancer without a cloud: their addresses, who may have them, and real packets to them.
//!
//! Addresses are routed to a node by hand here; how they are announced is shown elsewhere.

mod annotations;
mod asked;
mod crash;
mod desk;
mod laptop;
mod pools;
mod race;
mod rows;
mod stage;
mod told;
