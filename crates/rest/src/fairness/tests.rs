//! Requests of several users at once, most of them on a clock that the tests control.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use http::Method;
use tokio::time::sleep;

use super::*;
use crate::auth::AUTHENTICATED;
use crate::auth::service_account;
use crate::authz::node::NODES;
use crate::pki::MASTERS;

const SECOND: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(60);

fn fairness(total: usize) -> Arc<Fairness> {
    Fairness::new(total, TIMEOUT, Metrics::new(Box::new(String::new), None))
}

fn user(name: &str, groups: &[&str]) -> User {
    let groups = groups.iter().chain([&AUTHENTICATED]).map(|group| (*group).to_owned()).collect();
    User { name: name.into(), groups, ..User::default() }
}

fn account(name: &str) -> User {
    user(&service_account::username("default", name), &[service_account::GROUP])
}

async fn admit(fairness: &Arc<Fairness>, user: &User) -> Result<Permit, Status> {
    let info = RequestInfo::of(&Method::GET, "/api/v1/namespaces/a/pods/p", &[]);
    fairness.admit(&info, user, || 1).await
}

/// Takes every seat that a user may have at once.
async fn fill(fairness: &Arc<Fairness>, user: &User) -> Vec<Permit> {
    let mut permits = Vec::new();
    while let Some(permit) = admit(fairness, user).now_or_never() {
        permits.push(permit.unwrap_or_else(|status| panic!("{status:?}")));
    }
    permits
}

