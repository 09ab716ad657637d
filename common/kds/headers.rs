//! Headers of the KDS calls, in one place for both ends.

use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use uuid::Uuid;

use super::{
    features::{self, Features},
    watch::Position,
};
use crate::{
    clip::clipped,
    store::{Revision, StoreIdentity},
    token,
};

const CLIENT_ID: &str = "client-id";
const KDS_VERSION: &str = "kds-version";
const FEATURES: &str = "features";
const VERSION: &str = "version";
const ZONE_VERSION: &str = "zone-version";
const AUTHORIZATION: &str = "authorization";
const SESSION: &str = "strait-session";
const ISSUING_REQUEST: &str = "strait-issuing-request";
const STORE: &str = "strait-store";
const FOLLOWED: &str = "strait-followed";
const HANDOVER: &str = "strait-handover";
const POSITION: &str = "strait-position";
/// What is kept of a header that is shown or compared, in bytes.
const LONGEST_TEXT: usize = 256;

/// What a zone says about itself with every call.
#[derive(Clone, Debug)]
pub struct KdsCaller {
    /// The zone it claims to be.
    pub zone: String,
    /// What it can do.
    pub features: Features,
    /// Ties the streams of one session together; absent from Kuma's zones.
    pub session: Option<String>,
    /// Credential, without the `Bearer` prefix.
    pub token: Option<String>,
    /// Build version, for display.
    pub version: String,
    /// Request for a certificate to sign workloads with, as base64 of its DER.
    pub issuing_request: Option<String>,
}

impl KdsCaller {
    /// Reads the headers of a call; `None` without a usable `client-id`.
    pub fn read(headers: &MetadataMap) -> Option<Self> {
        let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let zone = text(CLIENT_ID).filter(|zone| !zone.is_empty())?;
        let names = headers.get_all(FEATURES).iter().filter_map(|v| v.to_str().ok());
        let mut features: Features = names.flat_map(|v| v.split(',')).map(str::trim).collect();
        if text(ZONE_VERSION).as_deref() == Some("v3") {
            // The 3.0 line takes such policies as a matter of course and no longer says so.
            features.insert(features::OPTIONAL_TOP_LEVEL_TARGET_REF);
        }
        let token = text(AUTHORIZATION).as_deref().and_then(token::bare).map(str::to_owned);
        let brief = |name: &str| text(name).map(|text| clipped(text, LONGEST_TEXT));
        Some(Self {
            zone,
            features,
            session: brief(SESSION),
            token,
            version: brief(VERSION).unwrap_or_default(),
            issuing_request: text(ISSUING_REQUEST),
        })
    }

    /// Writes the headers of a call. Values that cannot be a header are left out.
    pub fn write(&self, headers: &mut MetadataMap) {
        let value = |text: &str| MetadataValue::<Ascii>::try_from(text).ok();
        let mut set = |name: &'static str, text: &str| {
            if let Some(value) = value(text) {
                headers.insert(name, value);
            }
        };
        set(CLIENT_ID, &self.zone);
        set(KDS_VERSION, "v3");
        set(VERSION, &self.version);
        if let Some(session) = &self.session {
            set(SESSION, session);
        }
        if let Some(request) = &self.issuing_request {
            set(ISSUING_REQUEST, request);
        }
        if let Some(token) = &self.token {
            set(AUTHORIZATION, &format!("Bearer {token}"));
        }
        for feature in self.features.iter() {
            if let Some(value) = value(feature) {
                headers.append(FEATURES, value);
            }
        }
    }
}

/// Where an upstream stands in which history; sent by a Strait global with every answer to a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Upstream {
    /// Store of the upstream.
    pub store_id: Uuid,
    /// Its epoch.
    pub epoch: u64,
    /// Its head.
    pub revision: Revision,
}

impl Upstream {
    /// Position `revision` in the history of `store`.
    pub fn new(store: StoreIdentity, revision: Revision) -> Self {
        Self { store_id: store.store_id, epoch: store.epoch, revision }
    }

    /// The text form, `<store>/<epoch>/<revision>`.
    pub fn to_text(self) -> String {
        format!("{}/{}/{}", self.store_id, self.epoch, self.revision)
    }

    /// Back from [`Upstream::to_text`].
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '/');
        Some(Self {
            store_id: parts.next()?.parse().ok()?,
            epoch: parts.next()?.parse().ok()?,
            revision: parts.next()?.parse().ok()?,
        })
    }

    /// Writes it as a header.
    pub fn write(self, headers: &mut MetadataMap) {
        if let Ok(value) = MetadataValue::<Ascii>::try_from(self.to_text()) {
            headers.insert(STORE, value);
        }
        for feature in features::OF_GLOBAL {
            headers.append(FEATURES, MetadataValue::from_static(feature));
        }
    }

    /// Reads the header; `None` from an upstream that is not Strait.
    pub fn read(headers: &MetadataMap) -> Option<Self> {
        Self::parse(headers.get(STORE)?.to_str().ok()?)
    }

    /// Writes it into the ping of a zone: how far it followed global, whichever instance of it that was.
    pub fn write_followed(self, headers: &mut MetadataMap) {
        if let Ok(value) = MetadataValue::<Ascii>::try_from(self.to_text()) {
            headers.insert(FOLLOWED, value);
        }
    }

    /// Reads how far the zone that pings followed global.
    pub fn read_followed(headers: &MetadataMap) -> Option<Self> {
        Self::parse(headers.get(FOLLOWED)?.to_str().ok()?)
    }
}

