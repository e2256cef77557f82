//! The page's built files belong to its sources: the build records a digest of them, which is computed here without Node.
//!
//! `scripts/test page` proves more, where Node is available: that a fresh build gives the same files.

use std::fs;

use ring::digest::{Context, SHA256};

use super::{files, read, root};

/// What the built files depend on; `page/vite.config.ts` has the same list.
const SOURCES: [&str; 7] =
    ["index.html", "package.json", "package-lock.json", "public", "src", "tsconfig.json", "vite.config.ts"];

#[test]
fn the_built_page_belongs_to_its_sources() {
    let page = root().join("page");
    let mut sources: Vec<String> = SOURCES
        .iter()
        .flat_map(|name| if page.join(name).is_dir() { files(&page.join(name), "") } else { vec![page.join(name)] })
        .map(|path| path.strip_prefix(&page).expect("below the page").to_string_lossy().into_owned())
        .collect();
    sources.sort();
    let mut digest = Context::new(&SHA256);
    for name in sources {
        let bytes = fs::read(page.join(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        digest.update(format!("{name} {}\n", bytes.len()).as_bytes());
        digest.update(&bytes);
    }
    let digest: String = digest.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let recorded = read(&root().join("crates/rest/page/sources.in"));
    assert_eq!(recorded.trim(), digest, "page/ changed since it was built; run `npm run build` there and commit both");
}
