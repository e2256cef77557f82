//! Operations: kinds in, every path and method that is served for them out, still without a version of OpenAPI.
//!
//! Operation ids follow kube-apiserver, since generated clients are built around them.

use api::kind::{Kind, Subresource};
use api::schema;

use super::exchange::{Exchange, Gvk, object_of};
use super::parameters::{self, Parameter};
use crate::discovery;

/// One path and its operations.
pub(super) struct Path {
    pub(super) path: String,
    pub(super) parameters: Vec<&'static Parameter>,
    pub(super) operations: Vec<Operation>,
}

/// One method of a path.
pub(super) struct Operation {
    /// The HTTP method, in lower case.
    pub(super) method: &'static str,
    /// The Kubernetes verb.
    pub(super) action: &'static str,
    pub(super) id: String,
    pub(super) text: String,
    pub(super) tag: String,
    pub(super) gvk: Gvk,
    pub(super) parameters: &'static [&'static Parameter],
    pub(super) body: Option<Body>,
    pub(super) answer: Answer,
}

/// The body of a request.
#[derive(Clone, Copy)]
pub(super) struct Body {
    pub(super) exchange: Exchange,
    pub(super) required: bool,
}

/// The response.
#[derive(Clone, Copy)]
pub(super) struct Answer {
    pub(super) exchange: Exchange,
    /// The status codes of success.
    pub(super) codes: &'static [u16],
    /// Whether it may be a stream of events.
    pub(super) stream: bool,
}

/// The HTTP form of a verb on an object or subresource.
struct Verb {
    verb: &'static str,
    method: &'static str,
    action: &'static str,
    /// The first word of the operation id.
    id: &'static str,
    parameters: &'static [&'static Parameter],
    codes: &'static [u16],
}

static GET: Verb = Verb { verb: "get", method: "get", action: "get", id: "read", parameters: &[], codes: &[200] };
static CREATE: Verb = Verb {
    verb: "create",
    method: "post",
    action: "post",
    id: "create",
    parameters: parameters::WRITE,
    codes: &[200, 201, 202],
};
static UPDATE: Verb = Verb {
    verb: "update",
    method: "put",
    action: "put",
    id: "replace",
    parameters: parameters::WRITE,
    codes: &[200, 201],
};
static PATCH: Verb = Verb {
    verb: "patch",
    method: "patch",
    action: "patch",
    id: "patch",
    parameters: parameters::PATCH,
    codes: &[200, 201],
};
static DELETE: Verb = Verb {
    verb: "delete",
    method: "delete",
    action: "delete",
    id: "delete",
    parameters: parameters::DELETE,
    codes: &[200, 202],
};
static VERBS: &[&Verb] = &[&GET, &CREATE, &UPDATE, &PATCH, &DELETE];

/// All paths of a kind.
pub(super) fn of(kind: &'static Kind) -> Vec<Path> {
    let names = Names::of(kind);
    let mut out = vec![collection(&names)];
    if kind.namespaced && kind.verbs.contains(&"list") {
        out.push(all_namespaces(&names));
    }
    out.push(item(&names));
    for sub in kind.subresources {
        part(&names, sub, &mut out);
    }
    // Deprecated paths, which custom resources never had.
    if kind.verbs.contains(&"watch") && !kind.is_custom() {
        watches(&names, &mut out);
    }
    out.retain(|path| !path.operations.is_empty());
    out
}

/// The names that the operations of a kind share.
struct Names {
    kind: &'static Kind,
    /// `/api/v1`.
    root: String,
    /// `/namespaces/{namespace}` or nothing.
    scope: &'static str,
    /// `core_v1`.
    tag: String,
    /// `CoreV1`.
    group: String,
    /// `NamespacedService`.
    noun: String,
}

impl Names {
    fn of(kind: &'static Kind) -> Self {
        let short = match kind.group {
            "" => "core",
            group => group.strip_suffix(".k8s.io").unwrap_or(group),
        };
        let camel: String = short.split('.').chain([kind.version]).map(capital).collect();
        let (scope, noun) = match kind.namespaced {
            true => ("/namespaces/{namespace}", format!("Namespaced{}", kind.kind)),
            false => ("", kind.kind.to_owned()),
        };
        Self {
            kind,
            root: format!("/{}", discovery::path(kind.group, kind.version)),
            scope,
            tag: format!("{}_{}", short.replace('.', ""), kind.version),
            group: camel,
            noun,
        }
    }

