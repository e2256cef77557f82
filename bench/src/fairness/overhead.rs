//! Requests with RBAC, an audit log at level Metadata and fair queues, compared with requests without them.
//!
//! In: how much. Out: rates of both, and the cost as the difference within each round. Servers run at once and take turns, round by round:
//! one without an audit log, whose client is in `system:masters` (allowed everything, exempt from queues), and one with an audit log, whose client
//! may do what a Role grants it and waits in the queues of `workload-low`. Both clients authenticate with a static token, so that only access
//! control differs. A third server, like the second, has a client with the token of a ServiceAccount, which shows what the verification of
//! its signature costs. Each server has one client, so that all of them have stored the same.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use client::http::{Client, Method};
use serde_json::{Value, json};
use testbed::starvation::client_with_token;

use crate::load::{self, Load, NAMESPACE, SERVICES, Work};
use crate::program::{home, tell};
use crate::report::Figures;
use crate::stats::{each, median, percentile};
use crate::subject::{Running, Subject as _};
use crate::waypost::Waypost;

/// How long a part of a round may take.
const LIMIT: Duration = Duration::from_secs(60);
/// How many objects a list returns.
const PAGE: usize = 100;
/// The user of a static token has the group of ServiceAccounts, whose requests wait in `workload-low`.
const TOKENS: &str = "admin,admin,,system:masters\nuser,user,,system:serviceaccounts\n";
const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n";
const AUDIT_LOG: &str = "audit.log";
const GROUP: &str = "rbac.authorization.k8s.io";

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Clients that send at once.
    pub clients: usize,
    /// Creations of one round; there are as many reads, and a tenth as many lists.
    pub requests: usize,
    /// Rounds.
    pub rounds: usize,
}

/// The clients, and their measurements: rates of each round, and processor time.
struct Sender {
    name: &'static str,
    server: usize,
    client: Client,
    measured: [Measured; 3],
}

#[derive(Default)]
struct Measured {
    rates: Vec<f64>,
    cpu: Duration,
    done: usize,
}

/// The parts of a round, in the order of [`Sender::measured`].
const PARTS: [&str; 3] = ["create", "get", "list"];

/// Measures; the figures with access control, and without.
///
/// # Errors
/// When a server fails at something.
pub async fn measure(size: Size) -> anyhow::Result<(Figures, Figures)> {
    let homes = [home()?, home()?, home()?];
    let plain = start(homes[0].path(), false).await?;
    let checked = start(homes[1].path(), true).await?;
    grant(&mut checked.client()).await?;
    let signed = start(homes[2].path(), true).await?;
    let account = grant(&mut signed.client()).await?;
    let token = |home: &Path, token: &str| client_with_token(&home.join("kubeconfig"), token);
    let sender = |name, server, client| Sender { name, server, client, measured: Default::default() };
    let mut senders = [
        sender("without", 0, token(homes[0].path(), "admin")),
        sender("with", 1, token(homes[1].path(), "user")),
        sender("account", 2, token(homes[2].path(), &account)),
    ];
    let servers = [plain, checked, signed];
    for round in 0..=size.rounds {
        // Every other round in the other order; the first one only warms up.
        let order: &[usize] = if round % 2 == 0 { &[0, 1, 2] } else { &[2, 1, 0] };
        for place in order {
            let sender = &mut senders[*place];
            take_turn(sender, &servers[sender.server], size).await.with_context(|| sender.name.to_owned())?;
        }
        if round == 0 {
            senders.iter_mut().for_each(|sender| sender.measured = Default::default());
        }
    }
    for server in servers {
        server.stop().await?;
    }
    let log = std::fs::read_to_string(homes[1].path().join(AUDIT_LOG)).context("reading the audit log")?;
    // Two events for each creation, read, list and deletion.
    let (lines, events) = (log.lines().count(), (size.rounds + 1) * (3 * size.requests + size.requests / 10) * 2);
    ensure!(lines >= events, "the audit log has only {lines} of {events} events");
    Ok(figures(&senders))
}

