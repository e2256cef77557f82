//! Lines of `NAME: value`, aligned. Pure.
//!
//! Values of one depth start in one column. Several values of one name are on consecutive lines.

use api::value::ValueExt as _;
use serde_json::Value;

/// Indentation below a heading.
pub(super) const STEP: usize = 2;

enum Line {
    Field { indent: usize, name: String, value: String },
    Text(String),
}

/// See the module.
#[derive(Default)]
pub(super) struct Sheet {
    lines: Vec<Line>,
    indent: usize,
}

impl Sheet {
    /// A name and its value; `<none>` when it is empty.
    pub(super) fn field(&mut self, name: &str, value: impl AsRef<str>) {
        let value = value.as_ref();
        let value = if value.is_empty() { "<none>" } else { value };
        for (number, line) in value.lines().enumerate() {
            let name = if number == 0 { format!("{name}:") } else { String::new() };
            // Control characters must not reach the terminal.
            let value = line.replace('\x1b', "^[");
            self.lines.push(Line::Field { indent: self.indent, name, value });
        }
    }

    /// A name and its value, unless it is empty.
    pub(super) fn some(&mut self, name: &str, value: impl AsRef<str>) {
        if !value.as_ref().is_empty() {
            self.field(name, value);
        }
    }

    /// A name, below which more follows.
    pub(super) fn heading(&mut self, name: &str) {
        self.lines.push(Line::Text(format!("{}{name}:", " ".repeat(self.indent))));
    }

    /// Preformatted lines.
    pub(super) fn block(&mut self, indent: usize, text: &str) {
        let pad = " ".repeat(self.indent + indent);
        self.lines.extend(text.lines().map(|line| Line::Text(format!("{pad}{}", line.replace('\x1b', "^[")))));
    }

    /// Indents what is written inside.
    pub(super) fn inside(&mut self, write: impl FnOnce(&mut Self)) {
        self.indent += STEP;
        write(self);
        self.indent -= STEP;
    }

    /// The metadata of any object.
    pub(super) fn metadata(&mut self, object: &Value) {
        self.field("Name", object.text("metadata.name"));
        self.some("Namespace", object.text("metadata.namespace"));
        self.field("Labels", pairs(object.at("metadata.labels"), "="));
        self.field("Annotations", pairs(object.at("metadata.annotations"), ": "));
    }

    pub(super) fn text(&self) -> String {
        let width = |wanted: usize| {
            let names = self.lines.iter().filter_map(|line| match line {
                Line::Field { indent, name, .. } if *indent == wanted => Some(name.chars().count()),
                _ => None,
            });
            names.max().unwrap_or_default() + 2
        };
        let mut out = String::new();
        for line in &self.lines {
            match line {
                Line::Field { indent, name, value } => {
                    let (pad, width) = (" ".repeat(*indent), width(*indent));
                    out.push_str(format!("{pad}{name:<width$}{value}").trim_end());
                }
                Line::Text(text) => out.push_str(text.trim_end()),
            }
            out.push('\n');
        }
        out
    }
}

/// `key=value`, one a line; long values are shortened.
pub(super) fn pairs(map: &Value, sign: &str) -> String {
    let text = |value: &Value| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned).replace('\n', " ");
        if text.chars().count() > 140 { text.chars().take(137).chain("...".chars()).collect() } else { text }
    };
    let lines: Vec<String> =
        map.as_object().into_iter().flatten().map(|(key, value)| format!("{key}{sign}{}", text(value))).collect();
    lines.join("\n")
}

/// `key=value,key=value`.
pub(super) fn in_one_line(map: &Value) -> String {
    pairs(map, "=").replace('\n', ",")
}

/// `Kind/name` of the controller of an object.
pub(super) fn controller(object: &Value) -> String {
    let mut owners = object.items("metadata.ownerReferences").iter();
    let owner = owners.find(|owner| owner.flag("controller"));
    owner.map(|owner| format!("{}/{}", owner.text("kind"), owner.text("name"))).unwrap_or_default()
}

/// The conditions of an object, with their reasons.
pub(super) fn conditions(object: &Value, sheet: &mut Sheet) {
    let all = object.items("status.conditions");
    if all.is_empty() {
        return;
    }
    let mut table = crate::verbs::output::table::Table::default();
    table.row(["Type", "Status", "Reason", "Message"].map(str::to_owned));
    table.row(["----", "------", "------", "-------"].map(str::to_owned));
    for condition in all {
        let own = |field: &str| condition.text(field).replace('\n', " ");
        table.row([own("type"), own("status"), own("reason"), own("message")]);
    }
    sheet.heading("Conditions");
    sheet.block(STEP, &table.text(false));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_one_depth_begin_in_one_column() {
        let mut sheet = Sheet::default();
        sheet.metadata(&json!({"metadata": {"name": "web", "labels": {"a": "1", "b": "2"}}}));
        sheet.heading("Inside");
        sheet.inside(|sheet| sheet.field("Key", "value"));
        let wanted =
            "Name:         web\nLabels:       a=1\n              b=2\nAnnotations:  <none>\nInside:\n  Key:  value\n";
        assert_eq!(sheet.text(), wanted);
    }

    #[test]
    fn control_characters_are_removed() {
        let mut sheet = Sheet::default();
        sheet.field("Name", "a\x1b[31m");
        assert_eq!(sheet.text(), "Name:  a^[[31m\n");
    }
}
