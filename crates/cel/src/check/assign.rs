//! Which types fit where: unification with gradual typing.
//!
//! `dyn` fits everything. Variables stand for types that are not known yet; binding them is undone when a candidate does
//! not fit after all.

use crate::types::Type;

/// Bindings of type variables.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    bound: Vec<Option<Type>>,
    /// What was bound before, to undo.
    trail: Vec<(usize, Option<Type>)>,
}

impl Bindings {
    pub(crate) fn fresh(&mut self) -> Type {
        self.bound.push(None);
        Type::Var(self.bound.len() - 1)
    }

    fn find(&self, kind: &Type) -> Option<&Type> {
        match kind {
            Type::Var(number) => self.bound.get(*number)?.as_ref(),
            _ => None,
        }
    }

    fn bind(&mut self, variable: &Type, kind: Type) {
        if let Type::Var(number) = variable
            && let Some(slot) = self.bound.get_mut(*number)
        {
            self.trail.push((*number, slot.replace(kind)));
        }
    }

    /// Whether `from` fits `to`; bindings made on the way stay only if it does.
    pub(crate) fn assign(&mut self, from: &Type, to: &Type) -> bool {
        self.assign_all(&[from], &[to])
    }

    /// The same for lists of types, all or none.
    pub(crate) fn assign_all(&mut self, from: &[&Type], to: &[&Type]) -> bool {
        let mark = self.trail.len();
        let fits = self.fits_all(from, to);
        if !fits {
            while self.trail.len() > mark
                && let Some((number, before)) = self.trail.pop()
            {
                if let Some(slot) = self.bound.get_mut(number) {
                    *slot = before;
                }
            }
        }
        fits
    }

    fn fits_all(&mut self, from: &[&Type], to: &[&Type]) -> bool {
        from.len() == to.len() && from.iter().zip(to).all(|(from, to)| self.fits(from, to))
    }

    fn fits(&mut self, from: &Type, to: &Type) -> bool {
        if let Type::Var(_) = to {
            match self.substitutes(from, to) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let Type::Var(_) = from {
            return self.substitutes(to, from).0;
        }
        match (from, to) {
            (Type::Dyn | Type::Error, _) | (_, Type::Dyn | Type::Error) => true,
            (Type::Null, other) | (other, Type::Null) => is_nullable(other),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(from), Type::List(to)) | (Type::Optional(from), Type::Optional(to)) => self.fits(from, to),
            (Type::Map(from_key, from_value), Type::Map(to_key, to_value)) => {
                self.fits(from_key, to_key) && self.fits(from_value, to_value)
            }
            _ => from == to,
        }
    }

    /// Whether a variable can stand for a type, and whether it already stood for one.
    fn substitutes(&mut self, kind: &Type, variable: &Type) -> (bool, bool) {
        if kind == variable {
            return (true, true);
        }
        if let Some(bound) = self.find(variable).cloned() {
            if *kind == bound {
                return (true, true);
            }
            if !self.fits(kind, &bound) {
                return (false, true);
            }
            let general = most_general(kind, &bound);
            if !self.occurs(variable, &general) {
                self.bind(variable, general);
            }
            return (true, true);
        }
        if self.occurs(variable, kind) {
            return (false, false);
        }
        self.bind(variable, kind.clone());
        (true, false)
    }

    /// Whether a variable is part of a type.
    fn occurs(&self, variable: &Type, within: &Type) -> bool {
        if variable == within {
            return true;
        }
        match within {
            Type::Var(_) => self.find(within).is_some_and(|bound| self.occurs(variable, bound)),
            Type::List(inner) | Type::Optional(inner) | Type::Type(Some(inner)) => self.occurs(variable, inner),
            Type::Map(key, value) => self.occurs(variable, key) || self.occurs(variable, value),
            _ => false,
        }
    }

    /// The type with variables replaced by what they stand for; with `finish` unbound ones become `dyn`.
    pub(crate) fn substitute(&self, kind: &Type, finish: bool) -> Type {
        if let Some(bound) = self.find(kind) {
            return self.substitute(bound, finish);
        }
        match kind {
            Type::Var(_) if finish => Type::Dyn,
            Type::List(inner) => Type::list(self.substitute(inner, finish)),
            Type::Optional(inner) => Type::optional(self.substitute(inner, finish)),
            Type::Map(key, value) => Type::map(self.substitute(key, finish), self.substitute(value, finish)),
            Type::Type(Some(inner)) => Type::type_of(self.substitute(inner, finish)),
            _ => kind.clone(),
        }
    }
}

fn is_nullable(kind: &Type) -> bool {
    matches!(
        kind,
        Type::Null | Type::Opaque(_) | Type::Optional(_) | Type::Object(_) | Type::Duration | Type::Timestamp
    )
}

/// The more general of two types that fit each other.
pub(crate) fn most_general(one: &Type, other: &Type) -> Type {
    if is_less_specific(one, other) { one.clone() } else { other.clone() }
}

fn is_less_specific(one: &Type, other: &Type) -> bool {
    match (one, other) {
        (Type::Dyn | Type::Var(_), _) => true,
        (_, Type::Dyn | Type::Var(_)) => false,
        (Type::List(one), Type::List(other)) | (Type::Optional(one), Type::Optional(other)) => {
            is_less_specific(one, other)
        }
        (Type::Map(key, value), Type::Map(other_key, other_value)) => {
            is_less_specific(key, other_key) && is_less_specific(value, other_value)
        }
        (Type::Type(_), Type::Type(_)) => true,
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_bound_and_undone() {
        let mut bindings = Bindings::default();
        let variable = bindings.fresh();
        assert!(!bindings.assign_all(&[&Type::Int, &Type::String], &[&variable, &Type::Int]));
        assert_eq!(bindings.substitute(&variable, true), Type::Dyn);
        assert!(bindings.assign(&Type::list(variable.clone()), &Type::list(Type::Int)));
        assert_eq!(bindings.substitute(&variable, false), Type::Int);
        assert!(!bindings.assign(&Type::String, &variable));
        assert!(bindings.assign(&Type::Dyn, &variable));
        assert_eq!(bindings.substitute(&variable, false), Type::Dyn);
    }

    #[test]
    fn a_variable_is_not_part_of_itself() {
        let mut bindings = Bindings::default();
        let variable = bindings.fresh();
        assert!(!bindings.assign(&Type::list(variable.clone()), &variable));
    }

    #[test]
    fn null_fits_objects_and_times() {
        let mut bindings = Bindings::default();
        assert!(bindings.assign(&Type::Null, &Type::object("T")));
        assert!(bindings.assign(&Type::Duration, &Type::Null));
        assert!(!bindings.assign(&Type::Null, &Type::Int));
        assert!(!bindings.assign(&Type::object("T"), &Type::object("U")));
    }
}
