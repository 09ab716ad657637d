//! What this zone shows global and workloads, and what there is to say before it runs out.

use chrono::{DateTime, TimeDelta, Utc};
use common::{
    issuing,
    model::kinds::secret::SECRET,
    rest::{ZoneCredential, ZoneProof},
    runtime::http::PeerCertificate,
    store::index::Index,
    tls::KeyPairPem,
    token,
};
use serde::Serialize;

use super::ClientCertificateFiles;

/// Something this zone shows, and until when it is good. None of it opens anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShownCredential {
    /// To whom.
    pub to: ShownTo,
    /// What it is.
    #[serde(flatten)]
    pub credential: ZoneCredential,
}

/// Whom something is shown to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ShownTo {
    /// Global, which lets this zone in by it.
    Global,
    /// Workloads of a mesh, whose certificates are signed with its key.
    Workloads,
}

impl ShownCredential {
    /// The word for it, among a few.
    fn word(&self) -> &'static str {
        match (self.to, self.credential.kind) {
            (ShownTo::Workloads, _) => "issuing certificate",
            (ShownTo::Global, ZoneProof::Token) => "token",
            (ShownTo::Global, ZoneProof::Certificate) => "certificate",
        }
    }

    /// What an operator does about its end.
    fn remedy(&self) -> &'static str {
        match self.to {
            ShownTo::Workloads => {
                "global renews it by itself: see whether this zone is connected, and whether global says why not"
            }
            ShownTo::Global => {
                "put a new one in its place: it is read at every connect, and without one global sends this zone away"
            }
        }
    }

    /// What there is to say about it now, if its end is near.
    pub(super) fn warning(&self, now: DateTime<Utc>) -> Option<String> {
        let until = self.credential.until?;
        self.credential.warns_from().filter(|from| *from <= now)?;
        let (word, id, remedy) = (self.word(), &self.credential.id, self.remedy());
        let left = until - now;
        Some(if left <= TimeDelta::zero() {
            format!("the {word} {id} ran out at {until}: {remedy}")
        } else {
            format!("the {word} {id} runs out at {until}: {remedy}")
        })
    }
}

/// What global is shown: this token, and what is in these files.
pub(super) fn to_global(token: Option<&str>, files: Option<&ClientCertificateFiles>) -> Vec<ShownCredential> {
    let token = token.and_then(token::times).map(|times| ZoneCredential {
        kind: ZoneProof::Token,
        id: times.id,
        since: Some(times.made),
        until: times.until,
    });
    // What cannot be read cannot be shown either, which the connection says.
    let pair = files.and_then(|files| KeyPairPem::read(&files.certificate, &files.key).ok());
    let leaf = pair.and_then(|pair| PeerCertificate::read(pair.chain().ok()?.first()?));
    let certificate = leaf.map(|leaf| ZoneCredential {
        kind: ZoneProof::Certificate,
        id: leaf.serial,
        since: Some(leaf.valid_from),
        until: Some(leaf.valid_until),
    });
    let shown = token.into_iter().chain(certificate);
    shown.map(|credential| ShownCredential { to: ShownTo::Global, credential }).collect()
}

/// By what workloads believe this zone: of each mesh the certificate global gave it for its key.
pub(super) fn to_workloads(index: &Index, zone: &str) -> Vec<ShownCredential> {
    let of_zone = |secret: &&std::sync::Arc<common::model::Resource>| {
        issuing::is_certificate_of(zone, secret.mesh(), secret.name())
    };
    let certificates = index.list(&SECRET).filter(of_zone).filter_map(|secret| {
        let pem = String::from_utf8(token::data_of(secret)?).ok()?;
        let (since, until) = issuing::validity(&pem)?;
        Some(ZoneCredential {
            kind: ZoneProof::Certificate,
            id: format!("of mesh {}", secret.mesh()),
            since: Some(since),
            until: Some(until),
        })
    });
    certificates.map(|credential| ShownCredential { to: ShownTo::Workloads, credential }).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn credential(since: i64, until: Option<i64>) -> ShownCredential {
        let at = |day| DateTime::UNIX_EPOCH + TimeDelta::days(day);
        let credential = ZoneCredential {
            kind: ZoneProof::Token,
            id: "t-1".to_owned(),
            since: Some(at(since)),
            until: until.map(at),
        };
        ShownCredential { to: ShownTo::Global, credential }
    }

    #[test]
    fn an_operator_is_told_before_and_after_the_end() {
        let at = |day| DateTime::UNIX_EPOCH + TimeDelta::days(day);
        let year = credential(0, Some(365));
        assert_eq!(year.warning(at(350)), None);
        let warning = year.warning(at(352)).unwrap();
        assert!(
            warning.contains("token t-1 runs out at 1971-01-01") && warning.contains("new one"),
            "{warning}"
        );
        assert!(year.warning(at(366)).unwrap().contains("ran out"));
        assert_eq!(credential(0, None).warning(at(9_999)), None);
        // In the last quarter of a short life.
        assert_eq!(credential(0, Some(4)).warning(at(2)), None);
        assert!(credential(0, Some(4)).warning(at(3)).is_some());
    }

    #[test]
    fn what_is_no_token_is_shown_all_the_same_and_says_nothing_of_its_end() {
        assert_eq!(to_global(Some("nonsense"), None), []);
        assert_eq!(to_global(None, None), []);
    }
}
