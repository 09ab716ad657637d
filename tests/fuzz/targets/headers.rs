//! What a zone says in the headers of its calls.

use common::{
    kds::{
        headers::{KdsCaller, Upstream},
        watch::Position,
    },
    token,
};
use tonic::metadata::{Ascii, MetadataKey, MetadataMap, MetadataValue};

use super::Target;
use crate::corpus::Corpus;

/// Headers, one in a line.
pub static HEADERS: Target = Target { name: "sync-headers", costs: 1, run, seeds };

fn run(data: &[u8]) {
    let mut headers = MetadataMap::new();
    for line in data.split(|byte| *byte == b'\n') {
        let Some(at) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (&line[..at], line[at + 1..].trim_ascii_start());
        let (Ok(name), Ok(value)) =
            (MetadataKey::<Ascii>::from_bytes(name), MetadataValue::<Ascii>::try_from(value))
        else {
            continue;
        };
        headers.append(name, value);
    }
    let _positions = (Position::read(&headers), Upstream::read(&headers));
    let Some(caller) = KdsCaller::read(&headers) else { return };
    assert!(!caller.zone.is_empty());
    if let Some(token) = &caller.token {
        assert!(!token.is_empty() && !token.eq_ignore_ascii_case("bearer"), "{token:?} is no token");
    }
    assert!(caller.version.len() <= 256 && caller.session.as_ref().is_none_or(|s| s.len() <= 256));
    let mut written = MetadataMap::new();
    caller.write(&mut written);
    if let Some(again) = KdsCaller::read(&written) {
        assert_eq!((&again.zone, &again.session), (&caller.zone, &caller.session));
        let bare = caller.token.as_deref().and_then(token::bare);
        assert_eq!(again.token.as_deref(), bare, "what is passed on is the same credential");
    }
}

fn seeds(_corpus: &Corpus) -> Vec<Vec<u8>> {
    [
        "client-id: zone-1\nkds-version: v3\nauthorization: Bearer a.b.c\nfeatures: resume,zone-ping-health",
        "client-id: zone-1\nauthorization: Bearer \nzone-version: v3\nversion: 2.14.0",
        "client-id: z\nstrait-session: 1\nstrait-position: 9/7/2\nstrait-issuing-request: TUlJ",
        "client-id: z\nfeatures: a\nfeatures: b, c\n\
         strait-store: 00000000-0000-0000-0000-000000000000/1/7\nauthorization: bearer",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}
