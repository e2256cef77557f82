//! One binary for all black-box tests: one link, and one server where a test needs no fault of its own.
#![expect(clippy::disallowed_methods, reason = "these tests run the programs that users run")]

mod crash;
mod golden;
mod race;
mod repository;
mod store_tools;
