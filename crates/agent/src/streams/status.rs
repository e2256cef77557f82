//! The exit status of a command on the error stream.
//!
//! From protocol version 4 on it is a metav1.Status with the exit code as a cause; before that a text, empty on success.

use serde_json::{Value, json};

use crate::workloads::{Exit, Refusal};

/// The format of the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// Text, empty on success.
    Text,
    /// A metav1.Status.
    Status,
}

impl Report {
    /// The bytes for the error stream.
    #[must_use]
    pub fn of(self, outcome: &Outcome) -> Vec<u8> {
        match self {
            Self::Status => outcome.status().to_string().into_bytes(),
            Self::Text => outcome.status()["message"].as_str().unwrap_or_default().as_bytes().to_vec(),
        }
    }
}

/// The outcome of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Success.
    Success,
    /// A command exited with a code other than 0.
    Code {
        /// The command.
        command: Vec<String>,
        /// The code.
        code: i32,
    },
    /// The session failed.
    Failed(String),
}

impl Outcome {
    /// The outcome of exec.
    #[must_use]
    pub fn of_exec(command: &[String], exit: Exit) -> Self {
        match exit {
            Exit::Code(0) => Self::Success,
            Exit::Code(code) => Self::Code { command: command.to_vec(), code },
            Exit::Failed(why) => Self::Failed(format!("error executing command in container: {why}")),
        }
    }

    /// The outcome of attach: the exit code of the container is not reported.
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
    fn exit_codes_are_status_causes() {
        let outcome = Outcome::of_exec(&["sh".into(), "-c".into(), "exit 3".into()], Exit::Code(3));
        let status: Value = serde_json::from_slice(&Report::Status.of(&outcome)).expect("JSON");
        assert_eq!(status["reason"], "NonZeroExitCode");
        assert_eq!(status["details"]["causes"], json!([{"reason": "ExitCode", "message": "3"}]));
        let text = Report::Text.of(&outcome);
        let wanted = "command terminated with non-zero exit code: error executing command [sh -c exit 3], exit code 3";
        assert_eq!(String::from_utf8_lossy(&text), wanted);
    }

    #[test]
    fn success_is_empty_in_text_form() {
        assert_eq!(Report::Text.of(&Outcome::Success), b"");
        assert_eq!(Report::Status.of(&Outcome::of_attach(Exit::Code(7))), br#"{"metadata":{},"status":"Success"}"#);
    }
}
