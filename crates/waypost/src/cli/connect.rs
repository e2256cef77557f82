//! Reaching the server as kubectl does: by which kubeconfig, as whom, in which namespace.
//!
//! In: flags, and the [`Kubeconfig`] that they lead to. Out: a [`Client`].

use std::sync::Arc;

use api::value::ValueExt as _;
use clap::Args;
use serde_json::{Value, json};

use super::client::Client;
use crate::kubeconfig::{Found, Kubeconfig};

/// How to reach the API.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Reaching the API")]
pub(super) struct Connection {
    /// The namespace [default: that of the context, else default]
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    kubeconfig: Kubeconfig,
    /// Act as this user
    #[arg(long = "as", value_name = "USER")]
    as_user: Option<String>,
    /// Act as a member of this group; may be repeated
    #[arg(long, value_name = "GROUP", requires = "as_user")]
    as_group: Vec<String>,
}

impl Connection {
    /// Reads the kubeconfig. Nothing is asked yet.
    pub(super) fn client(&self) -> anyhow::Result<Client> {
        let mut found = self.kubeconfig.find()?;
        if let Some(user) = &self.as_user {
            act_as(&mut found.config, &found.name, &found.context, user, &self.as_group);
        }
        let access = found.access()?;
        let Found { origin, context, .. } = found;
        let own = Some(context.text("namespace")).filter(|name| !name.is_empty());
        let namespace = self.namespace.as_deref().or(own).unwrap_or("default").to_owned();
        Ok(Client::new(Arc::new(access), origin, namespace, self.namespace.is_some()))
    }
}

/// Adds to the user of a context whom to be.
fn act_as(config: &mut Value, name: &str, context: &Value, user: &str, groups: &[String]) {
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
    fn somebody_else_can_be_acted_as_with_and_without_a_user() {
        for user in ["u", ""] {
            let mut config = json!({"contexts": [{"name": "c", "context": {"cluster": "k", "user": user}}],
                                    "users": [{"name": "u", "user": {"token": "t"}}]});
            let context = json!({"cluster": "k", "user": user});
            act_as(&mut config, "c", &context, "jane", &["devs".to_owned()]);
            let who = named(&config, "contexts", "c", "context").text("user").to_owned();
            let acting = named(&config, "users", &who, "user");
            assert_eq!((acting.text("as"), acting.texts("as-groups")), ("jane", vec!["devs"]));
        }
    }
}
