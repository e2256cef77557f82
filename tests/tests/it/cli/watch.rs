//! `waypost get -w`: what is there, then every change.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Stdio};

use super::Desk;

/// A command that keeps printing. Dropping it ends it.
struct Stream {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Stream {
    fn begin(desk: &Desk, line: &str) -> Self {
        let mut child = desk.command(line).stdout(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("its output"));
        Self { child, lines }
    }

    #[track_caller]
    fn next(&mut self) -> String {
        let mut line = String::new();
        assert!(self.lines.read_line(&mut line).expect("its output") > 0, "it ended too early");
        line.trim_end().to_owned()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn changes_come_as_rows_under_the_same_headings() {
    let desk = Desk::start();
    desk.service("web", "{ports: [{port: 80}]}");
    let mut rows = Stream::begin(&desk, "get svc -w -l app");
    assert!(rows.next().starts_with("NAME   TYPE"));
    assert!(rows.next().starts_with("web    ClusterIP"));
    desk.service("db", "{ports: [{port: 5432}]}");
    let row = rows.next();
    assert!(row.starts_with("db     ClusterIP") && row.contains("5432/TCP"), "{row}");
    desk.ok("delete svc web");
    assert!(rows.next().starts_with("web    ClusterIP"));
}

#[test]
fn changes_of_one_object_come_in_any_form() {
    let desk = Desk::start();
    desk.service("web", "{ports: [{port: 80}]}");
    let mut values = Stream::begin(&desk, "get svc web -w -o 'jsonpath={.spec.sessionAffinity}{\"\\n\"}'");
    assert_eq!(values.next(), "None");
    desk.service("other", "{ports: [{port: 80}]}");
    desk.service("web", "{ports: [{port: 80}], sessionAffinity: ClientIP}");
    assert_eq!(values.next(), "ClientIP");
    let mut names = Stream::begin(&desk, "get svc --watch-only -o name -l app");
    // It has started when it shows something: whatever it shows first is a
    // change.
    let seen = std::thread::scope(|scope| {
        let next = scope.spawn(|| names.next());
        for number in 0.. {
            if next.is_finished() {
                break;
            }
            desk.ok(&format!("annotate svc web number={number} --overwrite"));
        }
        next.join().expect("a line")
    });
    assert_eq!(seen, "service/web");
}
