//! Annotations of ingress-nginx, beside nginx itself: the same requests to a node of ours and to nginx with the configuration
//! that ingress-nginx writes for the annotation, and the same answers.

use std::io::{Read as _, Write as _};
use std::net::{Ipv6Addr, TcpListener};
use std::process::Command;

use serde_json::json;
use testbed::net::{Pod, Process, eventually};

use super::stage::{Page, Stage, TARGET, rule};

/// What an annotation does, in both worlds. `{web}` is the address of the backend, `{auth}` that of the server for
/// authentication, `{files}` the folder of the stage.
struct Case {
    /// The first label of its host.
    name: &'static str,
    annotations: &'static [(&'static str, &'static str)],
    /// Path and type of the rule.
    path: (&'static str, &'static str),
    /// Directives of the server of nginx.
    nginx: &'static str,
    /// Paths, and arguments of curl.
    requests: &'static [(&'static str, &'static [&'static str])],
    /// Headers of the response that are compared.
    headers: &'static [&'static str],
    /// Headers of the request to the backend that are compared.
    heard: &'static [&'static str],
}

const PLAIN: Case = Case {
    name: "plain",
    annotations: &[],
    path: ("/", "Prefix"),
    nginx: "location / { proxy_pass http://{web}; }",
    requests: &[("/", &[]), ("/a?b=c", &[]), ("/a%20b", &[])],
    headers: &["location"],
    heard: &["host"],
};

const CASES: &[Case] = &[
    PLAIN,
    Case {
        name: "rewrite",
        annotations: &[("use-regex", "true"), ("rewrite-target", "/$2")],
        path: ("/app(/|$)(.*)", "ImplementationSpecific"),
        nginx: r#"location / { return 404; }
            location ~* "^/app(/|$)(.*)" { rewrite "(?i)/app(/|$)(.*)" /$2 break; proxy_pass http://{web}; }"#,
        requests: &[("/app", &[]), ("/app/", &[]), ("/app/x/y?z=1", &[]), ("/APP/x", &[]), ("/apple", &[]), ("/", &[])],
        ..PLAIN
    },
    Case {
        name: "allowed",
        annotations: &[("whitelist-source-range", "0.0.0.0/0")],
        nginx: "location / { allow 0.0.0.0/0; deny all; proxy_pass http://{web}; }",
        ..PLAIN
    },
    Case {
        name: "refused",
        annotations: &[("whitelist-source-range", "198.51.100.0/24, 2001:db8:1::/48")],
        nginx: "location / { allow 198.51.100.0/24; allow 2001:db8:1::/48; deny all; proxy_pass http://{web}; }",
        ..PLAIN
    },
    Case {
        name: "denied",
        annotations: &[("denylist-source-range", "0.0.0.0/0")],
        nginx: "location / { deny 0.0.0.0/0; proxy_pass http://{web}; }",
        ..PLAIN
    },
    Case {
        name: "password",
        annotations: &[("auth-type", "basic"), ("auth-secret", "users"), ("auth-realm", "the shop")],
        nginx: r#"location / { auth_basic "the shop"; auth_basic_user_file {files}/users; proxy_pass http://{web}; }"#,
        requests: &[
            ("/", &[]),
            ("/", &["--user", "ann:secret"]),
            ("/", &["--user", "ann:wrong"]),
            ("/", &["--user", "bob:secret"]),
            ("/", &["-H", "Authorization: Bearer x"]),
        ],
        headers: &["www-authenticate"],
        ..PLAIN
    },
    Case {
        name: "ask",
        annotations: &[("auth-url", "http://auth.default.svc/check"), ("auth-response-headers", "X-User")],
        nginx: r"location / {
                auth_request /_auth; auth_request_set $user $upstream_http_x_user;
                proxy_set_header Host $host; proxy_set_header X-User $user;
                proxy_pass http://{web};
            }
            location = /_auth {
                internal; proxy_pass_request_body off; proxy_set_header Content-Length '';
                proxy_pass http://{auth}/check;
            }",
        requests: &[
            ("/", &[]),
            ("/", &["-H", "X-Token: good"]),
            ("/", &["-H", "X-Token: good", "-H", "X-User: root"]),
            ("/", &["-H", "X-Token: forbidden"]),
            ("/", &["-H", "X-Token: broken"]),
        ],
        heard: &["host", "x-user"],
        ..PLAIN
    },
    Case {
        name: "moved",
        annotations: &[("permanent-redirect", "https://new.test$request_uri")],
        nginx: "location / { return 301 https://new.test$request_uri; }",
        ..PLAIN
    },
    Case {
        name: "elsewhere",
        annotations: &[("temporal-redirect", "https://other.test/here")],
        nginx: "location / { return 302 https://other.test/here; }",
        ..PLAIN
    },
    Case {
        name: "body",
        annotations: &[("proxy-body-size", "1k")],
        nginx: "client_max_body_size 1k; location / { proxy_pass http://{web}; }",
        requests: &[
            ("/", &["--data", "small"]),
            ("/", &["--data-binary", "@{files}/1024"]),
            ("/", &["--data-binary", "@{files}/1025"]),
            ("/", &["--data-binary", "@{files}/1025", "-H", "Transfer-Encoding: chunked"]),
        ],
        ..PLAIN
    },
    Case {
        name: "root",
        annotations: &[("app-root", "/app")],
        nginx: "if ($uri = /) { return 302 $scheme://$host/app; } location / { proxy_pass http://{web}; }",
        requests: &[("/", &[]), ("/app", &[]), ("/x", &[])],
        ..PLAIN
    },
    Case {
        name: "vhost",
        annotations: &[("upstream-vhost", "inner.test")],
        nginx: "location / { proxy_set_header Host inner.test; proxy_pass http://{web}; }",
        ..PLAIN
    },
    Case {
        name: "rate",
        annotations: &[("limit-rpm", "1"), ("limit-burst-multiplier", "3")],
        nginx: "location / { limit_req zone=rate burst=3 nodelay; proxy_pass http://{web}; }",
        requests: &[("/", &[]), ("/", &[]), ("/", &[]), ("/", &[]), ("/", &[]), ("/", &[])],
        ..PLAIN
    },
    Case {
        name: "underscore",
        requests: &[("/", &["-H", "X_Real_IP: 192.0.2.99", "-H", "X_User: root"])],
        heard: &["x_real_ip", "x_user"],
        ..PLAIN
    },
];

