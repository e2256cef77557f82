//! Modules of `agent` and `control` import each other without cycles: text analysis of `crate::` and `super::` paths.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{files, read, root};

/// The crates that are checked.
const CRATES: [&str; 2] = ["agent", "control"];
/// Modules that only tests use.
const TEST_MODULES: [&str; 2] = ["testing", "property"];

/// The top-level modules that each top-level module imports.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// The names at the start of a path or of each path in a braced group: `a::b` is `a`, `{a, b::{c, d}}` is `a` and `b`.
fn first_names(path: &str) -> Vec<&str> {
    let name = |text: &'_ str| -> usize { text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len()) };
    let Some(group) = path.strip_prefix('{') else { return vec![&path[..name(path)]] };
    let (mut out, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                let item = group[start..at].trim();
                out.push(&item[..name(item)]);
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    out
}

/// The code of a file without comments and without its inline test module.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// Adds the imports of one file. `path` is relative to the `src` directory.
fn add_imports(graph: &mut Graph, modules: &BTreeSet<String>, path: &Path, text: &str) {
    let parts: Vec<String> =
        path.iter().map(|part| part.to_string_lossy().trim_end_matches(".rs").to_owned()).collect();
    let Some(own) = parts.first().filter(|own| modules.contains(*own)) else { return };
    if parts.iter().any(|part| part == "tests") || TEST_MODULES.contains(&own.as_str()) {
        return;
    }
    let code = code(text);
    // In a file directly below `src`, `super` is the crate.
    let prefixes = if parts.len() == 1 { &["crate::", "super::"][..] } else { &["crate::"][..] };
    for prefix in prefixes {
        for (at, _) in code.match_indices(prefix) {
            let is_word = code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$');
            let names = first_names(&code[at + prefix.len()..]);
            let used = names.into_iter().filter(|name| !is_word && modules.contains(*name) && name != own);
            graph.entry(own.clone()).or_default().extend(used.map(str::to_owned));
        }
    }
}

/// A cycle as the path through its modules, if there is one.
fn cycle(graph: &Graph) -> Option<Vec<String>> {
    fn visit<'a>(graph: &'a Graph, module: &'a str, path: &mut Vec<&'a str>, done: &mut BTreeSet<&'a str>) -> bool {
        let is_on_path = path.contains(&module);
        path.push(module);
        if is_on_path {
            return true;
        }
        if !done.contains(module) {
            for next in graph.get(module).into_iter().flatten() {
                if visit(graph, next, path, done) {
                    return true;
                }
            }
            done.insert(module);
        }
        path.pop();
        false
    }
    let mut done = BTreeSet::new();
    for module in graph.keys() {
        let mut path = Vec::new();
        if visit(graph, module, &mut path, &mut done) {
            let last = path.last().copied().unwrap_or_default();
            let start = path.iter().position(|one| *one == last).unwrap_or_default();
            return Some(path[start..].iter().map(|one| (*one).to_owned()).collect());
        }
    }
    None
}

fn modules(lib: &str) -> BTreeSet<String> {
    let declared =
        lib.lines().filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'));
    declared.map(str::to_owned).collect()
}

#[test]
fn modules_of_agent_and_control_have_no_import_cycles() {
    for name in CRATES {
        let source = root().join("crates").join(name).join("src");
        let modules = modules(&read(&source.join("lib.rs")));
        assert!(modules.len() > 20, "{name}: lib.rs declares {modules:?}");
        let mut graph = Graph::new();
        for file in files(&source, ".rs") {
            let relative = file.strip_prefix(&source).expect("a file of the crate").to_owned();
            add_imports(&mut graph, &modules, &relative, &read(&file));
        }
        assert!(graph.values().map(BTreeSet::len).sum::<usize>() > 50, "{name}: imports were not found: {graph:?}");
        if let Some(path) = cycle(&graph) {
            panic!("crates/{name}: import cycle {}: move what they share to a lower module", path.join(" -> "));
        }
    }
}

#[test]
fn import_cycles_are_found_with_their_path() {
    let modules = modules("pub mod a;\nmod b;\npub mod c;\n#[cfg(test)]\nmod testing;\n");
    let mut graph = Graph::new();
    let mut add = |path: &str, text: &str| add_imports(&mut graph, &modules, Path::new(path), text);
    add(
        "a.rs",
        "use crate::{b::{self, X}, d};\n// crate::c\nfn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::c;\n}\n",
    );
    add("b/inner.rs", "fn f() { crate::c::g(); super::a::h(); mycrate::a::i(); }");
    add("c/tests.rs", "use crate::a;");
    add("testing.rs", "use crate::a;");
    let edges: Vec<(&str, Vec<&str>)> =
        graph.iter().map(|(from, to)| (from.as_str(), to.iter().map(String::as_str).collect())).collect();
    assert_eq!(edges, [("a", vec!["b"]), ("b", vec!["c"])]);
    assert_eq!(cycle(&graph), None);
    add_imports(&mut graph, &modules, Path::new("c.rs"), "use super::a;");
    assert_eq!(cycle(&graph).expect("a cycle"), ["a", "b", "c", "a"]);
}
