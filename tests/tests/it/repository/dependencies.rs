//! The policy of `deny.toml`, enforced without a network: licences, banned crates and sources of every dependency.
//!
//! In: `deny.toml`, the lock files and `cargo metadata`. Advisories need a database that is not on crates.io: `scripts/test peers` runs
//! `cargo deny` for them.

use super::{metadata, read, root};

/// The quoted strings of a list in `deny.toml`; of tables in it those of the key `crate`.
fn policy(section: &str, key: &str) -> Vec<String> {
    let text = read(&root().join("deny.toml"));
    let section = text.split_once(&format!("\n[{section}]\n")).expect("the section").1;
    let section = section.split("\n[").next().expect("a first part");
    let list = section
        .split_once(&format!("\n{key} = ["))
        .or_else(|| section.split_once(&format!("{key} = [")))
        .expect("the key")
        .1;
    let list = list.split("\n]").next().expect("a first part");
    let list = if list.contains("crate = ") { list } else { list.split(']').next().expect("a first part") };
    let lines = list.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    lines
        .flat_map(|line| match line.split_once("crate = ") {
            Some((_, rest)) => rest.split('"').nth(1).into_iter().map(str::to_owned).collect::<Vec<_>>(),
            None => line.split('"').skip(1).step_by(2).map(str::to_owned).collect(),
        })
        .collect()
}

/// Name and source of every package of a lock file; packages of this repository have no source.
fn locked(file: &str) -> Vec<(String, Option<String>)> {
    let text = read(&root().join(file));
    let field = |package: &str, key: &str| {
        let line = package.lines().find_map(|line| line.strip_prefix(&format!("{key} = \"")))?;
        Some(line.trim_end_matches('"').to_owned())
    };
    let packages = text.split("[[package]]").skip(1);
    packages.map(|package| (field(package, "name").expect("a name"), field(package, "source"))).collect()
}

#[test]
fn licences_of_dependencies_are_allowed() {
    let allowed = policy("licenses", "allow");
    assert!(allowed.iter().any(|name| name == "Apache-2.0"), "{allowed:?}");
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    assert!(packages.len() > 50, "the list of packages is not complete");
    for package in packages {
        let licence = package["license"].as_str().unwrap_or_default();
        assert!(
            is_allowed(licence, &allowed),
            "{} is under `{licence}`, which deny.toml does not allow",
            package["name"]
        );
    }
}

/// Whether a licence expression can be met: any side of an `OR`, all sides of an `AND`.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let plain = expression.replace(['(', ')'], " ").replace('/', " OR ");
    plain.split(" OR ").any(|side| {
        side.split(" AND ").all(|name| {
            let name = name.trim().split(" WITH ").next().unwrap_or_default().trim();
            allowed.iter().any(|one| one == name)
        })
    })
}

#[test]
fn dependencies_come_from_allowed_sources_and_none_is_banned() {
    let registries = policy("sources", "allow-registry");
    let banned = policy("bans", "deny");
    assert_eq!(registries.len(), 1, "{registries:?}");
    assert!(banned.iter().any(|name| name == "openssl"), "{banned:?}");
    assert_eq!(policy("sources", "allow-git"), Vec::<String>::new());
    for file in ["Cargo.lock", "fuzz/Cargo.lock"] {
        let packages = locked(file);
        assert!(packages.len() > 50, "{file}: the list of packages is not complete");
        for (name, source) in packages {
            let source = source.map(|source| source.trim_start_matches("registry+").to_owned());
            let is_allowed = source.as_ref().is_none_or(|source| registries.contains(source));
            assert!(is_allowed, "{file}: {name} comes from {source:?}, which deny.toml does not allow");
            assert!(!banned.contains(&name), "{file}: {name} is banned by deny.toml, which says why");
        }
    }
}
