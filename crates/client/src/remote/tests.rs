//! Watches against a server that follows a script: every way in which a response can end.

mod fake;
mod pieces;

use std::time::Duration;

use crate::watch::{Event, Selection, Source as _, Watch};
use api::kinds::{service, servicecidr};
use serde_json::json;
use tokio::time::Instant;

use crate::events::{EventRecorder, ObjectEvent};
use fake::{Act, Fake, Scene};

const END_OF_LIST: &str = r#"{"type":"BOOKMARK","object":{"kind":"Service","metadata":{"resourceVersion":"10","annotations":{"k8s.io/initial-events-end":"true"}}}}"#;

fn event(kind: &str, name: &str, revision: u64) -> String {
    let metadata = json!({"name": name, "namespace": "n", "resourceVersion": revision.to_string()});
    json!({"type": kind, "object": {"kind": "Service", "apiVersion": "v1", "metadata": metadata}}).to_string()
}

fn bookmark(revision: u64) -> String {
    json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": revision.to_string()}}}).to_string()
}

fn error(code: u16) -> String {
    json!({"type": "ERROR", "object": {"kind": "Status", "message": "so it is", "code": code}}).to_string()
}

fn page(names: &[&str], revision: u64, token: &str) -> Scene {
    let items = names.iter().map(|name| json!({"metadata": {"name": name, "namespace": "n", "resourceVersion": "3"}}));
    let metadata = json!({"resourceVersion": revision.to_string(), "continue": token});
    let list = json!({"kind": "ServiceList", "items": items.collect::<Vec<_>>(), "metadata": metadata});
    Scene::ok().then(Act::Say(list.to_string(), 11)).then(Act::End)
}

/// A streamed list at revision 10.
fn listed(names: &[&str]) -> Scene {
    let first = names.iter().fold(Scene::ok(), |scene, name| scene.line(&event("ADDED", name, 3)));
    first.line(END_OF_LIST)
}

fn watch(fake: &Fake) -> Watch {
    fake.remote().watch(Selection::all(&service::KIND))
}

/// Waits for these events.
#[track_caller]
fn expect(watching: &mut Watch, wanted: &[&str]) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    async move {
        let mut heard = Vec::new();
        for _ in wanted {
            match tokio::time::timeout(Duration::from_secs(20), watching.next()).await {
                Ok(event) => heard.push(format!("{event:?}")),
                Err(_) => panic!("{place}: after {heard:?} nothing came; {watching:?}"),
            }
        }
        assert_eq!(heard, wanted, "{place}: {watching:?}");
    }
}

/// Waits until the watch is lost for a reason that contains this.
async fn lost(watching: &Watch, why: &str) {
    let mut watched = watching.status();
    let found = async {
        let mut health = watched.health();
        while !health
            .out_of_sync
            .as_ref()
            .and_then(|lost| lost.reason.as_deref())
            .is_some_and(|text| text.contains(why))
        {
            health = watched.changed().await.expect("it goes on");
        }
    };
    tokio::time::timeout(Duration::from_secs(20), found).await.unwrap_or_else(|_| panic!("{why}: {watching:?}"));
}

#[tokio::test]
async fn a_streamed_list_becomes_a_watch_and_goes_on_where_it_ended() {
    let first = listed(&["a", "b"]).line(&event("MODIFIED", "a", 11)).line(&event("DELETED", "b", 12)).then(Act::End);
    let second = Scene::ok().line(&event("ADDED", "c", 13)).line(&bookmark(40)).then(Act::End);
    let fake = Fake::start([first, second, Scene::ok().line(&event("ADDED", "d", 41)).then(Act::Hang)]).await;
    let mut watching = watch(&fake);
    expect(&mut watching, &["Init", "InitApply(n/a)", "InitApply(n/b)", "InitDone"]).await;
    expect(&mut watching, &["Apply(n/a)", "Delete(n/b)", "Apply(n/c)", "Apply(n/d)"]).await;
    let health = watching.status().health();
    assert_eq!((health.out_of_sync, health.lists, health.failures), (None, 1, 0), "an end in order is no loss");
    let asked = fake.asked();
    assert!(
        asked[0].starts_with("GET /api/v1/services?watch=true&allowWatchBookmarks=true&timeoutSeconds="),
        "{asked:?}"
    );
    assert!(asked[0].ends_with("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"), "{asked:?}");
    assert!(asked[1].ends_with("&resourceVersion=12") && asked[2].ends_with("&resourceVersion=40"), "{asked:?}");
    assert!(!asked[1].contains("sendInitialEvents"), "{asked:?}");
}

