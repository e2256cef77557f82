//! Rotations, whole and cut short after each of their steps; and what clients and agents accept meanwhile.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use super::Remedy::{RemoveNextKey, RemovePrevious, RemovePreviousKey, TakeNextKey};
use super::*;
use crate::auth::service_account::{Binding, Grant, ServiceAccounts};
use crate::pki::inventory::{self, Role};
use crate::pki::scratch::Scratch;
use crate::pki::{Live, Pki, ServingNames, load_or_create, signed_by};

const ALL: [Target; 5] = [Target::Ca, Target::AgentCa, Target::Serving, Target::Signing, Target::Admin];
const NOW: i64 = 1_800_000_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn names() -> ServingNames {
    ServingNames { ips: vec![[127, 0, 0, 1].into()], dns: vec!["localhost".into()] }
}

fn load(dir: &Path) -> Pki {
    load_or_create(dir, &names(), at(NOW)).unwrap()
}

fn text(dir: &Path, name: &str) -> String {
    fs::read_to_string(dir.join(name)).unwrap()
}

fn certificates(bundle: &str) -> usize {
    bundle.matches("BEGIN CERTIFICATE").count()
}

#[test]
fn a_ca_is_rotated_in_two_phases() {
    let scratch = Scratch::new();
    let dir = scratch.path();
    let before = load(dir);
    let (old_ca, old_admin) = (text(dir, "ca.crt"), before.admin().clone());
    rotate(dir, &[Target::Ca], at(NOW)).unwrap();
    let during = load(dir);
    assert!(!during.is_same(&before));
    assert_eq!(during.ca_pem(), text(dir, "ca.crt") + &old_ca, "the new one first");
    assert!(signed_by(&text(dir, "server.crt"), &old_ca), "who knows the old CA alone still knows the server");
    assert!(signed_by(&text(dir, "agents.crt"), &old_ca), "so do agents");
    assert!(signed_by(&during.admin().certificate_pem, during.ca_pem()), "the administrator has a new certificate");
    let der = |identity: &crate::pki::Identity| {
        use rustls::pki_types::pem::PemObject as _;
        rustls::pki_types::CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()).unwrap()
    };
    let issuer = |pki: &Pki, identity| pki.client_issuer(&der(identity)).map(str::to_owned);
    assert_eq!(issuer(&during, &old_admin).as_deref(), during.previous_ca(), "the old one is accepted");
    assert_ne!(issuer(&during, during.admin()), issuer(&during, &old_admin));
    let again = rotate(dir, &[Target::Ca], at(NOW)).unwrap_err().to_string();
    assert!(again.contains("waypost certs finish ca"), "{again}");

    assert_eq!(finish(dir, &ALL).unwrap(), [Target::Ca]);
    let after = load(dir);
    assert_eq!(after.ca_pem(), text(dir, "ca.crt"));
    assert!(signed_by(&text(dir, "server.crt"), after.ca_pem()) && signed_by(&text(dir, "agents.crt"), after.ca_pem()));
    assert_eq!(issuer(&after, &old_admin), None, "the old one is worthless");
    assert!(issuer(&after, during.admin()).is_some());
    assert_eq!(finish(dir, &ALL).unwrap(), [], "there is nothing more to give up");
    assert!(!dir.join("ca-previous.key").exists());
    // And once more.
    rotate(dir, &[Target::Ca], at(NOW)).unwrap();
    assert_eq!(certificates(load(dir).ca_pem()), 2);
}

#[test]
fn other_keys_are_replaced_at_once() {
    let scratch = Scratch::new();
    let dir = scratch.path();
    load(dir);
    let files = ["server.key", "agents.key", "admin.key", "service-account.key", "agent-ca.key", "ca.key"];
    let contents = || files.map(|name| text(dir, name));
    let before = contents();
    rotate(dir, &ALL, at(NOW)).unwrap();
    let after = contents();
    for (index, name) in files.iter().enumerate() {
        assert_ne!(before[index], after[index], "{name}");
    }
    let pki = load(dir);
    assert_eq!(contents(), after, "loading changes no key");
    assert!(pki.issue_server(&names(), at(NOW)).is_ok());
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.file_name());
    }
}

