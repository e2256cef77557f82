//! The `/version` document.
//!
//! Clients read `gitVersion` to detect the Kubernetes release, so it names the release whose API is served; our own version follows as build
//! metadata, which comparisons ignore. Build time and place are not included: builds are reproducible.

use serde_json::{Value, json};

/// The minor release of Kubernetes whose API is served.
const MINOR: &str = "37";

/// The document.
pub(crate) fn document() -> Value {
    json!({
        "major": "1",
        "minor": MINOR,
        "gitVersion": git_version(),
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, architecture(std::env::consts::ARCH)),
    })
}

/// `v1.37.0+waypost.0.1.0`.
pub(crate) fn git_version() -> String {
    format!("v1.{MINOR}.0+waypost.{}", env!("CARGO_PKG_VERSION"))
}

/// The architecture as Go names it.
fn architecture(rust: &str) -> &str {
    match rust {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_is_a_string_and_the_version_parses() {
        let document = document();
        for key in [
            "major",
            "minor",
            "gitVersion",
            "gitCommit",
            "gitTreeState",
            "buildDate",
            "goVersion",
            "compiler",
            "platform",
        ] {
            assert!(document[key].is_string(), "{key}");
        }
        let version = git_version();
        let numbers = version.strip_prefix('v').and_then(|rest| rest.split('+').next()).expect("a version");
        assert_eq!(numbers.split('.').filter(|part| part.parse::<u32>().is_ok()).count(), 3);
    }

    #[test]
    fn architectures_have_their_go_names() {
        assert_eq!(architecture("x86_64"), "amd64");
        assert_eq!(architecture("riscv64"), "riscv64");
    }
}
