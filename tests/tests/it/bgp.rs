//! Addresses of load balancers announced by BGP, seen by a real router: BIRD, in a namespace of its own.
//!
//! Routes are read from the router's table and followed by packets of a client that has only the router as its gateway. What is
//! reported to users is read from the Events of the BGPPeer.

mod endings;
mod frr;
mod passwords;
mod restarts;
mod router;
mod routes;
mod scene;
