//! Corefile reload during queries.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dns::config::Config;
use dns::reload::{self, ApplyConfig, ReloadMetrics};
use dns::serve::HandlerSwap;
use dns::wire::rcode;
use tokio::sync::{Notify, mpsc};

use crate::server::{CLIENT, TestServer, question, summary};

const SERVICE: &str = "svc1.testns.svc.cluster.local.";
const OURS: &str = "svc1.testns.svc.cluster.local. A 10.96.0.100";
const BY_HAND: &str = "svc1.testns.svc.cluster.local. A 203.0.113.7";

/// Applies configurations as the program does, and reports each.
struct Target {
    server: Arc<TestServer>,
    switch: HandlerSwap,
    applied: mpsc::UnboundedSender<()>,
}

impl ApplyConfig for Target {
    type Error = &'static str;

    async fn apply(&mut self, config: Config) -> Result<(), Self::Error> {
        if config.blocks.iter().any(|block| block.keys[0].port != 53) {
            return Err("the port cannot change");
        }
        self.switch.swap(self.server.snapshot.clone(), self.server.replaced(&config));
        let _ = self.applied.send(());
        Ok(())
    }
}

struct Watched {
    server: Arc<TestServer>,
    path: PathBuf,
    trigger: Arc<Notify>,
    metrics: Arc<ReloadMetrics>,
    applied: mpsc::UnboundedReceiver<()>,
    task: tokio::task::JoinHandle<()>,
    _dir: tempfile::TempDir,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watched {
    async fn new(directives: &str) -> Self {
        let server = Arc::new(TestServer::new(directives).await);
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("Corefile");
        write(&path, &server, directives);
        let first = reload::read(&path);
        let (trigger, metrics) = (Arc::new(Notify::new()), Arc::new(ReloadMetrics::new(&first.version)));
        let (sender, applied) = mpsc::unbounded_channel();
        let target = Target { server: server.clone(), switch: server.server.handler_swap(), applied: sender };
        let task = tokio::spawn(reload::watch(path.clone(), first, trigger.clone(), metrics.clone(), target));
        Self { server, path, trigger, metrics, applied, task, _dir: dir }
    }

    fn text(&self) -> String {
        dns::metrics::encode([self.metrics.collector()])
    }

    fn write(&self, directives: &str) {
        write(&self.path, &self.server, directives);
    }

    /// Waits for a number of failed reloads.
    async fn failed(&self, count: u64) {
        let mut status = self.metrics.status();
        let wait = status.wait_for(|status| status.failed == count);
        tokio::time::timeout(Duration::from_secs(20), wait).await.expect("in time").expect("the reload fails");
    }
}

/// Replaces a file atomically, as a volume update does.
fn write(path: &Path, server: &TestServer, directives: &str) {
    let new = path.with_extension("new");
    fs::write(&new, server.corefile(directives)).expect("written");
    fs::rename(new, path).expect("renamed");
}

fn by_hand() -> String {
    "reload 2s 1s\nhosts {\n203.0.113.7 svc1.testns.svc.cluster.local\nfallthrough\n}".to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_corefile_is_reloaded_at_its_interval() {
    let mut watched = Watched::new("reload 2s 1s").await;
    assert_eq!(watched.server.query(CLIENT, SERVICE, "A").answers, [OURS]);
    let before = watched.text();
    watched.write(&by_hand());
    watched.applied.recv().await.expect("it is applied without a trigger");
    assert_eq!(watched.server.query(CLIENT, SERVICE, "A").answers, [BY_HAND]);
    watched.write("errors");
    watched.applied.recv().await.expect("it is applied");
    assert_eq!(watched.server.query(CLIENT, SERVICE, "A").answers, [OURS]);
    assert_ne!(watched.text(), before, "the active version is exported");
    assert!(watched.text().contains("coredns_reload_failed_total 0\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_corefile_keeps_the_previous_configuration() {
    let mut watched = Watched::new("errors").await;
    watched.write(&by_hand());
    watched.trigger.notify_one();
    watched.applied.recv().await.expect("it is applied");
    let good = reload::read(&watched.path).version;

    watched.write("eror");
    watched.trigger.notify_one();
    watched.failed(1).await;
    assert_eq!(watched.server.query(CLIENT, SERVICE, "A").answers, [BY_HAND]);

    let other_port = watched.server.corefile("errors").replacen(":53", ":54", 1);
    fs::write(&watched.path, other_port).expect("written");
    watched.trigger.notify_one();
    watched.failed(2).await;
    assert_eq!(watched.server.query(CLIENT, SERVICE, "A").answers, [BY_HAND]);

    fs::remove_file(&watched.path).expect("removed");
    watched.trigger.notify_one();
    watched.failed(3).await;
    assert_eq!(watched.server.query(CLIENT, SERVICE, "A").answers, [BY_HAND]);
    let shown = watched.text();
    assert!(shown.contains(&format!("value=\"{good}\"}} 1")), "this one is still active: {shown}");

    watched.write("errors");
    watched.trigger.notify_one();
    watched.applied.recv().await.expect("a valid one is applied again");
    assert_eq!(watched.server.query(CLIENT, SERVICE, "A").answers, [OURS]);
}

/// Queries for local and external names during repeated reloads: each is answered, by the old or the new configuration.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_query_is_lost_during_reload() {
    let mut watched = Watched::new("errors").await;
    let (done, queries) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let clients: Vec<_> = [(SERVICE, [OURS, BY_HAND]), ("example.net.", ["example.net. A 13.14.15.16"; 2])]
        .into_iter()
        .map(|(name, allowed)| {
            let (server, done, queries) = (watched.server.clone(), done.clone(), queries.clone());
            tokio::task::spawn_blocking(move || {
                let socket = server.socket(CLIENT);
                let mut buffer = vec![0; 4096];
                while !done.load(Ordering::Acquire) {
                    let id = fastrand::u16(..);
                    socket.send(&question(name, "A", id)).expect("sent");
                    let length = socket.recv(&mut buffer).expect("no question is lost");
                    let reply = summary(&buffer[..length]);
                    assert_eq!(
                        (reply.rcode, reply.answers.len(), &buffer[..2]),
                        (rcode::NOERROR, 1, &id.to_be_bytes()[..])
                    );
                    assert!(allowed.contains(&reply.answers[0].as_str()), "{reply:?}");
                    queries.fetch_add(1, Ordering::AcqRel);
                }
            })
        })
        .collect();
    for round in 0..20 {
        let before = queries.load(Ordering::Acquire);
        watched.write(&if round % 2 == 0 { by_hand() } else { "cache".to_owned() });
        watched.trigger.notify_one();
        watched.applied.recv().await.expect("it is applied");
        while queries.load(Ordering::Acquire) < before + 20 {
            tokio::task::yield_now().await;
        }
    }
    done.store(true, Ordering::Release);
    for client in clients {
        client.await.expect("every question was answered");
    }
    assert!(watched.server.metrics.text(&watched.server.snapshot).contains("waypost_dns_dropped_total 0\n"));
}
