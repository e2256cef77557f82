//! Many watchers of one collection: how many events reach them all, and how soon.
//!
//! First single events with pauses between them: how long after its write each delivery comes. Then a burst:
//! deliveries per second until the last watcher has the last event. A watcher that is cut off keeps what it has got; how
//! many were cut off is part of the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use client::http::{Client, Method};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::lines::Lines;
use crate::load::{self, Work};
use crate::subject::Running;

/// How many watchers do their TLS handshake at once.
const TOGETHER: usize = 32;
/// How many clients write the burst.
const WRITERS: usize = 8;
/// The pause between single events; long enough for every watcher to have one before the next.
const PACE: Duration = Duration::from_millis(100);
/// How long deliveries may take after the last write.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The prefix of the name of an event's object, as encoded in the event.
const MARK: &[u8] = b"\"name\":\"fan-";
/// Digits of an event's number.
const DIGITS: usize = 6;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// How many watchers.
    pub watchers: usize,
    /// Single events.
    pub single: usize,
    /// Events of the burst.
    pub burst: usize,
}

/// What is watched: a collection, and an object of it with a name.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    /// The path of the collection.
    pub collection: &'static str,
    /// Makes an object.
    pub object: fn(&str) -> Value,
}

/// What was measured.
#[derive(Debug, Default)]
pub struct FanOut {
    /// Until all watches were open.
    pub opened_in: Duration,
    /// Deliveries of single events, counted from the answer to the write; those before it count as 0.
    pub after_answer: Vec<Duration>,
    /// The same, counted from the moment the write was sent.
    pub after_sending: Vec<Duration>,
    /// How many events of the burst were delivered, to all watchers together.
    pub delivered: usize,
    /// How long the burst took, from its first write to its last delivery.
    pub burst_took: Duration,
    /// The server's processor time for the burst, its writes included.
    pub burst_cpu: Duration,
    /// How many watchers were cut off.
    pub cut_off: usize,
}

/// What one watcher saw: the numbers of events and when they came.
struct Seen {
    events: Vec<(usize, Instant)>,
    complete: bool,
}

/// Counts deliveries and notifies when single events have all arrived.
struct Progress {
    delivered: AtomicUsize,
    single: usize,
    arrived: Notify,
}

/// Measures.
///
/// # Errors
/// When a watch cannot be opened or a write fails.
pub async fn measure(running: &Running, watched: Watched, size: Size) -> anyhow::Result<FanOut> {
    let (client, collection) = (&running.client(), watched.collection);
    let list = running.client().json(Method::GET, &format!("{collection}?limit=1"), None).await?.1;
    let revision = list["metadata"]["resourceVersion"].as_str().context("a list without a resourceVersion")?;
    let path = format!("{collection}?watch=1&resourceVersion={revision}&timeoutSeconds=600");
    let begun = Instant::now();
    let streams = open(client, &path, size.watchers).await?;
    let opened_in = begun.elapsed();

    let progress = Arc::new(Progress {
        delivered: AtomicUsize::new(0),
        single: size.single * size.watchers,
        arrived: Notify::new(),
    });
    let mut watchers = JoinSet::new();
    for (client, stream) in streams {
        watchers.spawn(watch(client, stream, size.single + size.burst, progress.clone()));
    }
    let written = write_apart(running.client(), watched, size.single).await?;
    // When watchers were cut off, the rest of the time gives no further information.
    let _ = timeout(TIMEOUT, progress.arrived.notified()).await;
    let (burst_begun, cpu_before) = (Instant::now(), running.cpu()?);
    let work = (size.single..size.single + size.burst).map(|number| event(watched, number)).collect();
    load::run(client, WRITERS, work, TIMEOUT).await?;
    let seen = collect(watchers, size.watchers).await?;
    let burst_cpu = running.cpu()?.saturating_sub(cpu_before);
    Ok(FanOut { opened_in, burst_cpu, ..summary(&seen, &written, burst_begun) })
}

/// Opens the watches.
async fn open(client: &Client, path: &str, watchers: usize) -> anyhow::Result<Vec<(Client, Incoming)>> {
    let mut streams = Vec::with_capacity(watchers);
    let mut opening = JoinSet::new();
    for number in 0..watchers {
        let (mut client, path) = (client.another(), path.to_owned());
        opening.spawn(async move {
            let response = client.open(Method::GET, &path, None, bytes::Bytes::new()).await?;
            ensure!(response.status().as_u16() == 200, "a watch was answered with {}", response.status());
            Ok((client, response.into_body()))
        });
        if opening.len() >= TOGETHER || number + 1 == watchers {
            while let Some(opened) = opening.join_next().await {
                streams.push(opened.context("a watcher")??);
            }
        }
    }
    Ok(streams)
}

