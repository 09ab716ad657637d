//! Short texts with a form of their own: names, labels, identifiers, stamps in headers.

use common::{
    kds::headers::Upstream,
    model::{kri::Kri, labels, names},
    registry,
};

use super::Target;
use crate::corpus::Corpus;

/// Any short text, read as each of them.
pub static WORDS: Target = Target { name: "words", costs: 1, run, seeds };

fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(kri) = Kri::parse(text, registry::by_short) {
        let shown = kri.to_string();
        let again = Kri::parse(&shown, registry::by_short).expect("what was shown can be read");
        assert_eq!(again.to_string(), shown);
    }
    if let Some(upstream) = Upstream::parse(text) {
        assert_eq!(Upstream::parse(&upstream.to_text()), Some(upstream));
    }
    let _problems =
        (labels::key_problems(text), labels::value_problem(text), labels::subdomain_problem(text));
    let _problem = labels::dns_1035_problem(text);
    let _kind = (registry::by_name(text), registry::by_argument(text));
    hashed(text);
}

/// A hashed name is a name, and differs when the parts do.
fn hashed(text: &str) {
    let name: String = text.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    let of_zone = |zone| names::hashed("default", &name, Some(zone), None);
    assert!(of_zone("zone-1").len() <= names::MAX_NAME);
    assert_ne!(of_zone("zone-1"), of_zone("zone-2"));
    let _long = names::hashed(text, text, Some(text), Some(text));
}

fn seeds(corpus: &Corpus) -> Vec<Vec<u8>> {
    let kris = corpus.resources.iter().filter_map(Kri::of).map(|kri| kri.to_string().into_bytes());
    let names = corpus.resources.iter().map(|resource| resource.name().as_bytes().to_vec());
    let stamp = format!("{}:1:7", uuid::Uuid::nil());
    kris.chain(names).chain([stamp.into_bytes(), b"kuma.io/zone".to_vec()]).collect()
}
