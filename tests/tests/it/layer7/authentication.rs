//! Authentication by TrafficPolicies: passwords of a Secret, and another server, with its sign-in page, as oauth2-proxy.

use std::io::{Read as _, Write as _};
use std::net::{Ipv6Addr, TcpListener};

use serde_json::json;
use testbed::net::Pod;

use super::stage::{ADDRESS, POLICIES, Page, Stage, TARGET, listener, to};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
/// The password is `secret`.
const ANN: &str = "ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";

fn stage() -> Stage {
    let stage = Stage::new();
    stage.backend("web");
    stage.gateway(&json!([listener("http", 80)]));
    stage.route("web", "web.test", &json!([to("all", "/", "web")]));
    let _ = stage.until("the route is served", &["http://web.test/"], |page| page.code == 200);
    stage
}

#[test]
fn s52_passwords_of_a_secret_are_required() {
    let stage = stage();
    let realm = json!({"authentication": {"basic": {"secretName": "users", "realm": "the shop"}}});
    stage.policy("passwords", "HTTPRoute/web", &realm);
    let message = stage.verdict("passwords", "ResolvedRefs=False/InvalidSecretRef");
    assert!(message.contains("Secret \"default/users\" does not exist"), "{message}");
    stage.settle_policies();
    let ask = |arguments: &[&str]| stage.get(&[arguments, &["http://web.test/"]].concat());
    assert_eq!(ask(&["--user", "ann:secret"]).code, 503, "without passwords");
    stage.secret("users", "Opaque", &json!({"auth": ANN}));
    let _ = stage.verdict("passwords", "ResolvedRefs=True/ResolvedRefs");
    let page =
        stage.until("the password is right", &["--user", "ann:secret", "http://web.test/"], |page| page.code == 200);
    assert_eq!(page.heard("authorization"), None, "the backend does not see it: {page:?}");
    for wrong in [&[][..], &["--user", "ann:wrong"], &["--user", "bob:secret"], &["-H", "Authorization: Bearer x"]] {
        let page = ask(wrong);
        assert_eq!((page.code, page.header("www-authenticate")), (401, Some("basic realm=\"the shop\"")), "{wrong:?}");
    }
    // Another password, and none.
    stage.secret("users", "Opaque", &json!({"auth": "ann:{PLAIN}other"}));
    let new = ["--user", "ann:other", "http://web.test/"];
    let _ = stage.until("the new password is right", &new, |page| page.code == 200);
    assert_eq!(ask(&["--user", "ann:secret"]).code, 401);
    stage.remove(SECRETS, "users");
    let _ = stage.until("nobody passes", &new, |page| page.code == 503);
    // Restrictions of the Gateway and of the route hold both: no user has two passwords.
    stage.secret("users", "Opaque", &json!({"auth": ANN}));
    stage.secret("others", "Opaque", &json!({"auth": "bob:{PLAIN}x"}));
    stage.policy("outer", "Gateway/public", &json!({"authentication": {"basic": {"secretName": "others"}}}));
    let _ = stage.until("both hold", &["--user", "ann:secret", "http://web.test/"], |page| page.code == 401);
    assert_eq!(ask(&["--user", "bob:x"]).code, 401);
    stage.secret("others", "Opaque", &json!({"auth": ANN}));
    let _ = stage.until("both accept", &["--user", "ann:secret", "http://web.test/"], |page| page.code == 200);
}

/// A server as oauth2-proxy: `/oauth2/auth` says whether the cookie is that of a session, `/oauth2/start` makes one and returns
/// to the page `rd`.
fn sign_in(pod: &Pod) {
    let listener = pod.in_namespace(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, TARGET)).expect("the port is free"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
                head.push(byte[0]);
            }
            let head = String::from_utf8_lossy(&head);
            let target = head.split(' ').nth(1).unwrap_or_default();
            let cookie = head.lines().find_map(|line| line.to_lowercase().strip_prefix("cookie: ").map(str::to_owned));
            let answer = match (target.split_once("?rd="), cookie.as_deref()) {
                (Some((_, page)), _) => {
                    let page = page.replace("%2F", "/").replace("%3F", "?").replace("%3D", "=").replace("%3A", ":");
                    format!("302 Found\r\nSet-Cookie: session=good; Path=/; HttpOnly\r\nLocation: {page}")
                }
                (None, Some(cookies)) if cookies.split("; ").any(|cookie| cookie == "session=good") => {
                    "202 Accepted\r\nX-Auth-Request-User: ann\r\nSet-Cookie: session=renewed".to_owned()
                }
                (None, Some("session=locked")) => "403 Forbidden".to_owned(),
                (None, Some("session=broken")) => "502 Bad Gateway".to_owned(),
                (None, _) => "401 Unauthorized\r\nSet-Cookie: session=; Max-Age=0".to_owned(),
            };
            let answer = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            // A client that has gone needs no answer.
            let _ = stream.write_all(answer.as_bytes());
        }
    });
}

#[test]
fn s52_a_client_signs_in_at_another_server_and_comes_back() {
    let stage = stage();
    stage.backend_with("oauth", sign_in);
    // A route of its own, without the policy.
    stage.route("oauth", "web.test", &json!([to("all", "/oauth2", "oauth")]));
    let external = json!({
        "url": "http://oauth.default.svc/oauth2/auth", "signInURL": "http://web.test/oauth2/start",
        "responseHeaders": ["X-Auth-Request-User"],
    });
    stage.policy("sign-in", "HTTPRoute/web", &json!({"authentication": {"external": external}}));
    let _ = stage.verdict("sign-in", "Accepted=True/Accepted");
    let url = "http://web.test/cart?id=7";
    // Clients without a session are sent to the sign-in page, and get the cookies of the server.
    let page = stage.until("authentication is required", &[url], |page| page.code == 302);
    let location = "http://web.test/oauth2/start?rd=http://web.test%2fcart%3fid%3d7";
    assert_eq!((page.header("location"), page.header("set-cookie")), (Some(location), Some("session=; max-age=0")));
    // A browser follows, and comes back to its page with the user.
    let got = stage.curl(ADDRESS, &["--location", "--cookie", "", url]);
    let last = got.out.rfind("HTTP/1.1 ").and_then(|_| got.out.split("\r\n\r\nHTTP/1.1 ").last());
    let page = last.and_then(|last| Page::parse(&format!("HTTP/1.1 {}", last.trim_start_matches("HTTP/1.1 "))));
    let page = page.unwrap_or_else(|| panic!("{got:?}"));
    assert_eq!(
        (page.code, page.heard("x-auth-request-user"), page.target()),
        (200, Some("ann"), "/cart?id=7"),
        "{got:?}"
    );
    let page: Page = stage.get(&["--cookie", "session=good", "-H", "X-Auth-Request-User: root", url]);
    assert_eq!((page.code, page.heard("x-auth-request-user")), (200, Some("ann")), "{page:?}");
    assert_eq!(page.header("set-cookie"), Some("session=renewed"), "a cookie that the server renews: {page:?}");
    assert_eq!(page.target(), "/cart?id=7");
    for (cookie, code) in [("locked", 403), ("broken", 500)] {
        assert_eq!(stage.get(&["--cookie", &format!("session={cookie}"), url]).code, code, "{cookie}");
    }
    // Without the server nobody passes.
    stage.remove("/api/v1/namespaces/default/services", "oauth");
    let _ = stage.until("nobody passes", &["--cookie", "session=good", url], |page| page.code == 500);
    stage.remove(POLICIES, "sign-in");
    let _ = stage.until("the route is open again", &[url], |page| page.code == 200);
}
