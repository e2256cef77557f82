//! Files of ConfigMaps, Secrets, the downward API and tokens, and their atomic replacement.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use api::value::ValueExt as _;
use serde_json::Value;

use crate::downward;
use crate::environment::{ConfigError, Given, Kind, bytes_of, keys};
use crate::quantities;

/// Files by path in the volume: content and mode.
pub type Payload = BTreeMap<String, (Vec<u8>, u32)>;

/// The default mode of files.
const MODE: u32 = 0o644;
/// The link to the current files.
const DATA: &str = "..data";

/// A `serviceAccountToken` source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenWish {
    /// The audience.
    pub audience: String,
    /// `expirationSeconds`
    pub seconds: i64,
}

/// The ConfigMaps and Secrets of a volume.
pub(super) fn references(volume: &Value) -> Vec<(Kind, String)> {
    let mut out = Vec::new();
    if volume.has("configMap") {
        out.push((Kind::ConfigMap, volume.text("configMap.name").to_owned()));
    }
    if volume.has("secret") {
        out.push((Kind::Secret, volume.text("secret.secretName").to_owned()));
    }
    for part in volume.items("projected.sources") {
        for (field, kind) in [("configMap", Kind::ConfigMap), ("secret", Kind::Secret)] {
            if part.has(field) {
                out.push((kind, part.at(field).text("name").to_owned()));
            }
        }
    }
    out
}

/// The tokens of a volume.
#[must_use]
pub fn tokens(volume: &Value) -> Vec<TokenWish> {
    let parts = volume.items("projected.sources").iter().filter(|part| part.has("serviceAccountToken"));
    parts.map(|part| wish(part.at("serviceAccountToken"))).collect()
}

fn wish(part: &Value) -> TokenWish {
    let seconds = part.at("expirationSeconds").as_i64().unwrap_or(3600);
    TokenWish { audience: part.text("audience").to_owned(), seconds }
}

/// The files of a volume; `None` for other volume types. `token` returns the requested tokens.
pub fn payload(
    volume: &Value,
    given: &Given<'_>,
    token: &dyn Fn(&TokenWish) -> Option<String>,
) -> Option<Result<Payload, ConfigError>> {
    let mut out = Payload::new();
    let whole = if volume.has("configMap") {
        let part = volume.at("configMap");
        from_object(part, Kind::ConfigMap, part.text("name"), mode(part, MODE), given, &mut out)
    } else if volume.has("secret") {
        let part = volume.at("secret");
        from_object(part, Kind::Secret, part.text("secretName"), mode(part, MODE), given, &mut out)
    } else if volume.has("downwardAPI") {
        let part = volume.at("downwardAPI");
        from_pod(part, mode(part, MODE), given, &mut out)
    } else if volume.has("projected") {
        projected(volume.at("projected"), given, token, &mut out)
    } else {
        return None;
    };
    Some(whole.map(|()| out))
}

fn mode(part: &Value, otherwise: u32) -> u32 {
    part.at("defaultMode").as_u64().and_then(|mode| u32::try_from(mode).ok()).unwrap_or(otherwise)
}

fn projected(
    volume: &Value,
    given: &Given<'_>,
    token: &dyn Fn(&TokenWish) -> Option<String>,
    out: &mut Payload,
) -> Result<(), ConfigError> {
    let default = mode(volume, MODE);
    for part in volume.items("sources") {
        for (field, kind) in [("configMap", Kind::ConfigMap), ("secret", Kind::Secret)] {
            if part.has(field) {
                let part = part.at(field);
                from_object(part, kind, part.text("name"), default, given, out)?;
            }
        }
        if part.has("downwardAPI") {
            from_pod(part.at("downwardAPI"), default, given, out)?;
        }
        if part.has("serviceAccountToken") {
            let text = token(&wish(part.at("serviceAccountToken")));
            let text = text.ok_or_else(|| ConfigError::NoField("serviceAccountToken".to_owned()))?;
            out.insert(part.text("serviceAccountToken.path").to_owned(), (text.into_bytes(), 0o600));
        }
    }
    Ok(())
}

fn from_object(
    part: &Value,
    kind: Kind,
    name: &str,
    default: u32,
    given: &Given<'_>,
    out: &mut Payload,
) -> Result<(), ConfigError> {
    let Some(object) = given.objects.get(&(kind, name.to_owned())).and_then(Option::as_ref) else {
        let missing = ConfigError::NoObject { kind, name: name.to_owned() };
        return if part.flag("optional") { Ok(()) } else { Err(missing) };
    };
    if part.items("items").is_empty() {
        for key in keys(object) {
            let bytes = bytes_of(kind, object, &key).unwrap_or_default();
            out.insert(key, (bytes, default));
        }
    }
    for item in part.items("items") {
        let key = item.text("key");
        let mode = item.at("mode").as_u64().and_then(|mode| u32::try_from(mode).ok()).unwrap_or(default);
        match bytes_of(kind, object, key) {
            Some(bytes) => drop(out.insert(item.text("path").to_owned(), (bytes, mode))),
            None if part.flag("optional") => {}
            None => {
                let (name, key) = (name.to_owned(), key.to_owned());
                return Err(ConfigError::NoKey { kind, name, key });
            }
        }
    }
    Ok(())
}

