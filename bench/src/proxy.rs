//! The proxy: how soon Services work, from nothing and after one change, what it costs, and what a connection pays for it.
//!
//! ```text
//! objects: the load ─▶ API server ─▶ contender on a node of its own ─▶ kernel
//! stage: node, client pod, far machine ─▶ caller: real connections see what works ─▶ start, changes, connects ─▶ rows
//!                                         usage: processor time and memory; writes: netlink notifications of the kernel
//! ```

pub mod caller;
pub mod changes;
pub mod connects;
pub mod contender;
pub mod measure;
pub mod objects;
pub mod rows;
pub mod running;
pub mod scrape;
pub mod stage;
pub mod usage;
pub mod writes;
