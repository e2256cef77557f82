use std::sync::Arc;

use super::*;
use crate::{Compatibility, Environment, Items};

fn estimate(declared: &Declared, expression: &str) -> (u64, u64) {
    let environment = Environment::new(Compatibility::New).variable("self", declared.kind().clone());
    let expression = environment.compile(expression).expect("it compiles");
    let Range { min, max } = expression.estimate(declared);
    (min, max)
}

#[test]
fn limits_of_the_schema_bound_loops() {
    let text = || Arc::new(Declared::new(Shape::String, false, 20));
    let list = |most| Declared::new(Shape::List(text(), Items::Ordered), false, most);
    assert_eq!(estimate(&list(10), "self.all(x, x == 'a')"), (2, 52));
    assert_eq!(estimate(&list(10), "self.all(x, self.exists(y, x == y))"), (2, 852));
    assert_eq!(estimate(&list(u64::MAX), "self.all(x, x == 'a')"), (2, u64::MAX));
    let map = Declared::new(Shape::Map(text()), false, 8);
    assert_eq!(estimate(&map, "self.all(k, self[k] == 'a')"), (2, 58));
}

#[test]
fn branches_count_as_the_larger_and_the_smaller() {
    let text = Declared::new(Shape::String, false, 100);
    assert_eq!(estimate(&text, "true ? self == 'abcdefghijklmnopqrstuvwxyz' : true"), (0, 4));
    assert_eq!(estimate(&text, "self == 'a' && self.matches('abcd')"), (2, 14));
    assert_eq!(estimate(&text, "[1, 2].all(x, x > 1)"), (17, 21));
}
