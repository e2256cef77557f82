//! Orders the certificates that are wanted.
//!
//! In: what is [wanted](Wanted), Secrets, the ledger. Out: Secrets with certificates, Events, the ledger. A certificate is ordered when it is missing, is for other
//! hosts, or when two thirds of its lifetime are over; the ledger says how often. Secrets that ACME did not write are never touched: a write names the
//! revision that was read, so that this holds also for a Secret that is created meanwhile.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::acme::{ISSUED, KEY, TEMPORARY};
use api::custom::Kinds;
use api::object;
use api::value::ValueExt as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};
use store::{Key, Store, Table};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::answers::{self, Answers};
use super::ledger::{Certificate, Ledger};
use super::{COMPONENT, SECRETS};
use crate::certificate_orders::{Acme, KeyPair, Problem, ProblemKind, Validity, Wanted};
use crate::commit::{Failure, WrittenRevisions, commit};
use crate::event::{self, EventDetails};
use crate::settings::Settings;
use crate::write::Write;

/// Where account and ledger are.
const NAMESPACE: &str = "kube-system";
/// The Secret with the account.
const ACCOUNT: &str = "waypost-acme-account";
/// The ConfigMap with the ledger.
const LEDGER: &str = "waypost-acme-orders";
const CONFIG_MAPS: &str = "configmaps";
/// The type of Secrets with certificates.
const TLS: &str = "kubernetes.io/tls";
/// The most orders at once.
const MOST_AT_ONCE: usize = 4;
/// How soon everything is looked at again when nothing is due earlier, in seconds.
const LONGEST_WAIT: i64 = 600;
/// How soon, in seconds, after a write that failed.
const RETRY_WRITE: i64 = 5;

/// Reads and writes objects.
pub(super) struct Api {
    store: Arc<dyn Store>,
    settings: Settings,
    /// Held while an account is registered: the first orders need it at the same time.
    registration: Mutex<()>,
}

impl Api {
    pub(super) fn new(store: Arc<dyn Store>, settings: Settings) -> Self {
        Self { store, settings, registration: Mutex::new(()) }
    }

    /// An object and its revision; without a revision a new one.
    pub(super) fn read(&self, table: &str, namespace: &str, name: &str) -> (Value, u64) {
        match self.store.get(&Key::new(Table::named(table), format!("{namespace}/{name}"))) {
            Some(entry) => (object::decode_bare(&entry.value), entry.modified),
            None => (json!({"metadata": {"namespace": namespace, "name": name}}), 0),
        }
    }

    /// Writes an object in place of that revision.
    pub(super) async fn write(&self, table: &'static str, object: Value, modified: u64) -> Result<(), Failure> {
        let write = Write::Object { table, object: Box::new(object), modified };
        commit(&*self.store, &self.settings, Kinds::fixed(), &[write], &mut WrittenRevisions::default()).await
    }

    /// The time.
    pub(super) fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    /// Reports to the owner of an object; failures are ignored, as for all Events.
    async fn report(&self, wanted: &Wanted, normal: bool, reason: &str, message: &str) {
        let now = api::lifecycle::seconds(self.now());
        let details = EventDetails { controller: COMPONENT, normal, reason, message, now: &now };
        let requester = &wanted.requester;
        let event = event::new_event(requester.kind, &requester.api_version, &requester.object, &details);
        if let Write::Object { table, object, modified } = event {
            let _ = self.write(table, *object, modified).await;
        }
    }
}

/// What a Secret has.
#[derive(Debug)]
enum Held {
    /// There is none.
    Nothing,
    /// It is not ours.
    Foreign,
    /// A self-signed certificate, or nothing useful.
    Temporary,
    /// A certificate of the CA.
    Issued(Validity),
}

