//! Addresses of load balancers announced by BGP, seen by a real router: BIRD, in a namespace of its own.
//!
//! Routes are looked for in the router's table and followed by packets of a client that knows nothing but the router. What people are
//! told is read from the Events of the BGPPeer.

mod endings;
mod frr;
mod passwords;
mod restarts;
mod router;
mod routes;
mod scene;
