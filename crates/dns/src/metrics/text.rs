//! The figures as text, in the exposition format of Prometheus.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{CODES, Histogram, LIMITED, Metrics, SIZES, TIMES, TYPES, Tally};
use crate::book::Book;
use crate::wire::{rcode, rtype};

const TRANSPORTS: [&str; 2] = ["udp", "tcp"];
const FAMILIES: [&str; 2] = ["1", "2"];

impl Metrics {
    /// All figures.
    #[must_use]
    pub fn text(&self, book: &Book) -> String {
        let mut out = String::new();
        let tallies = self.tallies.lock().clone();
        self.requests(&mut out, &tallies);
        self.responses(&mut out, &tallies);
        self.times(&mut out, &tallies);
        self.sizes(&mut out, &tallies);
        self.services(&mut out, &tallies, book);
        self.delays(&mut out);
        self.watches(&mut out);
        let unsent = tallies.iter().map(|tally| tally.unsent.load(Relaxed)).sum();
        let single = [
            ("coredns_panics_total", "Times a thread stumbled and went on", self.panics.load(Relaxed)),
            ("waypost_dns_dropped_total", "Questions that nobody had time for", self.dropped.load(Relaxed)),
            ("waypost_dns_unsent_total", "Replies that the kernel did not take", unsent),
            ("waypost_dns_connections_refused_total", "Connections over a limit", self.refused.load(Relaxed)),
            ("waypost_dns_changes_total", "Changes that names showed", self.changes.load(Relaxed)),
        ];
        for (name, help, value) in single {
            head(&mut out, name, help, "counter");
            let _ = writeln!(out, "{name} {value}");
        }
        limited(&mut out, &tallies);
        let name = "coredns_build_info";
        head(&mut out, name, "Which program this is", "gauge");
        let version = env!("CARGO_PKG_VERSION");
        let _ = writeln!(out, "{name}{{version=\"{version}\",revision=\"waypost\",goversion=\"\"}} 1");
        head(&mut out, "waypost_dns_ready", "Whether every name is known", "gauge");
        let _ = writeln!(out, "waypost_dns_ready {}", u8::from(book.is_ready()));
        head(&mut out, "waypost_dns_serial", "The serial number of our zones", "gauge");
        let _ = writeln!(out, "waypost_dns_serial {}", book.serial());
        out
    }

    fn labels(&self, zone: usize) -> String {
        format!("server=\"{}\",zone=\"{}\",view=\"\"", self.server, self.zones[zone])
    }

    fn requests(&self, out: &mut String, tallies: &[Arc<Tally>]) {
        let name = "coredns_dns_requests_total";
        head(out, name, "Questions", "counter");
        for zone in 0..self.zones.len() {
            for place in 0..4 * TYPES {
                let count = sum(tallies, |tally| &tally.zones[zone].requests[place]);
                if count == 0 {
                    continue;
                }
                let (transport, family) = (TRANSPORTS[place / TYPES / 2], FAMILIES[place / TYPES % 2]);
                let kind = rtype::TABLE.get(place % TYPES).map_or("other", |(_, text)| text);
                let labels = self.labels(zone);
                let _ = writeln!(
                    out,
                    "{name}{{{labels},proto=\"{transport}\",family=\"{family}\",type=\"{kind}\"}} {count}"
                );
            }
        }
        let name = "coredns_dns_do_requests_total";
        head(out, name, "Questions that want signatures", "counter");
        for zone in 0..self.zones.len() {
            let count = sum(tallies, |tally| &tally.zones[zone].dnssec);
            let _ = writeln!(out, "{name}{{{}}} {count}", self.labels(zone));
        }
    }

    fn responses(&self, out: &mut String, tallies: &[Arc<Tally>]) {
        let name = "coredns_dns_responses_total";
        head(out, name, "Answers", "counter");
        for zone in 0..self.zones.len() {
            let plugin = if zone + 1 == self.zones.len() { "forward" } else { "kubernetes" };
            for code in 0..CODES {
                let count = sum(tallies, |tally| &tally.zones[zone].responses[code]);
                let text = rcode::text(u16::try_from(code).unwrap_or(u16::MAX));
                if count > 0 {
                    let labels = self.labels(zone);
                    let _ = writeln!(out, "{name}{{{labels},rcode=\"{text}\",plugin=\"{plugin}\"}} {count}");
                }
            }
        }
    }

    fn times(&self, out: &mut String, tallies: &[Arc<Tally>]) {
        let name = "coredns_dns_request_duration_seconds";
        head(out, name, "How long answers took", "histogram");
        let bounds: Vec<String> = (0..TIMES).map(|power| (0.00025 * f64::from(1 << power)).to_string()).collect();
        for zone in 0..self.zones.len() {
            histogram(out, name, &self.labels(zone), &bounds, tallies, 1e-9, |tally| &tally.zones[zone].times);
        }
    }

