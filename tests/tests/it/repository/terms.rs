//! The vocabulary: standard terms lead to the code that implements them, and words of the project's own do not return.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::{files, read, root};

/// A term as people search for it, and the file that implements it.
const TERMS: [(&str, &str); 51] = [
    ("Backoff", "client/src/remote/reflector.rs"),
    ("workqueue", "control/src/metrics.rs"),
    ("exponential backoff", "control/src/queue.rs"),
    ("NoData", "dns/src/answer.rs"),
    ("NxDomain", "dns/src/answer.rs"),
    ("resync", "dataplane/src/sync.rs"),
    ("drain", "dataplane/src/sync.rs"),
    ("informer", "dns/src/informers.rs"),
    ("reflector", "client/src/remote.rs"),
    ("relist", "client/src/remote/reflector.rs"),
    ("bookmark", "rest/src/watch.rs"),
    ("leader election", "control/src/election.rs"),
    ("conntrack", "kernel/src/conntrack.rs"),
    ("masquerade", "plan/src/oracle.rs"),
    ("hairpin", "plan/src/selection.rs"),
    ("session affinity", "dataplane/src/userspace/relay/balancer.rs"),
    ("topology", "control/src/endpointslice.rs"),
    ("finalizer", "api/src/meta.rs"),
    ("owner reference", "control/src/garbage.rs"),
    ("garbage collection", "control/src/garbage.rs"),
    ("server-side apply", "api/src/apply.rs"),
    ("strategic merge", "api/src/patch/text.rs"),
    ("impersonation", "rest/src/auth/impersonate.rs"),
    ("EDNS", "dns/src/wire/query.rs"),
    ("truncat", "dns/src/wire/reply.rs"),
    ("compaction", "store/src/compaction.rs"),
    ("fdatasync", "store/src/log.rs"),
    ("rate limit", "dns/src/resolver/rate_limit.rs"),
    ("ALPN", "gateway/src/tls.rs"),
    ("SNI", "gateway/src/tls.rs"),
    ("hold time", "announce/src/bgp/session.rs"),
    ("cgroup", "kernel/src/cgroups.rs"),
    ("seccomp", "kernel/src/seccomp.rs"),
    ("overlayfs", "agent/src/images/layer.rs"),
    ("whiteout", "agent/src/images/layer.rs"),
    ("readiness", "agent/src/probes.rs"),
    ("debounce", "control/src/conditions.rs"),
    ("reconcile", "control/src/controller.rs"),
    ("Retry-After", "rest/src/fairness/retry_after.rs"),
    ("Priority and Fairness", "rest/src/fairness.rs"),
    ("splice", "dataplane/src/userspace/relay/pipes.rs"),
    ("netlink", "kernel/src/netlink/socket.rs"),
    ("verdict map", "kernel/src/nft/model.rs"),
    ("encryption at rest", "store/src/encryption.rs"),
    ("gratuitous ARP", "announce/src/l2/frame.rs"),
    ("graceful restart", "announce/src/bgp/session.rs"),
    ("tombstone", "client/src/watch.rs"),
    ("negative cache", "dns/src/resolver/cache.rs"),
    ("dual-stack", "api/src/kinds/service/families.rs"),
    ("redirect", "plan/src/redirect.rs"),
    ("listener", "gateway/src/listener.rs"),
];

/// Words that were replaced. They are rejected in code, comments, messages and documents.
const REPLACED: [(&str, &str); 10] = [
    ("PATIENCE", "a TIMEOUT or DEADLINE"),
    ("FAREWELL", "DRAIN_PERIOD"),
    ("cut or twisted", "malformed"),
    ("is there twice", "duplicate"),
    ("enum Said", "the status"),
    ("enum Told", "the state"),
    ("struct Manner", "the configuration"),
    ("struct Wishes", "the spec"),
    ("Somebody else", "the upstream, another node or manager"),
    ("believes anybody", "is not verified"),
];

#[test]
fn standard_terms_lead_to_their_files() {
    let mut missing = String::new();
    for (term, path) in TERMS {
        let text = read(&root().join("crates").join(path)).to_lowercase();
        if !text.contains(&term.to_lowercase()) {
            writeln!(missing, "{term}: not in crates/{path}").expect("text");
        }
    }
    assert_eq!(missing, "");
}

#[test]
fn replaced_words_do_not_return() {
    let mut found = String::new();
    let code = ["crates", "tests", "bench"].map(|folder| files(&root().join(folder), ".rs"));
    let documents = files(&root().join("docs"), ".md");
    // The list itself is here.
    let others = |path: &PathBuf| !path.ends_with("repository/terms.rs");
    for path in code.into_iter().flatten().chain(documents).filter(others) {
        for (number, line) in read(&path).lines().enumerate() {
            for (word, instead) in REPLACED {
                if line.contains(word) {
                    writeln!(found, "{}:{}: {word}; write {instead}", path.display(), number + 1).expect("text");
                }
            }
        }
    }
    assert_eq!(found, "");
}
