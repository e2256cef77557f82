//! Images from a registry: pulled by real Pods and by `waypost image pull`, checked, shared, refused with what to do, and removed.

mod registry;

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testbed::Run;
use testbed::net::eventually;

use self::registry::{Fault, Layer, Registry, digest};
use super::agent::machine::{Machine, container};

/// A server in C that answers every request with the file `/message`.
const SERVER: &str = r#"
    #include <netinet/in.h>
    #include <signal.h>
    #include <stdio.h>
    #include <string.h>
    #include <sys/socket.h>
    #include <unistd.h>
    int main(void) {
        signal(SIGTERM, _exit);
        char text[256] = "", request[4096], head[256];
        FILE *f = fopen("/message", "r");
        if (!f || !fgets(text, 255, f)) return 1;
        int s = socket(AF_INET6, SOCK_STREAM, 0), yes = 1, no = 0;
        setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
        struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(8080)};
        if (bind(s, (struct sockaddr *)&a, sizeof a) || listen(s, 64)) return 2;
        for (;;) {
            int c = accept(s, 0, 0);
            if (c < 0) continue;
            read(c, request, sizeof request);
            int n = sprintf(head, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n", strlen(text));
            write(c, head, n);
            write(c, text, strlen(text));
            close(c);
        }
    }"#;

/// How a layer is sent.
#[derive(Clone, Copy)]
enum Packed {
    Plain,
    Gzip,
}

/// A layer of files with these modes.
fn layer(files: &[(&str, u32, &[u8])], packed: Packed) -> Layer {
    let mut out = tar::Builder::new(Vec::new());
    for (path, mode, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(*mode);
        header.set_size(bytes.len() as u64);
        header.set_uid(0);
        header.set_gid(0);
        out.append_data(&mut header, path, *bytes).expect("appended");
    }
    let plain = out.into_inner().expect("bytes");
    let diff = digest(&plain);
    let sent = match packed {
        Packed::Plain => plain,
        Packed::Gzip => {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            out.write_all(&plain).expect("compressed");
            out.finish().expect("compressed")
        }
    };
    Layer { sent, diff }
}

/// The layer with the server.
fn server(folder: &Path) -> Layer {
    let source = folder.join("server.c");
    std::fs::write(&source, SERVER).expect("written");
    let program = folder.join("server");
    let mut command = Command::new("musl-gcc");
    command.args(["-static", "-Os", "-o"]).arg(&program).arg(&source);
    let _ = testbed::run(&mut command, "").success();
    let bytes = std::fs::read(program).expect("a program");
    layer(&[("bin/server", 0o755, &bytes), ("message", 0o644, b"from the lowest layer")], Packed::Gzip)
}

fn message(text: &str) -> Layer {
    layer(&[("message", 0o644, text.as_bytes())], Packed::Gzip)
}

fn entrypoint() -> Value {
    json!({"Entrypoint": ["/bin/server"]})
}

/// Runs `waypost image` on the machine.
fn image(machine: &Machine, words: &[&str], input: &str) -> Run {
    let (first, rest) = words.split_first().expect("a word");
    let mut command = Command::new(testbed::binary());
    command.args(["image", first, "--data-dir"]).arg(machine.data_dir()).args(rest);
    machine.node.run_with(command, input)
}

fn kubectl(machine: &Machine, line: &str, input: &str) -> Run {
    let mut command = Command::new("kubectl");
    command.arg("--kubeconfig").arg(machine.data_dir().join("kubeconfig")).args(line.split_whitespace());
    machine.node.run_with(command, input)
}

/// How many layers the machine has.
fn layers(machine: &Machine) -> usize {
    std::fs::read_dir(machine.data_dir().join("images/layers")).map_or(0, Iterator::count)
}

fn waits_for_image(pod: &Value, wanted: &str) -> bool {
    container(pod, "c")["state"]["waiting"]["reason"] == wanted
}

fn waiting_message(pod: &Value) -> String {
    container(pod, "c")["state"]["waiting"]["message"].as_str().unwrap_or_default().to_owned()
}

