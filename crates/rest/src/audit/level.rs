//! Audit levels and stages, as `audit.k8s.io/v1` names them.

/// How much of a request is recorded. Levels are ordered: each records what the one before it does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// No event.
    None,
    /// Who requested what, when, and the result.
    Metadata,
    /// Also the object in the request.
    Request,
    /// Also the object in the response.
    RequestResponse,
}

impl Level {
    /// All levels, in their order.
    pub const ALL: [Self; 4] = [Self::None, Self::Metadata, Self::Request, Self::RequestResponse];

    /// The name in policies and events.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }

    /// The level with a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

/// When an event is generated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// The request has been received and its user is known.
    RequestReceived,
    /// The headers of the response are about to be sent; only for long-running requests.
    ResponseStarted,
    /// The response is complete.
    ResponseComplete,
    /// The handler panicked.
    Panic,
}

impl Stage {
    /// All stages, in the order in which Kubernetes lists them.
    pub const ALL: [Self; 4] = [Self::RequestReceived, Self::ResponseStarted, Self::ResponseComplete, Self::Panic];

    /// The name in policies and events.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }

    /// The stage with a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.name() == name)
    }
}

/// A set of stages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stages(u8);

impl Stages {
    /// Whether a stage is in the set.
    #[must_use]
    pub const fn contains(self, stage: Stage) -> bool {
        self.0 & (1 << stage as u8) != 0
    }

    /// The stages of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl FromIterator<Stage> for Stages {
    fn from_iter<I: IntoIterator<Item = Stage>>(stages: I) -> Self {
        Self(stages.into_iter().fold(0, |bits, stage| bits | 1 << stage as u8))
    }
}
