//! The recorded corpus of questions and answers, replayed against this crate: once through the function that every
//! listener calls, and once through sockets.

mod compare;
mod corpus;
mod dynamic;
mod figures;
mod floods;
mod golden;
mod limits;
mod place;
mod reload;
mod rules;
mod sockets;
mod stub;
mod unready;
mod walks;
mod whole;