#[tokio::test]
async fn a_server_that_streams_no_lists_is_asked_for_pages() {
    let refusal = Scene::refuse(422, "sendInitialEvents: Forbidden");
    let changes = Scene::ok().line(&event("MODIFIED", "b", 21)).then(Act::Hang);
    let fake = Fake::start([refusal, page(&["a"], 20, "x=&y"), page(&["b"], 20, ""), changes]).await;
    let what =
        Selection::all(&service::KIND).within("n").selected("a in (b,c)", "metadata.name!=z").expect("selectors");
    let mut watching = fake.remote().watch(what);
    expect(&mut watching, &["Init", "InitApply(n/a)", "InitApply(n/b)", "InitDone", "Apply(n/b)"]).await;
    let start =
        "GET /api/v1/namespaces/n/services?labelSelector=a%20in%20%28b%2Cc%29&fieldSelector=metadata.name%21%3Dz";
    let asked = fake.asked();
    assert!(asked.iter().all(|asked| asked.starts_with(start)), "{asked:?}");
    assert_eq!(asked[1..3], [format!("{start}&limit=500"), format!("{start}&limit=500&continue=x%3D%26y")]);
    assert!(asked[3].ends_with("&resourceVersion=20"), "{asked:?}");
    assert!(watching.status().is_synced());
}

#[tokio::test]
async fn a_server_that_ignores_the_wish_for_a_stream_is_asked_for_pages() {
    let ignores = Scene::ok().line(&event("ADDED", "a", 3)).then(Act::Hang);
    let fake = Fake::start([ignores, page(&["a"], 20, "")]).await;
    expect(&mut watch(&fake), &["Init", "InitApply(n/a)", "Init", "InitApply(n/a)", "InitDone"]).await;
    assert_eq!(fake.asked()[1], "GET /api/v1/services?limit=500");
}

#[tokio::test]
async fn pages_that_were_forgotten_become_one_list() {
    let refusal = Scene::refuse(400, "unknown parameter");
    let scenes = [refusal, page(&["a"], 20, "t"), Scene::refuse(410, "too old"), page(&["a", "b"], 30, "")];
    let fake = Fake::start(scenes).await;
    let wanted = ["Init", "InitApply(n/a)", "Init", "InitApply(n/a)", "InitApply(n/b)", "InitDone"];
    expect(&mut watch(&fake), &wanted).await;
    assert_eq!(fake.asked()[3], "GET /api/v1/services");
}

#[tokio::test]
async fn forgotten_history_means_a_new_list() {
    // In the middle of a watch, and at the beginning of one, as an event and as a response.
    let first = listed(&["a"]).line(&event("ADDED", "b", 11)).line(&error(410)).then(Act::End);
    let second = listed(&["b"]).then(Act::End);
    let fake = Fake::start([first, second, Scene::refuse(410, "too old"), listed(&["c"]).then(Act::Hang)]).await;
    let mut watching = watch(&fake);
    expect(&mut watching, &["Init", "InitApply(n/a)", "InitDone", "Apply(n/b)"]).await;
    expect(&mut watching, &["Init", "InitApply(n/b)", "InitDone", "Init", "InitApply(n/c)", "InitDone"]).await;
    let health = watching.status().health();
    assert_eq!((health.out_of_sync, health.lists, health.failures), (None, 3, 2));
    let asked = fake.asked();
    assert!(asked[2].ends_with("&resourceVersion=10") && asked[3].contains("sendInitialEvents"), "{asked:?}");
}

#[tokio::test]
async fn a_broken_connection_loses_and_repeats_nothing() {
    let half = event("ADDED", "c", 12);
    let first = listed(&["a"]).line(&event("ADDED", "b", 11)).say(&half[..half.len() / 2]).then(Act::Cut);
    let dribble = Act::Say(format!("{half}\n{}\n", event("DELETED", "a", 13)), 1);
    let second = Scene::ok().then(dribble).then(Act::Wait).line(&event("ADDED", "d", 14)).then(Act::Hang);
    let fake = Fake::start([first, second]).await;
    let mut watching = watch(&fake);
    expect(&mut watching, &["Init", "InitApply(n/a)", "InitDone", "Apply(n/b)", "Apply(n/c)", "Delete(n/a)"]).await;
    assert_eq!(watching.status().health().failures, 1);
    fake.go_on.notify_one();
    expect(&mut watching, &["Apply(n/d)"]).await;
    assert!(watching.status().is_synced());
    assert!(fake.asked()[1].ends_with("&resourceVersion=11"), "{:?}", fake.asked());
}

