//! How far the proxies of a zone are with what follows from writes, as their zone tells it.
//!
//! It is a watermark and a few exceptions, whose size does not depend on how many proxies or resources there are.

use serde::{Deserialize, Serialize};
use tonic::metadata::{BinaryMetadataValue, MetadataMap};

use crate::{clip::clip, redact, store::Revision};

/// Of pings between peers of this make. Words of an Envoy need not be ASCII.
const PROXIES: &str = "strait-proxies-bin";
/// Proxies told by name, of each sort.
pub const NAMED: usize = 10;
/// Bytes of a name, and of a reason.
const LONGEST_WORDS: usize = 200;
/// Largest header that is read, in bytes.
const LARGEST: usize = 16 << 10;

/// How far the connected proxies of a zone are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyProgress {
    /// Each of them has answered for all that follows for it from what was written up to this revision.
    pub acked: Revision,
    /// How many are connected.
    pub connected: u64,
    /// How many of them owe an answer at the moment.
    pub behind: u64,
    /// Some of those.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<String>,
    /// How many do without something.
    pub refusing: u64,
    /// Some of those, each with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<ProxyRefusal>,
}

/// A proxy that does without something it should have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProxyRefusal {
    /// Which one.
    pub proxy: String,
    /// In its words, or in those of the zone.
    pub reason: String,
}

impl ProxyRefusal {
    /// That of `proxy`, told in a few words.
    pub fn new(proxy: &str, reason: &str) -> Self {
        Self { proxy: brief(proxy), reason: brief(reason) }
    }
}

/// Words of somebody else, in a few and without secrets: everybody may see them.
fn brief(text: &str) -> String {
    redact::words(clip(text.trim(), LARGEST), LONGEST_WORDS)
}

impl ProxyProgress {
    /// Writes the header.
    pub fn write(&self, headers: &mut MetadataMap) {
        let encoded = self.encode();
        if !encoded.is_empty() {
            headers.insert_bin(PROXIES, BinaryMetadataValue::from_bytes(&encoded));
        }
    }

    /// Reads the header; `None` from a zone that does not tell.
    pub fn read(headers: &MetadataMap) -> Option<Self> {
        Self::decode(&headers.get_bin(PROXIES)?.to_bytes().ok()?)
    }

    /// On the wire. Never empty, unless it has no such form.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// From the wire, cut to what is kept of it; `None` when it is nothing that can be read.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut told: Self = (bytes.len() <= LARGEST).then(|| serde_json::from_slice(bytes).ok())??;
        told.waiting.truncate(NAMED);
        for name in &mut told.waiting {
            *name = brief(name);
        }
        told.refusals.truncate(NAMED);
        for refusal in &mut told.refusals {
            *refusal = ProxyRefusal::new(&refusal.proxy, &refusal.reason);
        }
        Some(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_survives_its_header_and_is_cut_where_it_enters() {
        let mut headers = MetadataMap::new();
        assert_eq!(ProxyProgress::read(&headers), None);
        let told = ProxyProgress {
            acked: 7,
            connected: 3,
            behind: 1,
            waiting: vec!["default.wéb".to_owned()],
            refusing: 1,
            refusals: vec![ProxyRefusal::new("default.db", "cannot bind\nthe port")],
        };
        told.write(&mut headers);
        assert_eq!(ProxyProgress::read(&headers), Some(told));

        let long = "x".repeat(LONGEST_WORDS * 2);
        let refusals = vec![ProxyRefusal { proxy: long.clone(), reason: long.clone() }; NAMED + 1];
        let much = ProxyProgress { waiting: vec![long; NAMED + 1], refusals, ..ProxyProgress::default() };
        much.write(&mut headers);
        let read = ProxyProgress::read(&headers).expect("it is no larger than what is read");
        assert_eq!((read.waiting.len(), read.refusals.len()), (NAMED, NAMED));
        assert!(read.waiting[0].len() == LONGEST_WORDS && read.refusals[0].reason.len() == LONGEST_WORDS);

        // Whoever tells it may be of another make, and quote what should be no secret to him.
        let quotes = r#"{"waiting": ["password=hunter2"], "refusals": [{"proxy": "p", "reason": "token: hunter2, no"}]}"#;
        let shown = format!("{:?}", ProxyProgress::decode(quotes.as_bytes()));
        assert!(!shown.contains("hunter2") && shown.contains("[redacted]"), "{shown}");

        let far = ProxyProgress { waiting: vec!["x".repeat(LARGEST)], ..ProxyProgress::default() };
        far.write(&mut headers);
        assert_eq!(ProxyProgress::read(&headers), None);
        headers.insert_bin(PROXIES, BinaryMetadataValue::from_bytes(b"{"));
        assert_eq!(ProxyProgress::read(&headers), None);
    }
}
