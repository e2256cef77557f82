//! Recorded answers of the reference implementation in Kubernetes' environment, replayed.
//!
//! Each line of `data/*.txt` is a JSON object: the expression `expr`, and what became of it: the text of a compile error
//! (`compile`), of an error of constant parts (`program`), or the result's type (`type`) with its value (`value`) or its
//! error (`error`), and the cost (`cost`). The variables are those of `data/input.json`. An expression that starts with
//! `//stored` is compiled for stored expressions, all others as new ones. The reference is cel-go 0.29.2 with the environment
//! of k8s.io/apiserver 0.37.0; expressions whose answer depends on the order of a map are left out. The variable
//! `CEL_REPLAY` of the environment names another folder with such files.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cel::{
    AUTHORIZER, Authorizer, Check, Compatibility, Decision, Environment, EvalError, List, Map, ObjectTable,
    RESOURCE_CHECK, Request, Resource, Subject, Target, Type, Value, Variables,
};
use serde_json::{Map as Fields, Value as Json};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn types() -> ObjectTable {
    let (string, int) = (|| Type::String, || Type::Int);
    let strings = || Type::list(Type::String);
    let labels = || Type::map(Type::String, Type::String);
    let mut table = ObjectTable::default();
    table.add("kubernetes.GroupVersionKind", [("group", string()), ("version", string()), ("kind", string())]);
    table.add("kubernetes.GroupVersionResource", [("group", string()), ("version", string()), ("resource", string())]);
    table.add(
        "kubernetes.UserInfo",
        [
            ("username", string()),
            ("uid", string()),
            ("groups", strings()),
            ("extra", Type::map(Type::String, strings())),
        ],
    );
    let (kind, resource) =
        (Type::object("kubernetes.GroupVersionKind"), Type::object("kubernetes.GroupVersionResource"));
    table.add(
        "kubernetes.AdmissionRequest",
        [
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", string()),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", string()),
            ("name", string()),
            ("namespace", string()),
            ("operation", string()),
            ("userInfo", Type::object("kubernetes.UserInfo")),
            ("dryRun", Type::Bool),
            ("options", Type::Dyn),
        ],
    );
    table.add("kubernetes.NamespaceStatus", [("phase", string())]);
    table.add("kubernetes.NamespaceMetadata", [("name", string()), ("labels", labels()), ("generation", int())]);
    table.add(
        "kubernetes.Namespace",
        [
            ("metadata", Type::object("kubernetes.NamespaceMetadata")),
            ("status", Type::object("kubernetes.NamespaceStatus")),
        ],
    );
    table.add("test.Port", [("name", string()), ("port", int()), ("protocol", string())]);
    table.add(
        "test.Self",
        [
            ("name", string()),
            ("replicas", int()),
            ("ratio", Type::Double),
            ("enabled", Type::Bool),
            ("data", Type::Bytes),
            ("since", Type::Timestamp),
            ("timeout", Type::Duration),
            ("labels", labels()),
            ("ports", Type::list(Type::object("test.Port"))),
            ("tags", strings()),
            ("namespace", string()),
            ("my_field", int()),
            ("my__field", int()),
            ("a-b", int()),
            ("x.y", int()),
            ("x/y", int()),
            ("any", Type::Dyn),
            ("port", Type::object("test.Port")),
        ],
    );
    table
}

fn environment(compatibility: Compatibility) -> Environment {
    let declared = [
        ("object", Type::Dyn),
        ("oldObject", Type::Dyn),
        ("params", Type::Dyn),
        ("namespaceObject", Type::object("kubernetes.Namespace")),
        ("request", Type::object("kubernetes.AdmissionRequest")),
        ("self", Type::object("test.Self")),
        ("authorizer", Type::object(AUTHORIZER)),
        ("authorizer.requestResource", Type::object(RESOURCE_CHECK)),
        ("i", Type::Int),
        ("u", Type::Uint),
        ("d", Type::Double),
        ("s", Type::String),
        ("b", Type::Bool),
        ("ls", Type::list(Type::String)),
        ("li", Type::list(Type::Int)),
        ("ms", Type::map(Type::String, Type::String)),
    ];
    declared
        .into_iter()
        .fold(Environment::new(compatibility), |environment, (name, kind)| environment.variable(name, kind))
        .types(Arc::new(types()))
}

/// Allows `get` and fails for `fail`; the reason is the request.
#[derive(Debug)]
struct Asked;

impl Authorizer for Asked {
    fn authorize(&self, request: &Request) -> Decision {
        let user = match &request.subject {
            Subject::Requester => "alice".to_owned(),
            Subject::ServiceAccount { namespace, name } => format!("system:serviceaccount:{namespace}:{name}"),
        };
        let (path, resource) = match &request.target {
            Target::Path(path) => (path.as_str(), Resource::default()),
            Target::Resource(resource) => ("", resource.clone()),
        };
        let is_resource = matches!(request.target, Target::Resource(_));
        let Resource { group, resource, subresource, namespace, name, field_selector, label_selector } = resource;
        let verb = &request.verb;
        let selected = |selector: &str| {
            let valid = !selector.contains('!');
            format!("{}|{}", if selector.is_empty() || !valid { 0 } else { 1 + selector.matches(',').count() }, !valid)
        };
        let reason = format!(
            "{user}|{is_resource}|{verb}|{path}|{group}|{resource}|{subresource}|{namespace}|{name}|{}|{}",
            selected(&field_selector),
            selected(&label_selector)
        );
        Decision { allowed: verb == "get", reason, error: (verb == "fail").then(|| "authorizer is down".to_owned()) }
    }
}

