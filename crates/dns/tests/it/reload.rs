//! A Corefile that changes while questions are asked.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dns::config::Config;
use dns::reload::{self, Figures, Takes};
use dns::serve::Switch;
use dns::wire::rcode;
use tokio::sync::{Notify, mpsc};

use crate::whole::{ANYBODY, Whole, question, said};

const SERVICE: &str = "svc1.testns.svc.cluster.local.";
const OURS: &str = "svc1.testns.svc.cluster.local. A 10.96.0.100";
const BY_HAND: &str = "svc1.testns.svc.cluster.local. A 203.0.113.7";

/// Goes on with a configuration as a program would, and says that it did.
struct Taker {
    whole: Arc<Whole>,
    switch: Switch,
    taken: mpsc::UnboundedSender<()>,
}

impl Takes for Taker {
    async fn take(&mut self, config: Config) -> Result<(), String> {
        if config.blocks.iter().any(|block| block.keys[0].port != 53) {
            return Err("the port cannot change".to_owned());
        }
        self.switch.exchange(self.whole.book.clone(), self.whole.replaced(&config));
        let _ = self.taken.send(());
        Ok(())
    }
}

struct Followed {
    whole: Arc<Whole>,
    path: PathBuf,
    wish: Arc<Notify>,
    figures: Arc<Figures>,
    taken: mpsc::UnboundedReceiver<()>,
    task: tokio::task::JoinHandle<()>,
    _dir: tempfile::TempDir,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Followed {
    async fn new(directives: &str) -> Self {
        let whole = Arc::new(Whole::new(directives).await);
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("Corefile");
        write(&path, &whole, directives);
        let first = reload::read(&path);
        let (wish, figures) = (Arc::new(Notify::new()), Arc::new(Figures::new(&first.version)));
        let (sender, taken) = mpsc::unbounded_channel();
        let taker = Taker { whole: whole.clone(), switch: whole.server.switch(), taken: sender };
        let task = tokio::spawn(reload::follow(path.clone(), first, wish.clone(), figures.clone(), taker));
        Self { whole, path, wish, figures, taken, task, _dir: dir }
    }

    fn write(&self, directives: &str) {
        write(&self.path, &self.whole, directives);
    }

    /// Waits until so many contents were refused.
    async fn refused(&self, count: u64) {
        let mut outcomes = self.figures.outcomes();
        let wait = outcomes.wait_for(|outcome| outcome.failed == count);
        tokio::time::timeout(Duration::from_secs(20), wait).await.expect("in time").expect("it is refused");
    }
}

/// A whole file takes the place of another, as when a volume is updated.
fn write(path: &Path, whole: &Whole, directives: &str) {
    let new = path.with_extension("new");
    fs::write(&new, whole.corefile(directives)).expect("written");
    fs::rename(new, path).expect("renamed");
}

fn by_hand() -> String {
    "reload 2s 1s\nhosts {\n203.0.113.7 svc1.testns.svc.cluster.local\nfallthrough\n}".to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_file_is_taken_over_at_its_interval() {
    let mut followed = Followed::new("reload 2s 1s").await;
    assert_eq!(followed.whole.ask(ANYBODY, SERVICE, "A").answers, [OURS]);
    let before = followed.figures.text();
    followed.write(&by_hand());
    followed.taken.recv().await.expect("it is taken over, without a wish");
    assert_eq!(followed.whole.ask(ANYBODY, SERVICE, "A").answers, [BY_HAND]);
    followed.write("errors");
    followed.taken.recv().await.expect("it is taken over");
    assert_eq!(followed.whole.ask(ANYBODY, SERVICE, "A").answers, [OURS]);
    assert_ne!(followed.figures.text(), before, "which one is served is shown");
    assert!(followed.figures.text().contains("coredns_reload_failed_total 0\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_cannot_be_used_changes_nothing() {
    let mut followed = Followed::new("errors").await;
    followed.write(&by_hand());
    followed.wish.notify_one();
    followed.taken.recv().await.expect("it is taken over");
    let good = reload::read(&followed.path).version;

    followed.write("eror");
    followed.wish.notify_one();
    followed.refused(1).await;
    assert_eq!(followed.whole.ask(ANYBODY, SERVICE, "A").answers, [BY_HAND]);

    let other_port = followed.whole.corefile("errors").replacen(":53", ":54", 1);
    fs::write(&followed.path, other_port).expect("written");
    followed.wish.notify_one();
    followed.refused(2).await;
    assert_eq!(followed.whole.ask(ANYBODY, SERVICE, "A").answers, [BY_HAND]);

    fs::remove_file(&followed.path).expect("removed");
    followed.wish.notify_one();
    followed.refused(3).await;
    assert_eq!(followed.whole.ask(ANYBODY, SERVICE, "A").answers, [BY_HAND]);
    let shown = followed.figures.text();
    assert!(shown.contains(&format!("value=\"{good}\"}} 1")), "this one is served still: {shown}");

    followed.write("errors");
    followed.wish.notify_one();
    followed.taken.recv().await.expect("a good one is taken over again");
    assert_eq!(followed.whole.ask(ANYBODY, SERVICE, "A").answers, [OURS]);
}

/// Questions come all the time, of ours and of others, while the file changes again and again: each is answered, and by the
/// one or by the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_question_is_lost_by_a_change() {
    let mut followed = Followed::new("errors").await;
    let (done, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let clients: Vec<_> = [(SERVICE, [OURS, BY_HAND]), ("example.net.", ["example.net. A 13.14.15.16"; 2])]
        .into_iter()
        .map(|(name, allowed)| {
            let (whole, done, asked) = (followed.whole.clone(), done.clone(), asked.clone());
            tokio::task::spawn_blocking(move || {
                let socket = whole.socket(ANYBODY);
                let mut buffer = vec![0; 4096];
                while !done.load(Ordering::Acquire) {
                    let id = fastrand::u16(..);
                    socket.send(&question(name, "A", id)).expect("sent");
                    let length = socket.recv(&mut buffer).expect("no question is lost");
                    let said = said(&buffer[..length]);
                    assert_eq!(
                        (said.rcode, said.answers.len(), &buffer[..2]),
                        (rcode::NOERROR, 1, &id.to_be_bytes()[..])
                    );
                    assert!(allowed.contains(&said.answers[0].as_str()), "{said:?}");
                    asked.fetch_add(1, Ordering::AcqRel);
                }
            })
        })
        .collect();
    for round in 0..20 {
        let before = asked.load(Ordering::Acquire);
        followed.write(&if round % 2 == 0 { by_hand() } else { "cache".to_owned() });
        followed.wish.notify_one();
        followed.taken.recv().await.expect("it is taken over");
        while asked.load(Ordering::Acquire) < before + 20 {
            tokio::task::yield_now().await;
        }
    }
    done.store(true, Ordering::Release);
    for client in clients {
        client.await.expect("every question was answered");
    }
    assert!(followed.whole.metrics.text(&followed.whole.book).contains("waypost_dns_dropped_total 0\n"));
}
