//! The user of the API server. Pure. In: the setting, and the user of the process. Out: a user, or why there is none.

use anyhow::bail;
use kernel::privileges::{Account, maps};

/// The user that packages create.
const NAME: &str = "waypost";
/// The default UID and GID without that user: in a range that neither distributions nor systemd assign.
const NUMBER: u32 = 60_643;

/// The user of the process.
pub(super) struct Starter<'a> {
    pub(super) is_root: bool,
    /// Whether it has the capabilities to change its user.
    pub(super) can_change_user: bool,
    /// `/etc/passwd`.
    pub(super) passwd: &'a str,
    /// The users and groups of its user namespace.
    pub(super) uids: &'a str,
    pub(super) gids: &'a str,
}

/// The result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The user of the process; with a warning where root should have another.
    Unchanged { warning: Option<String> },
    /// This user.
    As(Account),
}

pub(super) fn choose(said: Option<&str>, starter: &Starter<'_>) -> anyhow::Result<Choice> {
    let unchanged = Ok(Choice::Unchanged { warning: None });
    let account = match (said, starter.is_root) {
        (Some("root" | "0" | ""), _) | (None, false) => return unchanged,
        (Some(said), false) => bail!("only root can run the API server as {said}; start it as that user"),
        (Some(said), true) => named(said, starter.passwd)?,
        (None, true) => Account::find(starter.passwd, NAME).unwrap_or(Account::numbered(NUMBER, NUMBER)),
    };
    if account.uid == 0 {
        return unchanged;
    }
    let warning = match starter {
        Starter { can_change_user: false, .. } => {
            "the capabilities SETUID, SETGID, SETPCAP and CHOWN are missing that another user takes".to_owned()
        }
        Starter { uids, gids, .. } if !maps(uids, account.uid) || !maps(gids, account.gid) => {
            format!("the user namespace has no user {} or group {}", account.uid, account.gid)
        }
        _ => return Ok(Choice::As(account)),
    };
    match said {
        Some(said) => bail!("the API server cannot run as {said}: {warning}; --user root runs it as root"),
        None => Ok(Choice::Unchanged { warning: Some(warning) }),
    }
}

/// A name, a UID, or UID:GID.
fn named(said: &str, passwd: &str) -> anyhow::Result<Account> {
    if let Some(found) = Account::find(passwd, said) {
        return Ok(found);
    }
    let (uid, gid) = said.split_once(':').unwrap_or((said, said));
    match (uid.parse(), gid.parse()) {
        (Ok(uid), Ok(gid)) => Ok(Account::numbered(uid, gid)),
        _ => bail!("there is no user {said} in /etc/passwd; make one (useradd --system {said}), or give UID:GID"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "0 0 4294967295";
    const ROOT: Starter<'static> =
        Starter { is_root: true, can_change_user: true, passwd: "root:x:0:0:::\n", uids: WHOLE, gids: WHOLE };

    fn chosen(said: Option<&str>, starter: &Starter<'_>) -> Choice {
        choose(said, starter).expect("a user")
    }

    fn numbered(uid: u32, gid: u32) -> Choice {
        Choice::As(Account::numbered(uid, gid))
    }

    #[test]
    fn root_gets_the_user_of_the_package_or_a_number() {
        assert_eq!(chosen(None, &ROOT), numbered(60_643, 60_643));
        let installed = Starter { passwd: "waypost:x:998:997:::\n", ..ROOT };
        let waypost = Account { name: Some("waypost".to_owned()), uid: 998, gid: 997 };
        assert_eq!(chosen(None, &installed), Choice::As(waypost.clone()));
        assert_eq!(chosen(Some("waypost"), &installed), Choice::As(waypost));
        assert_eq!(chosen(Some("7"), &ROOT), numbered(7, 7));
        assert_eq!(chosen(Some("7:8"), &ROOT), numbered(7, 8));
        assert!(choose(Some("ada"), &ROOT).expect_err("nobody").to_string().contains("useradd --system ada"));
    }

    #[test]
    fn separation_can_be_switched_off_and_takes_root() {
        let off = Choice::Unchanged { warning: None };
        let ada = Starter { is_root: false, can_change_user: false, ..ROOT };
        for said in ["root", "0", ""] {
            assert_eq!(chosen(Some(said), &ROOT), off);
            assert_eq!(chosen(Some(said), &ada), off);
        }
        assert_eq!(chosen(None, &ada), off);
        assert!(choose(Some("7"), &ada).is_err());
    }

    #[test]
    fn ids_outside_of_the_user_namespace_are_reported() {
        let bare = Starter { can_change_user: false, ..ROOT };
        let small = Starter { uids: "0 1000 1", gids: "0 1000 1", ..ROOT };
        for starter in [bare, small] {
            let choice = chosen(None, &starter);
            assert!(matches!(&choice, Choice::Unchanged { warning: Some(_) }), "{choice:?}");
            assert!(choose(Some("7"), &starter).expect_err("not possible").to_string().contains("--user root"));
        }
    }
}