async fn start(home: &Path, is_audited: bool) -> anyhow::Result<Running> {
    let file = |name: &str| home.join(name).to_string_lossy().into_owned();
    let (tokens, policy, log) = (file("tokens.csv"), file("policy.yaml"), file(AUDIT_LOG));
    std::fs::write(&tokens, TOKENS).context("writing tokens")?;
    std::fs::write(&policy, POLICY).context("writing an audit policy")?;
    let mut arguments = vec!["--token-auth-file", &*tokens];
    if is_audited {
        // Without rotation, so that all events can be counted.
        arguments.extend(["--audit-policy-file", &*policy, "--audit-log-path", &*log, "--audit-log-maxsize", "0"]);
    }
    let waypost = Waypost::find()?.with(&arguments);
    tell(&waypost, if is_audited { "overhead: with audit log" } else { "overhead: without audit log" });
    let running = waypost.start(home).await?;
    load::make_namespace(&mut running.client()).await?;
    Ok(running)
}

/// A Role for the user and for a ServiceAccount, whose token is returned.
async fn grant(client: &mut Client) -> anyhow::Result<String> {
    let accounts = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "account"}});
    create(client, &accounts, &account).await?;
    let rules = json!([{"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list", "create", "delete"]}]);
    let role =
        json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Role", "metadata": {"name": "services"}, "rules": rules});
    let path = format!("/apis/{GROUP}/v1/namespaces/{NAMESPACE}");
    create(client, &format!("{path}/roles"), &role).await?;
    let binding = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "RoleBinding", "metadata": {"name": "services"},
        "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "services"},
        "subjects": [
            {"apiGroup": GROUP, "kind": "User", "name": "user"},
            {"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "account"},
        ],
    });
    create(client, &format!("{path}/rolebindings"), &binding).await?;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let issued = create(client, &format!("{accounts}/account/token"), &request).await?;
    issued["status"]["token"].as_str().map(str::to_owned).context("no token was issued")
}

async fn create(client: &mut Client, path: &str, object: &Value) -> anyhow::Result<Value> {
    let (code, answer) = client.json(Method::POST, path, Some(object)).await?;
    ensure!(code == 201, "POST {path} was answered with {code}: {answer}");
    Ok(answer)
}

/// One round of a sender: creations, reads, lists, and deletions, which are not measured.
async fn take_turn(sender: &mut Sender, server: &Running, size: Size) -> anyhow::Result<()> {
    let names: Vec<String> = (0..size.requests).map(load::service_name).collect();
    let creates = names.iter().map(|name| Work::create(SERVICES, &load::service_by_hand(name))).collect();
    let gets = names.iter().map(|name| Work::get(&format!("{SERVICES}/{name}"))).collect();
    let lists = (0..size.requests / 10).map(|_| Work::get(&format!("{SERVICES}?limit={PAGE}"))).collect();
    for (work, measured) in [creates, gets, lists].into_iter().zip(&mut sender.measured) {
        let before = server.cpu()?;
        let load = send(&sender.client, size.clients, work).await?;
        measured.cpu += server.cpu()?.saturating_sub(before);
        measured.done += load.done;
        measured.rates.push(load.rate());
    }
    let deletes = names.iter().map(|name| Work::delete(SERVICES, name)).collect();
    send(&sender.client, size.clients, deletes).await.map(drop)
}

async fn send(client: &Client, clients: usize, work: Vec<Work>) -> anyhow::Result<Load> {
    let wanted = work.len();
    let load = load::run(client, clients, work, LIMIT).await?;
    ensure!(load.done == wanted, "only {} of {wanted} requests were answered in time", load.done);
    Ok(load)
}

fn figures(senders: &[Sender; 3]) -> (Figures, Figures) {
    let [without, with, account] = senders;
    let (mut ours, mut theirs) = (Figures::default(), Figures::default());
    for (place, part) in PARTS.into_iter().enumerate() {
        let (off, on) = (&without.measured[place], &with.measured[place]);
        let costs: Vec<f64> = off.rates.iter().zip(&on.rates).map(|(off, on)| (1.0 - on / off) * 100.0).collect();
        for (name, share) in [("cost", 0.5), ("cost_low", 0.25), ("cost_high", 0.75)] {
            ours.set(&format!("{part}_{name}"), percentile(&costs, share));
        }
        for (figures, measured) in [(&mut ours, on), (&mut theirs, off)] {
            figures.set(&format!("{part}_rate"), median(&measured.rates));
            figures.set(&format!("{part}_cpu_us"), each(measured.cpu, measured.done));
        }
        ours.set(&format!("{part}_account_rate"), median(&account.measured[place].rates));
    }
    (ours, theirs)
}
