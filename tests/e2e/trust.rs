//! How zones prove who they are: certificates beside tokens, keys that change, what is taken back, what runs out.

use std::{path::PathBuf, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use chrono::TimeDelta;
use common::{
    runtime::{Clock, SystemClock},
    tls::x509_time,
    token::new_signing_key,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    harness::{Global, Options, Zone, control_plane::write, eventually, wait::within},
    mesh::{ALLOW_ALL, MESH, Member, Shape, federation},
};

/// Whoever may not be there any more is gone after that, the time a busy machine takes to look included.
const REVOKED: Duration = Duration::from_secs(5);

/// Who is sent away tries again within that.
const SENT_AWAY: Duration = Duration::from_secs(60);

/// An authority for zones.
struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "zones");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { folder: TempDir::new().unwrap(), issuer }
    }

    fn file(&self) -> PathBuf {
        write(self.folder.path(), "ca.crt", &self.issuer.pem())
    }

    /// Writes a certificate for `zone` that is good for so long into the files of this name.
    fn certify(&self, name: &str, zone: &str, good_for: TimeDelta) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, zone);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let now = SystemClock.now();
        params.not_before = x509_time(now - TimeDelta::hours(1));
        params.not_after = x509_time(now + good_for);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let folder = self.folder.path();
        (
            write(folder, &format!("{name}.crt"), &certificate.pem()),
            write(folder, &format!("{name}.key"), &key.serialize_pem()),
        )
    }
}

fn showing((certificate, key): &(PathBuf, PathBuf)) -> Options {
    Options::default()
        .with("multizone.zone.kds.clientCertFile", &certificate.display().to_string())
        .with("multizone.zone.kds.clientKeyFile", &key.display().to_string())
}

async fn by_certificate(authority: &Authority, how: &str) -> Global {
    let options = Options::default()
        .with("multizone.global.kds.auth", how)
        .with("multizone.global.kds.clientCaFile", &authority.file().display().to_string());
    Global::start_with(options).await
}

/// What global shows of a zone, as soon as it is `online` or whatever is waited for.
async fn status(global: &Global, zone: &str, wanted: &str) -> Value {
    eventually(&format!("{zone} is {wanted}"), || async {
        let overview = global.try_get(&format!("/zones/{zone}/_overview")).await?;
        let strait = overview["strait"].clone();
        if strait["status"] == wanted { Ok(strait) } else { Err(strait.to_string()) }
    })
    .await
}

async fn last_error(zone: &Zone, part: &str) {
    eventually(&format!("the zone says {part:?}"), || async {
        let link = zone.try_get("/strait/link").await?;
        let said = link["lastError"].as_str().is_some_and(|error| error.contains(part));
        if said { Ok(()) } else { Err(link.to_string()) }
    })
    .await;
}

async fn revoke(global: &Global, list: &str, id: &str) {
    let secret = json!({ "type": "GlobalSecret", "name": list, "data": STANDARD.encode(id) });
    let (status, body) = global.call(Method::PUT, &format!("/global-secrets/{list}"), Some(secret)).await;
    assert!(status.is_success(), "{status}: {body}");
}

/// Waits until a zone is sent away, for no longer than is promised.
async fn sent_away(global: &Global, zone: &str) {
    within(REVOKED, "the zone is sent away", || async {
        let status = global.zone_status(zone).await?;
        if status == "offline" { Ok(()) } else { Err(status) }
    })
    .await;
}

