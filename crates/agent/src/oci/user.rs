//! Users of an image: `name`, `7`, `name:group` or `7:8`, looked up in its own `/etc/passwd` and `/etc/group`.

use std::path::Path;

use crate::images::resolve;

/// As whom a container runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) user: u32,
    pub(super) group: u32,
    pub(super) home: String,
}

pub(super) fn find(rootfs: &Path, text: &str) -> User {
    let read = |name: &str| {
        let folder = resolve(rootfs, Path::new("etc")).unwrap_or_else(|_| rootfs.join("etc"));
        // A link could lead out of the image.
        let path = folder.join(name);
        let plain = std::fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_file());
        if plain { std::fs::read_to_string(path).unwrap_or_default() } else { String::new() }
    };
    look(&read("passwd"), &read("group"), text)
}

fn look(passwd: &str, groups: &str, text: &str) -> User {
    let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
    let user = if user.is_empty() { "0" } else { user };
    let line = passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.first() == Some(&user) || (fields.get(2) == Some(&user) && user.parse::<u32>().is_ok()));
    let field = |place: usize| line.as_ref().and_then(|fields| fields.get(place).copied());
    let number = user.parse().ok().or_else(|| field(2)?.parse().ok()).unwrap_or(0);
    let named = |name: &str| {
        let of = |line: &str| {
            let fields: Vec<&str> = line.split(':').collect();
            (fields.first() == Some(&name)).then(|| fields.get(2)?.parse::<u32>().ok()).flatten()
        };
        name.parse().ok().or_else(|| groups.lines().find_map(of))
    };
    let group = match group {
        Some(group) => named(group).unwrap_or(0),
        None => field(3).and_then(|group| group.parse().ok()).unwrap_or(0),
    };
    User { user: number, group, home: field(5).unwrap_or(if number == 0 { "/root" } else { "/" }).to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_number() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nweb:x:33:34:web:/var/www:/bin/false\n";
        let found = |text: &str| look(passwd, "staff:x:50:\n", text);
        assert_eq!(found(""), User { user: 0, group: 0, home: "/root".to_owned() });
        assert_eq!(found("web"), User { user: 33, group: 34, home: "/var/www".to_owned() });
        assert_eq!(found("33:staff"), User { user: 33, group: 50, home: "/var/www".to_owned() });
        assert_eq!(found("1000"), User { user: 1000, group: 0, home: "/".to_owned() });
    }
}
