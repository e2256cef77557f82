//! What runs inside the virtual machine.

mod handover;
mod port;
mod schedulers;
mod served;