/// The value of a metric, by name and part of its labels.
fn metric(fairness: &Fairness, name: &str, labels: &str) -> f64 {
    let text = fairness.metrics.text();
    let prefix = format!("apiserver_flowcontrol_{name}{{");
    let lines = text.lines().filter(|line| line.starts_with(&prefix) && line.contains(labels));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[tokio::test(start_paused = true)]
async fn b06_two_thousand_slow_requests_of_one_account_do_not_delay_others() {
    let fairness = fairness(20);
    let (busy, done) = (account("busy"), Arc::new(AtomicBool::new(false)));
    let executed = Arc::new(AtomicUsize::new(0));
    let senders = (0..2000).map(|_| {
        let (fairness, busy, done, executed) = (fairness.clone(), busy.clone(), done.clone(), executed.clone());
        tokio::spawn(async move {
            while !done.load(Relaxed) {
                // A rejected request is sent again after the second of its Retry-After.
                let permit = admit(&fairness, &busy).await;
                sleep(SECOND).await;
                executed.fetch_add(usize::from(permit.is_ok()), Relaxed);
            }
        })
    });
    let senders: Vec<_> = senders.collect();
    sleep(10 * SECOND).await;
    assert!(metric(&fairness, "current_inqueue_requests", "service-accounts") >= 250.0, "the account fills its queues");
    for (other, bound) in [
        (account("other"), 2 * SECOND),
        (user("alice", &[]), 2 * SECOND),
        (user("system:node:n1", &[NODES]), Duration::ZERO),
        (user("admin", &[MASTERS]), Duration::ZERO),
    ] {
        for _ in 0..20 {
            let permit = admit(&fairness, &other).await.unwrap_or_else(|status| panic!("{}: {status:?}", other.name));
            assert!(permit.waited() <= bound, "{} waited {:?}", other.name, permit.waited());
            sleep(SECOND).await;
        }
    }
    let before = executed.load(Relaxed);
    sleep(10 * SECOND).await;
    assert!(executed.load(Relaxed) - before >= 80, "the account is served all the time");
    done.store(true, Relaxed);
    join_all(senders).await;
    assert_eq!(metric(&fairness, "current_executing_requests", ""), 0.0);
    assert_eq!(metric(&fairness, "current_inqueue_requests", ""), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_too_long_gets_429() {
    let (fairness, alice) = (fairness(1), user("alice", &[]));
    let held = admit(&fairness, &alice).await.ok();
    let begun = Instant::now();
    let status = admit(&fairness, &alice).await.err().unwrap();
    assert_eq!(begun.elapsed(), TIMEOUT / 4, "a quarter of the time that it may take");
    assert_eq!((status.code, status.reason), (429, Some("TooManyRequests")));
    assert_eq!(status.message, "Too many requests, please try again later.");
    assert_eq!(metric(&fairness, "rejected_requests_total", "reason=\"time-out\""), 1.0);
    drop(held);
    assert!(admit(&fairness, &alice).now_or_never().is_some(), "it left its queue");
    let long = Fairness::new(1, 100 * TIMEOUT, Metrics::new(Box::new(String::new), None));
    assert_eq!(long.longest_wait, Duration::from_mins(1));
}

#[tokio::test(start_paused = true)]
async fn a_seat_granted_at_the_timeout_is_used() {
    let (fairness, alice) = (fairness(1), user("alice", &[]));
    let held = admit(&fairness, &alice).await.ok();
    let mut waiting = Box::pin(admit(&fairness, &alice));
    assert!((&mut waiting).now_or_never().is_none());
    // Both have happened when it is polled again: the seat became free, and its time is over.
    tokio::time::advance(TIMEOUT).await;
    drop(held);
    let permit = waiting.await.unwrap_or_else(|status| panic!("{status:?}"));
    assert_eq!(permit.waited(), TIMEOUT);
    assert!(admit(&fairness, &alice).now_or_never().is_none(), "the seat is taken");
}

#[tokio::test(start_paused = true)]
async fn requests_whose_clients_go_away_lose_no_seats() {
    let (fairness, alice) = (fairness(1), user("alice", &[]));
    let held = admit(&fairness, &alice).await.ok();
    let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(admit(&fairness, &alice))).collect();
    for waiting in &mut waiting {
        assert!(waiting.now_or_never().is_none());
    }
    let third = waiting.pop();
    drop(waiting.remove(0));
    assert_eq!(metric(&fairness, "rejected_requests_total", "reason=\"cancelled\""), 1.0);
    // The seat goes to the second one, which is dropped before it is polled; then to the third.
    drop(held);
    drop(waiting);
    let permit = third.unwrap().now_or_never().unwrap().unwrap_or_else(|status| panic!("{status:?}"));
    assert!(admit(&fairness, &alice).now_or_never().is_none());
    drop(permit);
    assert!(admit(&fairness, &alice).now_or_never().is_some());
    assert_eq!(metric(&fairness, "current_executing_requests", ""), 0.0);
    assert_eq!(metric(&fairness, "current_inqueue_requests", ""), 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn seats_are_free_again_after_tasks_that_end_at_any_point() {
    let (fairness, users) = (fairness(10), ["a", "b", "c", "d"].map(|name| user(name, &[])));
    let before = fill(&fairness, &users[0]).await.len();
    let tasks: Vec<_> = (0..4000)
        .map(|number: usize| {
            let (fairness, user) = (fairness.clone(), users[number % users.len()].clone());
            tokio::spawn(async move {
                let permit = admit(&fairness, &user).await;
                for _ in 0..number % 7 {
                    tokio::task::yield_now().await;
                }
                permit.is_ok()
            })
        })
        .collect();
    for task in tasks.iter().step_by(3) {
        tokio::task::yield_now().await;
        task.abort();
    }
    let ended = join_all(tasks).await;
    let executed = ended.iter().filter(|ended| matches!(ended, Ok(true))).count();
    assert!(executed > 0);
    assert_eq!(fill(&fairness, &users[0]).await.len(), before);
    for name in ["current_executing_requests", "current_executing_seats", "current_inqueue_requests"] {
        assert_eq!(metric(&fairness, name, ""), 0.0, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn administrators_never_wait_and_take_no_seats() {
    let (fairness, alice, admin) = (fairness(1), user("alice", &[]), user("admin", &[MASTERS]));
    let held = fill(&fairness, &alice).await;
    assert_eq!(held.len(), 1);
    assert_eq!(metric(&fairness, "nominal_limit_seats", "global-default"), 1.0);
    let permits = join_all((0..100).map(|_| admit(&fairness, &admin))).await;
    assert!(permits.iter().all(|permit| permit.as_ref().is_ok_and(|permit| permit.waited().is_zero())));
    assert_eq!(
        metric(&fairness, "current_executing_requests", "priority_level=\"exempt\",flow_schema=\"exempt\""),
        100.0
    );
    assert_eq!(metric(&fairness, "current_executing_seats", "exempt"), 0.0);
    drop((held, permits));
    assert_eq!(fill(&fairness, &alice).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_happens_to_requests_is_counted() {
    let (fairness, alice) = (fairness(1), user("alice", &[]));
    let held = admit(&fairness, &alice).await.ok();
    let mut waiting: Vec<_> = (0..300).map(|_| Box::pin(admit(&fairness, &alice))).collect();
    for waiting in &mut waiting {
        assert!(waiting.now_or_never().is_none());
    }
    assert!(admit(&fairness, &alice).await.is_err(), "its queues are full");
    assert!(admit(&fairness, &user("ghost", &[])).now_or_never().is_none(), "and those of others are not");
    let labels = "priority_level=\"global-default\",flow_schema=\"global-default\"";
    let queue_full = format!("{labels},reason=\"queue-full\"");
    assert_eq!(metric(&fairness, "current_inqueue_requests", labels), 300.0);
    assert_eq!(metric(&fairness, "rejected_requests_total", &queue_full), 1.0);
    assert!(fairness.metrics.text().contains("apiserver_rejected_requests_total 1\n"));
    sleep(SECOND).await;
    drop(held);
    let first = waiting.remove(0).now_or_never().and_then(Result::ok).unwrap();
    assert_eq!(first.waited(), SECOND);
    drop(waiting);
    drop(first);
    assert_eq!(metric(&fairness, "dispatched_requests_total", labels), 2.0);
    let executed = format!("{labels},execute=\"true\"");
    assert_eq!(metric(&fairness, "request_wait_duration_seconds_sum", &executed), 1.0);
    assert_eq!(metric(&fairness, "request_wait_duration_seconds_count", &executed), 2.0);
}

#[tokio::test(start_paused = true)]
async fn catch_all_requests_are_rejected_when_no_seat_is_free() {
    let fairness = fairness(1);
    let ghost = User { name: "ghost".into(), ..User::default() };
    let held = admit(&fairness, &ghost).await;
    assert!(held.is_ok());
    assert_eq!(admit(&fairness, &ghost).now_or_never().and_then(Result::err).map(|status| status.code), Some(429));
    assert_eq!(metric(&fairness, "rejected_requests_total", "catch-all\",reason=\"concurrency-limit\""), 1.0);
}
