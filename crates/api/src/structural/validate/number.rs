//! Bounds of numbers.

use super::{Context, Name, Report};
use crate::structural::go::{self, Num};
use crate::structural::{Bound, Structural, Type};

/// The largest integer that a float holds exactly.
const MAX_EXACT: f64 = 9_007_199_254_740_991.0;

/// Whether a float is an integer, or so large that its fraction is within a billionth of it.
pub(super) fn is_integer(value: f64) -> bool {
    if value.is_nan() || value.abs() > MAX_EXACT {
        return false;
    }
    let whole = value.trunc();
    value == whole || (value >= 1.0 && (value - whole) / (value + whole) < 1e-9)
}

impl Context<'_> {
    pub(super) fn number(&self, schema: &Structural, value: Num, name: &Name<'_>, report: &mut Report) {
        let checks = &schema.checks;
        let range = Range::of(self, schema);
        if !range.contains(value) {
            self.general(report, &range.complaint("Checked", name));
        }
        if let Some(factor) = checks.multiple_of {
            let native = self.bound_fits(range, factor, "MultipleOf", name, report);
            self.multiple(value, factor, native, name, report);
        }
        if let Some(bound) = checks.minimum {
            let native = self.bound_fits(range, bound.value, "Minimum boundary", name, report);
            self.bound(value, bound, native, Side::Minimum, name, report);
        }
        if let Some(bound) = checks.maximum {
            let native = self.bound_fits(range, bound.value, "Maximum boundary", name, report);
            self.bound(value, bound, native, Side::Maximum, name, report);
        }
        report.matches += 2;
    }

    /// Whether a limit is in the range of the type; integers are then compared as such.
    fn bound_fits(&self, range: Range<'_>, limit: f64, what: &str, name: &Name<'_>, report: &mut Report) -> bool {
        let fits = range.contains(Num::Float(limit));
        if !fits {
            self.general(report, &range.complaint(what, name));
        }
        fits
    }

    fn multiple(&self, value: Num, factor: f64, native: bool, name: &Name<'_>, report: &mut Report) {
        let (factor, fits) = match value {
            Num::Int(value) if native => {
                let factor = go::to_int(factor);
                (Num::Int(factor), factor <= 0 || value % factor == 0)
            }
            value => {
                let value = value.as_f64();
                let times = if factor < 1.0 { 1.0 / factor * value } else { value / factor };
                (Num::Float(factor), is_integer(times))
            }
        };
        if factor.as_f64() <= 0.0 {
            let detail =
                format!("Invalid value: {factor}: factor MultipleOf declared for {name} must be positive: {factor}");
            self.fail(report, "FieldValueInvalid", name, detail);
        } else if !fits {
            let value = if native { value } else { Num::Float(value.as_f64()) };
            self.invalid(report, name, &value.to_string(), &format!("should be a multiple of {factor}"));
        }
    }

    fn bound(&self, value: Num, bound: Bound, native: bool, side: Side, name: &Name<'_>, report: &mut Report) {
        let (value, limit) = match value {
            value @ Num::Int(_) if native => (value, Num::Int(go::to_int(bound.value))),
            value => (Num::Float(value.as_f64()), Num::Float(bound.value)),
        };
        let order = match (value, limit) {
            (Num::Int(value), Num::Int(limit)) => Some(value.cmp(&limit)),
            (value, limit) => value.as_f64().partial_cmp(&limit.as_f64()),
        };
        let Some(order) = order else { return };
        let beyond = match side {
            Side::Minimum => order.is_lt(),
            Side::Maximum => order.is_gt(),
        };
        let excluded = bound.exclusive && order.is_eq();
        if !beyond && !excluded {
            return;
        }
        let relation = match (side, bound.exclusive) {
            (Side::Minimum, false) => "greater than or equal to",
            (Side::Minimum, true) => "greater than",
            (Side::Maximum, false) => "less than or equal to",
            (Side::Maximum, true) => "less than",
        };
        self.invalid(report, name, &value.to_string(), &format!("should be {relation} {limit}"));
    }
}

#[derive(Clone, Copy)]
enum Side {
    Minimum,
    Maximum,
}

/// The numbers that a type with its format can hold.
#[derive(Clone, Copy)]
struct Range<'s> {
    ty: Option<Type>,
    format: &'s str,
}

impl<'s> Range<'s> {
    fn of(context: &Context<'_>, schema: &'s Structural) -> Self {
        let format = schema.checks.format.as_str();
        match (context.types(schema), format) {
            ([ty @ Type::Integer], "int32" | "int64") | ([ty @ Type::Number], "float" | "double") => {
                Self { ty: Some(*ty), format }
            }
            ([ty @ (Type::Integer | Type::Number)], _) => Self { ty: Some(*ty), format: "" },
            _ => Self { ty: None, format: "" },
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a float that is too large becomes infinite")]
    fn contains(self, value: Num) -> bool {
        match (self.ty, self.format, value) {
            (Some(Type::Integer), "int32", Num::Int(value)) => i32::try_from(value).is_ok(),
            (Some(Type::Integer), "int32", Num::Float(value)) => {
                value.fract() == 0.0 && value >= f64::from(i32::MIN) && value <= f64::from(i32::MAX)
            }
            (Some(Type::Integer), _, Num::Float(value)) => {
                value.fract() == 0.0 && (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value)
            }
            (Some(Type::Number), "float", value) => (value.as_f64() as f32).is_finite(),
            _ => true,
        }
    }

    fn complaint(self, what: &str, name: &Name<'_>) -> String {
        let ty = self.ty.map_or("", Type::as_str);
        if self.format.is_empty() {
            format!("{what} value must be of type {ty} (default format) in {name}")
        } else {
            format!("{what} value must be of type {ty} with format {} in {name}", self.format)
        }
    }
}
