//! What there is to set, for who writes it down.

use serde_json::Value;

use super::{Config, PREFIXES, defaults, help, leaves, variables_of};

/// One setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Its path in the file, which is its flag.
    pub path: String,
    /// What stands for its value in the help.
    pub value_name: &'static str,
    /// Its default.
    pub default: Value,
    /// Variables of the environment that set it, the strongest first.
    pub variables: Vec<String>,
    /// What it is for.
    pub help: &'static str,
}

/// Every setting of `C`, in the order of its struct.
pub fn settings<C: Config>() -> Vec<Setting> {
    let setting = |leaf: super::Leaf| Setting {
        value_name: leaf.value_name(),
        variables: PREFIXES.iter().flat_map(|prefix| variables_of(&leaf, prefix).into_iter().rev()).collect(),
        help: help::<C>(&leaf.path).unwrap_or_default(),
        path: leaf.path,
        default: leaf.default,
    };
    leaves(&defaults::<C>()).into_iter().map(setting).collect()
}
