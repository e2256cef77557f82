//! An ACME server (RFC 8555) of tests: verifies signatures and nonces, validates hosts by HTTP-01 and TLS-ALPN-01 over real connections, issues certificates.
//!
//! In: how the validation connects to a host. Out: certificates of an own CA, and a log of what happened. As public CAs do, it uses valid
//! authorizations of an account again, until they are deactivated.

mod jws;
mod validate;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, IsCa, Issuer, KeyPair};
use rest::pki::{self, Pki, ServingNames};
use rustls::pki_types::CertificateSigningRequestDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use jws::{Account, Refusal, Signed};

/// Where it listens.
pub const ADDRESS: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 14_000);
/// The URL of the directory.
pub const DIRECTORY: &str = "https://127.0.0.1:14000/directory";
const ORIGIN: &str = "https://127.0.0.1:14000";

/// Connects to a port of a host as the validation sees it.
type Connect = dyn Fn(&str, u16) -> std::io::Result<TcpStream> + Send + Sync;

/// See the module. Its threads end with the process.
pub struct AcmeServer {
    /// Of its own HTTPS.
    pki: Pki,
    state: Arc<Mutex<State>>,
}

struct State {
    issuer: Issuer<'static, KeyPair>,
    root: String,
    lifetime: Duration,
    accounts: Vec<Account>,
    nonces: BTreeSet<String>,
    orders: Vec<Order>,
    authorizations: Vec<Authorization>,
    certificates: Vec<String>,
    log: Vec<String>,
    sequence: usize,
}

struct Order {
    account: usize,
    hosts: Vec<String>,
    authorizations: Vec<usize>,
    certificate: Option<usize>,
}

struct Authorization {
    account: usize,
    host: String,
    token: String,
    status: &'static str,
    /// The challenge that was tried.
    tried: Option<&'static str>,
    problem: Option<String>,
}

/// A response: status, `Location`, media type, body.
struct Response(u16, Option<String>, &'static str, String);

impl AcmeServer {
    /// Makes its keys; it does not listen yet.
    #[must_use]
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let names = ServingNames { ips: vec![IpAddr::V4(ADDRESS.0)], dns: Vec::new() };
        let pki = pki::load_or_create(folder.path(), &names, Timestamp::now()).expect("certificates");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "CA of a test");
        let key = KeyPair::generate().expect("a key");
        let root = params.self_signed(&key).expect("a certificate").pem();
        let state = State {
            issuer: Issuer::new(params, key),
            root,
            lifetime: Duration::from_secs(90 * 86_400),
            accounts: Vec::new(),
            nonces: BTreeSet::new(),
            orders: Vec::new(),
            authorizations: Vec::new(),
            certificates: Vec::new(),
            log: Vec::new(),
            sequence: 0,
        };
        Self { pki, state: Arc::new(Mutex::new(state)) }
    }

    /// The CA of its own HTTPS.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        self.pki.ca_pem()
    }

    /// The CA of the certificates that it issues.
    #[must_use]
    pub fn root(&self) -> String {
        self.state.lock().root.clone()
    }

    /// Sets the lifetime of further certificates.
    pub fn set_lifetime(&self, lifetime: Duration) {
        self.state.lock().lifetime = lifetime;
    }

    /// What happened, in order: `order HOSTS`, `valid HOST CHALLENGE`, `invalid HOST CHALLENGE`, `issued HOSTS`, `deactivated HOST`, `refused WHY`.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.state.lock().log.clone()
    }

    /// How often this happened.
    #[must_use]
    pub fn count(&self, event: &str) -> usize {
        self.state.lock().log.iter().filter(|line| *line == event).count()
    }

    /// Serves connections of a listener at [`ADDRESS`].
    pub fn serve(
        &self,
        listener: TcpListener,
        connect: impl Fn(&str, u16) -> std::io::Result<TcpStream> + Send + Sync + 'static,
    ) {
        let mut config = ServerConfig::clone(&self.pki.server_config());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let (config, connect, state) = (Arc::new(config), Arc::new(connect), Arc::clone(&self.state));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, connect, state) = (Arc::clone(&config), Arc::clone(&connect), Arc::clone(&state));
                thread::spawn(move || {
                    let connection = ServerConnection::new(config).expect("a configuration");
                    // A client may end its connection at any time.
                    let _ = exchange(StreamOwned::new(connection, stream), &state, &*connect);
                });
            }
        });
    }
}

impl Default for AcmeServer {
    fn default() -> Self {
        Self::new()
    }
}

