//! The connection of a verb, as in kubectl: kubeconfig, impersonation, namespace.
//!
//! In: flags, and the [`KubeconfigFlags`] that they select. Out: a [`Client`].

use std::sync::Arc;

use api::value::ValueExt as _;
use clap::Args;
use serde_json::{Value, json};

use super::client::Client;
use crate::kubeconfig::{Kubeconfig, KubeconfigFlags};

/// Flags of the connection.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Reaching the API")]
pub(super) struct Connection {
    /// The namespace [default: that of the context, else default]
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    kubeconfig: KubeconfigFlags,
    /// Act as this user
    #[arg(long = "as", value_name = "USER")]
    as_user: Option<String>,
    /// Act as a member of this group; may be repeated
    #[arg(long, value_name = "GROUP", requires = "as_user")]
    as_group: Vec<String>,
}

impl Connection {
    /// The namespace of `-n`.
    pub(super) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Reads the kubeconfig; sends no request.
    pub(super) fn client(&self) -> anyhow::Result<Client> {
        let mut found = self.kubeconfig.find()?;
        if let Some(user) = &self.as_user {
            impersonate(&mut found.config, &found.name, &found.context, user, &self.as_group);
        }
        let access = found.access()?;
        let Kubeconfig { origin, context, .. } = found;
        let own = Some(context.text("namespace")).filter(|name| !name.is_empty());
        let namespace = self.namespace.as_deref().or(own).unwrap_or("default").to_owned();
        Ok(Client::new(Arc::new(access), origin, namespace, self.namespace.is_some()))
    }
}

/// Adds impersonation to the user of a context.
fn impersonate(config: &mut Value, name: &str, context: &Value, user: &str, groups: &[String]) {
    let who = context.text("user").to_owned();
    if who.is_empty() {
        // A context without a user gets one.
        let named = format!("{name}/as");
        let mut users = config.items("users").to_vec();
        users.push(json!({"name": named, "user": {"as": user, "as-groups": groups}}));
        config.put("users", users);
        for item in config.items_mut("contexts").iter_mut().filter(|item| item.text("name") == name) {
            item.put("context.user", named.as_str());
        }
        return;
    }
    for item in config.items_mut("users").iter_mut().filter(|item| item.text("name") == who) {
        item.put("user.as", user);
        item.put("user.as-groups", groups);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named<'a>(config: &'a Value, list: &str, name: &str, part: &str) -> &'a Value {
        let found = config.items(list).iter().find(|item| item.text("name") == name);
        found.expect("it is there").at(part)
    }

    #[test]
    fn impersonation_works_with_and_without_a_user_in_the_context() {
        for user in ["u", ""] {
            let mut config = json!({"contexts": [{"name": "c", "context": {"cluster": "k", "user": user}}],
                                    "users": [{"name": "u", "user": {"token": "t"}}]});
            let context = json!({"cluster": "k", "user": user});
            impersonate(&mut config, "c", &context, "jane", &["devs".to_owned()]);
            let who = named(&config, "contexts", "c", "context").text("user").to_owned();
            let acting = named(&config, "users", &who, "user");
            assert_eq!((acting.text("as"), acting.texts("as-groups")), ("jane", vec!["devs"]));
        }
    }
}
