//! Scenarios of layer 7: what is found, what is explained, and which rule takes a request.

mod findings;
mod overview;
mod requests;
mod services;
mod world;
