use super::*;
use crate::syntax::ast::ExprKind;

fn issues(text: &str) -> String {
    parse(&Source::new(text), false).map_or_else(|issues| issues.to_string(), |expr| show(&expr))
}

fn show(expr: &Expr) -> String {
    let all = |exprs: &[Expr]| exprs.iter().map(show).collect::<Vec<_>>().join(", ");
    match &expr.kind {
        ExprKind::Unspecified => "?".to_owned(),
        ExprKind::Literal(literal) => format!("{literal:?}"),
        ExprKind::Ident(name) => name.clone(),
        ExprKind::Select { operand, field, test } => {
            format!("{}.{field}{}", show(operand), if *test { "~" } else { "" })
        }
        ExprKind::Call { target: Some(target), function, args } => {
            format!("{}.{function}({})", show(target), all(args))
        }
        ExprKind::Call { target: None, function, args } => format!("{function}({})", all(args)),
        ExprKind::List { elements, .. } => format!("[{}]", all(elements)),
        ExprKind::Map(entries) => {
            let entries: Vec<String> =
                entries.iter().map(|e| format!("{}: {}", show(&e.key), show(&e.value))).collect();
            format!("{{{}}}", entries.join(", "))
        }
        ExprKind::Struct { name, fields } => format!("{name}{{{}}}", fields.len()),
        ExprKind::Comprehension(fold) => format!(
            "fold({}, {}{}, {}={}, {}, {}, {})",
            show(&fold.range),
            fold.variable,
            fold.second.as_ref().map(|second| format!("/{second}")).unwrap_or_default(),
            fold.accumulator,
            show(&fold.init),
            show(&fold.condition),
            show(&fold.step),
            show(&fold.result)
        ),
    }
}

#[test]
fn operators_have_their_precedence() {
    let cases = [
        ("1 + 2 * 3 - 4", "_-_(_+_(Int(1), _*_(Int(2), Int(3))), Int(4))"),
        ("a < b == c", "_==_(_<_(a, b), c)"),
        ("a && b && c && d", "_&&_(_&&_(a, b), _&&_(c, d))"),
        ("a || b && c", "_||_(a, _&&_(b, c))"),
        ("a ? b : c ? d : e", "_?_:_(a, b, _?_:_(c, d, e))"),
        ("-1 - -x", "_-_(Int(-1), -_(x))"),
        ("--1", "Int(1)"),
        ("!!a", "a"),
        ("!a.b", "!_(a.b)"),
        ("a.?b[?c][1].d(e)", "_[_](_[?_](_?._(a, String(\"b\")), c), Int(1)).d(e)"),
        (".a.b.c{x: 1}", ".a.b.c{1}"),
        ("[1, ?a,]", "[Int(1), a]"),
        ("{1: 2, ?'k': v,}", "{Int(1): Int(2), String(\"k\"): v}"),
        ("a.`x-y`", "a.x-y"),
    ];
    for (text, wanted) in cases {
        assert_eq!(issues(text), wanted, "{text}");
    }
}

#[test]
fn macros_expand() {
    let cases = [
        ("has(a.b)", "a.b~"),
        ("l.all(x, p)", "fold(l, x, @result=Bool(true), @not_strictly_false(@result), _&&_(@result, p), @result)"),
        ("l.map(x, p, v)", "fold(l, x, @result=[], Bool(true), _?_:_(p, _+_(@result, [v]), @result), @result)"),
        ("m.transformMap(k, v, w)", "fold(m, k/v, @result={}, Bool(true), cel.@mapInsert(@result, k, w), @result)"),
        (
            "o.optMap(x, y)",
            "_?_:_(o.hasValue(), optional.of(fold([], #unused, x=o.value(), Bool(false), x, y)), optional.none())",
        ),
        ("cel.bind(x, 1, x)", "cel.bind(x, Int(1), x)"),
    ];
    for (text, wanted) in cases {
        assert_eq!(issues(text), wanted, "{text}");
    }
    let bound = parse(&Source::new("cel.bind(x, 1, x)"), true).expect("a macro");
    assert_eq!(show(&bound), "fold([], #unused, x=Int(1), Bool(false), x, x)");
}

#[test]
fn copies_of_macros_are_limited() {
    let text = format!("a{}", ".optMap(x, x)".repeat(60));
    assert_eq!(issues(&text), "ERROR: <input>:-1:0: expression is too large after macros are expanded");
}

#[test]
fn nesting_is_limited() {
    let parens = format!("{}1{}", "(".repeat(251), ")".repeat(251));
    assert_eq!(issues(&parens), "ERROR: <input>:-1:0: expression recursion limit exceeded: 250");
    let sum = format!("1{}", "+1".repeat(251));
    assert_eq!(issues(&sum), "ERROR: <input>:-1:0: max recursion depth exceeded");
    assert!(!issues(&format!("1{}", "+1".repeat(250))).contains("ERROR"));
}