#[tokio::test]
async fn a_zone_proves_itself_by_a_certificate() {
    let authority = Authority::new();
    let global = by_certificate(&authority, "either").await;
    let files = authority.certify("zone-1", "zone-1", TimeDelta::days(90));
    let first = Zone::start_with_token(&global, "zone-1", "", showing(&files)).await;
    let second = Zone::start_with(&global, "zone-2", Options::default()).await;
    let shown = status(&global, "zone-1", "online").await;
    assert_eq!(shown["credential"]["kind"], "certificate", "{shown}");
    let by_token = status(&global, "zone-2", "online").await;
    assert_eq!(by_token["credential"]["kind"], "token", "{by_token}");
    for strait in [&shown, &by_token] {
        let until = strait["credential"]["until"].as_str().unwrap();
        assert!(until > "2026" && !strait["notes"].to_string().contains("runs out"), "{strait}");
    }
    let table = global.straitctl(&["inspect", "zones"]);
    assert!(table.contains("CREDENTIAL") && table.contains("certificate, 8"), "{table}");
    let metrics = global.metrics().await;
    assert!(metrics.contains(r#"kds_zone_credential_expires_seconds{"#), "{metrics}");

    // One that was made for another zone, and one of another authority.
    let other = authority.certify("stolen", "zone-1", TimeDelta::days(90));
    let thief = Zone::start_with_token(&global, "zone-3", "", showing(&other)).await;
    last_error(&thief, "made for zone \"zone-1\"").await;
    let forged = Authority::new().certify_kept("zone-4");
    let forger = Zone::start_with_token(&global, "zone-4", "", showing(&forged.1)).await;
    last_error(&forger, "global may not take it").await;
    assert!(global.call(Method::GET, "/zones/zone-4", None).await.0.is_client_error());

    // Revoked, it is gone; with a new one it is back.
    let id = shown["credential"]["id"].as_str().unwrap();
    revoke(&global, "zone-certificate-revocations", id).await;
    sent_away(&global, "zone-1").await;
    last_error(&first, "is revoked").await;
    assert_eq!(global.zone_status("zone-2").await.unwrap(), "online");
    authority.certify("zone-1", "zone-1", TimeDelta::days(90));
    status(&global, "zone-1", "online").await;
    drop(second);
}

impl Authority {
    /// A certificate with the authority it is of, which nobody else knows.
    fn certify_kept(self, zone: &str) -> (Self, (PathBuf, PathBuf)) {
        let files = self.certify(zone, zone, TimeDelta::days(90));
        (self, files)
    }
}

#[tokio::test]
async fn a_certificate_that_runs_out_is_told_before_and_ends_the_session() {
    let authority = Authority::new();
    let global = by_certificate(&authority, "certificate").await;
    // It was good for an hour and has a few seconds left.
    let files = authority.certify("zone-1", "zone-1", TimeDelta::seconds(30));
    let zone = Zone::start_with_token(&global, "zone-1", "", showing(&files)).await;
    let shown = status(&global, "zone-1", "online").await;
    let notes = shown["notes"].to_string();
    assert!(notes.contains("runs out") && notes.contains("clientCertFile"), "{shown}");
    eventually("the warning in the log", || async {
        let log = global.process.whole_log();
        if log.contains("what the zone proves itself by runs out") { Ok(()) } else { Err("none") }
    })
    .await;
    // The zone knows it as well, and goes on saying so when it is sent away.
    let link = || async { zone.try_get("/strait/link").await };
    let known = link().await.unwrap();
    let credential = &known["shown"][0];
    assert_eq!(
        (&credential["to"], &credential["kind"]),
        (&json!("global"), &json!("certificate")),
        "{known}"
    );
    assert!(known["warnings"].to_string().contains("runs out at"), "{known}");
    assert!(zone.process.whole_log().contains("what this zone shows runs out"));
    let metrics = zone.metrics().await;
    let mut lines = metrics.lines().filter(|line| line.starts_with("credential_expires_seconds{"));
    assert!(lines.any(|line| line.contains(r#"shown_to="global""#) && !line.ends_with("Inf")), "{metrics}");
    status(&global, "zone-1", "offline").await;
    last_error(&zone, "global may not take it").await;
    within(SENT_AWAY, "the zone says that it ran out", || async {
        let link = link().await?;
        if link["warnings"].to_string().contains("ran out at") { Ok(()) } else { Err(link.to_string()) }
    })
    .await;
    authority.certify("zone-1", "zone-1", TimeDelta::days(1));
    status(&global, "zone-1", "online").await;
    assert_eq!(link().await.unwrap()["warnings"], json!([]));
}

/// A new key that signs zone tokens, as an operator brings it.
async fn zone_key(global: &Global, serial: u32) {
    let key = new_signing_key().unwrap();
    let name = format!("zone-token-signing-key-{serial}");
    let secret = json!({ "type": "GlobalSecret", "name": name, "data": STANDARD.encode(key.pem()) });
    let (status, body) = global.call(Method::PUT, &format!("/global-secrets/{name}"), Some(secret)).await;
    assert!(status.is_success(), "{status}: {body}");
}

#[tokio::test]
async fn keys_that_sign_tokens_are_changed_while_zones_are_connected() {
    let (global, zones) = federation(2).await;
    let since = status(&global, "zone-1", "online").await["since"].clone();
    zone_key(&global, 2).await;
    global.apply(ALLOW_ALL);
    for zone in &zones {
        eventually("a policy that came after the key", || async {
            let list = zone.try_get("/meshes/default/meshtrafficpermissions").await?.to_string();
            if list.contains("allow-all") { Ok(()) } else { Err(list) }
        })
        .await;
    }
    let now = status(&global, "zone-1", "online").await;
    assert_eq!(now["since"], since, "nobody lost a stream for a key that is new");

    // One of them gets a token of the new key, at its next connection.
    let token = global.straitctl(&["generate", "zone-token", "--zone", "zone-2", "--scope", "cp"]);
    write(zones[1].folder.path(), "zone-token", token.trim());
    let (code, body) = global.call(Method::DELETE, "/global-secrets/zone-token-signing-key-1", None).await;
    assert!(code.is_success(), "{code}: {body}");
    sent_away(&global, "zone-1").await;
    last_error(&zones[0], "no signing key").await;
    status(&global, "zone-2", "online").await;
}

#[tokio::test]
async fn a_revoked_token_ends_the_session_of_its_zone_alone() {
    let (global, zones) = federation(2).await;
    let shown = status(&global, "zone-1", "online").await;
    status(&global, "zone-2", "online").await;
    let id = shown["credential"]["id"].as_str().unwrap();
    revoke(&global, "zone-token-revocations", id).await;
    sent_away(&global, "zone-1").await;
    last_error(&zones[0], "is revoked").await;
    assert_eq!(global.zone_status("zone-2").await.unwrap(), "online");
}

/// Names of the secrets of the mesh that a zone holds.
async fn secrets(zone: &Zone) -> Result<Vec<String>, String> {
    let list = zone.try_get("/meshes/default/secrets").await?;
    let items = list["items"].as_array().into_iter().flatten();
    Ok(items.filter_map(|item| Some(item["name"].as_str()?.to_owned())).collect())
}

#[tokio::test]
async fn secrets_of_a_mesh_are_where_it_runs() {
    let global =
        Global::start_with(Options::default().with("multizone.global.kds.secretsTo", "running")).await;
    let runs = Zone::start_with(&global, "zone-1", Options::default()).await;
    let idle = Zone::start_with(&global, "zone-2", Options::default()).await;
    global.apply(MESH);
    global.apply(ALLOW_ALL);
    let _backend = Member::join(&runs, Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(&runs, Shape::http("client-1", "client", &["backend"])).await;
    client.reaches(0, "backend-1").await;
    assert!(secrets(&runs).await.unwrap().iter().any(|name| name.contains(".ca-")));
    // The other zone has all that is meant for it, and of the secrets what lets a first proxy in.
    global.straitctl(&["wait", "revision", &global.get("/sync").await["revision"].to_string()]);
    let held = secrets(&idle).await.unwrap();
    assert!(!held.is_empty() && held.iter().all(|name| name.starts_with("dataplane-token-")), "{held:?}");

    // It comes with the first proxy, and goes with the last.
    let late = Member::join(&idle, Shape::http("late-1", "late", &[])).await;
    let has_authority = async |wanted: bool| {
        eventually("the authority of the mesh in the zone", || async {
            let held = secrets(&idle).await?;
            let has = held.iter().any(|name| name.contains(".ca-"));
            if has == wanted { Ok(()) } else { Err(format!("{held:?}")) }
        })
        .await;
    };
    has_authority(true).await;
    drop(late);
    idle.straitctl(&["delete", "dataplane", "late-1"]);
    has_authority(false).await;
    client.reaches(0, "backend-1").await;
}