    fn sizes(&self, out: &mut String, tallies: &[Arc<Tally>]) {
        let bounds = SIZES.map(|size| size.to_string());
        let (asked, answered) = ("coredns_dns_request_size_bytes", "coredns_dns_response_size_bytes");
        for (name, help) in [(asked, "How long questions are"), (answered, "How long answers are")] {
            head(out, name, help, "histogram");
            for (zone, transport) in (0..self.zones.len()).flat_map(|zone| [(zone, 0), (zone, 1)]) {
                let labels = format!("{},proto=\"{}\"", self.labels(zone), TRANSPORTS[transport]);
                histogram(out, name, &labels, &bounds, tallies, 1.0, |tally| {
                    let zone = &tally.zones[zone];
                    if name == asked { &zone.asked[transport] } else { &zone.answered[transport] }
                });
            }
        }
    }

    /// A number that was another Service's begins again where that one ended.
    fn services(&self, out: &mut String, tallies: &[Arc<Tally>], book: &Book) {
        let name = "waypost_dns_service_requests_total";
        head(out, name, "Questions for the names of a Service", "counter");
        let mut known = self.known.lock();
        book.each_service(|service, number| {
            let total: u64 = tallies.iter().map(|tally| tally.of_service(number)).sum();
            let (owner, before) = known.entry(number).or_insert_with(|| (service.to_owned(), 0));
            if owner != service {
                service.clone_into(owner);
                *before = total;
            }
            let count = total.saturating_sub(*before);
            if count > 0 {
                let (namespace, own) = service.split_once('/').unwrap_or(("", service));
                let _ = writeln!(out, "{name}{{namespace=\"{namespace}\",service=\"{own}\"}} {count}");
            }
        });
    }

    fn delays(&self, out: &mut String) {
        let name = "coredns_kubernetes_dns_programming_duration_seconds";
        head(out, name, "From a change of endpoints to answers that show it", "histogram");
        for (kind, delays) in ["cluster_ip", "headless_with_selector"].into_iter().zip(&self.delays) {
            delays.lock().write(out, name, &format!("service_kind=\"{kind}\""));
        }
    }

    fn watches(&self, out: &mut String) {
        let (synced, breaks) = ("waypost_dns_watch_in_sync", "waypost_dns_watch_breaks_total");
        let watched = self.watched.lock();
        head(out, synced, "Whether a watch knows the present", "gauge");
        for watch in watched.iter() {
            let _ = writeln!(out, "{synced}{{watch=\"{}\"}} {}", watch.name(), u8::from(watch.is_synced()));
        }
        head(out, breaks, "Times something went wrong with a watch", "counter");
        for watch in watched.iter() {
            let _ = writeln!(out, "{breaks}{{watch=\"{}\"}} {}", watch.name(), watch.health().failures);
        }
    }
}

fn limited(out: &mut String, tallies: &[Arc<Tally>]) {
    let name = "waypost_dns_client_rate_limited_total";
    head(out, name, "Queries over a limit of their client", "counter");
    for (place, (reason, result)) in LIMITED.into_iter().enumerate() {
        let count = sum(tallies, |tally| &tally.limited[place]);
        let _ = writeln!(out, "{name}{{reason=\"{reason}\",result=\"{result}\"}} {count}");
    }
}

/// What comes before the lines of a figure.
pub(crate) fn head(out: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(out, "# HELP {name} {help}.\n# TYPE {name} {kind}");
}

fn sum<'t>(tallies: &'t [Arc<Tally>], counter: impl Fn(&'t Tally) -> &'t AtomicU64) -> u64 {
    tallies.iter().map(|tally| counter(tally).load(Relaxed)).sum()
}

fn histogram<'t, const N: usize>(
    out: &mut String,
    name: &str,
    labels: &str,
    bounds: &[String],
    tallies: &'t [Arc<Tally>],
    unit: f64,
    of: impl Fn(&'t Tally) -> &'t Histogram<N>,
) {
    let mut below = 0;
    for place in 0..N {
        below += sum(tallies, |tally| &of(tally).counts[place]);
        let bound = bounds.get(place).map_or("+Inf", |bound| bound);
        let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {below}");
    }
    #[expect(clippy::cast_precision_loss, reason = "a sum for people")]
    let total = sum(tallies, |tally| &of(tally).sum) as f64 * unit;
    let _ = writeln!(out, "{name}_sum{{{labels}}} {total}");
    let _ = writeln!(out, "{name}_count{{{labels}}} {below}");
}