/// Reads a watch until all events have arrived or it ends. The client owns its connection and is kept as long.
async fn watch(client: Client, mut stream: Incoming, expected: usize, progress: Arc<Progress>) -> Seen {
    let mut events = Vec::with_capacity(expected);
    let mut lines = Lines::default();
    while events.len() < expected
        && let Some(Ok(frame)) = stream.frame().await
        && let Ok(data) = frame.into_data()
    {
        let now = Instant::now();
        let before = events.len();
        lines.feed(&data, |line| events.extend(number(line).map(|number| (number, now))));
        let arrived = events.len() - before;
        let delivered = progress.delivered.fetch_add(arrived, Ordering::Relaxed);
        if (delivered..delivered + arrived).contains(&(progress.single.saturating_sub(1))) {
            progress.arrived.notify_one();
        }
    }
    drop(client);
    Seen { complete: events.len() >= expected, events }
}

/// When a write was sent, and when it was answered.
struct Written {
    sent: Instant,
    answered: Instant,
}

/// Writes single events on a separate thread: the response must not wait behind a thousand watchers of ours.
async fn write_apart(client: Client, watched: Watched, events: usize) -> anyhow::Result<Vec<Written>> {
    let writing = tokio::task::spawn_blocking(move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("a thread to write")?;
        runtime.block_on(write_singly(client, watched, events))
    });
    writing.await.context("the writer")?
}

async fn write_singly(mut client: Client, watched: Watched, events: usize) -> anyhow::Result<Vec<Written>> {
    let mut written = Vec::with_capacity(events);
    let mut next = Instant::now() + PACE;
    for number in 0..events {
        let event = event(watched, number);
        sleep_until(next).await;
        let sent = Instant::now();
        event.send(&mut client).await?;
        written.push(Written { sent, answered: Instant::now() });
        next += PACE;
    }
    Ok(written)
}

/// Waits for the watchers; those that still wait after a while count as cut off.
async fn collect(mut watchers: JoinSet<Seen>, count: usize) -> anyhow::Result<Vec<Seen>> {
    let deadline = Instant::now() + TIMEOUT;
    let mut seen = Vec::with_capacity(count);
    while let Ok(Some(watcher)) = tokio::time::timeout_at(deadline, watchers.join_next()).await {
        seen.push(watcher.context("a watcher")?);
    }
    seen.resize_with(count, || Seen { events: Vec::new(), complete: false });
    Ok(seen)
}

fn summary(seen: &[Seen], written: &[Written], burst_begun: Instant) -> FanOut {
    let mut out = FanOut::default();
    let mut last = burst_begun;
    for watcher in seen {
        out.cut_off += usize::from(!watcher.complete);
        for (number, at) in &watcher.events {
            if let Some(written) = written.get(*number) {
                out.after_answer.push(at.saturating_duration_since(written.answered));
                out.after_sending.push(at.saturating_duration_since(written.sent));
            } else {
                out.delivered += 1;
                last = last.max(*at);
            }
        }
    }
    out.burst_took = last - burst_begun;
    out
}

fn event(watched: Watched, number: usize) -> Work {
    Work::create(watched.collection, &(watched.object)(&format!("fan-{number:0DIGITS$}")))
}

/// The number of the event in this line; bookmarks have none.
fn number(line: &[u8]) -> Option<usize> {
    let start = line.windows(MARK.len()).position(|window| window == MARK)? + MARK.len();
    std::str::from_utf8(line.get(start..start + DIGITS)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_known_by_the_name_of_its_object() {
        assert_eq!(number(b"{\"object\":{\"metadata\":{\"name\":\"fan-000007\"}}}"), Some(7));
        assert_eq!(number(b"{\"bookmark\":1}"), None);
    }

    #[test]
    fn deliveries_before_the_answer_have_no_delay() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let seen = [
            Seen { events: vec![(0, at(5)), (1, at(40))], complete: true },
            Seen { events: vec![(0, at(12))], complete: false },
        ];
        let out = summary(&seen, &[Written { sent: at(3), answered: at(10) }], at(20));
        assert_eq!(out.after_answer, [Duration::ZERO, Duration::from_millis(2)]);
        assert_eq!(out.after_sending, [Duration::from_millis(2), Duration::from_millis(9)]);
        assert_eq!((out.delivered, out.burst_took, out.cut_off), (1, Duration::from_millis(20), 1));
    }
}
