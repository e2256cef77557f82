//! Tokens: created, listed, rejected, removed; and which servers are trusted.

use serde_json::json;

use super::*;

const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";

#[test]
fn tokens_that_do_not_do_are_refused_with_the_next_step() {
    let mut stage = Stage::start(&[]);
    let place = stage.machine("n1");
    let next = "waypost token create --print-join-command";
    let none = stage.refused(place, &["--roles", "proxy"]);
    assert!(none.contains("no token was given") && none.contains(next), "{none}");
    let odd = stage.refused(place, &["--token", "hunter2"]);
    assert!(odd.contains("not of the form") && odd.contains(next), "{odd}");
    let early = stage.refused(place, &["--token", "aaaaaa.0123456789abcdef"]);
    assert!(early.contains("does not publish cluster-info") && early.contains(next), "{early}");

    // The right id with another secret: the server cannot have signed with that.
    let token = stage.token();
    let guessed = format!("{}.0123456789abcdef", &token[..6]);
    let signed = stage.api(|session| {
        let path = "/api/v1/namespaces/kube-public/configmaps";
        let key = format!("jws-kubeconfig-{}", &token[..6]);
        let mut watch = session.watch(path, "&fieldSelector=metadata.name=cluster-info");
        watch.until(|_, map| map["data"][&key].is_string())
    });
    assert!(signed["data"]["kubeconfig"].is_string());
    let unknown = stage.refused(place, &["--token", "aaaaaa.0123456789abcdef"]);
    assert!(unknown.contains("the token aaaaaa is unknown") && unknown.contains(next), "{unknown}");
    let forged = stage.refused(place, &["--token", &guessed]);
    assert!(forged.contains("may be another server"), "{forged}");
    let hash = stage.waypost("token create --print-join-command").success();
    let hash = hash.split_whitespace().last().expect("a hash").to_owned();
    let wrong = stage.refused(place, &["--token", &guessed, "--ca-hash", &hash]);
    assert!(wrong.contains("is unknown or has expired") && wrong.contains(next), "{wrong}");
    let zeros = format!("sha256:{}", "0".repeat(64));
    let other = stage.refused(place, &["--token", &token, "--ca-hash", &zeros]);
    assert!(other.contains(&hash) && other.contains("nothing was sent"), "{other}");
    assert!(!stage.nodes[place].kubeconfig().exists());

    let list = stage.waypost("token list").success();
    assert!(list.contains(&token) && list.contains("authentication,signing"), "{list}");
    let gone = stage.waypost(&format!("token delete {}", &token[..6])).success();
    assert_eq!(gone, format!("token {} deleted\n", &token[..6]));
    let twice = stage.waypost(&format!("token delete {token}")).failure();
    assert!(twice.contains("waypost token list"), "{twice}");
    let late = stage.refused(place, &["--token", &token]);
    assert!(late.contains("has expired") && late.contains(next), "{late}");
}

#[test]
fn a_token_whose_time_is_over_is_removed() {
    let mut stage = Stage::start(&[]);
    let place = stage.machine("n1");
    let token = stage.waypost("token create --ttl 1s").success().trim().to_owned();
    stage.api(|session| {
        let name = format!("bootstrap-token-{}", &token[..6]);
        if session.get(&format!("{SECRETS}/{name}")).code != 404 {
            let mut watch = session.watch(SECRETS, &format!("&fieldSelector=metadata.name={name}"));
            watch.until(|kind, _| kind == "DELETED");
        }
    });
    let late = stage.refused(place, &["--token", &token]);
    assert!(late.contains("has expired"), "{late}");
}

#[test]
fn a_token_lets_somebody_ask_for_a_certificate_and_nothing_else() {
    let mut stage = Stage::start(&[]);
    let token = stage.token();
    // A controller publishes it once a token exists.
    stage.api(|session| {
        let path = "/api/v1/namespaces/kube-public/configmaps";
        let mut watch = session.watch(path, "&fieldSelector=metadata.name=cluster-info");
        watch.until(|kind, _| kind == "ADDED");
    });
    let curl = |path: &str, bearer: Option<&str>| {
        let url = format!("https://{}{path}", stage.server());
        let header = bearer.map(|token| format!("Authorization: Bearer {token}")).unwrap_or_default();
        let run = stage.api.run({
            let mut command = Command::new("curl");
            command.args(["-sk", "-w", "\n%{http_code}", &url]);
            if bearer.is_some() {
                command.args(["-H", &header]);
            }
            command
        });
        let out = run.success();
        let (body, code) = out.rsplit_once('\n').expect("a code");
        (code.to_owned(), serde_json::from_str::<Value>(body).unwrap_or_default())
    };
    let info = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
    assert_eq!(curl(info, None).0, "200", "everybody may see which cluster this is");
    for path in [
        "/api/v1/namespaces/kube-public/configmaps",
        "/api/v1/namespaces/default/configmaps/cluster-info",
        "/api/v1/pods",
    ] {
        assert_eq!(curl(path, None).0, "403", "{path}");
    }
    assert_eq!(curl("/api/v1/pods", Some("aaaaaa.0123456789abcdef")).0, "401");
    let (code, body) = curl("/api/v1/pods", Some(&token));
    assert_eq!(code, "403");
    let user = format!("User \"system:bootstrap:{}\" cannot list resource \"pods\"", &token[..6]);
    assert!(body["message"].as_str().is_some_and(|said| said.contains(&user)), "{body}");
    assert_eq!(curl("/apis/certificates.k8s.io/v1/certificatesigningrequests", Some(&token)).0, "200");

    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let review = stage.post("/apis/authentication.k8s.io/v1/tokenreviews", &review);
    let groups = &review["status"]["user"]["groups"];
    assert_eq!(
        groups,
        &json!(["system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token", "system:authenticated"])
    );
}
