//! Leases in memory and a clock that tests advance.

use std::sync::mpsc::{Receiver, TryRecvError, channel};

use client::memory::Memory;
use serde_json::{Value, json};

use super::*;

fn lease(holder: &str, renewed: u8) -> Value {
    json!({
        "metadata": {"namespace": "ns", "name": "db"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 10, "renewTime": format!("2026-01-01T00:00:{renewed:02}.000000Z")},
    })
}

struct Scene {
    memory: Arc<Memory>,
    needed: watch::Sender<BTreeSet<Arc<str>>>,
    messages: Receiver<Message>,
}

impl Scene {
    fn new() -> Self {
        let (memory, (out, messages)) = (Arc::new(Memory::default()), channel());
        let (needed, followed) = watch::channel(BTreeSet::from(["ns/db".into()]));
        tokio::spawn(follow(Arc::<Memory>::clone(&memory), followed, out));
        Self { memory, needed, messages }
    }

    /// The next holder that is reported, within a minute of the paused clock; none without a report.
    async fn next(&self) -> Option<Option<String>> {
        for _ in 0..600 {
            match self.messages.try_recv() {
                Ok(Message::Update(update)) => match *update {
                    Update::Leader(lease, holder) => {
                        assert_eq!(&*lease, "ns/db");
                        return Some(holder.map(String::from));
                    }
                    other => panic!("{other:?}"),
                },
                Ok(other) => panic!("{other:?}"),
                Err(TryRecvError::Empty) => tokio::time::sleep(Duration::from_millis(100)).await,
                Err(TryRecvError::Disconnected) => return None,
            }
        }
        None
    }

    async fn expect(&self, holder: Option<&str>) {
        assert_eq!(self.next().await, Some(holder.map(str::to_owned)));
    }
}

#[tokio::test(start_paused = true)]
async fn s53_a_lease_is_held_while_it_is_renewed_and_expires_by_the_local_clock() {
    let scene = Scene::new();
    scene.expect(None).await;
    scene.memory.put(&lease::KIND, lease("db-0_uuid", 1));
    scene.expect(Some("db-0_uuid")).await;
    let began = Instant::now();
    for renewal in 2..6 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        scene.memory.put(&lease::KIND, lease("db-0_uuid", renewal));
    }
    // A change that is no renewal.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut labelled = lease("db-0_uuid", 5);
    labelled["metadata"]["labels"] = json!({"a": "b"});
    scene.memory.put(&lease::KIND, labelled);
    scene.expect(None).await;
    let held = began.elapsed();
    assert!((Duration::from_secs(29)..Duration::from_secs(32)).contains(&held), "{held:?}");
    scene.memory.put(&lease::KIND, lease("db-0_uuid", 6));
    scene.expect(Some("db-0_uuid")).await;
}

#[tokio::test(start_paused = true)]
async fn s53_another_holder_a_release_and_a_deletion_are_reported_at_once() {
    let scene = Scene::new();
    scene.memory.put(&lease::KIND, lease("db-0", 1));
    while scene.next().await != Some(Some("db-0".to_owned())) {}
    let began = Instant::now();
    scene.memory.put(&lease::KIND, lease("db-1", 2));
    scene.expect(Some("db-1")).await;
    scene.memory.put(&lease::KIND, lease("", 3));
    scene.expect(None).await;
    scene.memory.put(&lease::KIND, lease("db-2", 4));
    scene.expect(Some("db-2")).await;
    scene.memory.delete(&lease::KIND, "ns", "db");
    scene.expect(None).await;
    assert!(began.elapsed() < Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn s53_leases_that_no_service_names_are_not_followed() {
    let scene = Scene::new();
    scene.expect(None).await;
    scene.needed.send_replace(BTreeSet::new());
    tokio::task::yield_now().await;
    scene.memory.put(&lease::KIND, lease("db-0", 1));
    assert_eq!(scene.next().await, None);
    scene.needed.send_replace(BTreeSet::from(["ns/db".into()]));
    scene.expect(Some("db-0")).await;
}