#[tokio::test]
async fn a_streaming_list_that_is_cut_begins_again() {
    for cut in [Act::Cut, Act::End] {
        let broken = Scene::ok().line(&event("ADDED", "gone", 3)).then(cut);
        let fake = Fake::start([broken, listed(&["a"]).then(Act::Hang)]).await;
        let mut watching = watch(&fake);
        expect(&mut watching, &["Init", "InitApply(n/gone)", "Init", "InitApply(n/a)", "InitDone"]).await;
        assert!(fake.asked()[1].contains("sendInitialEvents=true"), "{:?}", fake.asked());
    }
}

#[tokio::test]
async fn streaming_lists_that_are_cut_twice_are_replaced_by_pages() {
    let broken = Scene::ok().line(&event("ADDED", "gone", 3)).then(Act::Cut);
    let short = Scene::ok().line(&event("ADDED", "gone", 3)).then(Act::End);
    let fake = Fake::start([broken, short, page(&["a"], 20, ""), Scene::ok().then(Act::Hang)]).await;
    let mut watching = watch(&fake);
    expect(&mut watching, &["Init", "InitApply(n/gone)", "Init", "InitApply(n/gone)"]).await;
    expect(&mut watching, &["Init", "InitApply(n/a)", "InitDone"]).await;
    assert_eq!(fake.asked()[2], "GET /api/v1/services?limit=500");
}

#[tokio::test]
async fn a_server_whose_storage_has_no_progress_notifications_is_asked_for_pages() {
    // As kube-apiserver responds before etcd 3.4.25 and 3.5.8; in a response, and in an event of a stream.
    let message =
        "a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled";
    let event = json!({"type": "ERROR", "object": {"kind": "Status", "message": message, "code": 500}}).to_string();
    for refusal in [Scene::refuse(500, message), Scene::ok().line(&event).then(Act::End)] {
        let fake = Fake::start([refusal, page(&["a"], 20, ""), Scene::ok().then(Act::Hang)]).await;
        let mut watching = watch(&fake);
        while watching.next().await != Event::InitDone {}
        let health = watching.status().health();
        assert_eq!((health.out_of_sync, health.failures), (None, 0), "a fallback is no failure");
        assert_eq!(fake.asked()[1], "GET /api/v1/services?limit=500");
    }
}

#[tokio::test]
async fn garbage_is_said_and_in_the_end_a_new_list_is_tried() {
    let garbage = || Scene::ok().line("{\"type\":\"ADDED\",\"object\":{\"metadata\":").then(Act::Hang);
    let scenes = [listed(&["a"]).line("\u{1}").then(Act::Hang), garbage(), garbage(), listed(&["b"]).then(Act::Hang)];
    let fake = Fake::start(scenes).await;
    let mut watching = watch(&fake);
    expect(&mut watching, &["Init", "InitApply(n/a)", "InitDone"]).await;
    lost(&watching, "malformed response").await;
    expect(&mut watching, &["Init", "InitApply(n/b)", "InitDone"]).await;
    let health = watching.status().health();
    assert_eq!((health.out_of_sync, health.failures), (None, 3));
}

