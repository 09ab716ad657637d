//! Templates of names, as host name generators and identities have them: text with `{{ .Field }}` and
//! `{{ label "key" }}` in it.

use thiserror::Error;

/// Why a template makes no name.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TemplateError {
    /// An action that is not closed.
    #[error("an action that begins with {{{{ has no end")]
    Open,
    /// Something else than a field or a label.
    #[error("{0:?} is neither a field nor a label")]
    Unknown(String),
    /// Nothing to put in its place.
    #[error("{0:?} has no value here")]
    Missing(String),
}

/// Fills in `template`; `value` knows the fields by their names, and labels.
///
/// # Errors
/// [`TemplateError`] when it makes no name.
pub fn fill(
    template: &str,
    value: impl Fn(TemplateVariable<'_>) -> Option<String>,
) -> Result<String, TemplateError> {
    let mut filled = String::new();
    let mut rest = template;
    while let Some((text, after)) = rest.split_once("{{") {
        let (action, after) = after.split_once("}}").ok_or(TemplateError::Open)?;
        // A hyphen at an end of an action takes the blanks beside it.
        let (action, trims_before) = strip(action, str::strip_prefix);
        let (action, trims_after) = strip(action, str::strip_suffix);
        filled.push_str(if trims_before { text.trim_end() } else { text });
        let part = TemplateVariable::parse(action.trim())
            .ok_or_else(|| TemplateError::Unknown(action.trim().to_owned()))?;
        filled.push_str(&value(part).ok_or_else(|| TemplateError::Missing(action.trim().to_owned()))?);
        rest = if trims_after { after.trim_start() } else { after };
    }
    filled.push_str(rest);
    Ok(filled)
}

fn strip<'a>(action: &'a str, at: impl Fn(&'a str, char) -> Option<&'a str>) -> (&'a str, bool) {
    at(action, '-').map_or((action, false), |stripped| (stripped, true))
}

/// What an action asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateVariable<'a> {
    /// A field, by its name.
    Field(&'a str),
    /// The value of a label, by its key.
    Label(&'a str),
}

impl<'a> TemplateVariable<'a> {
    fn parse(action: &'a str) -> Option<Self> {
        if let Some(field) = action.strip_prefix('.') {
            return Some(Self::Field(field));
        }
        let key = action.strip_prefix("label")?.trim_start();
        let quoted = |quote: char| key.strip_prefix(quote)?.strip_suffix(quote);
        quoted('"').or_else(|| quoted('`')).map(Self::Label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(part: TemplateVariable<'_>) -> Option<String> {
        match part {
            TemplateVariable::Field("Name") => Some("web".to_owned()),
            TemplateVariable::Label("k8s.kuma.io/ns") => Some("demo".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn fields_and_labels_are_filled_in() {
        let check =
            |template: &str, expected: &str| assert_eq!(fill(template, value).as_deref(), Ok(expected));
        check("plain", "plain");
        check("{{ .Name }}.mesh", "web.mesh");
        check("{{.Name}}.{{ label \"k8s.kuma.io/ns\" }}.x", "web.demo.x");
        check("a {{- .Name -}} b", "awebb");
        let fails =
            |template: &str, expected: TemplateError| assert_eq!(fill(template, value), Err(expected));
        fails("{{ .Name", TemplateError::Open);
        fails("{{ .Zone }}", TemplateError::Missing(".Zone".to_owned()));
        fails("{{ label \"x\" }}", TemplateError::Missing("label \"x\"".to_owned()));
        fails("{{ if .Name }}", TemplateError::Unknown("if .Name".to_owned()));
    }
}
