//! One line of a check.

use chrono::TimeDelta;
use console::Style;
use serde::Serialize;

use crate::output;

/// When the end of a credential or a certificate is near.
pub(super) const SOON: TimeDelta = TimeDelta::days(14);

/// How bad something is, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CheckVerdict {
    Ok,
    Warning,
    Failure,
}

/// What was found out about one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct CheckLine {
    pub(super) verdict: CheckVerdict,
    /// Of what.
    pub(super) about: &'static str,
    pub(super) found: String,
    /// What to do; empty when there is nothing to be done, or what was found says it.
    #[serde(rename = "do", skip_serializing_if = "String::is_empty")]
    pub(super) remedy: String,
}

impl CheckLine {
    pub(super) fn ok(about: &'static str, found: impl Into<String>) -> Self {
        Self { verdict: CheckVerdict::Ok, about, found: found.into(), remedy: String::new() }
    }

    pub(super) fn warning(about: &'static str, found: impl Into<String>) -> Self {
        Self { verdict: CheckVerdict::Warning, ..Self::ok(about, found) }
    }

    pub(super) fn failure(about: &'static str, found: impl Into<String>) -> Self {
        Self { verdict: CheckVerdict::Failure, ..Self::ok(about, found) }
    }

    /// The same, with what to do about it.
    pub(super) fn but(self, remedy: impl Into<String>) -> Self {
        Self { remedy: remedy.into(), ..self }
    }

    /// As a line, and another for what to do.
    pub(super) fn print(&self) {
        let (sign, style) = match self.verdict {
            CheckVerdict::Ok => ("ok     ", Style::new().green()),
            CheckVerdict::Warning => ("warning", Style::new().yellow()),
            CheckVerdict::Failure => ("failure", Style::new().red()),
        };
        // The colours are ours, the words may be somebody else's.
        output::styled_line(&format!("  {}  ", style.apply_to(sign)), &self.found);
        if !self.remedy.is_empty() {
            output::styled_line("           ", &format!("-> {}", self.remedy));
        }
    }
}