/// Orders for as long as the future is polled.
pub async fn run(store: Arc<dyn Store>, settings: Settings) {
    let Some(acme) = settings.acme.clone() else { return std::future::pending().await };
    let mut changes = acme.wanted();
    let api = Arc::new(Api::new(store, settings));
    // Those of a process before this one: its orders ended with it.
    answers::clear(&api).await;
    let mut worker = Worker { api, acme, orders: JoinSet::new(), running: HashMap::new() };
    loop {
        let wanted = changes.borrow_and_update().clone().unwrap_or_default();
        let wait = worker.advance(&wanted).await;
        tokio::select! {
            // The sender lives as long as the settings.
            Ok(()) = changes.changed() => {}
            Some(ended) = worker.orders.join_next(), if !worker.orders.is_empty() => worker.ended(ended).await,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

struct Worker {
    api: Arc<Api>,
    acme: Acme,
    orders: JoinSet<(Wanted, Result<Validity, Problem>)>,
    /// Secrets of these orders, and their hosts. A CA may answer two orders for one host with the same authorization, so that the proof of
    /// one tenant would count for the other.
    running: HashMap<String, BTreeSet<Box<str>>>,
}

impl Worker {
    /// Begins what is due; returns when to look again.
    async fn advance(&mut self, wanted: &[Wanted]) -> Duration {
        let now = self.api.now().as_second();
        let mut next = now + LONGEST_WAIT;
        let mut ledger = self.ledger().0;
        for wanted in wanted {
            let overlaps = |hosts: &BTreeSet<Box<str>>| !hosts.is_disjoint(&wanted.hosts);
            if self.running.contains_key(&wanted.secret_key()) || self.running.values().any(overlaps) {
                continue;
            }
            let due = self.due(wanted, &ledger, now).await;
            if due > now {
                next = next.min(due);
            } else if self.orders.len() < MOST_AT_ONCE {
                if let Err(failure) = self.begin(wanted, now).await {
                    tracing::debug!(%failure, "cannot enter an ACME order into the ledger");
                    next = next.min(now + RETRY_WRITE);
                }
                ledger = self.ledger().0;
            }
        }
        Duration::from_secs(u64::try_from(next - now).unwrap_or_default().max(1))
    }

    /// When a certificate is to be ordered. A listener that opens by a certificate gets one that is self-signed.
    async fn due(&self, wanted: &Wanted, ledger: &Ledger, now: i64) -> i64 {
        let (held, modified) = self.held(wanted);
        let renewed = match held {
            Held::Foreign => return i64::MAX,
            Held::Nothing if wanted.opens_by_certificate => {
                if let Err(problem) = self.open(wanted, modified).await {
                    tracing::warn!(secret = wanted.secret_key(), %problem, "cannot write temporary certificate");
                }
                return i64::MAX;
            }
            Held::Nothing | Held::Temporary => None,
            Held::Issued(validity) => Some(validity).filter(|held| held.hosts.is_superset(&wanted.hosts)),
        };
        if !wanted.is_ready {
            return i64::MAX;
        }
        let earliest = ledger.earliest(&certificate(wanted), renewed.is_some(), now);
        earliest.max(renewed.as_ref().map_or(now, renewal))
    }

    /// What the Secret of a certificate has, and its revision.
    fn held(&self, wanted: &Wanted) -> (Held, u64) {
        let (secret, modified) = self.api.read(SECRETS, &wanted.requester.object.namespace, &wanted.secret);
        if modified == 0 {
            return (Held::Nothing, modified);
        }
        let held = match secret.at("metadata.labels").get(KEY).and_then(Value::as_str) {
            None => Held::Foreign,
            Some(ISSUED) => {
                let chain = secret.at("data").get("tls.crt").and_then(Value::as_str);
                let chain = chain.and_then(|text| STANDARD.decode(text).ok());
                let validity = chain.and_then(|chain| self.acme.authority.read(&chain));
                validity.map_or(Held::Temporary, Held::Issued)
            }
            Some(_) => Held::Temporary,
        };
        (held, modified)
    }

    /// Writes a self-signed certificate, so that the listener is opened.
    async fn open(&self, wanted: &Wanted, modified: u64) -> Result<(), Problem> {
        let pair = self.acme.authority.temporary(&wanted.hosts)?;
        let (secret, _) = self.api.read(SECRETS, &wanted.requester.object.namespace, &wanted.secret);
        write_secret(&self.api, secret, modified, &pair, TEMPORARY).await
    }

    /// Enters an order into the ledger and begins it.
    async fn begin(&mut self, wanted: &Wanted, now: i64) -> Result<(), Failure> {
        let (mut ledger, modified) = self.ledger();
        let of = certificate(wanted);
        if ledger.is_contended(&of, now) {
            return Err(Failure::Conflict);
        }
        ledger.begin(&of, now, self.acme.pauses.retry);
        self.save(&ledger, modified).await?;
        tracing::info!(secret = wanted.secret_key(), challenge = wanted.challenge.name(), "order certificate");
        let (api, acme, wanted) = (Arc::clone(&self.api), self.acme.clone(), wanted.clone());
        self.running.insert(wanted.secret_key(), wanted.hosts.clone());
        self.orders.spawn(async move {
            let result = order(&api, &acme, &wanted).await;
            (wanted, result)
        });
        Ok(())
    }

    /// Enters the result of an order into the ledger and reports it.
    async fn ended(&mut self, ended: Result<(Wanted, Result<Validity, Problem>), tokio::task::JoinError>) {
        let (wanted, result) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                tracing::error!(%error, "ACME order ended unexpectedly");
                return self.running.clear();
            }
        };
        self.running.remove(&wanted.secret_key());
        let (now, of, retry) = (self.api.now().as_second(), certificate(&wanted), self.acme.pauses.retry);
        let mut saved = Err(Failure::Conflict);
        let (mut ledger, mut modified) = self.ledger();
        // Another leader may write, too; without the result the attempt counts as failed.
        for _ in 0..3 {
            match &result {
                Ok(issued) => ledger.succeed(&of, now, lifetime(issued)),
                Err(Problem { message, kind }) => {
                    ledger.fail(&of, now, retry, message, *kind == ProblemKind::RateLimit);
                }
            }
            saved = self.save(&ledger, modified).await;
            if saved.is_ok() {
                break;
            }
            (ledger, modified) = self.ledger();
        }
        if let Err(failure) = saved {
            tracing::warn!(secret = wanted.secret_key(), %failure, "cannot write the result of an ACME order");
        }
        let hosts = wanted.hosts.iter().map(|host| &**host).collect::<Vec<_>>().join(", ");
        let key = wanted.secret_key();
        match result {
            Ok(_) => {
                tracing::info!(secret = key, "wrote certificate");
                let message = format!("Secret {key} has a certificate for {hosts}");
                self.api.report(&wanted, true, "CertificateIssued", &message).await;
            }
            Err(problem) => {
                tracing::warn!(secret = key, %problem, "failed to get certificate");
                let message = shortened(&format!("no certificate for {hosts} (Secret {key}): {problem}"));
                self.api.report(&wanted, false, "CertificateFailed", &message).await;
            }
        }
    }

    /// The ledger, and its revision. One that cannot be read begins anew.
    fn ledger(&self) -> (Ledger, u64) {
        let (map, modified) = self.api.read(CONFIG_MAPS, NAMESPACE, LEDGER);
        (serde_json::from_str(map.text("data.ledger")).unwrap_or_default(), modified)
    }

    async fn save(&self, ledger: &Ledger, modified: u64) -> Result<(), Failure> {
        let (mut map, _) = self.api.read(CONFIG_MAPS, NAMESPACE, LEDGER);
        map.put("data.ledger", json!(ledger).to_string());
        self.api.write(CONFIG_MAPS, map, modified).await
    }
}

fn certificate(wanted: &Wanted) -> Certificate {
    Certificate::new(&wanted.requester.object.namespace, &wanted.hosts)
}

/// When a certificate is to be renewed: after two thirds of its lifetime.
fn renewal(validity: &Validity) -> i64 {
    validity.from.as_second() + lifetime(validity) / 3 * 2
}

/// How long a certificate is valid, in seconds.
fn lifetime(validity: &Validity) -> i64 {
    (validity.until.as_second() - validity.from.as_second()).max(0)
}

/// Orders a certificate and writes it; returns what it says.
async fn order(api: &Arc<Api>, acme: &Acme, wanted: &Wanted) -> Result<Validity, Problem> {
    let credentials = account(api, acme).await?;
    let (challenge, gateway) = (wanted.challenge, Arc::clone(&wanted.gateway));
    let answers = Answers { api: Arc::clone(api), challenge, gateway, propagation: acme.pauses.propagation };
    let issue = acme.authority.issue(&credentials, &wanted.hosts, challenge, &answers);
    let issued = tokio::time::timeout(acme.pauses.order, issue).await;
    let issued = issued.unwrap_or_else(|_| Err(Problem::retry("the order took too long")));
    answers.remove(wanted.hosts.iter()).await;
    if issued.as_ref().is_err_and(|problem| problem.kind == ProblemKind::UnknownAccount) {
        forget_account(api).await;
    }
    let pair = issued?;
    let read = acme.authority.read(pair.chain.as_bytes());
    let is_fit = |validity: &Validity| validity.hosts.is_superset(&wanted.hosts);
    let validity = read
        .filter(is_fit)
        .ok_or_else(|| Problem::retry("the certificate of the CA is not for the hosts that were ordered"))?;
    // The Secret may have changed since: it may be one of a user now.
    let (secret, modified) = api.read(SECRETS, &wanted.requester.object.namespace, &wanted.secret);
    if modified != 0 && secret.at("metadata.labels").get(KEY).is_none() {
        return Err(Problem::retry(format!(
            "Secret {} has no label {KEY} any longer and is not overwritten",
            wanted.secret_key()
        )));
    }
    write_secret(api, secret, modified, &pair, ISSUED).await?;
    Ok(validity)
}

async fn write_secret(api: &Api, mut secret: Value, modified: u64, pair: &KeyPair, label: &str) -> Result<(), Problem> {
    let mut labels = secret.map("metadata.labels").cloned().unwrap_or_default();
    labels.insert(KEY.to_owned(), label.into());
    secret.put("metadata.labels", labels);
    secret.put("type", TLS);
    let mut data = secret.map("data").cloned().unwrap_or_default();
    data.insert("tls.crt".to_owned(), STANDARD.encode(&pair.chain).into());
    data.insert("tls.key".to_owned(), STANDARD.encode(&pair.key).into());
    secret.put("data", data);
    let why = |failure: Failure| Problem::retry(format!("cannot write the Secret: {failure}"));
    api.write(SECRETS, secret, modified).await.map_err(why)
}

/// The credentials of the account at the ACME server; registers one if there is none.
async fn account(api: &Api, acme: &Acme) -> Result<String, Problem> {
    let _alone = api.registration.lock().await;
    let (mut secret, modified) = api.read(SECRETS, NAMESPACE, ACCOUNT);
    let text = |key: &str| {
        let value = secret.at("data").get(key).and_then(Value::as_str);
        value.and_then(|text| STANDARD.decode(text).ok()).and_then(|bytes| String::from_utf8(bytes).ok())
    };
    if text("directory").as_deref() == Some(acme.authority.directory())
        && let Some(credentials) = text("credentials").filter(|text| !text.is_empty())
    {
        return Ok(credentials);
    }
    let credentials = acme.authority.register().await?;
    tracing::info!(directory = acme.authority.directory(), "registered ACME account");
    secret.put("type", "Opaque");
    let data =
        json!({"directory": STANDARD.encode(acme.authority.directory()), "credentials": STANDARD.encode(&credentials)});
    secret.put("data", data);
    match api.write(SECRETS, secret, modified).await {
        Ok(()) => Ok(credentials),
        // Another order, or another leader, has registered meanwhile.
        Err(failure) => Err(Problem::retry(format!("cannot write Secret {NAMESPACE}/{ACCOUNT}: {failure}"))),
    }
}

/// Forgets an account that the ACME server does not know; the next order registers another one.
async fn forget_account(api: &Api) {
    let (mut secret, modified) = api.read(SECRETS, NAMESPACE, ACCOUNT);
    if modified == 0 {
        return;
    }
    secret.put("data", json!({}));
    if let Err(failure) = api.write(SECRETS, secret, modified).await {
        tracing::warn!(%failure, "cannot forget ACME account");
    }
}

/// A message that fits into an Event.
fn shortened(message: &str) -> String {
    message.get(..message.floor_char_boundary(1000)).unwrap_or_default().to_owned()
}
