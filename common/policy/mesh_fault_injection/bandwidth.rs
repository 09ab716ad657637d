//! How fast an answer may be (`50 kbps`, `1 Mbps`).

use std::str::FromStr;

use thiserror::Error;

/// A speed in kilobits a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth(pub u64);

/// The text is not a number of `kbps`, `Mbps` or `Gbps`.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("must be in kbps/Mbps/Gbps units")]
pub struct BandwidthError;

impl FromStr for Bandwidth {
    type Err = BandwidthError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let units = text.find(|c: char| !c.is_ascii_digit()).ok_or(BandwidthError)?;
        let (number, unit) = text.split_at(units);
        let unit = unit.strip_prefix(|c: char| c.is_ascii_whitespace()).unwrap_or(unit);
        let factor: u64 = match unit {
            "kbps" => 1,
            "Mbps" => 1_000,
            "Gbps" => 1_000_000,
            _ => return Err(BandwidthError),
        };
        let number: u64 = number.parse().map_err(|_| BandwidthError)?;
        Ok(Self(number.checked_mul(factor).ok_or(BandwidthError)?))
    }
}

#[cfg(test)]
mod tests {
    use super::{Bandwidth, BandwidthError};

    #[test]
    fn a_speed_has_a_number_and_a_unit() {
        for (text, kbps) in [("50 kbps", 50), ("50kbps", 50), ("2 Mbps", 2_000), ("3Gbps", 3_000_000)] {
            assert_eq!(text.parse(), Ok(Bandwidth(kbps)), "{text}");
        }
        for text in ["", "50", "kbps", "50 mbps", "50  kbps", "-1 kbps", "1.5 kbps", "99999999999999 Gbps"] {
            assert_eq!(text.parse::<Bandwidth>(), Err(BandwidthError), "{text}");
        }
    }
}
