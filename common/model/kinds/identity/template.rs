//! Templates of names, in the notation of Go: text with actions in it, between `{{` and `}}`.
//!
//! This reads them as far as it takes to tell one that means something from one that does not. What it means
//! is found out where it is filled in.

/// What may be called besides `label`, which gives the value of a label.
const FUNCTIONS: [&str; 20] = [
    "label", "and", "or", "not", "len", "index", "slice", "print", "printf", "println", "html", "js", "call",
    "urlquery", "eq", "ne", "lt", "le", "gt", "ge",
];
/// Actions that begin with one of these have a grammar of their own, which a name has no use for.
const KEYWORDS: [&str; 10] =
    ["if", "else", "end", "range", "with", "define", "template", "block", "break", "continue"];

/// Why `template` means nothing.
pub(in crate::model::kinds) fn problem(template: &str) -> Option<String> {
    let mut rest = template;
    while let Some((_, after)) = rest.split_once("{{") {
        let Some((action, after)) = after.split_once("}}") else {
            return Some("template: :1: unclosed action".to_owned());
        };
        if let Some(problem) = action_problem(action.trim_matches('-').trim()) {
            return Some(format!("template: :1: {problem}"));
        }
        rest = after;
    }
    None
}

fn action_problem(action: &str) -> Option<String> {
    if action.starts_with("/*") {
        return (!action.ends_with("*/")).then(|| "unclosed comment".to_owned());
    }
    if action.split_whitespace().next().is_some_and(|word| KEYWORDS.contains(&word)) {
        return None;
    }
    for (stage, command) in action.split('|').enumerate() {
        let Some(word) = command.split_whitespace().next() else {
            return Some(
                if stage == 0 { "missing value for command" } else { "missing value for pipeline" }
                    .to_owned(),
            );
        };
        let called = word.trim_start_matches('(');
        let is_name = called.starts_with(|c: char| c.is_alphabetic() || c == '_');
        if is_name && !matches!(called, "true" | "false" | "nil") {
            let name = called.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
            if !FUNCTIONS.contains(&name) {
                return Some(format!("function {name:?} not defined"));
            }
        } else if called.starts_with('.') {
            let odd =
                called.chars().find(|c| !c.is_alphanumeric() && !matches!(c, '.' | '_' | '$' | ')' | ','));
            if let Some(odd) = odd {
                return Some(format!("bad character U+{:04X} {odd:?}", u32::from(odd)));
            }
        } else if stage > 0 && !called.starts_with('$') {
            return Some(format!("non executable command in pipeline stage {}", stage + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::problem;

    #[test]
    fn what_means_nothing_is_told() {
        for good in [
            "plain",
            "{{ .Mesh }}.{{.Zone}}.local",
            "{{ label \"kuma.io/workload\" }}",
            "{{- .Name | printf \"%s-x\" -}}",
            "{{ if .Zone }}{{ .Zone }}{{ end }}",
            "{{/* nothing */}}",
        ] {
            assert_eq!(problem(good), None, "{good}");
        }
        for (bad, why) in [
            ("{{ .Mesh", "unclosed action"),
            ("{{ }}", "missing value for command"),
            ("{{ .Mesh | }}", "missing value for pipeline"),
            ("{{ .Mesh | 5 }}", "non executable command in pipeline stage 2"),
            ("{{ labels \"a\" }}", "function \"labels\" not defined"),
            ("{{ .Mesh | upper }}", "function \"upper\" not defined"),
            ("{{ .Name[4 }}.mesh", "bad character U+005B '['"),
        ] {
            assert_eq!(problem(bad), Some(format!("template: :1: {why}")), "{bad}");
        }
    }
}