/// What who answers can do, as it says with its history.
pub fn announced(headers: &MetadataMap) -> Features {
    headers.get_all(FEATURES).iter().filter_map(|name| name.to_str().ok()).collect()
}

/// Marks a ping as the last one of a replica that makes room for another one of its zone.
pub fn write_handover(headers: &mut MetadataMap) {
    headers.insert(HANDOVER, MetadataValue::from_static("1"));
}

/// Whether who pings makes room for another replica of its zone.
pub fn is_handover(headers: &MetadataMap) -> bool {
    headers.contains_key(HANDOVER)
}

/// Pings carry the way up as the zone sees it, and their answers the way down as global sees it: each side
/// tells what only the sender knows.
impl Position {
    /// Writes the header.
    pub fn write(self, headers: &mut MetadataMap) {
        let text = format!("{}/{}/{}", self.head, self.acked, self.lag);
        if let Ok(value) = MetadataValue::<Ascii>::try_from(text) {
            headers.insert(POSITION, value);
        }
    }

    /// Reads the header.
    pub fn read(headers: &MetadataMap) -> Option<Self> {
        let mut parts = headers.get(POSITION)?.to_str().ok()?.splitn(3, '/').map(str::parse);
        let mut next = || parts.next()?.ok();
        Some(Self { head: next()?, acked: next()?, lag: next()? })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_caller_survives_its_headers() {
        let caller = KdsCaller {
            zone: "zone-1".to_owned(),
            features: [features::ZONE_PING_HEALTH, features::RESUME].into_iter().collect(),
            session: Some("s".to_owned()),
            token: Some("t".to_owned()),
            version: "1.0".to_owned(),
            issuing_request: None,
        };
        let mut headers = MetadataMap::new();
        caller.write(&mut headers);
        let read = KdsCaller::read(&headers).unwrap();
        assert_eq!(read.features, caller.features);
        assert_eq!((read.zone, read.session, read.token), (caller.zone, caller.session, caller.token));
    }

    #[test]
    fn a_call_without_an_identity_has_no_caller() {
        assert!(KdsCaller::read(&MetadataMap::new()).is_none());
    }

    #[test]
    fn a_credential_comes_in_several_forms() {
        for header in ["Bearer t.o.k", "bearer t.o.k", "BEARER   t.o.k ", " t.o.k"] {
            let mut headers = MetadataMap::new();
            headers.insert(CLIENT_ID, MetadataValue::from_static("zone-1"));
            headers.insert(AUTHORIZATION, header.parse().unwrap());
            assert_eq!(KdsCaller::read(&headers).unwrap().token.as_deref(), Some("t.o.k"), "{header:?}");
        }
    }

    #[test]
    fn a_scheme_alone_is_no_credential() {
        for header in ["Bearer ", "Bearer", "bearer    ", "BEARER\t", " ", "", "  Bearer", "Bearer bearer "] {
            let mut headers = MetadataMap::new();
            headers.insert(CLIENT_ID, MetadataValue::from_static("zone-1"));
            headers.insert(AUTHORIZATION, header.parse().unwrap());
            assert_eq!(KdsCaller::read(&headers).unwrap().token, None, "{header:?}");
        }
    }

    #[test]
    fn features_come_one_by_one_or_in_a_list() {
        let mut headers = MetadataMap::new();
        headers.insert(CLIENT_ID, MetadataValue::from_static("zone-1"));
        headers.append(FEATURES, MetadataValue::from_static("zone-ping-health, a"));
        headers.append(FEATURES, MetadataValue::from_static("hash-suffix"));
        let read = KdsCaller::read(&headers).unwrap();
        assert_eq!(read.features.iter().collect::<Vec<_>>(), ["a", "hash-suffix", "zone-ping-health"]);
        assert!(!read.features.has(features::OPTIONAL_TOP_LEVEL_TARGET_REF));
        headers.insert(ZONE_VERSION, MetadataValue::from_static("v3"));
        let newer = KdsCaller::read(&headers).unwrap();
        assert!(newer.features.has(features::OPTIONAL_TOP_LEVEL_TARGET_REF), "the 3.0 line implies it");
    }

    #[test]
    fn a_position_survives_its_header() {
        let position = Position { head: 9, acked: 7, lag: 2 };
        let mut headers = MetadataMap::new();
        assert_eq!(Position::read(&headers), None);
        position.write(&mut headers);
        assert_eq!(Position::read(&headers), Some(position));
    }

    #[test]
    fn an_upstream_survives_its_text() {
        let upstream = Upstream { store_id: Uuid::from_u128(7), epoch: 2, revision: 40 };
        let mut headers = MetadataMap::new();
        assert_eq!(announced(&headers), Features::default());
        upstream.write(&mut headers);
        assert_eq!(Upstream::read(&headers), Some(upstream));
        assert_eq!(announced(&headers), features::OF_GLOBAL.into_iter().collect());
        assert_eq!(Upstream::parse(&upstream.to_text()), Some(upstream));
        assert_eq!(Upstream::parse("nonsense"), None);
    }
}
