//! The Common Expression Language (CEL) as Kubernetes uses it.
//!
//! In: the text of an expression, declarations of variables and types, and values from JSON. Out: a value, or the messages
//! that Kubernetes shows. No I/O, no clock. An expression is compiled in an [`Environment`], which finds syntax and type
//! errors, becomes a [`Program`], and is evaluated with [`Variables`]:
//!
//! ```
//! use cel::{Compatibility, Environment, Type, Value, Variables};
//!
//! let environment = Environment::new(Compatibility::New).variable("object", Type::Dyn);
//! let expression = environment.compile("object.spec.replicas <= 5").expect("it compiles");
//! assert_eq!(expression.result_type(), &Type::Bool);
//! let program = expression.program().expect("its constants are fine");
//! let object = serde_json::json!({"spec": {"replicas": 3}});
//! let evaluation = program.evaluate(&Variables::new().with("object", Value::from_json(&object)));
//! assert_eq!(evaluation.result.expect("a value").as_bool(), Some(true));
//! ```
//!
//! Expressions come from users. Their size and nesting are limited, and an evaluation is limited in cost and in work; it
//! ends soon, does not use much memory and does not overflow the stack, whatever the expression and the input are.

mod budget;
mod check;
mod declare;
mod declared;
mod environment;
mod escape;
mod estimate;
mod issues;
mod library;
mod plan;
mod source;
mod syntax;
mod types;
mod value;

pub use self::budget::{EvalError, MATCH_CONDITIONS_COST_BUDGET, PER_CALL_LIMIT, RUNTIME_COST_BUDGET};
pub use self::declared::{Declared, DeclaredTypes, Items, Properties, Shape};
pub use self::environment::{Environment, Expression};
pub use self::escape::{escape, is_reserved, unescape};
pub use self::estimate::Estimate;
pub use self::issues::{Issue, Issues};
pub use self::library::Compatibility;
pub use self::library::authz::{
    AUTHORIZER, Authorizer, Check, Decision, RESOURCE_CHECK, Request, Resource, Subject, Target,
};
pub use self::library::cidr::Cidr;
pub use self::library::named_format::NamedFormat;
pub use self::library::quantity::Quantity;
pub use self::library::regex::compile as compile_regex;
pub use self::library::semver::Version;
pub use self::library::url::{Url, check_request as check_request_uri};
pub use self::plan::{Evaluation, Program, Variables};
pub use self::types::{ObjectTable, ObjectTypes, Type};
pub use self::value::number::shortest as format_double;
pub use self::value::{Iter, List, Map, Object, Str, Timestamp, Value};