#[test]
fn tokens_of_retired_keys_are_accepted_until_they_expire() {
    let scratch = Scratch::new();
    let dir = scratch.path();
    let accounts = ServiceAccounts::new(load(dir).signing_key(), "cluster.local").unwrap();
    let own = accounts.issuer().to_owned();
    let token = |now: i64| {
        let grant = Grant {
            namespace: "default",
            name: "web",
            uid: "u",
            audiences: &[&own],
            seconds: 86_400,
            bound: Binding::default(),
        };
        accounts.sign(&grant, at(now)).unwrap()
    };
    let lookup = |_, _: &str, _: &str| Some(serde_json::json!({"metadata": {"uid": "u"}}));
    let verifies = |token: &str, now: i64| accounts.verify(token, &[&own], at(now), &lookup).is_ok();
    let old = token(NOW);
    rotate(dir, &[Target::Signing], at(NOW + 10)).unwrap();
    accounts.set_keys(load(dir).signing_keys()).unwrap();
    let new = token(NOW + 10);
    assert!(verifies(&old, NOW + 20) && verifies(&new, NOW + 20));
    assert_eq!(accounts.public_keys(at(NOW + 20)).len(), 2);
    // A clone has the same keys.
    assert!(accounts.clone().verify(&old, &[&own], at(NOW + 20), &lookup).is_ok());
    rotate(dir, &[Target::Signing], at(NOW + 30)).unwrap();
    accounts.set_keys(load(dir).signing_keys()).unwrap();
    assert!(verifies(&old, NOW + 40) && verifies(&new, NOW + 40), "of both keys before");
    // With a stolen key, tokens of any issue time can be signed: all of them expire with the key.
    let after = NOW + 10 + 86_400 + 61;
    assert!(!accounts.accepts_key_of(&old, at(after)) && accounts.accepts_key_of(&new, at(after)));
    assert_eq!(accounts.public_keys(at(after)).len(), 2);
    finish(dir, &[Target::Signing]).unwrap();
    accounts.set_keys(load(dir).signing_keys()).unwrap();
    assert!(!verifies(&old, NOW + 40) && !verifies(&new, NOW + 40));
    assert!(verifies(&token(NOW + 40), NOW + 40));
}

#[test]
fn each_step_leaves_a_usable_directory() {
    let rotations: [&[Target]; 6] =
        [&[Target::Ca], &[Target::AgentCa], &[Target::Serving], &[Target::Signing], &[Target::Admin], &ALL];
    for targets in rotations {
        for cut in 0.. {
            let scratch = Scratch::new();
            let dir = scratch.path();
            let before = load(dir);
            let steps: Vec<Step> = targets.iter().flat_map(|one| rotation(dir, *one, at(NOW)).unwrap()).collect();
            if cut > steps.len() {
                break;
            }
            for step in &steps[..cut] {
                step.carry_out(dir).unwrap();
            }
            // What a write that was cut short leaves behind.
            fs::write(dir.join(".ca.crt.new"), "half a li").unwrap();
            let after = load(dir);
            let whom = format!("{targets:?}, {cut} steps");
            let admin = &before.admin().certificate_pem;
            assert!(signed_by(admin, after.ca_pem()) || certificates(after.ca_pem()) == 2, "{whom}: old clients");
            assert!(signed_by(&after.admin().certificate_pem, after.ca_pem()), "{whom}: the administrator");
            let kept = signed_by(&text(dir, "server.crt"), before.ca_pem());
            assert!(kept, "{whom}: old clients trust what is shown");
            assert!(!dir.join("ca-next.key").exists() && !dir.join("agent-ca-next.key").exists(), "{whom}");
            assert!(load(dir).is_same(&after), "{whom}: loading twice brings the same");
            // Whatever was left undone can be done again.
            finish(dir, targets).unwrap();
            rotate(dir, targets, at(NOW)).unwrap();
            finish(dir, targets).unwrap();
            load(dir);
        }
    }
}

