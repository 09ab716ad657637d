//! What a peer holds of a type in one line, in place of a list: most come back with what there is.

use std::fmt;

use sha2::{Digest, Sha256};

use super::{Want, subscription::WILDCARD};
use crate::proto::envoy::service::discovery::v3::DeltaDiscoveryRequest;

/// What begins the line, so that it is taken for no version.
const MARK: &str = "sha256:";

/// A digest of the names and versions of everything held of one type. Whoever holds something else has another one.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Summary {
    count: usize,
    digest: [u8; 32],
}

impl Summary {
    /// Of these names and versions, in the order of their names.
    pub(super) fn of<'a>(held: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut summing = Summing::default();
        held.for_each(|(name, version)| summing.add(name, version.as_bytes()));
        summing.finish()
    }

    /// Of what a peer should have of this type.
    pub(super) fn of_wanted(type_url: &str, want: &dyn Want) -> Self {
        let mut summing = Summing::default();
        want.each(type_url, &mut |name, version| summing.add(name, &version.digits()));
        summing.finish()
    }

    /// The summary in a first request, where it has one in place of a list.
    pub(super) fn read(request: &DeltaDiscoveryRequest) -> Option<&str> {
        let held = &request.initial_resource_versions;
        // Any other request is about an answer of this stream, or repeats one of an earlier stream.
        if held.len() != 1 || !request.response_nonce.is_empty() {
            return None;
        }
        held.get(WILDCARD).map(String::as_str).filter(|text| text.starts_with(MARK))
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MARK}{}:", self.count)?;
        self.digest.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A summary that is being made. Where a name and where a version ends counts.
#[derive(Default)]
struct Summing {
    count: usize,
    digest: Sha256,
}

impl Summing {
    fn add(&mut self, name: &str, version: &[u8]) {
        self.count += 1;
        for part in [name.as_bytes(), version] {
            self.digest.update((part.len() as u64).to_be_bytes());
            self.digest.update(part);
        }
    }

    fn finish(self) -> Summary {
        Summary { count: self.count, digest: self.digest.finalize().into() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::xds::{Version, WantSnapshot, Wanted};

    fn held() -> impl Strategy<Value = BTreeMap<String, u8>> {
        proptest::collection::btree_map("[ab]{1,3}", 0..3_u8, 0..6)
    }

    fn summary(held: &BTreeMap<String, u8>) -> Summary {
        let held: Vec<_> =
            held.iter().map(|(name, value)| (name, Version::of(&[*value]).to_string())).collect();
        Summary::of(held.iter().map(|(name, version)| (name.as_str(), version.as_str())))
    }

    proptest! {
        #[test]
        fn who_holds_the_same_has_the_same_summary_and_nobody_else(one in held(), other in held()) {
            prop_assert_eq!(summary(&one) == summary(&other), one == other);
            let mut want = WantSnapshot::new(1);
            one.iter().for_each(|(name, value)| want.put(Wanted::new(name.as_str(), "t", vec![*value])));
            prop_assert_eq!(Summary::of_wanted("t", &want), summary(&one));
        }
    }

    #[test]
    fn only_a_first_request_with_nothing_else_has_one() {
        let summary = summary(&BTreeMap::from([("a".to_owned(), 1)]));
        let request = |entries: &[(&str, &str)], nonce: &str| DeltaDiscoveryRequest {
            initial_resource_versions: entries.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect(),
            response_nonce: nonce.to_owned(),
            ..DeltaDiscoveryRequest::default()
        };
        let text = summary.to_string();
        assert_eq!(Summary::read(&request(&[("*", &text)], "")), Some(text.as_str()));
        let version = Version::of(b"x").to_string();
        for (entries, nonce) in [
            (&[][..], ""),
            (&[("*", text.as_str())], "1"),
            (&[("*", text.as_str()), ("a", "1")], ""),
            (&[("a", text.as_str())], ""),
            (&[("*", version.as_str())], ""),
        ] {
            assert_eq!(Summary::read(&request(entries, nonce)), None, "{entries:?} {nonce:?}");
        }
    }
}