/// Answers one request.
fn exchange(
    stream: StreamOwned<ServerConnection, TcpStream>,
    state: &Mutex<State>,
    connect: &Connect,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let Response(status, location, media, body) = answer(state, connect, method, path, &body);
    let nonce = state.lock().nonce();
    let location = location.map_or_else(String::new, |location| format!("location: {location}\r\n"));
    let text = format!(
        "HTTP/1.1 {status} Said\r\nreplay-nonce: {nonce}\r\n{location}content-type: {media}\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{}",
        body.len(),
        if method == "HEAD" { "" } else { &body }
    );
    stream.get_mut().write_all(text.as_bytes())?;
    stream.get_mut().flush()
}

fn answer(state: &Mutex<State>, connect: &Connect, method: &str, path: &str, body: &[u8]) -> Response {
    let json = |status, location, body: Value| Response(status, location, "application/json", body.to_string());
    match (method, path) {
        ("GET", "/directory") => {
            let at = |name: &str| format!("{ORIGIN}/{name}");
            let all = json!({"newNonce": at("nonce"), "newAccount": at("account"), "newOrder": at("order"),
                             "revokeCert": at("revoke"), "keyChange": at("rollover")});
            return json(200, None, all);
        }
        ("HEAD" | "GET", "/nonce") => return json(200, None, Value::Null),
        _ => {}
    }
    let signed = state.lock().verify(path, body);
    let result = signed.and_then(|signed| {
        let handled = state.lock().handle(path, &signed);
        handled.map_or_else(|| validation(state, connect, path, &signed), Ok)
    });
    result.unwrap_or_else(|Refusal { kind, detail }| {
        state.lock().log.push(format!("refused {kind}"));
        let problem = json!({"type": format!("urn:ietf:params:acme:error:{kind}"), "detail": detail, "status": 400});
        Response(400, None, "application/problem+json", problem.to_string())
    })
}

/// Validates a host, without holding the state: connections take time.
fn validation(state: &Mutex<State>, connect: &Connect, path: &str, signed: &Signed) -> Result<Response, Refusal> {
    let unknown = || Refusal::new("malformed", "no such resource");
    let (index, challenge) =
        path.strip_prefix("/challenge/").and_then(|rest| rest.split_once('/')).ok_or_else(unknown)?;
    let challenge = ["http-01", "tls-alpn-01"].into_iter().find(|known| *known == challenge).ok_or_else(unknown)?;
    let index: usize = index.parse().map_err(|_| unknown())?;
    let (host, key_authorization, token) = {
        let state = state.lock();
        let found = state.authorizations.get(index).filter(|found| Some(found.account) == signed.account);
        let found = found.ok_or_else(unknown)?;
        let thumbprint = &state.accounts[found.account].thumbprint;
        (found.host.clone(), format!("{}.{thumbprint}", found.token), found.token.clone())
    };
    let outcome = match challenge {
        "http-01" => validate::http(connect, &host, &token, &key_authorization),
        _ => validate::tls_alpn(connect, &host, &key_authorization),
    };
    let mut state = state.lock();
    let is_valid = outcome.is_ok();
    state.log.push(format!("{} {host} {challenge}", if is_valid { "valid" } else { "invalid" }));
    let found = &mut state.authorizations[index];
    (found.status, found.tried, found.problem) =
        (if is_valid { "valid" } else { "invalid" }, Some(challenge), outcome.err());
    Ok(Response(200, None, "application/json", state.challenge(index, challenge).to_string()))
}

impl State {
    fn nonce(&mut self) -> String {
        self.sequence += 1;
        let nonce = URL_SAFE_NO_PAD.encode(format!("nonce {} {}", self.sequence, fastrand::u64(..)));
        self.nonces.insert(nonce.clone());
        nonce
    }

    /// Handles a request that needs no connection; none if it is about a challenge.
    fn handle(&mut self, path: &str, signed: &Signed) -> Option<Response> {
        let response =
            |status, location, body: Value| Some(Response(status, location, "application/json", body.to_string()));
        let (kind, rest) = path.trim_start_matches('/').split_once('/').unwrap_or((path.trim_start_matches('/'), ""));
        let index: usize = rest.split('/').next().and_then(|text| text.parse().ok()).unwrap_or(usize::MAX);
        match (kind, signed.account) {
            ("account", _) => {
                let index = self.register(signed);
                response(201, Some(format!("{ORIGIN}/account/{index}")), json!({"status": "valid"}))
            }
            ("order", Some(account)) if rest.is_empty() => {
                let index = self.order(account, &signed.payload);
                response(201, Some(format!("{ORIGIN}/order/{index}")), self.order_state(index))
            }
            ("order", Some(account)) if self.orders.get(index).is_some_and(|order| order.account == account) => {
                if rest.ends_with("/finalize") {
                    self.finalize(index, &signed.payload);
                }
                response(200, Some(format!("{ORIGIN}/order/{index}")), self.order_state(index))
            }
            ("authorization", Some(account))
                if self.authorizations.get(index).is_some_and(|one| one.account == account) =>
            {
                if signed.payload["status"] == "deactivated" {
                    let one = &mut self.authorizations[index];
                    one.status = "deactivated";
                    self.log.push(format!("deactivated {}", one.host));
                }
                response(200, None, self.authorization(index))
            }
            ("certificate", Some(_)) => {
                let chain = self.certificates.get(index)?.clone();
                Some(Response(200, None, "application/pem-certificate-chain", chain))
            }
            _ => None,
        }
    }