/// What Events of a Pod say, by reason.
fn events(machine: &mut Machine, pod: &str) -> Vec<(String, String)> {
    let all = machine.api(|session| session.items("/api/v1/namespaces/default/events"));
    let of = all.iter().filter(|event| event["involvedObject"]["name"] == pod);
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
    of.map(|event| (text(event, "reason"), text(event, "message"))).collect()
}

#[test]
fn a_deployment_from_a_registry_answers_behind_a_service() {
    let mut machine = Machine::new();
    let registry = Registry::start(&machine.node, "127.0.0.1", None);
    let folder = testbed::folder();
    let layers_of = |text: &str| [server(folder.path()), message(text)];
    let exact = registry.push("team/web", "v1", &layers_of("one"), &entrypoint());
    let name = registry.name("team/web:v1");
    let _ = kubectl(&machine, &format!("create deployment web --image {name} --port 8080 --replicas 2"), "").success();
    let _ = kubectl(&machine, "expose deployment web --port 80 --target-port 8080", "").success();
    let _ = kubectl(&machine, "rollout status deployment web --timeout 60s", "").success();
    let service = machine.api(|session| session.get("/api/v1/namespaces/default/services/web")).success();
    let ip = service["spec"]["clusterIP"].as_str().expect("an address").to_owned();
    let mut said = String::new();
    eventually("the Service answers", || {
        said = machine.node.run(format!("curl -sS --max-time 5 http://{ip}/").as_str()).out;
        !said.is_empty()
    });
    assert_eq!(said, "one");
    // The same layers came once for both Pods, and the image is known by the digest of its index.
    let asked = registry.asked();
    let blobs = asked.iter().filter(|asked| asked.path.contains("/blobs/") && !asked.authorization.is_empty()).count();
    assert_eq!(blobs, 3, "a configuration and two layers: {asked:?}");
    let pods = machine.api(|session| session.items(super::PODS));
    assert_eq!(pods.len(), 2);
    for pod in &pods {
        let id = pod["status"]["containerStatuses"][0]["imageID"].as_str().expect("an id");
        assert_eq!(id, format!("{}@{exact}", registry.name("team/web")));
    }
    // Another version shares the layer of the server.
    registry.push("team/web", "v2", &layers_of("two"), &entrypoint());
    let _ = kubectl(&machine, &format!("set image deployment web web={}", registry.name("team/web:v2")), "").success();
    let _ = kubectl(&machine, "rollout status deployment web --timeout 60s", "").success();
    eventually("the new version answers", || {
        machine.node.run(format!("curl -sS --max-time 5 http://{ip}/").as_str()).out == "two"
    });
    assert_eq!(layers(&machine), 3);
    // What Pods use stays; what they do not use is removed, except for layers shared with other images.
    let refused = image(&machine, &["remove", &registry.name("team/web:v2")], "").failure();
    assert!(refused.contains("is used by the Pod default/web-"), "{refused}");
    eventually("the Pods of the old version are gone", || {
        image(&machine, &["remove", &registry.name("team/web:v1")], "").ok
    });
    assert_eq!(layers(&machine), 2);
    let listed = image(&machine, &["list"], "").success();
    assert!(listed.contains("team/web:v2") && listed.contains("default/web-") && !listed.contains("v1"), "{listed}");
}

