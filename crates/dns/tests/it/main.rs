//! The recorded corpus of queries and replies, replayed through the function that listeners call and through sockets.

mod autopath;
mod compare;
mod corpus;
mod dynamic;
mod fixture;
mod floods;
mod golden;
mod limits;
mod metrics;
mod readiness;
mod reload;
mod rules;
mod server;
mod sockets;
mod stub;
