//! What is wrong with a resource, field by field.

use std::fmt;

use crate::clip::clipped;

/// Violations of one resource that are told; who breaks more rules than that is helped by the first ones.
const TOLD: usize = 100;
/// What is told of a path, and of a reason, in bytes: both may repeat what was sent.
const LONGEST: usize = 1024;

/// A path into a resource in the notation of the API's errors: `networking.inbound[0].tags["k"]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldPath(String);

impl FieldPath {
    /// The empty path.
    pub fn root() -> Self {
        Self::default()
    }

    /// A path that starts with `name`.
    pub fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// The member `name` below this path.
    pub fn field(&self, name: &str) -> Self {
        if self.0.is_empty() { Self::new(name) } else { Self(format!("{}.{name}", self.0)) }
    }

    /// The list item `index` of this path.
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// The map entry `key` of this path.
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{}[\"{key}\"]", self.0))
    }

    /// The text form.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for FieldPath {
    fn from(path: &str) -> Self {
        Self(path.to_owned())
    }
}

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where.
    pub field: FieldPath,
    /// What is expected there.
    pub reason: String,
}

/// All broken rules of one resource, in the order they were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Violations(Vec<Violation>);

impl Violations {
    /// None.
    pub fn none() -> Self {
        Self::default()
    }

    /// Exactly one.
    pub fn one(field: impl Into<FieldPath>, reason: impl Into<String>) -> Self {
        let mut violations = Self::default();
        violations.add(field.into(), reason);
        violations
    }

    /// Adds one, unless there are more than enough.
    pub fn add(&mut self, field: FieldPath, reason: impl Into<String>) {
        if self.0.len() < TOLD {
            let (field, reason) = (FieldPath(clipped(field.0, LONGEST)), clipped(reason.into(), LONGEST));
            self.0.push(Violation { field, reason });
        }
    }

    /// Adds one when `broken`.
    pub fn check(&mut self, broken: bool, field: FieldPath, reason: impl Into<String>) {
        if broken {
            self.add(field, reason);
        }
    }

    /// Adds all of `other`.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
        self.0.truncate(TOLD);
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In the order they were found.
    pub fn iter(&self) -> impl Iterator<Item = &Violation> {
        self.0.iter()
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, v) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{}: {}", v.field, v.reason)?;
        }
        Ok(())
    }
}