#[test]
fn private_images_need_their_secret() {
    let mut machine = Machine::new();
    let registry = Registry::start(&machine.node, "127.0.0.1", Some(("me", "pass:word")));
    let folder = testbed::folder();
    registry.push("web", "v1", &[server(folder.path())], &entrypoint());
    let name = registry.name("web:v1");
    machine.pod("stranger", json!({"containers": [{"name": "c", "image": name}]}));
    let pod = machine.until("stranger", "refused", |pod| waits_for_image(pod, "ErrImagePull"));
    let message = waiting_message(&pod);
    for part in [&registry.at.to_string(), "401", "imagePullSecrets", "who are you?"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let pod = machine.until("stranger", "waiting", |pod| waits_for_image(pod, "ImagePullBackOff"));
    assert!(waiting_message(&pod).starts_with(&format!("Back-off pulling image \"{name}\": ErrImagePull: ")));
    let line = format!(
        "create secret docker-registry key --docker-server={} --docker-username=me --docker-password=pass:word",
        registry.at
    );
    let _ = kubectl(&machine, &line, "").success();
    let spec = json!({"containers": [{"name": "c", "image": name}], "imagePullSecrets": [{"name": "none"}, {"name": "key"}], "terminationGracePeriodSeconds": 1});
    machine.pod("friend", spec);
    machine.until_ready("friend");
    let reasons = |events: &[(String, String)], wanted: &[&str]| {
        wanted.iter().all(|wanted| events.iter().any(|(reason, _)| reason == wanted))
    };
    eventually("Events tell of it", || {
        reasons(&events(&mut machine, "friend"), &["FailedToRetrieveImagePullSecret", "Pulling", "Pulled", "Started"])
            && reasons(&events(&mut machine, "stranger"), &["Pulling", "Failed", "BackOff"])
    });
    let told = events(&mut machine, "stranger");
    assert!(told.iter().any(|(_, text)| text.starts_with(&format!("Failed to pull image \"{name}\": "))), "{told:?}");
    assert!(told.iter().any(|(_, text)| text == "Error: ErrImagePull"), "{told:?}");
    assert!(!format!("{told:?}{}", machine.logged()).contains("pass:word"), "passwords are not told");
    // By hand, the same.
    let refused = image(&machine, &["pull", "--username", "me", "--password-stdin", &name], "wrong\n").failure();
    assert!(refused.contains("401") && refused.contains("the credentials are wrong"), "{refused}");
    let done = image(&machine, &["pull", "--username", "me", "--password-stdin", &name], "pass:word\n").success();
    assert!(done.contains("0 B fetched"), "{done}");
}

#[test]
fn an_image_that_is_not_what_it_says_never_runs() {
    let mut machine = Machine::new();
    let registry = Registry::start(&machine.node, "127.0.0.1", None);
    let folder = testbed::folder();
    registry.push("web", "v1", &[server(folder.path())], &entrypoint());
    // An honest digest of something that is no such layer.
    let mut lies = server(folder.path());
    lies.diff = digest(b"something else");
    registry.push("web", "v2", &[lies], &entrypoint());
    registry.set(Some(Fault::Lies));
    machine.pod("one", json!({"containers": [{"name": "c", "image": registry.name("web:v1")}]}));
    let pod = machine.until("one", "refused", |pod| waits_for_image(pod, "ErrImagePull"));
    let why = waiting_message(&pod);
    assert!(why.contains("with the digest sha256:") && why.contains("content rejected"), "{why}");
    assert_eq!(layers(&machine), 0, "nothing of it was unpacked");
    registry.set(None);
    machine.pod("two", json!({"containers": [{"name": "c", "image": registry.name("web:v2")}]}));
    let pod = machine.until("two", "refused", |pod| waits_for_image(pod, "ErrImagePull"));
    let why = waiting_message(&pod);
    assert!(why.contains("layer 1 of") && why.contains("but the image says sha256:"), "{why}");
    // The first is tried again after its wait, and the registry is honest now.
    machine.until_ready("one");
    assert_eq!(container(&machine.get("one"), "c")["restartCount"], 0);
    let refused = image(&machine, &["list"], "").success();
    assert!(refused.contains("web:v1") && !refused.contains("web:v2"), "{refused}");
}

#[test]
fn pulling_goes_on_where_it_broke_off_and_says_what_went_wrong() {
    let machine = Machine::with(&["--workloads=false", "--proxy-mode", "none"]);
    let registry = Registry::start(&machine.node, "127.0.0.1", None);
    let noise: Vec<u8> = (0..200_000_u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let large = layer(&[("large", 0o644, &noise)], Packed::Plain);
    registry.push("a/large", "v1", std::slice::from_ref(&large), &json!({}));
    let name = registry.name("a/large:v1");
    let pull = |name: &str| image(&machine, &["pull", name], "");
    for (code, wanted) in [(500, "server error"), (429, "rate limit exceeded"), (403, "imagePullSecrets")] {
        registry.set(Some(Fault::Answers(code)));
        let said = pull(&name).failure();
        assert!(said.contains(&code.to_string()) && said.contains(wanted), "{said}");
        assert!(said.contains(&registry.at.to_string()), "{said}");
    }
    registry.set(None);
    let said = pull(&registry.name("a/large:v9")).failure();
    assert!(
        said.contains("404") && said.contains("a/large:v9") && said.contains("check the name and the tag"),
        "{said}"
    );
    registry.set(Some(Fault::Circles));
    assert!(pull(&name).failure().contains("redirects"));
    registry.asked();
    registry.set(Some(Fault::Breaks(4)));
    let _ = pull(&name).success();
    let ranges: Vec<String> =
        registry.asked().into_iter().map(|asked| asked.range).filter(|range| !range.is_empty()).collect();
    let half = large.sent.len() / 2;
    assert_eq!((ranges.len(), ranges[0].as_str()), (4, format!("bytes={half}-").as_str()), "{ranges:?}");
    let files: Vec<_> = std::fs::read_dir(machine.data_dir().join("images/downloads")).expect("a folder").collect();
    assert!(files.is_empty(), "what was unpacked is not kept twice: {files:?}");
}

#[test]
fn other_hosts_get_no_tokens_and_plain_http_is_for_those_who_were_named() {
    let machine = Machine::with(&["--workloads=false", "--proxy-mode", "none"]);
    let registry = Registry::start(&machine.node, "127.0.0.1", None);
    registry.push("web", "v1", &[message("x")], &json!({}));
    registry.set(Some(Fault::Redirects));
    let _ = image(&machine, &["pull", &registry.name("web:v1")], "").success();
    let elsewhere: Vec<_> =
        registry.asked().into_iter().filter(|asked| asked.path.starts_with("/elsewhere/")).collect();
    assert_eq!(elsewhere.len(), 2, "a configuration and a layer");
    for asked in elsewhere {
        assert!(asked.host.starts_with("localhost:") && asked.authorization.is_empty(), "{asked:?}");
    }
    let ip = machine.node.address(testbed::net::Family::V4).to_string();
    let outside = Registry::start(&machine.node, &ip, None);
    let exact = outside.push("web", "v1", &[message("x")], &json!({}));
    let name = format!("{}@{exact}", outside.name("web"));
    let refused = image(&machine, &["pull", &name], "").failure();
    assert!(refused.contains(&format!("--insecure-registry {}", outside.at)), "{refused}");
    let plain = |asked: &registry::Asked| !asked.path.is_empty() && asked.path.starts_with('/');
    assert!(!outside.asked().iter().any(plain), "nothing was asked without TLS");
    let _ = image(&machine, &["pull", "--insecure-registry", &outside.at.to_string(), &name], "").success();
    assert!(image(&machine, &["pull", "Not/A:Name"], "").failure().contains("is not a valid image name"));
}

#[test]
fn policies_ask_the_registry_as_they_should() {
    let mut machine = Machine::new();
    let registry = Registry::start(&machine.node, "127.0.0.1", None);
    let folder = testbed::folder();
    registry.push("web", "latest", &[server(folder.path()), message("first")], &entrypoint());
    let spec = |policy: &str| {
        let image = registry.name("web");
        let mut c = json!({"name": "c", "image": image});
        if !policy.is_empty() {
            c["imagePullPolicy"] = json!(policy);
        }
        json!({"containers": [c], "terminationGracePeriodSeconds": 1})
    };
    machine.pod("never", spec("Never"));
    let pod = machine.until("never", "refused", |pod| waits_for_image(pod, "ErrImageNeverPull"));
    assert!(waiting_message(&pod).contains("waypost image import FILE"), "{}", waiting_message(&pod));
    assert!(registry.asked().is_empty(), "nobody was asked");
    machine.pod("one", spec(""));
    machine.until_ready("one");
    registry.asked();
    machine.pod("present", spec("IfNotPresent"));
    machine.until_ready("present");
    assert!(registry.asked().is_empty(), "it is here");
    // The tag moves, and with it Pods with the pull policy Always; an image without a tag stays while Pods run from it.
    registry.push("web", "latest", &[server(folder.path()), message("second")], &entrypoint());
    machine.pod("always", spec(""));
    machine.until_ready("always");
    let layers_asked = registry.asked().iter().filter(|asked| asked.path.contains("/blobs/")).count();
    assert_eq!(layers_asked, 2, "a configuration and the layer that changed");
    let said = |machine: &mut Machine, pod: &str| {
        let ip = machine.get(pod)["status"]["podIP"].as_str().expect("an address").to_owned();
        machine.node.run(format!("curl -sS --max-time 5 http://{ip}:8080/").as_str()).success()
    };
    assert_eq!((said(&mut machine, "one"), said(&mut machine, "always")), ("first".to_owned(), "second".to_owned()));
    assert_eq!(layers(&machine), 3);
    // A registry that is gone does not hinder those that need none of it.
    registry.set(Some(Fault::Answers(503)));
    machine.pod("again", spec(""));
    machine.until("again", "refused", |pod| waits_for_image(pod, "ErrImagePull"));
    // A name that this machine gave is its own.
    let _ = image(&machine, &["tag", &registry.name("web"), &registry.name("web")], "").success();
    machine.until_ready("again");
}

#[test]
fn a_pod_that_goes_does_not_wait_for_its_image() {
    let mut machine = Machine::new();
    let registry = Registry::start(&machine.node, "127.0.0.1", None);
    registry.set(Some(Fault::Silence));
    machine.pod("p", json!({"containers": [{"name": "c", "image": registry.name("web:v1")}]}));
    let mut asked = Vec::new();
    eventually("the registry is asked", || {
        asked.extend(registry.asked());
        !asked.is_empty()
    });
    // Also an agent that was killed meanwhile has begun nothing, and so has nothing to begin again.
    machine.kill();
    machine.start();
    eventually("the registry is asked again", || {
        asked.extend(registry.asked());
        asked.iter().filter(|asked| asked.path.starts_with("/v2/")).count() > 1
    });
    assert_eq!(container(&machine.get("p"), "c")["restartCount"], 0);
    let begun = std::time::Instant::now();
    let _ = machine.delete("p", "").success();
    machine.until_gone("p");
    assert!(begun.elapsed().as_secs() < 10, "it waited for {:?}", begun.elapsed());
}

#[test]
fn an_image_of_many_layers_runs() {
    let mut machine = Machine::new();
    let registry = Registry::start(&machine.node, "127.0.0.1", None);
    let folder = testbed::folder();
    let mut all = vec![server(folder.path())];
    all.extend((0..100).map(|number| {
        let path = format!("etc/parts/{number}");
        layer(&[(&path, 0o600, b"x"), ("message", 0o644, format!("layer {number}").as_bytes())], Packed::Plain)
    }));
    // The last takes away what another brought.
    all.push(layer(&[("etc/parts/.wh.7", 0o644, b"")], Packed::Gzip));
    registry.push("web", "v1", &all, &entrypoint());
    machine.pod(
        "p",
        json!({"containers": [{"name": "c", "image": registry.name("web:v1")}], "terminationGracePeriodSeconds": 1}),
    );
    let pod = machine.until_ready("p");
    let ip = pod["status"]["podIP"].as_str().expect("an address").to_owned();
    assert_eq!(machine.node.run(format!("curl -sS --max-time 5 http://{ip}:8080/").as_str()).success(), "layer 99");
    let uid = pod["metadata"]["uid"].as_str().expect("a uid");
    let parts = machine.pod_folder(uid).join("containers/c/0/rootfs/etc/parts");
    let seen = machine.node.in_namespace(|| std::fs::read_dir(parts).expect("a folder").count());
    assert_eq!(seen, 99, "all but the one that was taken away");
}
