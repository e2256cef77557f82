//! A server that is killed and started again on its data: its watchers find their way back and miss nothing.

use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::runtime::watcher;
use testbed::{Home, Server};

use super::reflector::{Reflection, change};
use super::{client, create, listed};

/// An address reserved for this test. A server that restarts needs the same port, and a free port of 127.0.0.1 may be
/// taken by then.
fn own_address() -> String {
    let number = std::process::id();
    format!("127.{}.{}.{}:6443", 1 + number % 250, 1 + (number / 250) % 250, fastrand::u8(1..250))
}

async fn survives(config: watcher::Config) {
    let home = testbed::folder();
    let address = own_address();
    let start = || Server::start_with(Home::Kept(home.path().to_owned()), &["--listen", &address]);
    let mut server = start();
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut reflection = Reflection::of(Api::default_namespaced(client(&server).await), config);
    reflection.ready().await;
    for round in 0..3 {
        // A client of each life of the server: this one is not to be blamed for a connection that broke.
        let services: Api<Service> = Api::default_namespaced(client(&server).await);
        change(&services, &mut random, 30).await;
        // Some of these the reflector has seen by now, and some it has not.
        let before = listed(&services).await;
        server.kill();
        server = start();
        let services: Api<Service> = Api::default_namespaced(client(&server).await);
        assert_eq!(listed(&services).await, before, "what was answered is there: seed {seed}, round {round}");
        change(&services, &mut random, 30).await;
        let last = format!("last-{round}");
        create(&services, &last).await;
        reflection.sees(&last).await;
        assert_eq!(reflection.stored(), listed(&services).await, "seed {seed}, round {round}");
    }
}

#[tokio::test]
async fn s38_a_reflector_recovers_when_the_server_was_killed() {
    survives(watcher::Config::default().page_size(7)).await;
}

#[tokio::test]
async fn s38_a_streaming_reflector_recovers_when_the_server_was_killed() {
    survives(watcher::Config::default().streaming_lists()).await;
}