fn from_pod(part: &Value, default: u32, given: &Given<'_>, out: &mut Payload) -> Result<(), ConfigError> {
    for item in part.items("items") {
        let mode = item.at("mode").as_u64().and_then(|mode| u32::try_from(mode).ok()).unwrap_or(default);
        let text = if item.has("fieldRef") {
            given.pod.and_then(|pod| downward::field(pod, &given.known, item.text("fieldRef.fieldPath")))
        } else {
            let wanted = item.text("resourceFieldRef.containerName");
            let all = given.pod.map(|pod| pod.items("spec.containers")).unwrap_or_default();
            let container = all.iter().find(|container| container.text("name") == wanted);
            let (resource, divisor) = (item.text("resourceFieldRef.resource"), item.text("resourceFieldRef.divisor"));
            container.and_then(|container| quantities::field(container, resource, divisor, given.capacity))
        };
        let path = item.text("path").to_owned();
        let text = text.ok_or_else(|| ConfigError::NoField(format!("the source of {path}")))?;
        out.insert(path, (text.into_bytes(), mode));
    }
    Ok(())
}

/// Replaces the files of a directory atomically: readers see all old or all new files.
///
/// # Errors
/// When they cannot be written, or a path leaves the directory.
pub fn write(folder: &Path, payload: &Payload, group: Option<u32>) -> io::Result<()> {
    // Follow and delete only directories with names that this function assigns.
    let ours = |link: &PathBuf| link.to_str().and_then(|name| name.strip_prefix("..")?.parse::<u32>().ok()).is_some();
    let current = fs::read_link(folder.join(DATA)).ok().filter(ours);
    if current.as_ref().is_some_and(|current| same(&folder.join(current), payload)) {
        return Ok(());
    }
    let name = (0u32..).map(|number| format!("..{number}")).find(|name| !folder.join(name).exists());
    let name = name.ok_or_else(|| io::Error::other("no name for new files"))?;
    let fresh = folder.join(&name);
    fs::create_dir(&fresh)?;
    for (path, (bytes, mode)) in payload {
        let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        if path.is_empty() || !Path::new(path).components().all(plain) {
            return Err(io::Error::other(format!("the path {path:?} leads out of the volume")));
        }
        let file = fresh.join(path);
        if let Some(above) = file.parent() {
            fs::create_dir_all(above)?;
        }
        fs::write(&file, bytes)?;
        let mode = if group.is_some() { mode | 0o440 } else { *mode };
        fs::set_permissions(&file, fs::Permissions::from_mode(mode))?;
        if let Some(group) = group {
            std::os::unix::fs::chown(&file, None, Some(group))?;
        }
    }
    let link = folder.join("..data_tmp");
    let _ = fs::remove_file(&link);
    symlink(&name, &link)?;
    fs::rename(&link, folder.join(DATA))?;
    links(folder, payload)?;
    match current {
        Some(old) => fs::remove_dir_all(folder.join(old)),
        None => Ok(()),
    }
}

/// Creates a link for the first component of each path, and removes all others.
fn links(folder: &Path, payload: &Payload) -> io::Result<()> {
    let first = |path: &String| path.split('/').next().unwrap_or_default().to_owned();
    let tops: std::collections::BTreeSet<String> = payload.keys().map(first).collect();
    for top in &tops {
        let link = folder.join(top);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new(DATA).join(top), &link)?;
        }
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("..") && !tops.contains(&name) && entry.file_type()?.is_symlink() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Whether a directory contains exactly these files.
fn same(folder: &Path, payload: &Payload) -> bool {
    let equal =
        |(path, (bytes, _)): (&String, &(Vec<u8>, u32))| fs::read(folder.join(path)).is_ok_and(|found| found == *bytes);
    count(folder) == payload.len() && payload.iter().all(equal)
}

fn count(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| if entry.path().is_dir() { count(&entry.path()) } else { 1 }).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(all: &[(&str, &str)]) -> Payload {
        all.iter().map(|(path, text)| ((*path).to_owned(), (text.as_bytes().to_vec(), 0o644))).collect()
    }

    #[test]
    fn files_are_replaced_atomically() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path();
        write(folder, &files(&[("a", "1"), ("sub/b", "2")]), None).expect("written");
        let read = |path: &str| fs::read_to_string(folder.join(path)).ok();
        assert_eq!((read("a").as_deref(), read("sub/b").as_deref()), (Some("1"), Some("2")));
        let first = fs::read_link(folder.join(DATA)).expect("a link");
        write(folder, &files(&[("a", "1"), ("sub/b", "2")]), None).expect("nothing to do");
        assert_eq!(fs::read_link(folder.join(DATA)).expect("a link"), first);
        write(folder, &files(&[("a", "3"), ("c", "4")]), None).expect("written");
        assert_eq!((read("a").as_deref(), read("c").as_deref(), read("sub/b")), (Some("3"), Some("4"), None));
        assert!(!folder.join("sub").exists() && !folder.join(first).exists());
    }

    #[test]
    fn a_replaced_data_link_is_not_followed() {
        let (dir, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        fs::write(other.path().join("precious"), "x").expect("written");
        write(dir.path(), &files(&[("a", "1")]), None).expect("written");
        let up = Path::new("..").join(other.path().file_name().expect("a name"));
        for trap in [other.path(), up.as_path()] {
            fs::remove_file(dir.path().join(DATA)).expect("removed");
            symlink(trap, dir.path().join(DATA)).expect("linked");
            write(dir.path(), &files(&[("a", "2")]), None).expect("written");
            assert!(other.path().join("precious").exists(), "{} was deleted", trap.display());
            assert_eq!(fs::read_to_string(dir.path().join("a")).expect("read"), "2");
        }
    }

    #[test]
    fn paths_that_leave_the_volume_are_errors() {
        let dir = tempfile::tempdir().expect("a folder");
        for path in ["../x", "/x", "a/../../x", ""] {
            assert!(write(dir.path(), &files(&[(path, "1")]), None).is_err(), "{path}");
        }
    }
}
