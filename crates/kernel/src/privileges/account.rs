//! Users of this machine, by name or ID.
//!
//! In: the text of `/etc/passwd` and of user namespace maps. Out: IDs. Users of directory services must be given by ID:
//! a lookup needs the network, which may be down at start.

use std::fmt;

use rustix::process::{Gid, Uid};

/// A user that a process can become.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Account {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// User ID.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
}

impl Account {
    /// One without a name.
    #[must_use]
    pub const fn numbered(uid: u32, gid: u32) -> Self {
        Self { name: None, uid, gid }
    }

    /// The first user in `/etc/passwd` with this name or ID.
    #[must_use]
    pub fn find(passwd: &str, wanted: &str) -> Option<Self> {
        passwd.lines().find_map(|line| {
            let mut fields = line.split(':');
            let (name, _, uid, gid) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
            let found = name == wanted || uid == wanted;
            let account = Self { name: Some(name.to_owned()), uid: uid.parse().ok()?, gid: gid.parse().ok()? };
            found.then_some(account)
        })
    }

    pub(super) fn uid(&self) -> Uid {
        Uid::from_raw(self.uid)
    }

    pub(super) fn gid(&self) -> Gid {
        Gid::from_raw(self.gid)
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} (uid {})", self.uid),
            None => write!(f, "uid {}", self.uid),
        }
    }
}

/// Whether a user namespace map (`/proc/self/uid_map`, `gid_map`) contains this ID.
#[must_use]
pub fn maps(map: &str, number: u32) -> bool {
    map.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace().map(|field| field.parse::<u64>().ok());
        let (Some(Some(first)), Some(_), Some(Some(count))) = (fields.next(), fields.next(), fields.next()) else {
            return false;
        };
        (first..first + count).contains(&u64::from(number))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/bash\nbroken\nwaypost:x:998:997::/var/lib/waypost:/usr/sbin/nologin\n";

    #[test]
    fn users_are_found_by_name_and_number() {
        let waypost = Account { name: Some("waypost".to_owned()), uid: 998, gid: 997 };
        assert_eq!(Account::find(PASSWD, "waypost"), Some(waypost.clone()));
        assert_eq!(Account::find(PASSWD, "998"), Some(waypost.clone()));
        assert_eq!(Account::find(PASSWD, "997"), None);
        assert_eq!(Account::find(PASSWD, "broken"), None);
        assert_eq!(waypost.to_string(), "waypost (uid 998)");
        assert_eq!(Account::numbered(5, 6).to_string(), "uid 5");
    }

    #[test]
    fn a_namespace_has_the_users_that_its_map_lists() {
        assert!(maps("         0          0 4294967295\n", 60_643));
        let rootless = "0 1000 1\n1 100000 65536\n";
        assert!(maps(rootless, 0) && maps(rootless, 65_536) && !maps(rootless, 65_537));
        assert!(!maps("0 1000 1\n", 60_643) && !maps("", 0));
    }
}
