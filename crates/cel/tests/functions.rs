//! What functions do, one table per library. The recorded answers in `data` have many more cases.

use cel::{
    AUTHORIZER, Authorizer, Check, Compatibility, Decision, Environment, Object, Request, Target, Type, Value,
    Variables,
};

/// Allows what has the verb `get`.
#[derive(Debug)]
struct OnlyGet;

impl Authorizer for OnlyGet {
    fn authorize(&self, request: &Request) -> Decision {
        let reason = match &request.target {
            Target::Path(path) => path.clone(),
            Target::Resource(resource) => format!("{}/{}", resource.namespace, resource.resource),
        };
        Decision { allowed: request.verb == "get", reason, error: None }
    }
}

/// An object with a lazily computed field, and one whose computation fails.
#[derive(Debug)]
struct Computed;

impl Object for Computed {
    fn type_name(&self) -> &str {
        "test.Computed"
    }

    fn get(&self, field: &str) -> Option<Result<Value<'_>, String>> {
        match field {
            "good" => Some(Ok(Value::Int(42))),
            "bad" => Some(Err("it fails".to_owned())),
            _ => None,
        }
    }
}

fn run(text: &str) -> String {
    let (authorizer, object) = (OnlyGet, Computed);
    let environment = Environment::new(Compatibility::Stored)
        .variable("authorizer", Type::object(AUTHORIZER))
        .variable("variables", Type::Dyn)
        .with_bind();
    let variables = Variables::new()
        .with("authorizer", Value::Check(Check::authorizer(&authorizer)))
        .with("variables", Value::Object(&object));
    let program = match environment.compile(text).map_err(|issues| issues.to_string()).and_then(|e| e.program()) {
        Ok(program) => program,
        Err(why) => return format!("refused: {why}"),
    };
    match program.evaluate(&variables).result {
        Ok(value) => value.to_string(),
        Err(error) => format!("error: {error}"),
    }
}

fn check(table: &[(&str, &str)]) {
    for (text, wanted) in table {
        assert_eq!(run(text), *wanted, "{text}");
    }
}

#[test]
fn strings() {
    check(&[
        ("'tacocat'.charAt(3)", "o"),
        ("'hello mellow'.indexOf('ello', 2)", "7"),
        ("'hello mellow'.lastIndexOf('ello')", "7"),
        ("['hello', 'mellow'].join(' ')", "hello mellow"),
        ("'TacoCat'.lowerAscii() + 'x'.upperAscii()", "tacocatX"),
        ("'hello hello'.replace('he', 'we', 1)", "wello hello"),
        ("'a b c'.split(' ', 2)", "[a, b c]"),
        ("'tacocat'.substring(4, 6)", "ca"),
        ("'  trim '.trim()", "trim"),
        ("'%s has %d, %.1f%%'.format(['x', 3, 99.5])", "x has 3, 99.5%"),
        ("strings.quote('a\"b')", "\"a\\\"b\""),
        ("'abc'.charAt(9)", "error: index out of range: 9"),
    ]);
}

#[test]
fn lists_and_sets() {
    check(&[
        ("[1, 2, 2].isSorted()", "true"),
        ("[1, 2, 3].sum()", "6"),
        ("['b', 'a'].min() + ['b', 'a'].max()", "ab"),
        ("[1, 2, 1].indexOf(1) + [1, 2, 1].lastIndexOf(1)", "2"),
        ("[1, 2].includes(2)", "true"),
        ("[3, 1, 2].sort().reverse()", "[3, 2, 1]"),
        ("['ccc', 'a', 'bb'].sortBy(x, size(x))", "[a, bb, ccc]"),
        ("[1, 1, 2].distinct()", "[1, 2]"),
        ("[1, 2, 3].slice(1, 2)", "[2]"),
        ("[[1], [2, 3]].flatten()", "[1, 2, 3]"),
        ("lists.range(3)", "[0, 1, 2]"),
        ("[].max()", "error: max called on empty list"),
        ("sets.contains([1, 2], [2]) && sets.equivalent([1, 2], [2, 1]) && sets.intersects([1], [1, 3])", "true"),
    ]);
}

#[test]
fn optionals_and_bindings() {
    check(&[
        ("optional.of(1).optMap(x, x + 1)", "optional(2)"),
        ("{'a': 1}[?'b'].orValue(5)", "5"),
        ("{'a': 1}.?a.or(optional.of(2)).value()", "1"),
        ("[1, 2].last().value()", "2"),
        ("optional.ofNonZeroValue('').hasValue()", "false"),
        ("[?optional.none(), 1]", "[1]"),
        ("optional.none().value()", "error: optional.none() dereference"),
        ("cel.bind(x, 'a' + 'b', x + x)", "abab"),
        ("cel.bind(x, 1 / 0, 5)", "5"),
        ("cel.bind(x, 1 / 0, x)", "error: division by zero"),
    ]);
}

#[test]
fn times() {
    check(&[
        ("timestamp('2023-07-14T10:30:45.123Z').getFullYear()", "2023"),
        ("timestamp('2023-07-14T10:30:45.123Z').getMonth()", "6"),
        ("timestamp('2023-07-14T10:30:45.123Z').getDayOfWeek('Asia/Tokyo')", "5"),
        ("timestamp('2023-07-14T10:30:45.123Z').getHours('+02:00')", "12"),
        ("duration('1h') + duration('30m') == duration('5400s')", "true"),
        ("string(timestamp('2023-01-31T00:00:00Z') + duration('24h'))", "2023-02-01T00:00:00Z"),
        ("timestamp(0).getHours('Nowhere')", "error: unknown time zone Nowhere"),
    ]);
}

#[test]
fn networks_quantities_versions_and_formats() {
    check(&[
        ("ip('fd00::1').family()", "6"),
        ("cidr('10.0.0.1/8').masked()", "10.0.0.0/8"),
        ("cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')", "true"),
        ("url('https://a:81/p?q=1').getPort()", "81"),
        ("url('https://a:81/p?q=1').getQuery()", "{q: [1]}"),
        ("quantity('1Gi').isGreaterThan(quantity('1G'))", "true"),
        ("quantity('1').add(2).asInteger()", "3"),
        ("semver('v1.2', true)", "1.2.0"),
        ("semver('1.2.3').isLessThan(semver('1.10.0'))", "true"),
        ("format.dns1123Label().validate('a.b').value()", "[must not contain dots]"),
        ("'a1b22'.findAll('[0-9]+')", "[1, 22]"),
        ("'abc'.matches('^[a-c]+$')", "true"),
    ]);
}

#[test]
fn authorization() {
    check(&[
        ("authorizer.group('').resource('pods').namespace('n').check('get').allowed()", "true"),
        ("authorizer.group('').resource('pods').namespace('n').check('list').reason()", "n/pods"),
        ("authorizer.path('/healthz').check('get').reason()", "/healthz"),
        ("authorizer.path('').check('get').allowed()", "error: path must not be empty"),
        (
            "[1, 2, 3].all(x, authorizer.path('/x').check('get').allowed())",
            "error: operation cancelled: actual cost limit exceeded",
        ),
    ]);
}

#[test]
fn objects_are_computed_when_they_are_asked_for() {
    check(&[
        ("variables.good + 1", "43"),
        ("has(variables.good) && !has(variables.none)", "true"),
        ("variables.bad", "error: it fails"),
        ("variables.bad == 1 || true", "true"),
        ("variables.none", "error: no such key: none"),
        ("variables.?none.orValue(1)", "1"),
    ]);
}
