//! The log files of containers as a tree of directories, with the names of `/var/log/pods` of a kubelet.
//!
//! In: the Pods of this node and a path. Out: the names in a directory, or a file. Each part of a path must equal a listed name, so that no path
//! leads out of the tree; links are neither listed nor followed.

use std::path::Path;

use api::value::ValueExt as _;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;

use crate::data_dir::PodDir;
use crate::files;
use crate::workloads::LogFiles;

/// The directory of Pods.
const PODS: &str = "pods";

/// The logs of a Pod.
pub(super) struct PodLogs {
    /// `NAMESPACE_NAME_UID`
    name: String,
    dir: PodDir,
    containers: Vec<String>,
}

impl PodLogs {
    pub(super) fn of(pod: &Value, dir: PodDir) -> Self {
        let meta = pod.at("metadata");
        let containers = pod.items("spec.initContainers").iter().chain(pod.items("spec.containers"));
        Self {
            name: format!("{}_{}_{}", meta.text("namespace"), meta.text("name"), meta.text("uid")),
            dir,
            containers: containers.map(|container| container.text("name").to_owned()).collect(),
        }
    }
}

/// Finds a directory or file; reads from disk.
pub(super) fn find(pods: &[PodLogs], path: &[String]) -> Option<LogFiles> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let (first, pod, container, file) = match path[..] {
        [] => return Some(LogFiles::Directory(vec![format!("{PODS}/")])),
        [first] => (first, None, None, None),
        [first, pod] => (first, Some(pod), None, None),
        [first, pod, container] => (first, Some(pod), Some(container), None),
        [first, pod, container, file] => (first, Some(pod), Some(container), Some(file)),
        _ => return None,
    };
    if first != PODS {
        return None;
    }
    let Some(pod) = pod else { return Some(directories(pods.iter().map(|pod| &pod.name))) };
    let pod = pods.iter().find(|known| known.name == pod)?;
    let Some(container) = container else { return Some(directories(pod.containers.iter())) };
    let container = pod.containers.iter().find(|known| *known == container)?;
    let folder = pod.dir.container(container);
    let names = logs(&folder);
    let Some(file) = file else { return Some(LogFiles::Directory(names)) };
    let file = files::open_regular(&folder.join(names.iter().find(|known| *known == file)?)).ok()?;
    // A log may grow while it is sent.
    let length = file.metadata().ok()?.len();
    Some(LogFiles::File(Box::new(tokio::fs::File::from_std(file).take(length))))
}

fn directories<'a>(names: impl Iterator<Item = &'a String>) -> LogFiles {
    LogFiles::Directory(names.map(|name| format!("{name}/")).collect())
}

/// The names of the log files of a container.
fn logs(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let names = files.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| is_log(name)).collect();
    names.sort_unstable();
    names
}

/// `N.log`, or `N.log.M` of a rotated one.
fn is_log(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match name.split_once(".log") {
        Some((instance, "")) => is_number(instance),
        Some((instance, rotated)) => is_number(instance) && rotated.strip_prefix('.').is_some_and(is_number),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;
    use crate::data_dir::AgentDir;

    fn listed(pods: &[PodLogs], path: &[&str]) -> Option<Vec<String>> {
        let path: Vec<String> = path.iter().map(|part| (*part).to_owned()).collect();
        match find(pods, &path)? {
            LogFiles::Directory(names) => Some(names),
            LogFiles::File(_) => panic!("a file"),
        }
    }

    async fn read(pods: &[PodLogs], file: &str) -> Option<String> {
        let path = ["pods", "shop_web_u", "main", file].map(str::to_owned);
        let LogFiles::File(mut reader) = find(pods, &path)? else { panic!("a directory") };
        let mut out = String::new();
        reader.read_to_string(&mut out).await.expect("text");
        Some(out)
    }

    #[tokio::test]
    async fn only_logs_of_containers_are_listed_and_read() {
        let home = tempfile::tempdir().expect("a folder");
        let dir = AgentDir::new(home.path()).pod("u");
        let folder = dir.container("main");
        fs::create_dir_all(folder.join("0")).expect("made");
        for (name, content) in [("0.log", "new"), ("0.log.1", "old"), ("state.json", "{}"), ("x.log", "x")] {
            fs::write(folder.join(name), content).expect("written");
        }
        symlink("/etc/passwd", folder.join("1.log")).expect("linked");
        let pod = json!({
            "metadata": {"namespace": "shop", "name": "web", "uid": "u"},
            "spec": {"initContainers": [{"name": "init"}], "containers": [{"name": "main"}]},
        });
        let pods = [PodLogs::of(&pod, dir)];
        let names = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(listed(&pods, &[]), names(&["pods/"]));
        assert_eq!(listed(&pods, &["pods"]), names(&["shop_web_u/"]));
        assert_eq!(listed(&pods, &["pods", "shop_web_u"]), names(&["init/", "main/"]));
        assert_eq!(listed(&pods, &["pods", "shop_web_u", "init"]), names(&[]));
        assert_eq!(listed(&pods, &["pods", "shop_web_u", "main"]), names(&["0.log", "0.log.1"]));
        assert_eq!(read(&pods, "0.log").await.as_deref(), Some("new"));
        assert_eq!(read(&pods, "0.log.1").await.as_deref(), Some("old"));
        for file in ["1.log", "state.json", "0", "x.log", "..", "../main/0.log", "", "0.log/"] {
            assert_eq!(read(&pods, file).await, None, "{file}");
        }
        for path in [&["etc"][..], &[".."], &["pods", ".."], &["pods", "shop_web_u", ".."], &["pods", "shop_web_u", ""]]
        {
            assert_eq!(listed(&pods, path), None, "{path:?}");
        }
    }
}
