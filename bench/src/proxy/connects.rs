//! The cost of a connection to a Service: `connect()` to the first and the last one compared with `connect()` to an endpoint.
//!
//! The three take turns, so that whatever the machine does to one of them it does to the others.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use anyhow::Context as _;

use super::caller::hang_up;
use super::objects::{Size, TARGET};
use super::stage::Seat;
use crate::stats::median;

/// Not counted: routes and neighbours are looked up.
const WARM_UP: usize = 100;

/// Medians, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Connects {
    /// To an endpoint.
    pub direct: f64,
    /// To the first Service.
    pub first: f64,
    /// To the last Service.
    pub last: f64,
}

/// Connects this many times to each.
///
/// # Errors
/// When a connection fails.
pub fn measure(seat: &Seat, size: Size, count: usize) -> anyhow::Result<Connects> {
    let direct = SocketAddr::new(size.endpoint(size.services / 2, 0).into(), TARGET);
    let targets = [direct, size.vip(0), size.vip(size.services - 1)];
    let mut took = [const { Vec::new() }; 3];
    seat.client
        .in_namespace(|| -> io::Result<()> {
            for round in 0..WARM_UP + count {
                // Alternate the order, so that no target always follows the same one.
                let order = if round % 2 == 0 { [0, 1, 2] } else { [2, 1, 0] };
                for which in order {
                    let begun = Instant::now();
                    let connection = TcpStream::connect(targets[which])?;
                    let elapsed = begun.elapsed();
                    hang_up(&connection);
                    if round >= WARM_UP {
                        took[which].push(elapsed.as_secs_f64());
                    }
                }
            }
            Ok(())
        })
        .context("connecting")?;
    Ok(Connects { direct: median(&took[0]), first: median(&took[1]), last: median(&took[2]) })
}
