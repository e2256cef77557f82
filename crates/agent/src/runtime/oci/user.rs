//! Resolves the user of an image (`name`, `7`, `name:group` or `7:8`) with its `/etc/passwd` and `/etc/group`.

use std::io;
use std::path::Path;

use crate::container_error::ContainerError;
use crate::files;

/// The largest passwd or group file, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// The user of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) user: u32,
    pub(super) group: u32,
    pub(super) home: String,
}

/// # Errors
/// When the image has no such user or group, or its tables cannot be read.
pub(super) fn find(rootfs: &Path, text: &str) -> Result<User, ContainerError> {
    let read = |path: &str| match files::read_in_root(rootfs, Path::new(path), MAX_BYTES) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(ContainerError::create(format!("reading /{path} of the image: {error}"))),
    };
    look(&read("etc/passwd")?, &read("etc/group")?, text)
}

fn look(passwd: &str, groups: &str, text: &str) -> Result<User, ContainerError> {
    let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
    let user = if user.is_empty() { "0" } else { user };
    let line = passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.first() == Some(&user) || (fields.get(2) == Some(&user) && user.parse::<u32>().is_ok()));
    let field = |place: usize| line.as_ref().and_then(|fields| fields.get(place).copied());
    let number = user.parse().ok().or_else(|| field(2)?.parse().ok());
    // An unknown name is an error: it must not fall back to root.
    let number = number.ok_or_else(|| unknown("user", user, "passwd"))?;
    let named = |name: &str| {
        let of = |line: &str| {
            let fields: Vec<&str> = line.split(':').collect();
            (fields.first() == Some(&name)).then(|| fields.get(2)?.parse::<u32>().ok()).flatten()
        };
        name.parse().ok().or_else(|| groups.lines().find_map(of))
    };
    let group = match group {
        Some(group) => named(group).ok_or_else(|| unknown("group", group, "group"))?,
        None => field(3).and_then(|group| group.parse().ok()).unwrap_or(0),
    };
    Ok(User { user: number, group, home: field(5).unwrap_or(if number == 0 { "/root" } else { "/" }).to_owned() })
}

fn unknown(what: &str, name: &str, table: &str) -> ContainerError {
    ContainerError::create(format!("unable to find {what} {name}: no matching entries in /etc/{table} of the image"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_number() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nweb:x:33:34:web:/var/www:/bin/false\n";
        let look = |text: &str| look(passwd, "staff:x:50:\n", text);
        let found = |text: &str| look(text).expect("found");
        assert_eq!(found(""), User { user: 0, group: 0, home: "/root".to_owned() });
        assert_eq!(found("web"), User { user: 33, group: 34, home: "/var/www".to_owned() });
        assert_eq!(found("33:staff"), User { user: 33, group: 50, home: "/var/www".to_owned() });
        assert_eq!(found("1000"), User { user: 1000, group: 0, home: "/".to_owned() });
    }

    #[test]
    fn an_unknown_user_is_an_error() {
        for text in ["nobody-here", "0:nobody-here", "nobody-here:0"] {
            let why = look("root:x:0:0:root:/root:/bin/sh\n", "root:x:0:\n", text).expect_err("refused");
            assert!(why.message.contains("unable to find"), "{text}: {why}");
        }
    }

    #[test]
    fn oversized_and_special_files_are_refused() {
        let home = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(home.path().join("etc")).expect("made");
        let passwd = home.path().join("etc/passwd");
        std::fs::File::create(&passwd).and_then(|file| file.set_len(8_000_000_000)).expect("made");
        assert!(find(home.path(), "web").expect_err("refused").message.contains("longer than"));
        std::fs::remove_file(&passwd).expect("removed");
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &passwd, kind, rustix::fs::Mode::RWXU, 0).expect("made");
        assert!(find(home.path(), "0").expect_err("refused").message.contains("not a regular file"));
    }
}
