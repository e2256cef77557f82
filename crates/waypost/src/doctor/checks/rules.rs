//! The kernel's rules beside the plan, and the program that should keep them so.

use super::super::evidence::{Evidence, Rules};
use super::super::verdict::Judged;
use super::super::words::{count, listed};

/// How the proxy is brought back, which writes what is missing.
const START: &str = "systemctl restart waypost";

/// Whether the proxy of this node is there, for sentences about its rules.
fn keeper(evidence: &Evidence<'_>) -> &'static str {
    match evidence.here.proxy {
        Ok(true) => "a proxy runs and has not mended it",
        Ok(false) => "and no proxy runs here that would write them",
        Err(_) => "whether a proxy runs is not known",
    }
}

/// Whether the rules are what the plan says.
pub(super) fn equal(evidence: &Evidence<'_>) -> Judged {
    if evidence.is_external_name() || evidence.is_headless() || evidence.service().is_none() {
        return Judged::moot("such a Service needs no rules");
    }
    let Rules { mode, missing, whole, of } = match &evidence.here.rules {
        Ok(rules) => rules,
        Err(unmeasured) => return unmeasured.clone().into(),
    };
    if *missing {
        return Judged::disproved(
            format!("the kernel has no rule of ours: they were flushed or never written; {}", keeper(evidence)),
            START,
        );
    }
    let key = format!("{}/{}", evidence.namespace, evidence.name);
    let ours = of.get(&key).map_or(&[][..], Vec::as_slice);
    match (whole.is_empty(), ours.is_empty()) {
        (true, true) => {
            Judged::proved(format!("mode {mode}: every rule of this Service is in the kernel, and no other"))
        }
        (true, false) => Judged::disproved(
            format!("{} differ from the plan: {}; {}", count(ours.len(), "rule"), listed(ours), keeper(evidence)),
            START,
        ),
        (false, _) => Judged::disproved(
            format!("what all Services share differs from the plan: {}; {}", listed(whole), keeper(evidence)),
            START,
        ),
    }
}

/// Whether a proxy serves this node.
pub(super) fn alive(evidence: &Evidence<'_>) -> Judged {
    if evidence.is_external_name() || evidence.is_headless() || evidence.service().is_none() {
        return Judged::moot("such a Service needs no proxy");
    }
    match &evidence.here.proxy {
        Ok(true) => Judged::proved("one does"),
        Ok(false) => Judged::disproved("no proxy runs on this node: rules stay, and follow nothing any more", START),
        Err(unmeasured) => unmeasured.clone().into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::{World, disproved, moot, proved, unknown};
    use super::*;

    fn world(rules: Rules) -> World {
        let mut world = World::new();
        world.service("default", "web", json!({"clusterIP": "10.96.0.5", "ports": [{"port": 80}]}));
        world.here.rules = Ok(rules);
        world
    }

    #[test]
    fn rules_that_are_gone_or_other_are_told() {
        proved(world(Rules::default()).judge("default", "web", equal));
        let mut flushed = world(Rules { missing: true, ..Rules::default() });
        flushed.here.proxy = Ok(false);
        let (saw, fix) = disproved(flushed.judge("default", "web", equal));
        assert!(saw.contains("flushed") && saw.contains("no proxy runs here"), "{saw}");
        assert_eq!(fix, START);
        disproved(flushed.judge("default", "web", alive));
        let of = [("default/web".to_owned(), vec!["10.96.0.5:80 is missing".to_owned()])].into();
        assert!(
            disproved(world(Rules { of, ..Rules::default() }).judge("default", "web", equal)).0.contains("is missing")
        );
        let of = [("default/other".to_owned(), vec!["x".to_owned()])].into();
        proved(world(Rules { of, ..Rules::default() }).judge("default", "web", equal));
        let whole = vec!["chain services".to_owned()];
        assert!(
            disproved(world(Rules { whole, ..Rules::default() }).judge("default", "web", equal))
                .0
                .contains("chain services")
        );
    }

    #[test]
    fn where_nothing_can_be_read_nothing_is_said() {
        let mut world = world(Rules::default());
        world.not_a_node();
        unknown(world.judge("default", "web", equal));
        unknown(world.judge("default", "web", alive));
        world.service("default", "alias", json!({"type": "ExternalName", "externalName": "example.org"}));
        moot(world.judge("default", "alias", equal));
    }
}