/// A value as the reference was made to write it.
fn show(value: &Value<'_>) -> String {
    let all = |list: &List<'_>| list.iter().map(|item| show(&item)).collect::<Vec<_>>().join(", ");
    let entries = |map: &Map<'_>| {
        let mut entries: Vec<String> =
            map.iter().map(|(key, value)| format!("{}: {}", show(&key), show(&value))).collect();
        entries.sort();
        entries.join(", ")
    };
    match value {
        Value::List(list) => format!("[{}]", all(list)),
        Value::Map(map) => format!("{{{}}}", entries(map)),
        Value::String(text) => Json::from(text.as_str()).to_string(),
        Value::Bytes(bytes) => {
            let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
                write!(hex, "{byte:02x}").expect("a string");
                hex
            });
            format!("b\"{hex}\"")
        }
        Value::Uint(value) => format!("{value}u"),
        Value::Double(_) => format!("double({value})"),
        Value::Timestamp(_) => format!("timestamp({})", value.to_string().trim_matches(['{', '}'])),
        Value::Duration(nanos) => format!("duration({nanos})"),
        Value::Optional(Some(value)) => format!("optional({})", show(value)),
        Value::Type(name) => format!("type({name})"),
        Value::Null => "null".to_owned(),
        Value::Quantity(_) => "quantity".to_owned(),
        Value::Url(url) => format!("url({url})"),
        Value::Ip(ip) => format!("ip({ip})"),
        Value::Cidr(cidr) => format!("cidr({cidr})"),
        Value::Semver(version) => format!("semver({version})"),
        Value::Format(_) => format!("format({value})"),
        Value::Check(_) => value.type_name().to_owned(),
        other => other.to_string(),
    }
}

fn answer(expr: &str, environments: &[Environment; 2], variables: &Variables<'_>) -> Fields<String, Json> {
    let mut out = Fields::new();
    out.insert("expr".to_owned(), expr.into());
    let [new, stored] = environments;
    let environment = if expr.starts_with("//stored\n") { stored } else { new };
    let expression = match environment.compile(expr) {
        Ok(expression) => expression,
        Err(issues) => {
            out.insert("compile".to_owned(), issues.to_string().into());
            return out;
        }
    };
    out.insert("type".to_owned(), expression.result_type().to_string().into());
    let program = match expression.program() {
        Ok(program) => program,
        Err(why) => {
            out.insert("program".to_owned(), why.into());
            return out;
        }
    };
    let evaluation = program.evaluate(variables);
    out.insert("cost".to_owned(), evaluation.cost.into());
    match evaluation.result {
        Ok(value) => out.insert("value".to_owned(), show(&value).into()),
        Err(EvalError::Failed(why)) => out.insert("error".to_owned(), why.into()),
        Err(other) => out.insert("error".to_owned(), other.to_string().into()),
    };
    out
}

/// Quantities are not shown by this crate.
fn normalized(mut wanted: Fields<String, Json>) -> Fields<String, Json> {
    if let Some(Json::String(value)) = wanted.get_mut("value")
        && let (Some(start), Some(end)) = (value.find("quantity("), value.find(')'))
        && start == 0
    {
        *value = format!("quantity{}", &value[end + 1..]);
    }
    wanted
}

#[test]
fn answers_are_those_of_the_reference() {
    let input: Json =
        serde_json::from_str(&std::fs::read_to_string(data("input.json")).expect("the input")).expect("JSON");
    let (asked, environments) = (Asked, [environment(Compatibility::New), environment(Compatibility::Stored)]);
    let resource = Resource {
        group: "apps".to_owned(),
        resource: "deployments".to_owned(),
        subresource: "status".to_owned(),
        namespace: "default".to_owned(),
        name: "web".to_owned(),
        ..Resource::default()
    };
    let mut variables = Variables::new()
        .with("authorizer", Value::Check(Check::authorizer(&asked)))
        .with("authorizer.requestResource", Value::Check(Check::request_resource(&asked, resource)))
        .with("u", Value::Uint(5));
    for (name, value) in input.as_object().expect("an object") {
        variables = variables.with(name, Value::from_json(value));
    }
    let (mut count, mut wrong) = (0, String::new());
    let folder = std::env::var_os("CEL_REPLAY").map_or_else(|| data(""), PathBuf::from);
    let files = std::fs::read_dir(folder).expect("the data").map(|entry| entry.expect("an entry").path());
    for file in files.filter(|path| path.extension().is_some_and(|ending| ending == "txt")) {
        for line in std::fs::read_to_string(&file).expect("a file").lines() {
            let wanted: Fields<String, Json> = serde_json::from_str(line).expect("a line of JSON");
            let wanted = normalized(wanted);
            let expr = wanted["expr"].as_str().expect("an expression").to_owned();
            let found = answer(&expr, &environments, &variables);
            count += 1;
            if found != wanted {
                writeln!(wrong, "wanted {}\nfound  {}", Json::Object(wanted), Json::Object(found)).expect("a string");
            }
        }
    }
    assert!(count > 0, "no expressions");
    assert!(wrong.is_empty(), "of {count} expressions:\n{wrong}");
}
