//! The `--config` file: its values become the defaults of the flags that they name.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Command;
use clap::error::ErrorKind;
use serde_json::Value;

/// Finds `--config` before arguments are parsed.
pub(super) fn path(arguments: &[OsString]) -> Option<PathBuf> {
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let text = argument.to_string_lossy();
        if text == "--" {
            break; // What follows belongs to another program.
        }
        if text == "--config" {
            return rest.next().map(PathBuf::from);
        }
        if let Some(path) = text.strip_prefix("--config=") {
            return Some(PathBuf::from(path));
        }
    }
    std::env::var_os("WAYPOST_CONFIG").map(PathBuf::from)
}

/// Makes the values of a file the defaults of the flags they name.
pub(super) fn read_into(mut command: Command, path: &std::path::Path) -> Result<Command, clap::Error> {
    let refuse = |command: &mut Command, why: String| {
        command.error(ErrorKind::InvalidValue, format!("configuration file {}: {why}", path.display()))
    };
    let bytes = std::fs::read(path).map_err(|error| refuse(&mut command, error.to_string()))?;
    let (value, repeated) = api::yaml::from_yaml(&bytes).map_err(|error| refuse(&mut command, error.to_string()))?;
    if let Some(first) = repeated.first() {
        return Err(refuse(&mut command, first.clone()));
    }
    let Value::Object(settings) = value else {
        return Err(refuse(&mut command, "expected `flag-name: value` lines".to_owned()));
    };
    for (key, value) in settings {
        let text = match &value {
            Value::String(text) => text.clone(),
            Value::Array(items) => items
                .iter()
                .map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned))
                .collect::<Vec<_>>()
                .join(","),
            other => other.to_string(),
        };
        let known = command
            .get_subcommands()
            .flat_map(Command::get_arguments)
            .chain(command.get_arguments())
            .any(|argument| argument.get_long() == Some(&key) && key != "config");
        if !known {
            return Err(refuse(
                &mut command,
                format!("`{key}` is not a setting; settings are the flags of `waypost server --help`"),
            ));
        }
        command = with_default(command, &key, &text);
    }
    Ok(command)
}

/// Sets the default of every flag of this name.
pub(super) fn with_default(mut command: Command, key: &str, text: &str) -> Command {
    // clap needs defaults with a static lifetime.
    let text: &'static str = Box::leak(text.to_owned().into_boxed_str());
    let id = key.replace('-', "_");
    let has = |command: &Command| command.get_arguments().any(|argument| argument.get_id() == id.as_str());
    if has(&command) {
        command = command.mut_arg(&id, |argument| argument.default_value(text));
    }
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    for name in names {
        command = command.mut_subcommand(name, |sub| {
            if has(&sub) { sub.mut_arg(&id, |argument| argument.default_value(text)) } else { sub }
        });
    }
    command
}
