//! `waypost doctor` from outside: a real `waypost up` on a machine of its own, Services that are broken in every way that people break
//! them, and Services that are not; and servers whose exposure it reports.

mod broken;
pub(crate) mod clinic;
mod healthy;
mod machine;
mod security;
