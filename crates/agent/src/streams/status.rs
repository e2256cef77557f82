//! How a command ended, in the words that clients expect on the error stream.
//!
//! From the fourth version of the protocol on it is a metav1.Status, in which the exit code is a cause; before that it was a sentence,
//! and nothing at all when all went well.

use serde_json::{Value, json};

use crate::workloads::{Exit, Refusal};

/// In which form clients are told how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// A sentence when something went wrong.
    Text,
    /// A metav1.Status.
    Status,
}

impl Report {
    /// What is written to the error stream.
    #[must_use]
    pub fn of(self, outcome: &Outcome) -> Vec<u8> {
        match self {
            Self::Status => outcome.status().to_string().into_bytes(),
            Self::Text => outcome.status()["message"].as_str().unwrap_or_default().as_bytes().to_vec(),
        }
    }
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Well.
    Success,
    /// A command ended with another code than 0.
    Code {
        /// The command.
        command: Vec<String>,
        /// The code.
        code: i32,
    },
    /// It did not get that far.
    Failed(String),
}

impl Outcome {
    /// How a command ended.
    #[must_use]
    pub fn of_exec(command: &[String], exit: Exit) -> Self {
        match exit {
            Exit::Code(0) => Self::Success,
            Exit::Code(code) => Self::Code { command: command.to_vec(), code },
            Exit::Failed(why) => Self::Failed(format!("error executing command in container: {why}")),
        }
    }

    /// How the process of a container ended, for those who were attached to it: its code is the business of its Pod.
    #[must_use]
    pub fn of_attach(exit: Exit) -> Self {
        match exit {
            Exit::Code(_) => Self::Success,
            Exit::Failed(why) => Self::Failed(format!("error attaching to container: {why}")),
        }
    }

    /// A command that could not be started.
    #[must_use]
    pub fn not_started(refusal: &Refusal) -> Self {
        Self::Failed(format!("error executing command in container: {refusal}"))
    }

    fn status(&self) -> Value {
        match self {
            Self::Success => json!({"metadata": {}, "status": "Success"}),
            Self::Code { command, code } => {
                let words = command.join(" ");
                let detail = format!("error executing command [{words}], exit code {code}");
                json!({
                    "metadata": {},
                    "status": "Failure",
                    "message": format!("command terminated with non-zero exit code: {detail}"),
                    "reason": "NonZeroExitCode",
                    "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
                })
            }
            Self::Failed(why) => json!({
                "metadata": {},
                "status": "Failure",
                "message": format!("Internal error occurred: {why}"),
                "reason": "InternalError",
                "details": {"causes": [{"message": why}]},
                "code": 500,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_causes() {
        let outcome = Outcome::of_exec(&["sh".into(), "-c".into(), "exit 3".into()], Exit::Code(3));
        let status: Value = serde_json::from_slice(&Report::Status.of(&outcome)).expect("JSON");
        assert_eq!(status["reason"], "NonZeroExitCode");
        assert_eq!(status["details"]["causes"], json!([{"reason": "ExitCode", "message": "3"}]));
        let text = Report::Text.of(&outcome);
        let wanted = "command terminated with non-zero exit code: error executing command [sh -c exit 3], exit code 3";
        assert_eq!(String::from_utf8_lossy(&text), wanted);
    }

    #[test]
    fn success_is_nothing_in_the_old_form() {
        assert_eq!(Report::Text.of(&Outcome::Success), b"");
        assert_eq!(Report::Status.of(&Outcome::of_attach(Exit::Code(7))), br#"{"metadata":{},"status":"Success"}"#);
    }
}