#[test]
fn an_interrupted_rotation_is_reverted_before_and_completed_after_the_new_certificate() {
    let none = RotationState {
        has_next: false,
        next_fits: false,
        has_previous: false,
        has_previous_key: false,
        is_unchanged: false,
    };
    let next = RotationState { has_next: true, ..none };
    let copied = RotationState { has_previous_key: true, ..next };
    let noted = RotationState { has_previous: true, is_unchanged: true, ..copied };
    let turned = RotationState { is_unchanged: false, next_fits: true, ..noted };
    let done = RotationState { has_previous: true, has_previous_key: true, ..none };
    assert_eq!(none.remedies(), []);
    assert_eq!(next.remedies(), [RemoveNextKey]);
    assert_eq!(copied.remedies(), [RemoveNextKey, RemovePreviousKey]);
    assert_eq!(noted.remedies(), [RemoveNextKey, RemovePrevious, RemovePreviousKey]);
    assert_eq!(turned.remedies(), [TakeNextKey, RemoveNextKey]);
    assert_eq!(done.remedies(), []);
}

#[test]
fn clients_of_the_previous_ca_are_listed() {
    let scratch = Scratch::new();
    let dir = scratch.path();
    let live = Live::new(load(dir));
    assert_eq!(cut_off(dir).unwrap(), Some(Vec::new()), "no rotation");
    rotate(dir, &[Target::Ca], at(NOW)).unwrap();
    assert_eq!(cut_off(dir).unwrap(), None, "no server has said anything");
    assert!(live.replace(load(dir)));
    assert!(!live.replace(load(dir)), "nothing new");
    let pki: Arc<Pki> = live.get();
    let clients = crate::pki::Clients::default();
    let new = inventory::list(dir).unwrap()[0].fingerprint.clone();
    clients.note("n1", pki.previous_ca().unwrap(), at(NOW));
    clients.note("n2", &new, at(NOW));
    clients::write(dir, &clients.render()).unwrap();
    let found = cut_off(dir).unwrap().unwrap();
    assert_eq!(found.iter().map(|(user, _)| user.as_str()).collect::<Vec<_>>(), ["n1"]);
}

#[test]
fn everything_is_listed() {
    let scratch = Scratch::new();
    let dir = scratch.path();
    assert!(inventory::list(&dir.join("nowhere")).is_err());
    load(dir);
    let rows = |dir: &Path| {
        let entries = inventory::list(dir).unwrap();
        entries.iter().map(|entry| format!("{} {} {}", entry.name, entry.file, entry.role.name())).collect::<Vec<_>>()
    };
    let plain = rows(dir);
    assert_eq!(plain.len(), 6, "{plain:?}");
    rotate(dir, &ALL, at(NOW)).unwrap();
    let all = rows(dir);
    for row in ["ca ca-previous.crt previous", "agent-ca agent-ca-previous.crt previous"] {
        assert!(all.contains(&row.to_owned()), "{all:?}");
    }
    assert_eq!(all.last().unwrap(), "signing service-account-previous.json previous");
    let entries = inventory::list(dir).unwrap();
    let ca = &entries[0];
    assert_eq!((ca.subject.as_str(), ca.issuer.as_str()), ("CN=waypost-ca", "CN=waypost-ca"));
    assert_eq!((ca.days_left(at(NOW)), ca.ends_soon(at(NOW))), (Some(3650), false));
    assert_eq!(ca.days_left(at(NOW + 3621 * 86_400)), Some(29));
    assert!(ca.ends_soon(at(NOW + 3621 * 86_400)) && !ca.ends_soon(at(NOW + 3620 * 86_400)));
    assert_eq!(ca.fingerprint.len(), 64);
    let key = entries.iter().find(|entry| entry.role == Role::Previous && entry.name == "signing").unwrap();
    assert_eq!((key.days_left(at(NOW)), key.retired), (None, Some(at(NOW))));
    fs::write(dir.join("admin.crt"), "x").unwrap();
    assert!(inventory::list(dir).unwrap_err().to_string().contains("admin.crt"));
}