/// A server for authentication: `X-Token` decides.
fn authenticate(pod: &Pod) {
    let listener = pod.in_namespace(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, TARGET)).expect("the port is free"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
                head.push(byte[0]);
            }
            let head = String::from_utf8_lossy(&head).to_lowercase();
            let token = head.lines().find_map(|line| line.strip_prefix("x-token: "));
            let status = match token {
                Some("good") => "200 OK\r\nX-User: ann",
                Some("forbidden") => "403 Forbidden",
                Some(_) => "502 Bad Gateway",
                None => "401 Unauthorized",
            };
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            // A client that has gone needs no answer.
            let _ = stream.write_all(answer.as_bytes());
        }
    });
}

/// nginx in a pod, with a server for each case.
fn start(stage: &Stage, pod: &Pod, fill: impl Fn(&str) -> String) -> Process {
    let servers = CASES.iter().map(|case| {
        let headers = "proxy_set_header Host $host; proxy_set_header Proxy '';";
        format!("server {{ listen 80; server_name {}.test; {headers} {} }}\n", case.name, fill(case.nginx))
    });
    let folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {};", stage.file(name).display()));
    let text = format!(
        "user root; worker_processes 1; pid {}; error_log stderr; events {{}}\nhttp {{ access_log off; {}\n\
         limit_req_zone $binary_remote_addr zone=rate:1m rate=1r/m;\n{} }}\n",
        stage.file("nginx.pid").display(),
        folders.join(" "),
        servers.collect::<String>()
    );
    let file = stage.file("nginx.conf");
    std::fs::write(&file, text).expect("written");
    let mut command = Command::new("nginx");
    command.arg("-c").arg(&file).args(["-g", "daemon off;"]);
    pod.spawn(command)
}

