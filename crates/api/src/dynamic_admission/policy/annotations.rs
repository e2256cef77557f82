//! What policies write into the audit log.

/// The audit annotation that lists failed validations.
const FAILURE_KEY: &str = "validation.policy.admission.k8s.io/validation_failure";
/// How many of them are listed.
const MAX_FAILURES: usize = 50;
/// Bytes of a value.
const MAX_VALUE: usize = 10 * 1024;

/// A failed validation whose binding has the action Audit.
pub(super) struct Failure {
    pub(super) message: String,
    pub(super) policy: String,
    pub(super) binding: String,
    /// The place of the validation.
    pub(super) index: usize,
    pub(super) actions: Vec<String>,
}

/// Values of the annotations of one policy, by key.
#[derive(Default)]
pub(super) struct Collected(Vec<(String, Vec<String>)>);

impl Collected {
    /// Adds a value that is not there yet.
    pub(super) fn add(&mut self, key: String, mut value: String) {
        value.truncate(value.floor_char_boundary(MAX_VALUE));
        match self.0.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) if values.contains(&value) => {}
            Some((_, values)) => values.push(value),
            None => self.0.push((key, vec![value])),
        }
    }

    /// Writes them under the name of the policy; several values become one.
    pub(super) fn publish(self, policy: &str, out: &mut Vec<(String, String)>) {
        out.extend(self.0.into_iter().map(|(key, values)| (format!("{policy}/{key}"), values.join(", "))));
    }
}

/// Writes the validations that failed as a JSON list, its members in the order of Kubernetes.
pub(super) fn publish_failures(failures: &[Failure], out: &mut Vec<(String, String)>) {
    if failures.is_empty() {
        return;
    }
    let one = |failure: &Failure| {
        let actions: Vec<String> = failure.actions.iter().map(|action| json_text(action)).collect();
        format!(
            "{{\"message\":{},\"policy\":{},\"binding\":{},\"expressionIndex\":{},\"validationActions\":[{}]}}",
            json_text(&failure.message),
            json_text(&failure.policy),
            json_text(&failure.binding),
            failure.index,
            actions.join(",")
        )
    };
    let all: Vec<String> = failures.iter().take(MAX_FAILURES).map(one).collect();
    out.push((FAILURE_KEY.to_owned(), format!("[{}]", all.join(","))));
}

/// A JSON string as Go writes it: characters that mean something in HTML are escaped.
fn json_text(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}
