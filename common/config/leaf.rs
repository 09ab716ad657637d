//! The settings of a config struct, found by walking its default value.

use serde_json::Value;

use super::ConfigError;

/// One setting.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// Dotted path.
    pub path: String,
    /// Its default.
    pub default: Value,
}

/// Every leaf of `defaults`, in the order of the struct.
pub fn leaves(defaults: &Value) -> Vec<Leaf> {
    let mut found = Vec::new();
    walk("", defaults, &mut found);
    found
}

fn walk(path: &str, value: &Value, found: &mut Vec<Leaf>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                walk(&path, member, found);
            }
        }
        leaf => found.push(Leaf { path: path.to_owned(), default: leaf.clone() }),
    }
}

impl Leaf {
    /// Name of its environment variable: `store.postgres.dbName` is `<prefix>_STORE_POSTGRES_DB_NAME`.
    pub fn variable(&self, prefix: &str) -> String {
        let mut name = format!("{prefix}_");
        let mut previous_lower = false;
        for c in self.path.chars() {
            if c == '.' {
                name.push('_');
            } else {
                if c.is_ascii_uppercase() && previous_lower {
                    name.push('_');
                }
                name.push(c.to_ascii_uppercase());
            }
            previous_lower = c.is_ascii_lowercase() || c.is_ascii_digit();
        }
        name
    }

    /// What stands for its value in the help.
    pub fn value_name(&self) -> &'static str {
        match self.default {
            Value::Bool(_) => "BOOL",
            Value::Number(_) => "NUMBER",
            Value::Array(_) => "A,B",
            _ => "TEXT",
        }
    }

    /// Reads `text` as a value of the type its default has.
    pub(super) fn value(&self, text: &str, from: &str) -> Result<Value, ConfigError> {
        let fail = |expected: &str| {
            let reason = format!("{text:?} is not {expected}");
            Err(ConfigError::Value { from: from.to_owned(), reason })
        };
        match &self.default {
            Value::Bool(_) => text.parse().map(Value::Bool).or_else(|_| fail("true or false")),
            Value::Number(_) => {
                text.parse::<u64>().map(Value::from).or_else(|_| fail("a whole number of 0 or more"))
            }
            Value::Array(_) => Ok(text.split(',').map(str::trim).filter(|t| !t.is_empty()).collect()),
            _ => Ok(Value::from(text)),
        }
    }
}
