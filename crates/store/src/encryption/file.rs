//! The file of an encryption configuration: its allowed locations and permissions.
//!
//! In: the paths of the file and of the data directory. Out: the configuration. Keys stored with encrypted data protect nothing, so
//! a file inside the data directory is refused, as is one that other users can read or change.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::{ConfigError, Encryption};

/// Permission bits that the file must not have: any for others, writing for the group.
const FORBIDDEN: u32 = 0o027;

/// Why the file is not used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The operating system refused.
    #[error("encryption configuration {}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Its error.
        error: io::Error,
    },
    /// It is a directory, a pipe or a device.
    #[error("encryption configuration {}: not a regular file", path.display())]
    NoFile {
        /// The file.
        path: PathBuf,
    },
    /// It is in the data directory.
    #[error(
        "encryption configuration {} is in the data directory {}, where copies of the data include the keys; move it out, \
         for example to /etc/waypost",
        path.display(), data_dir.display()
    )]
    InDataDirectory {
        /// The file.
        path: PathBuf,
        /// The data directory.
        data_dir: PathBuf,
    },
    /// Its permissions are too wide.
    #[error(
        "encryption configuration {} has mode {mode:04o}: other users can read or change the keys; run `chmod 600 {}`",
        path.display(), path.display()
    )]
    Permissions {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Its contents are not valid.
    #[error("encryption configuration {}: {why}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: ConfigError,
    },
}

/// Reads the configuration of the store in a data directory.
///
/// # Errors
///
/// When the file cannot be read, lies in the data directory, is readable by other users, or is not valid.
pub fn load(path: &Path, data_dir: &Path) -> Result<Encryption, LoadError> {
    let named = || path.to_owned();
    let failed = |error| LoadError::Io { path: named(), error };
    let found = fs::canonicalize(path).map_err(failed)?;
    if found.starts_with(resolved(data_dir).map_err(failed)?) {
        return Err(LoadError::InDataDirectory { path: named(), data_dir: data_dir.to_owned() });
    }
    let about = fs::metadata(&found).map_err(failed)?;
    if !about.is_file() {
        return Err(LoadError::NoFile { path: named() });
    }
    let mode = about.mode() & 0o7777;
    if mode & FORBIDDEN != 0 {
        return Err(LoadError::Permissions { path: named(), mode });
    }
    let text = Zeroizing::new(fs::read(&found).map_err(failed)?);
    Encryption::parse(&text).map_err(|why| LoadError::Invalid { path: named(), why })
}

/// The path without links, as far as it exists.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let whole = std::path::absolute(path)?;
            match (whole.parent(), whole.file_name()) {
                (Some(parent), Some(name)) => Ok(resolved(parent)?.join(name)),
                _ => Ok(whole),
            }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    const GOOD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n\
        - resources: [secrets]\n  providers:\n  - identity: {}\n";

    fn write(path: &Path, text: &str, mode: u32) {
        fs::write(path, text).expect("written");
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("changed");
    }

    #[test]
    fn only_files_that_others_cannot_read_or_change_are_used() {
        let dir = tempfile::tempdir().expect("a directory");
        let (file, data) = (dir.path().join("keys.yaml"), dir.path().join("data"));
        for (mode, good) in [
            (0o600, true),
            (0o400, true),
            (0o640, true),
            (0o644, false),
            (0o604, false),
            (0o660, false),
            (0o602, false),
        ] {
            write(&file, GOOD, mode);
            let loaded = load(&file, &data);
            assert_eq!(loaded.is_ok(), good, "{mode:o}: {loaded:?}");
            if let Err(error) = loaded {
                assert!(matches!(error, LoadError::Permissions { mode: found, .. } if found == mode), "{error}");
                assert!(error.to_string().contains("chmod 600"), "{error}");
            }
        }
    }

    #[test]
    fn a_file_in_the_data_directory_is_refused_whatever_leads_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path().join("data");
        fs::create_dir_all(data.join("sub")).expect("made");
        let inside = data.join("sub/keys.yaml");
        write(&inside, GOOD, 0o600);
        let link = dir.path().join("link.yaml");
        symlink(&inside, &link).expect("linked");
        let other = dir.path().join("other");
        symlink(&data, &other).expect("linked");
        for (file, data) in [(&inside, &data), (&link, &data), (&inside, &other), (&other.join("sub/keys.yaml"), &data)]
        {
            let error = load(file, data).expect_err("refused");
            assert!(matches!(error, LoadError::InDataDirectory { .. }), "{error}");
        }
        // A link inside that leads outside is not where the keys are.
        let outside = dir.path().join("data-keys.yaml");
        write(&outside, GOOD, 0o600);
        symlink(&outside, data.join("link.yaml")).expect("linked");
        assert!(load(&data.join("link.yaml"), &data).is_ok());
        assert!(load(&outside, &dir.path().join("not/there")).is_ok());
    }

    #[test]
    fn errors_name_the_file_or_key() {
        let dir = tempfile::tempdir().expect("a directory");
        let missing = dir.path().join("missing.yaml");
        let error = load(&missing, dir.path()).expect_err("refused").to_string();
        assert!(error.contains("missing.yaml") && error.contains("No such file"), "{error}");
        let folder = tempfile::tempdir().expect("a directory");
        let error = load(folder.path(), dir.path()).expect_err("refused");
        assert!(matches!(error, LoadError::NoFile { .. }), "{error}");
        let file = folder.path().join("keys.yaml");
        write(&file, "kind: Pod", 0o600);
        let error = load(&file, dir.path()).expect_err("refused");
        assert!(matches!(error, LoadError::Invalid { .. }) && error.to_string().contains("keys.yaml"), "{error}");
    }
}
