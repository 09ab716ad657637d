//! Numbers that may also be written as text (`50` or `"50.5"`).

use serde::{Deserialize, Serialize};

/// An integer, or a decimal number as text. Kept as written, because the two are told apart when read
/// back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IntOrString {
    /// A whole number.
    Int(i64),
    /// A number in text form.
    Text(String),
}

impl IntOrString {
    /// The value, `None` when the text is no finite number.
    pub fn value(&self) -> Option<f64> {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "percentages and factors are small")]
            Self::Int(number) => Some(*number as f64),
            Self::Text(text) => text.parse().ok().filter(|n: &f64| n.is_finite()),
        }
    }
}
