//! What an expression may refer to, and compiling expressions against it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::check::{self, Checked, Reference};
use crate::declare::Functions;
use crate::declared::Declared;
use crate::estimate::{self, Estimate};
use crate::issues::Issues;
use crate::library::{self, Compatibility};
use crate::plan::Program;
use crate::source::Source;
use crate::syntax;
use crate::types::{ObjectTypes, Type};

/// Variables, object types and functions that expressions may use.
#[derive(Clone)]
pub struct Environment {
    pub(crate) functions: &'static Functions,
    pub(crate) variables: HashMap<String, Type>,
    pub(crate) types: Option<Arc<dyn ObjectTypes>>,
    bind: bool,
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment")
            .field("variables", &self.variables)
            .field("bind", &self.bind)
            .finish_non_exhaustive()
    }
}

impl Environment {
    /// The functions of Kubernetes, and no variables.
    #[must_use]
    pub fn new(compatibility: Compatibility) -> Self {
        Self { functions: library::functions(compatibility), variables: HashMap::new(), types: None, bind: false }
    }

    /// Declares a variable. The name may be qualified, as in `authorizer.requestResource`.
    #[must_use]
    pub fn variable(mut self, name: &str, kind: Type) -> Self {
        self.variables.insert(name.to_owned(), kind);
        self
    }

    /// Declares object types.
    #[must_use]
    pub fn types(mut self, types: Arc<dyn ObjectTypes>) -> Self {
        self.types = Some(types);
        self
    }

    /// Enables the macro `cel.bind`, which Kubernetes does not have.
    #[must_use]
    pub fn with_bind(mut self) -> Self {
        self.bind = true;
        self
    }

    /// Parses and checks an expression.
    ///
    /// # Errors
    /// The compile errors, formatted as cel-go formats them. Kubernetes shows them after `compilation failed: `.
    pub fn compile(&self, text: &str) -> Result<Expression, Issues> {
        let source = Source::new(text);
        let expr = syntax::parse(&source, self.bind)?;
        let checked = check::check(self, &source, expr)?;
        Ok(Expression { checked })
    }
}

/// An expression that was parsed and checked.
#[derive(Debug)]
pub struct Expression {
    checked: Checked,
}

impl Expression {
    /// The type of its value.
    #[must_use]
    pub fn result_type(&self) -> &Type {
        &self.checked.result
    }

    /// Whether it refers to a variable of this name.
    #[must_use]
    pub fn uses(&self, variable: &str) -> bool {
        let is_it = |reference: &Reference| matches!(reference, Reference::Variable { name, .. } if name == variable);
        self.checked.references.values().any(is_it)
    }

    /// What an evaluation costs at least and at most, as Kubernetes estimates it. `root` is the type of the variables,
    /// whose limits bound the loops over their parts.
    #[must_use]
    pub fn estimate(&self, root: &Declared) -> Estimate {
        estimate::estimate(&self.checked, root)
    }

    /// Prepares the expression for evaluation. Parts with constants only are computed now.
    ///
    /// # Errors
    /// The message of a constant part that fails. Kubernetes shows it behind `program instantiation failed: `.
    pub fn program(&self) -> Result<Program, String> {
        Program::new(&self.checked)
    }
}