    fn order(&mut self, account: usize, payload: &Value) -> usize {
        let identifiers = payload["identifiers"].as_array().cloned().unwrap_or_default();
        let hosts: Vec<String> = identifiers.iter().filter_map(|one| Some(one["value"].as_str()?.to_owned())).collect();
        self.log.push(format!("order {}", hosts.join(",")));
        let authorizations = hosts.iter().map(|host| self.authorize(account, host)).collect();
        self.orders.push(Order { account, hosts, authorizations, certificate: None });
        self.orders.len() - 1
    }

    /// The authorization for a host: one that the account has already, or a new one.
    fn authorize(&mut self, account: usize, host: &str) -> usize {
        let is_usable = |one: &Authorization| {
            one.account == account && one.host == host && ["valid", "pending"].contains(&one.status)
        };
        self.authorizations.iter().position(is_usable).unwrap_or_else(|| {
            let token = URL_SAFE_NO_PAD.encode(fastrand::u128(..).to_be_bytes());
            let host = host.to_owned();
            let new = Authorization { account, host, token, status: "pending", tried: None, problem: None };
            self.authorizations.push(new);
            self.authorizations.len() - 1
        })
    }

    fn order_state(&self, index: usize) -> Value {
        let order = &self.orders[index];
        let statuses: Vec<&str> = order.authorizations.iter().map(|one| self.authorizations[*one].status).collect();
        let status = match order.certificate {
            Some(_) => "valid",
            None if statuses.iter().all(|status| *status == "valid") => "ready",
            None if statuses.iter().all(|status| ["valid", "pending"].contains(status)) => "pending",
            None => "invalid",
        };
        let identifiers: Vec<Value> = order.hosts.iter().map(|host| json!({"type": "dns", "value": host})).collect();
        let authorizations: Vec<String> =
            order.authorizations.iter().map(|one| format!("{ORIGIN}/authorization/{one}")).collect();
        let mut state = json!({
            "status": status, "identifiers": identifiers, "authorizations": authorizations,
            "finalize": format!("{ORIGIN}/order/{index}/finalize"),
        });
        if let Some(certificate) = order.certificate {
            state["certificate"] = format!("{ORIGIN}/certificate/{certificate}").into();
        }
        state
    }

    fn authorization(&self, index: usize) -> Value {
        let one = &self.authorizations[index];
        let challenges = ["http-01", "tls-alpn-01"].map(|challenge| self.challenge(index, challenge));
        json!({"status": one.status, "identifier": {"type": "dns", "value": one.host}, "challenges": challenges})
    }

    fn challenge(&self, index: usize, challenge: &str) -> Value {
        let one = &self.authorizations[index];
        let is_tried = one.tried == Some(challenge);
        let status = if is_tried && one.status != "deactivated" { one.status } else { "pending" };
        let url = format!("{ORIGIN}/challenge/{index}/{challenge}");
        let mut state = json!({"type": challenge, "url": url, "token": one.token, "status": status});
        if let Some(problem) = one.problem.as_ref().filter(|_| is_tried) {
            state["error"] = json!({"type": "urn:ietf:params:acme:error:unauthorized", "detail": problem});
        }
        state
    }

    /// Issues the certificate of an order that is ready, for exactly its hosts.
    fn finalize(&mut self, index: usize, payload: &Value) {
        if self.order_state(index)["status"] != "ready" {
            return;
        }
        let der = URL_SAFE_NO_PAD.decode(payload["csr"].as_str().unwrap_or_default()).expect("base64url");
        let mut request =
            CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(der)).expect("a request");
        let names = request.params.subject_alt_names.iter().filter_map(|name| match name {
            rcgen::SanType::DnsName(name) => Some(name.to_string()),
            _ => None,
        });
        let hosts = &self.orders[index].hosts;
        assert_eq!(names.collect::<BTreeSet<_>>(), hosts.iter().cloned().collect(), "the hosts of the order");
        let now = Duration::from_secs(Timestamp::now().as_second().unsigned_abs());
        request.params.not_before = rcgen::date_time_ymd(1970, 1, 1) + now;
        request.params.not_after = rcgen::date_time_ymd(1970, 1, 1) + now + self.lifetime;
        let certificate = request.signed_by(&self.issuer).expect("a certificate");
        self.log.push(format!("issued {}", hosts.join(",")));
        self.certificates.push(format!("{}{}", certificate.pem(), self.root));
        self.orders[index].certificate = Some(self.certificates.len() - 1);
    }
}
