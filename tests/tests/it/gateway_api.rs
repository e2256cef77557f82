//! S52: Gateway API.

mod controller;
mod desk;
mod diagnosis;
