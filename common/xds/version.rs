//! The version of a resource on the wire.

use std::{fmt, sync::Arc};

use sha2::{Digest, Sha256};

/// A digest of a resource's encoded form. Equal content has an equal version in every process and after
/// every restart, which is what makes a resumed stream honest. Half of SHA-256 is kept: there is one of
/// these per resource and peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version([u8; 16]);

impl Version {
    /// The version of these encoded bytes.
    pub fn of(encoded: &[u8]) -> Self {
        Self::of_parts([encoded])
    }

    /// The version of something made of several parts; where one part ends counts.
    pub fn of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut digest = Sha256::new();
        for part in parts {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        let mut half = [0; 16];
        half.copy_from_slice(&digest.finalize()[..16]);
        Self(half)
    }

    /// Reads what [`Display`](fmt::Display) wrote. `None` is a version some other program made up.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 32 {
            return None;
        }
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Some(Self(bytes))
    }

    /// What [`Display`](fmt::Display) writes, as bytes.
    pub(super) fn digits(&self) -> [u8; 32] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut digits = [0; 32];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        digits
    }

    /// That of something made of two others, in whatever order. Each has a digest that says what it is.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] ^ other.0[i]))
    }

    /// The bytes behind it.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// What peers are told in place of a digest, where the author of a resource said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnVersion {
    /// The words of the author.
    pub text: Arc<str>,
    /// When they were given: of several resources those given last stand for all.
    pub given: u64,
}

impl From<[u8; 16]> for Version {
    fn from(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::Version;

    #[test]
    fn reads_back_what_it_printed_and_nothing_else() {
        let version = Version::of(b"spec");
        assert_eq!(Version::parse(&version.to_string()), Some(version));
        for foreign in [
            "",
            "v1",
            "0123",
            &"g".repeat(32),
            &"A".repeat(32),
            &"0".repeat(64),
            "é0123456789012345678901234567",
        ] {
            assert_eq!(Version::parse(foreign), None, "{foreign:?}");
        }
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        assert_ne!(Version::of_parts([&b"ab"[..], b"c"]), Version::of_parts([&b"a"[..], b"bc"]));
    }
}
