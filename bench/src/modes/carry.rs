//! Throughput of a path: one stream at full speed, short connections one after the other, and datagrams in both directions.
//!
//! Ways take turns, round after round, so that whatever the machine does to one it does to the others; the median of the rounds
//! counts.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use testbed::net::Pod;

use crate::report::Figures;
use crate::stats::median;

/// How much is written at once.
const PIECE: usize = 128 << 10;
/// How many clients make short connections.
const CLIENTS: usize = 2;
/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The size of a datagram.
const DATAGRAM: usize = 64;

/// The source of a path.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// What leads to the sink.
    pub sink: SocketAddr,
    /// The address of the server for short connections.
    pub desk: SocketAddr,
    /// What leads to the echo, if it carries datagrams.
    pub echo: Option<SocketAddr>,
}

/// Measures ways from a pod; the figures of each, in their order.
///
/// # Errors
/// When a connection fails.
pub fn measure(
    client: &Pod,
    ways: &[Way],
    time: Duration,
    rounds: usize,
    short_only: bool,
) -> anyhow::Result<Vec<Figures>> {
    let mut seen = vec![[const { Vec::new() }; 3]; ways.len()];
    for _ in 0..rounds {
        for (way, [streams, connections, datagrams]) in ways.iter().zip(&mut seen) {
            if !short_only {
                streams.push(client.in_namespace(|| stream(way.sink, time)).context("a stream")?);
            }
            connections
                .push(short(client, way.desk, time).with_context(|| format!("short connections to {}", way.desk))?);
            if let Some(echo) = way.echo.filter(|_| !short_only) {
                datagrams.push(client.in_namespace(|| exchange(echo, time)).context("datagrams")?);
            }
        }
    }
    let figures = |[streams, connections, datagrams]: [Vec<f64>; 3]| {
        let mut figures = Figures::default();
        for (key, values) in [("stream_gbit", streams), ("short_rate", connections), ("datagram_rate", datagrams)] {
            if !values.is_empty() {
                figures.set(key, median(&values));
            }
        }
        figures
    };
    Ok(seen.into_iter().map(figures).collect())
}

/// Gigabits per second of one stream, counted when the other side has read everything.
fn stream(to: SocketAddr, time: Duration) -> anyhow::Result<f64> {
    let (mut connection, piece) = (connect(to)?, vec![7; PIECE]);
    let (begun, mut sent) = (Instant::now(), 0.0);
    while begun.elapsed() < time {
        connection.write_all(&piece)?;
        sent += 8.0 * 1e-9 * f64::from(u32::try_from(PIECE)?);
    }
    connection.shutdown(Shutdown::Write)?;
    hear(&mut connection)?;
    Ok(sent / begun.elapsed().as_secs_f64())
}

/// Connections per second, each with an answer.
fn short(client: &Pod, to: SocketAddr, time: Duration) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let one = || {
        client.in_namespace(|| -> anyhow::Result<u32> {
            let mut count = 0;
            while begun.elapsed() < time {
                ask(&mut connect(to)?)?;
                count += 1;
            }
            Ok(count)
        })
    };
    let counts: anyhow::Result<Vec<u32>> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(one)).collect();
        all.into_iter().map(|client| client.join().unwrap_or_else(|_| anyhow::bail!("a client panicked"))).collect()
    });
    Ok(f64::from(counts?.iter().sum::<u32>()) / begun.elapsed().as_secs_f64())
}

/// Exchanges of one datagram per second.
fn exchange(to: SocketAddr, time: Duration) -> anyhow::Result<f64> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.connect(to)?;
    let (begun, mut count, mut answer) = (Instant::now(), 0u32, [0; DATAGRAM]);
    while begun.elapsed() < time {
        socket.send(&[7; DATAGRAM])?;
        let length = socket.recv(&mut answer).context("no answer")?;
        ensure!(length == DATAGRAM, "a datagram came back with {length} bytes");
        count += 1;
    }
    Ok(f64::from(count) / begun.elapsed().as_secs_f64())
}

fn connect(to: SocketAddr) -> anyhow::Result<TcpStream> {
    let connection = TcpStream::connect_timeout(&to, TIMEOUT).with_context(|| format!("connecting to {to}"))?;
    connection.set_read_timeout(Some(TIMEOUT))?;
    connection.set_nodelay(true)?;
    Ok(connection)
}

/// Sends something and waits for the response; the server closes the connection.
fn ask(connection: &mut TcpStream) -> anyhow::Result<()> {
    connection.write_all(b"q")?;
    hear(connection)
}

/// Waits for the answer, and for the end.
fn hear(connection: &mut TcpStream) -> anyhow::Result<()> {
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).context("no answer")?;
    ensure!(answer == b"k", "the answer was {answer:?}");
    Ok(())
}
