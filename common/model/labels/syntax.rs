//! Which texts may be label keys, label values and names; the rules and words of Kubernetes.

const NAME_FORM: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
    with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation \
    is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_FORM: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', \
    '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or \
    '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN_FORM: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
    characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex \
    used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const DNS_1123_FORM: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or \
    '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
    validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const DNS_1035_FORM: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', \
    start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or \
    'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const MAX_PART: usize = 63;
const MAX_SUBDOMAIN: usize = 253;

/// What is wrong with a label key: `[prefix/]name`.
pub fn key_problems(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let parts: Vec<&str> = key.split('/').collect();
    let name = match parts[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else if let Some(problem) = subdomain_problem(prefix) {
                problems.push(format!("prefix part {problem}"));
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {NAME_FORM} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > MAX_PART {
        problems.push(format!("name part must be no more than {MAX_PART} characters"));
    }
    if !is_word(name) {
        problems.push(format!("name part {NAME_FORM}"));
    }
    problems
}

/// What is wrong with a label value.
pub fn value_problem(value: &str) -> Option<String> {
    if value.len() > MAX_PART {
        return Some(format!("must be no more than {MAX_PART} characters"));
    }
    (!value.is_empty() && !is_word(value)).then(|| VALUE_FORM.to_owned())
}

/// What is wrong with a name that must be a lower-case DNS subdomain.
pub fn subdomain_problem(name: &str) -> Option<String> {
    if name.len() > MAX_SUBDOMAIN {
        return Some(format!("must be no more than {MAX_SUBDOMAIN} characters"));
    }
    let good = name.split('.').all(|label| is_bounded(label, |b| b == b'-', is_lower_alphanumeric));
    (!good).then(|| SUBDOMAIN_FORM.to_owned())
}

/// What is wrong with a name that must be a DNS label.
pub fn dns_1123_problem(name: &str) -> Option<String> {
    if name.len() > MAX_PART {
        return Some(format!("must be no more than {MAX_PART} characters"));
    }
    (!is_bounded(name, |b| b == b'-', is_lower_alphanumeric)).then(|| DNS_1123_FORM.to_owned())
}

/// What is wrong with a name that must be a DNS label starting with a letter.
pub fn dns_1035_problem(name: &str) -> Option<String> {
    if name.len() > MAX_PART {
        return Some(format!("must be no more than {MAX_PART} characters"));
    }
    let good = name.bytes().next().is_some_and(|b| b.is_ascii_lowercase())
        && is_bounded(name, |b| b == b'-', is_lower_alphanumeric);
    (!good).then(|| DNS_1035_FORM.to_owned())
}

fn is_word(text: &str) -> bool {
    is_bounded(text, |b| matches!(b, b'-' | b'_' | b'.'), |b| b.is_ascii_alphanumeric())
}

fn is_lower_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Whether `text` is not empty, starts and ends with an outer byte, and has only outer and inner ones.
fn is_bounded(text: &str, inner: impl Fn(u8) -> bool, outer: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    outer(*first) && outer(*last) && bytes.iter().all(|b| outer(*b) || inner(*b))
}