    fn path(&self, scope: &str, tail: &str, last: &[&'static Parameter], operations: Vec<Operation>) -> Path {
        let mut parameters = last.to_vec();
        if !scope.is_empty() {
            parameters.push(&parameters::NAMESPACE);
        }
        Path { path: format!("{}{scope}/{}{tail}", self.root, self.kind.plural), parameters, operations }
    }

    fn operation(&self, verb: &Verb, id: String, text: String, body: Option<Body>, answer: Exchange) -> Operation {
        Operation {
            method: verb.method,
            action: verb.action,
            id,
            text,
            tag: self.tag.clone(),
            gvk: Gvk::of(self.kind),
            parameters: verb.parameters,
            body,
            answer: Answer { exchange: answer, codes: verb.codes, stream: false },
        }
    }

    fn object(&self) -> Exchange {
        match self.kind.table_type() {
            Some(ty) => Exchange::Object(ty),
            None => Exchange::Custom(self.kind),
        }
    }

    fn serves(&self, verb: &str) -> bool {
        self.kind.verbs.contains(&verb)
    }
}

fn collection(names: &Names) -> Path {
    let kind = names.kind.kind;
    let mut operations = Vec::new();
    if names.serves("list") {
        operations.push(list(names, format!("list{}{}", names.group, names.noun)));
    }
    if names.serves("create") {
        let id = format!("create{}{}", names.group, names.noun);
        operations.push(names.operation(
            &CREATE,
            id,
            format!("create {}", a(names.kind)),
            body(names.object()),
            names.object(),
        ));
    }
    if names.serves("deletecollection") {
        let id = format!("delete{}Collection{}", names.group, names.noun);
        let text = format!("delete collection of {kind}");
        let status = Exchange::Object(schema::named("meta.Status"));
        let mut operation = names.operation(&DELETE, id, text, delete_options(), status);
        operation.action = "deletecollection";
        operation.parameters = parameters::DELETE_COLLECTION;
        operation.answer.codes = &[200];
        operations.push(operation);
    }
    names.path(names.scope, "", &[&parameters::PRETTY], operations)
}

fn all_namespaces(names: &Names) -> Path {
    let id = format!("list{}{}ForAllNamespaces", names.group, names.kind.kind);
    names.path("", "", &[&parameters::PRETTY], vec![list(names, id)])
}

fn list(names: &Names, id: String) -> Operation {
    let text = format!("list or watch objects of kind {}", names.kind.kind);
    let mut operation = names.operation(&GET, id, text, None, Exchange::List(names.kind));
    operation.action = "list";
    operation.parameters = parameters::LIST;
    operation.answer.stream = true;
    operation
}

fn item(names: &Names) -> Path {
    let kind = names.kind;
    let mut operations = Vec::new();
    for verb in [&GET, &UPDATE, &PATCH, &DELETE].into_iter().filter(|verb| names.serves(verb.verb)) {
        let id = format!("{}{}{}", verb.id, names.group, names.noun);
        let text = match verb.verb {
            "delete" => format!("delete {}", a(kind)),
            _ => format!("{} the specified {}", phrase(verb), kind.kind),
        };
        let status = verb.verb == "delete" && !kind.delete_returns_object;
        let answer = if status { Exchange::Object(schema::named("meta.Status")) } else { names.object() };
        operations.push(names.operation(verb, id, text, body_of(verb, names.object()), answer));
    }
    names.path(names.scope, "/{name}", &[&parameters::NAME, &parameters::PRETTY], operations)
}

fn part(names: &Names, sub: &'static Subresource, out: &mut Vec<Path>) {
    let tail = format!("/{{name}}/{}", sub.name);
    // Connect subresources are described by options, not by an object.
    if sub.kind.ends_with("Options") {
        out.push(names.path(names.scope, &tail, &[&parameters::NAME], connect(names, sub, "")));
        if sub.name == "proxy" {
            let parameters = [&parameters::NAME, &parameters::PROXY_PATH];
            let operations = connect(names, sub, "WithPath");
            out.push(names.path(names.scope, &format!("{tail}/{{path}}"), &parameters, operations));
        }
        return;
    }
    let (group, version) = discovery::foreign(sub.kind).unwrap_or((names.kind.group, names.kind.version));
    let exchange = match (sub.name, sub.kind == names.kind.kind) {
        ("log", _) => Exchange::Text,
        (_, true) => names.object(),
        (_, false) => object_of(group, sub.kind).map_or(Exchange::Text, Exchange::Object),
    };
    let mut operations = Vec::new();
    for verb in VERBS.iter().filter(|verb| sub.verbs.contains(&verb.verb)) {
        let id = format!("{}{}{}{}", verb.id, names.group, names.noun, capital(sub.name));
        let text = match verb.verb {
            "create" => format!("create {} of {}", sub.name, a(names.kind)),
            _ => format!("{} {} of the specified {}", phrase(verb), sub.name, names.kind.kind),
        };
        let mut operation = names.operation(verb, id, text, body_of(verb, exchange), exchange);
        operation.gvk = Gvk { group, version, kind: sub.kind };
        operations.push(operation);
    }
    out.push(names.path(names.scope, &tail, &[&parameters::NAME, &parameters::PRETTY], operations));
}

fn connect(names: &Names, sub: &'static Subresource, suffix: &str) -> Vec<Operation> {
    let served = VERBS.iter().filter(|verb| sub.verbs.contains(&verb.verb));
    served
        .map(|verb| {
            let method = capital(verb.method);
            let id = format!("connect{}{method}{}{}{suffix}", names.group, names.noun, capital(sub.name));
            let text =
                format!("connect {} requests to {} of {}", verb.method.to_ascii_uppercase(), sub.name, names.kind.kind);
            let mut operation = names.operation(verb, id, text, None, Exchange::Text);
            operation.action = "connect";
            operation.parameters = if sub.name == "proxy" && suffix.is_empty() { parameters::PROXY } else { &[] };
            operation.answer.codes = &[200];
            operation.gvk.kind = sub.kind;
            operation
        })
        .collect()
}

/// The deprecated `/watch/` paths.
fn watches(names: &Names, out: &mut Vec<Path>) {
    let (kind, group, noun) = (names.kind.kind, &names.group, &names.noun);
    let watch = |id: String, action: &'static str, text: String| {
        let mut operation = names.operation(&GET, id, text, None, Exchange::WatchEvent);
        operation.action = action;
        operation.parameters = parameters::LIST;
        operation.answer.stream = true;
        vec![operation]
    };
    let list_text = || format!("watch changes to all {kind} objects; deprecated: list with the parameter 'watch'");
    let item_text =
        format!("watch changes to one {kind}; deprecated: list with the parameters 'watch' and 'fieldSelector'");
    let lists = watch(format!("watch{group}{noun}List"), "watchlist", list_text());
    let item = watch(format!("watch{group}{noun}"), "watch", item_text);
    let mut paths = vec![
        names.path(names.scope, "", &[&parameters::PRETTY], lists),
        names.path(names.scope, "/{name}", &[&parameters::NAME, &parameters::PRETTY], item),
    ];
    if names.kind.namespaced {
        let all = watch(format!("watch{group}{kind}ListForAllNamespaces"), "watchlist", list_text());
        paths.push(names.path("", "", &[&parameters::PRETTY], all));
    }
    for mut path in paths {
        path.path.insert_str(names.root.len(), "/watch");
        out.push(path);
    }
}

fn body(exchange: Exchange) -> Option<Body> {
    Some(Body { exchange, required: true })
}

fn delete_options() -> Option<Body> {
    Some(Body { exchange: Exchange::Object(schema::named("meta.DeleteOptions")), required: false })
}

fn body_of(verb: &Verb, object: Exchange) -> Option<Body> {
    match verb.verb {
        "create" | "update" => body(object),
        "patch" => body(Exchange::Patch),
        "delete" => delete_options(),
        _ => None,
    }
}

fn phrase(verb: &Verb) -> &'static str {
    match verb.verb {
        "update" => "replace",
        "patch" => "partially update",
        "delete" => "delete",
        _ => "read",
    }
}

/// `a Service`, `an Ingress`; a kind without a singular has no article.
fn a(kind: &Kind) -> String {
    match kind.kind {
        noun if kind.singular == kind.plural => noun.to_owned(),
        noun if noun.starts_with(['A', 'E', 'I', 'O', 'U']) => format!("an {noun}"),
        noun => format!("a {noun}"),
    }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