/// What is compared of an answer.
fn compared(case: &Case, page: &Page) -> (u16, String, Vec<String>) {
    let headers = case.headers.iter().map(|name| format!("{name}: {:?}", page.header(name)));
    let reached = page.pod().is_some();
    let heard = case.heard.iter().filter(|_| reached).map(|name| format!("heard {name}: {:?}", page.heard(name)));
    let target = if reached { page.target().to_owned() } else { String::new() };
    (page.code, target, headers.chain(heard).collect())
}

#[test]
fn s51_annotations_do_what_nginx_does() {
    let stage = Stage::new();
    stage.backend("web");
    stage.backend_with("auth", authenticate);
    let hash = "ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";
    stage.secret("users", "Opaque", &json!({"auth": hash}));
    std::fs::write(stage.file("users"), hash).expect("written");
    for size in [1024, 1025] {
        std::fs::write(stage.file(&size.to_string()), vec![b'x'; size]).expect("written");
    }
    let nginx = stage.node.pod("nginx");
    stage.outside.route(&stage.node.pod_cidrs()[0], &stage.node);
    let address = |name: &str| format!("{}:{TARGET}", stage.pod(name).v4());
    let (web, auth, files) = (address("web"), address("auth"), stage.file("").display().to_string());
    let fill = |text: &str| {
        let text = text.replace("{web}", &web).replace("{auth}", &auth);
        text.replace("{files}", files.trim_end_matches('/'))
    };
    let _process = start(&stage, &nginx, fill);
    for case in CASES {
        let (path, kind) = case.path;
        let host = format!("{}.test", case.name);
        stage.ingress(case.name, case.annotations, &json!({"rules": [rule(&host, path, kind, "web")]}));
    }
    stage.settle("annotations");
    let theirs = nginx.v4().to_string();
    eventually("nginx answers", || stage.curl(&theirs, &["http://plain.test/"]).ok);
    let mut differences = Vec::new();
    for case in CASES {
        for (path, arguments) in case.requests {
            let url = format!("http://{}.test{path}", case.name);
            let arguments: Vec<String> = arguments.iter().map(|text| fill(text)).collect();
            let all: Vec<&str> = arguments.iter().map(String::as_str).chain([url.as_str()]).collect();
            let ask = |address: &str| {
                let got = stage.curl(address, &all);
                let page = Page::parse(&got.out).unwrap_or_else(|| panic!("{address} {all:?}: {got:?}"));
                compared(case, &page)
            };
            let (ours, nginx) = (ask(super::stage::ADDRESS), ask(&theirs));
            if ours != nginx {
                differences.push(format!("{all:?}: {ours:?}, nginx: {nginx:?}"));
            }
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

#[test]
fn s51_a_path_that_the_backend_would_normalise_does_not_pass_by_a_protected_rule() {
    let stage = Stage::new();
    stage.backend("web");
    stage.ingress("open", &[], &json!({"rules": [rule("web.test", "/", "Prefix", "web")]}));
    let nobody = [("whitelist-source-range", "198.51.100.0/24")];
    stage.ingress("closed", &nobody, &json!({"rules": [rule("web.test", "/admin", "Prefix", "web")]}));
    stage.settle("paths");
    for (path, code) in [
        ("/", 200),
        ("/administrator", 200),
        ("/admin/..", 200),
        ("/admin", 403),
        ("/admin/x", 403),
        ("//admin", 403),
        ("/%61dmin", 403),
        ("/x/../admin", 403),
        ("/./admin", 403),
        ("/x/%2e%2e/admin", 403),
    ] {
        assert_eq!(stage.get(&[&format!("http://web.test{path}")]).code, code, "{path}");
    }
}
