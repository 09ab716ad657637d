//! One line of a check.

use chrono::TimeDelta;
use serde::Serialize;

/// When the end of a credential or a certificate is near.
pub const SOON: TimeDelta = TimeDelta::days(14);

/// How bad something is, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckVerdict {
    /// Nothing is wrong.
    Ok,
    /// Somebody should look at it.
    Warning,
    /// Something does not work.
    Failure,
}

/// What was found out about one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckLine {
    /// How bad it is.
    pub verdict: CheckVerdict,
    /// Of what.
    pub about: &'static str,
    /// What is so.
    pub found: String,
    /// What to do; empty when there is nothing to be done, or what was found says it.
    #[serde(rename = "do", skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

impl CheckLine {
    /// Nothing is wrong with it.
    pub fn ok(about: &'static str, found: impl Into<String>) -> Self {
        Self { verdict: CheckVerdict::Ok, about, found: found.into(), remedy: String::new() }
    }

    /// Somebody should look at it.
    pub fn warning(about: &'static str, found: impl Into<String>) -> Self {
        Self { verdict: CheckVerdict::Warning, ..Self::ok(about, found) }
    }

    /// It does not work.
    pub fn failure(about: &'static str, found: impl Into<String>) -> Self {
        Self { verdict: CheckVerdict::Failure, ..Self::ok(about, found) }
    }

    /// The same, with what to do about it.
    pub fn but(self, remedy: impl Into<String>) -> Self {
        Self { remedy: remedy.into(), ..self }
    }
}
