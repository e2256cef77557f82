//! Rounds of both clients, alternately, with and without TLS.
//!
//! In: a [`Plan`]. Out: the figures of `gateway::http1` and of hyper's client: the median of the rounds for each.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::future::try_join_all;
use rustix::time::{ClockId, clock_gettime};
use tokio::net::TcpStream;

use super::exchange::{Client, Kind};
use super::server::Server;
use crate::lb::load::secure;
use crate::report::{Figures, Row, key, less, more};
use crate::stats::{each, median, percentile, seconds};

/// Requests of each connection before the measurement begins.
const WARM_UP: usize = 100;

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Requests of a round, over all connections.
    pub requests: usize,
    /// Numbers of connections, each measured separately.
    pub connections: Vec<usize>,
    /// Rounds of each client.
    pub rounds: usize,
}

/// Figures of one round.
struct Round {
    times: Vec<Duration>,
    lasted: Duration,
    cpu: Duration,
}

/// The lines of the report.
#[must_use]
pub fn rows(plan: &Plan) -> Vec<Row> {
    let of = |(tls, connections): (bool, &usize)| {
        let what = |name: &str| key(&prefixed(tls, name), connections);
        let title = format!("{}, {connections} connections: ", if tls { "TLS" } else { "TCP" });
        [
            less(&what("p50_us"), &format!("{title}p50 (µs)"), None),
            less(&what("p99_us"), "  p99 (µs)", None),
            less(&what("cpu_us"), "  CPU time of the client's thread per request (µs)", None),
            more(&what("rate"), "  requests per second"),
        ]
    };
    let all = |tls| plan.connections.iter().map(move |count| (tls, count));
    all(false).chain(all(true)).flat_map(of).collect()
}

/// Measures `gateway::http1` and hyper's client, in this order.
///
/// # Errors
/// When a request fails.
pub fn measure(plan: &Plan) -> anyhow::Result<[Figures; 2]> {
    let mut figures = [Figures::default(), Figures::default()];
    for tls in [false, true] {
        let server = Server::start(tls)?;
        for connections in &plan.connections {
            let mut rounds: [Vec<Round>; 2] = [Vec::new(), Vec::new()];
            for number in 0..plan.rounds {
                // Each is the first in every other round: the machine is not equally fast at all times.
                for turn in 0..2 {
                    let place = (number + turn) % 2;
                    let kind = [Kind::Gateway, Kind::Hyper][place];
                    let round = round(kind, &server, *connections, plan.requests / connections);
                    rounds[place].push(round.with_context(|| format!("{kind:?}, {connections} connections"))?);
                }
            }
            for (figures, rounds) in figures.iter_mut().zip(&rounds) {
                summarize(figures, rounds, |name| key(&prefixed(tls, name), connections));
            }
        }
    }
    Ok(figures)
}

fn prefixed(tls: bool, name: &str) -> String {
    format!("{}_{name}", if tls { "tls" } else { "tcp" })
}

fn summarize(figures: &mut Figures, rounds: &[Round], key: impl Fn(&str) -> String) {
    let mut set = |name, of: &dyn Fn(&Round) -> f64| {
        let values: Vec<f64> = rounds.iter().map(of).collect();
        figures.set(&key(name), median(&values));
    };
    set("p50_us", &|round| median(&seconds(&round.times)) * 1e6);
    set("p99_us", &|round| percentile(&seconds(&round.times), 0.99) * 1e6);
    set("cpu_us", &|round| each(round.cpu, round.times.len()));
    set("rate", &|round| 1e6 / each(round.lasted, round.times.len()));
}

/// All requests of a round, on this thread, like those of a worker of the gateway.
fn round(kind: Kind, server: &Server, connections: usize, requests: usize) -> anyhow::Result<Round> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut clients = try_join_all((0..connections).map(|_| connect(kind, server))).await?;
        exchanges(&mut clients, WARM_UP).await?;
        let (begun, before) = (Instant::now(), thread_time());
        let times = exchanges(&mut clients, requests).await?;
        Ok(Round { times, lasted: begun.elapsed(), cpu: thread_time().saturating_sub(before) })
    })
}

async fn connect(kind: Kind, server: &Server) -> anyhow::Result<Client> {
    let stream = TcpStream::connect(server.address).await.context("connecting")?;
    stream.set_nodelay(true)?;
    match &server.tls {
        None => Client::open(kind, stream).await,
        Some(config) => Client::open(kind, secure(stream, config).await?).await,
    }
}

/// This number of requests on each connection, and how long each took.
async fn exchanges(clients: &mut [Client], count: usize) -> anyhow::Result<Vec<Duration>> {
    Ok(try_join_all(clients.iter_mut().map(|client| repeat(client, count))).await?.concat())
}

async fn repeat(client: &mut Client, count: usize) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let begun = Instant::now();
        client.exchange().await?;
        times.push(begun.elapsed());
    }
    Ok(times)
}

/// CPU time of this thread.
fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
