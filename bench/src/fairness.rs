//! The cost and the effect of access control: requests with RBAC, audit log and fair queues compared with requests without them, and nodes and an
//! administrator with and without an attack.

pub mod overhead;
pub mod rows;
pub mod starvation;
