//! What a peer, a proxy or a user can hand in as bytes, and what must hold whatever the bytes are: no
//! panic, and the property each target names.
//!
//! The same targets run in `cargo test` over seeds and mutations of them, and under libFuzzer (`make fuzz`).

#[path = "targets/ads.rs"]
mod ads;
#[path = "targets/bootstrap.rs"]
mod bootstrap;
#[path = "targets/documents.rs"]
mod documents;
#[path = "targets/dumps.rs"]
mod dumps;
#[path = "targets/headers.rs"]
mod headers;
#[path = "targets/heads.rs"]
mod heads;
#[path = "targets/insights.rs"]
mod insights;
#[path = "targets/multiplexed.rs"]
mod multiplexed;
#[path = "targets/parts.rs"]
mod parts;
#[path = "targets/settings.rs"]
mod settings;
#[path = "targets/store.rs"]
mod store;
#[path = "targets/sync.rs"]
mod sync;
#[path = "targets/tokens.rs"]
mod tokens;
#[path = "targets/words.rs"]
mod words;

use crate::corpus::Corpus;

/// One entrance for bytes from outside.
pub struct Target {
    /// What it is called in `make fuzz TARGET=`.
    pub name: &'static str,
    /// How often it runs less than others in a usual run: some take long.
    pub costs: u64,
    /// Takes any bytes; panics when a property is broken.
    pub run: fn(&[u8]),
    /// Inputs that get far.
    pub seeds: fn(&Corpus) -> Vec<Vec<u8>>,
}

/// All of them.
pub static ALL: &[&Target] = &[
    &documents::DOCUMENTS,
    &dumps::DUMPS,
    &sync::ITEMS,
    &sync::ATTRIBUTION,
    &sync::REQUESTS,
    &sync::RESPONSES,
    &multiplexed::MESSAGES,
    &ads::REQUESTS,
    &ads::NODES,
    &parts::PARTS,
    &tokens::TOKENS,
    &words::WORDS,
    &settings::SETTINGS,
    &bootstrap::BOOTSTRAPS,
    &heads::HEADS,
    &headers::HEADERS,
    &insights::INSIGHTS,
    &store::STORE,
];

/// The target of this name.
pub fn named(name: &str) -> Option<&'static Target> {
    ALL.iter().find(|target| target.name == name).copied()
}

/// Several messages in one input, each behind its length in two bytes.
fn frames(mut data: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while let Some((length, rest)) = data.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
        let (frame, after) = rest.split_at(length);
        frames.push(frame);
        data = after;
    }
    frames
}

/// The opposite of [`frames`]; what is too long for a frame is cut.
fn framed<'a>(messages: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut framed = Vec::new();
    for message in messages {
        let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
        framed.extend(length.to_be_bytes());
        framed.extend(&message[..usize::from(length)]);
    }
    framed
}

/// Splits one number off, below `count`: which of several things this input is about.
fn choice(data: &[u8], count: usize) -> Option<(usize, &[u8])> {
    let (first, rest) = data.split_first()?;
    Some((usize::from(*first) % count, rest))
}