#[tokio::test]
async fn objects_without_a_name_and_unknown_events_are_left_out() {
    let odd = listed(&[]).line(r#"{"type":"ADDED","object":{"metadata":{}}}"#).line(r#"{"type":"NEW","object":{}}"#);
    let fake = Fake::start([odd.line(&event("ADDED", "a", 11)).then(Act::Hang)]).await;
    expect(&mut watch(&fake), &["Init", "InitDone", "Apply(n/a)"]).await;
}

#[tokio::test]
async fn a_silent_watch_is_asked_for_anew_without_alarm() {
    let fake =
        Fake::start([listed(&["a"]).then(Act::Hang), Scene::ok().line(&event("ADDED", "b", 11)).then(Act::Hang)]);
    let fake = fake.await;
    let remote = fake.remote();
    let timing = super::Timing { idle: Duration::from_millis(1200), ..remote.timing };
    let mut watching = remote.with_timing(timing).watch(Selection::all(&service::KIND));
    expect(&mut watching, &["Init", "InitApply(n/a)", "InitDone", "Apply(n/b)"]).await;
    let health = watching.status().health();
    assert_eq!((health.out_of_sync, health.lists, health.failures), (None, 1, 0));
}

#[tokio::test]
async fn a_server_that_hangs_is_said_and_found_again() {
    let scenes = [listed(&["a"]).then(Act::Cut), Scene::mute(), Scene::ok().line(&event("ADDED", "b", 11))];
    let fake = Fake::start(scenes).await;
    let mut watching = watch(&fake);
    expect(&mut watching, &["Init", "InitApply(n/a)", "InitDone"]).await;
    let begun = Instant::now();
    lost(&watching, "no response within 1s").await;
    let since = watching.status().health().out_of_sync.map(|lost| lost.since);
    assert!(since.is_some_and(|since| since <= begun + Duration::from_millis(500)), "it counts from the last word");
    expect(&mut watching, &["Apply(n/b)"]).await;
}

#[tokio::test]
async fn a_server_that_ends_every_watch_at_once_is_not_asked_without_pause() {
    let ends = (0..5).map(|_| Scene::ok().then(Act::End));
    let scenes = [listed(&["a"]).then(Act::End)].into_iter().chain(ends);
    let fake = Fake::start(scenes.chain([Scene::ok().line(&event("ADDED", "b", 11)).then(Act::Hang)])).await;
    let mut watching = watch(&fake);
    expect(&mut watching, &["Init", "InitApply(n/a)", "InitDone", "Apply(n/b)"]).await;
    assert_eq!(watching.status().health().failures, 5);
}

#[tokio::test]
async fn a_server_that_is_brought_back_from_a_backup_is_listed_again() {
    for sign in [event("ADDED", "x", 7), bookmark(7), error(504)] {
        let fake = Fake::start([listed(&["a"]).line(&sign).then(Act::Hang), listed(&["x"]).then(Act::Hang)]).await;
        let wanted = ["Init", "InitApply(n/a)", "InitDone", "Init", "InitApply(n/x)", "InitDone"];
        expect(&mut watch(&fake), &wanted).await;
    }
}

#[tokio::test]
async fn a_server_that_is_busy_says_when_to_come_back() {
    let busy = Scene::refuse(429, "too many requests").header("retry-after: 1\r\n");
    let fake = Fake::start([busy, listed(&[]).then(Act::Hang)]).await;
    let begun = Instant::now();
    let mut watching = watch(&fake);
    lost(&watching, "429: too many requests").await;
    expect(&mut watching, &["Init", "InitDone"]).await;
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_kind_that_the_server_lacks_is_empty_where_that_is_allowed() {
    let scenes = || [Scene::refuse(404, "not found"), Scene::refuse(403, "no"), listed(&["a"]).then(Act::Hang)];
    let fake = Fake::start(scenes()).await;
    let mut watching = fake.remote().watch(Selection::all(&servicecidr::KIND).optional());
    expect(&mut watching, &["Init", "InitDone", "Init", "InitApply(n/a)", "InitDone"]).await;
    assert_eq!(watching.status().health().failures, 0);
    assert!(fake.asked()[0].starts_with("GET /apis/networking.k8s.io/v1/servicecidrs?watch"), "{:?}", fake.asked());

    let fake = Fake::start(scenes()).await;
    let mut watching = fake.remote().watch(Selection::all(&servicecidr::KIND));
    lost(&watching, "403: no").await;
    expect(&mut watching, &["Init", "InitApply(n/a)", "InitDone"]).await;
}

#[tokio::test]
async fn what_was_seen_once_is_not_given_up_because_it_is_refused_now() {
    let first = listed(&["a"]).then(Act::End);
    let fake = Fake::start([first, Scene::refuse(403, "no"), Scene::ok().line(&event("ADDED", "b", 11))]).await;
    let mut watching = fake.remote().watch(Selection::all(&servicecidr::KIND).optional());
    expect(&mut watching, &["Init", "InitApply(n/a)", "InitDone", "Apply(n/b)"]).await;
}

#[tokio::test]
async fn an_object_that_is_forbidden_after_its_list_is_deleted() {
    let refused = || Scene::refuse(403, "no");
    let first = listed(&["a"]).then(Act::End);
    let again = listed(&["a"]).then(Act::End);
    let scenes = [first, refused(), refused(), refused(), again, refused(), refused(), refused(), refused()];
    let fake = Fake::start(scenes).await;
    let one = Selection::all(&servicecidr::KIND).named("a").expect("a name");
    let mut watching = fake.remote().watch(one.optional());
    let events = ["Init", "InitApply(n/a)", "InitDone", "Init", "InitDone"];
    expect(&mut watching, &events).await;
    expect(&mut watching, &events).await;
}

#[tokio::test]
async fn a_kind_that_must_not_be_forbidden_is_empty_only_where_the_server_lacks_it() {
    let fake = Fake::start([Scene::refuse(403, "no"), Scene::refuse(404, "not found")]).await;
    let mut watching = fake.remote().watch(Selection::all(&servicecidr::KIND).optional_if_permitted());
    lost(&watching, "403: no").await;
    expect(&mut watching, &["Init", "InitDone"]).await;
}

#[tokio::test]
async fn a_server_that_has_moved_is_found_where_its_kubeconfig_says() {
    let old = Fake::start([listed(&["a"]).then(Act::Wait).then(Act::Cut)]).await;
    let new = Fake::start([Scene::ok().line(&event("ADDED", "b", 11)).then(Act::Hang)]).await;
    let mut watching = watch(&old);
    expect(&mut watching, &["Init", "InitApply(n/a)", "InitDone"]).await;
    old.write_kubeconfig(&new.address);
    old.go_on.notify_one();
    expect(&mut watching, &["Apply(n/b)"]).await;
    assert!(new.asked()[0].ends_with("&resourceVersion=10"), "{:?}", new.asked());
}

#[tokio::test]
async fn a_list_is_not_read_faster_than_it_is_heard() {
    let names: Vec<String> = (0..20_000).map(|number| format!("s{number}")).collect();
    let fake = Fake::start([listed(&names.iter().map(String::as_str).collect::<Vec<_>>()).then(Act::Hang)]).await;
    let mut watching = watch(&fake);
    let mut count = 0;
    loop {
        let event = tokio::time::timeout(Duration::from_secs(20), watching.next()).await.expect("it goes on");
        count += usize::from(matches!(event, Event::InitApply(_)));
        if event == Event::InitDone {
            break;
        }
    }
    assert_eq!(count, names.len());
}

#[tokio::test]
async fn findings_become_events_each_once() {
    let taken = Scene::refuse(409, "exists");
    let created = || Scene::ok().say("{}").then(Act::End);
    let fake = Fake::start([created(), taken, created()]).await;
    let recorder = EventRecorder::start(&fake.remote(), "kube-proxy", "n1");
    let finding = |name: &str| ObjectEvent {
        kind: &service::KIND,
        namespace: "n".to_owned(),
        name: name.to_owned(),
        uid: "u".to_owned(),
        normal: false,
        reason: "BadAddress",
        message: "it has none".to_owned(),
    };
    for name in ["a", "a", "b", "a", "c"] {
        recorder.record(finding(name));
    }
    let three = async {
        while fake.asked().len() < 3 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), three).await.expect("three Events");
    let asked = fake.asked();
    for (asked, name) in asked.iter().zip(["a", "b", "c"]) {
        assert!(asked.starts_with("POST /api/v1/namespaces/n/events{"), "{asked}");
        assert!(asked.contains(&format!("\"name\":\"{name}\"")), "{asked}");
    }
    assert_eq!(recorder.dropped(), 0);
}

#[tokio::test]
async fn an_event_gets_the_uid_of_its_object() {
    let found = Scene::ok().say(r#"{"metadata":{"uid":"u-1"}}"#).then(Act::End);
    let fake = Fake::start([found, Scene::ok().say("{}").then(Act::End)]).await;
    let recorder = EventRecorder::start(&fake.remote(), "kube-proxy", "n1");
    recorder.record(ObjectEvent {
        kind: &service::KIND,
        namespace: "n".to_owned(),
        name: "a".to_owned(),
        uid: String::new(),
        normal: false,
        reason: "BadAddress",
        message: "it has none".to_owned(),
    });
    let two = async {
        while fake.asked().len() < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), two).await.expect("a question and an Event");
    let asked = fake.asked();
    assert!(asked[0].starts_with("GET /api/v1/namespaces/n/services/a"), "{}", asked[0]);
    assert!(asked[1].contains("\"uid\":\"u-1\""), "{}", asked[1]);
}
