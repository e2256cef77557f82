//! What access control costs, and what it is worth: requests with RBAC, audit log and fair queues beside requests with none of them, and nodes and
//! an administrator during an attack beside the same without one.

pub mod overhead;
pub mod rows;
pub mod starvation;
