//! Zones, proxies and users that are not who they say.

use common::proto::kuma::mesh::v1alpha1::ZoneHealthCheckRequest;
use serde_json::{Value, json};

use super::{
    ads,
    forged::{FORGED, Forge, Forged, REVOKED},
    grpc::{Call, Grpc, framed},
    http::{Http, get},
    table::{Answer, Case, Front, all_right, case, run, tally},
};
use crate::harness::{
    Global, Options, Zone, eventually,
    tally::{Class::Tokens, Tally},
};

/// Nobody gets in: by a status that says so, or by the end of the connection where headers are too long.
const REFUSED: &[&str] = &["Unauthenticated", "PermissionDenied", "401", "403", "431", "reset"];

/// A door that is opened with a token, and what the forger has for it.
struct Door<D> {
    forge: Forge,
    door: D,
}

/// Claims that are right in themselves, and not for whoever shows them.
type Claims = fn() -> Value;

/// What a case shows: a forgery, or claims signed with the right key.
enum Shown {
    Forged(Forged),
    Claims(Claims),
    /// The right one, in this form of the header.
    Written(fn(&str) -> Vec<String>),
}

impl Shown {
    /// The values of the header `authorization`.
    fn values(&self, forge: &Forge) -> Vec<String> {
        match self {
            Self::Forged((_, make)) => vec![format!("Bearer {}", make(forge))],
            Self::Claims(claims) => vec![format!("Bearer {}", forge.claiming(&claims()))],
            Self::Written(write) => write(&forge.right()),
        }
    }
}

fn forged() -> Vec<Case<Shown>> {
    FORGED.iter().map(|forged| case(Tokens, forged.0, Shown::Forged(*forged), REFUSED, &[])).collect()
}

#[rustfmt::skip]
fn of_zones() -> Vec<Case<Shown>> {
    let mut table = forged();
    let claims = |what: &'static str, claims: Claims, says| case(Tokens, what, Shown::Claims(claims), REFUSED, says);
    table.extend([
        claims("another zone's", || json!({"Zone": "zone-2"}), &["zone-2", "not for"]),
        claims("nobody's", || json!({"Zone": ""}), &["it names no zone"]),
        claims("an ingress'", || json!({"Scope": ["ingress"]}), &["its scope is", "\"cp\" is needed"]),
        claims("no scope", || json!({"Scope": null}), &["\"cp\" is needed"]),
        claims("scope in capitals", || json!({"Scope": ["CP"]}), &["\"cp\" is needed"]),
        claims("a prefix of the zone", || json!({"Zone": "zone"}), &["not for"]),
        claims("the zone in capitals", || json!({"Zone": "ZONE-1"}), &["not for"]),
        claims("the zone with a NUL", || json!({"Zone": "zone-1\0"}), &["not for"]),
        claims("the claims of a user", || json!({"Zone": "", "Scope": [], "Name": "mesh-system:admin"}), &[]),
        case(Tokens, "no token", Shown::Written(|_| vec![]), REFUSED, &["shows no token"]),
        case(Tokens, "an empty one", Shown::Written(|_| vec!["Bearer ".to_owned()]), REFUSED, &[]),
        case(Tokens, "a bad one before a right one",
            Shown::Written(|right| vec!["Bearer x".to_owned(), format!("Bearer {right}")]), REFUSED, &[]),
    ]);
    table
}

#[rustfmt::skip]
fn of_proxies() -> Vec<Case<Shown>> {
    let mut table = forged();
    let claims = |what: &'static str, claims: Claims, says| case(Tokens, what, Shown::Claims(claims), REFUSED, says);
    table.extend([
        claims("another proxy's", || json!({"Name": "web-2"}), &["it was made for name"]),
        claims("another mesh's", || json!({"Mesh": "other"}), &[]),
        claims("an ingress'", || json!({"Type": "ingress"}), &["it was made for proxy type"]),
        claims("another workload's", || json!({"Workload": "db"}), &["it was made for workload"]),
        claims("a tag it has not", || json!({"Tags": {"team": ["a"]}}), &["no tag"]),
        claims("a tag it has otherwise", || json!({"Tags": {"kuma.io/service": ["db"]}}), &["it allows"]),
        claims("a tag with no value", || json!({"Tags": {"kuma.io/service": []}}), &["it allows"]),
        case(Tokens, "no token", Shown::Written(|_| vec![]), REFUSED, &["must show a"]),
        case(Tokens, "an empty one", Shown::Written(|_| vec!["Bearer ".to_owned()]), REFUSED, &[]),
    ]);
    table
}

#[rustfmt::skip]
fn of_users() -> Vec<Case<Shown>> {
    let mut table = forged();
    let claims = |what: &'static str, claims: Claims, says| case(Tokens, what, Shown::Claims(claims), REFUSED, says);
    table.extend([
        claims("nobody in particular", || json!({"Name": "", "Groups": []}), &["cannot"]),
        claims("the group of those who showed nothing", || json!({"Name": "a", "Groups": ["mesh-system:unauthenticated"]}), &["cannot"]),
        claims("the claims of a zone", || json!({"Name": "", "Groups": null, "Zone": "zone-1", "Scope": ["cp"]}), &["cannot"]),
        claims("nearly the administrator", || json!({"Name": "mesh-system:admin ", "Groups": []}), &["cannot"]),
        claims("groups that are text", || json!({"Groups": "mesh-system:admin"}), &[]),
        case(Tokens, "no token", Shown::Written(|_| vec![]), REFUSED, &["cannot"]),
        case(Tokens, "another scheme", Shown::Written(|right| vec![format!("Token {right}")]), REFUSED, &[]),
    ]);
    table
}

/// What is tried.
pub fn count() -> Tally {
    let mut all = tally(&of_zones());
    all.join(&tally(&of_proxies()));
    all.join(&tally(&of_users()));
    all
}

/// The ping of a zone.
fn ping(tokens: Vec<String>) -> Call {
    let zone = ("client-id".to_owned(), "zone-1".to_owned());
    let shown = tokens.into_iter().map(|value| ("authorization".to_owned(), value));
    Call {
        path: "/kuma.mesh.v1alpha1.GlobalKDSService/HealthCheck",
        metadata: [zone].into_iter().chain(shown).collect(),
        body: vec![framed(&ZoneHealthCheckRequest {})],
        closes: true,
        until: Box::new(|_| Some(Answer::new("let in", ""))),
    }
}

struct Zones(Grpc);
struct Proxies(Grpc);
struct Users(Http);

impl Front for Door<Zones> {
    type Input = Shown;
    fn name(&self) -> &str {
        "global KDS"
    }
    async fn send(&self, input: &Shown) -> Answer {
        self.door.0.call(&ping(input.values(&self.forge))).await
    }
}

impl Front for Door<Proxies> {
    type Input = Shown;
    fn name(&self) -> &str {
        "ADS"
    }
    async fn send(&self, input: &Shown) -> Answer {
        let mut call = ads::delta(&[ads::first("default.web-1")]);
        call.metadata =
            input.values(&self.forge).into_iter().map(|v| ("authorization".to_owned(), v)).collect();
        self.door.0.call(&call).await
    }
}

impl Front for Door<Users> {
    type Input = Shown;
    fn name(&self) -> &str {
        "global REST"
    }
    async fn send(&self, input: &Shown) -> Answer {
        // Without a sign that somebody else asks, the test is an administrator: it runs on this machine.
        let mut headers = "x-forwarded-for: 192.0.2.1\r\n".to_owned();
        for value in input.values(&self.forge) {
            headers.push_str(&format!("authorization: {value}\r\n"));
        }
        self.door.0.send(&get("/global-secrets", &headers)).await
    }
}

async fn revoke(cp: &Global, path: &str, kind: &str, mesh: Option<&str>) {
    use base64::{Engine, prelude::BASE64_STANDARD};
    let name = path.rsplit('/').next().unwrap();
    let mut secret = json!({"type": kind, "name": name, "data": BASE64_STANDARD.encode(REVOKED)});
    if let Some(mesh) = mesh {
        secret["mesh"] = json!(mesh);
    }
    let (status, answer) = cp.call(reqwest::Method::PUT, path, Some(secret)).await;
    assert!(status.is_success(), "{answer}");
}

const ZONE_KEY: &str = "/global-secrets/zone-token-signing-key-1";
const USER_KEY: &str = "/global-secrets/user-token-signing-key-1";
const DATAPLANE_KEY: &str = "/meshes/default/secrets/dataplane-token-signing-key-default-1";

#[tokio::test]
async fn no_forged_token_opens_anything_and_the_right_one_does() {
    let global = Global::start().await;
    let zone = Zone::start_with(&global, "zone-1", Options::default()).await;
    eventually("the mesh in the zone", || zone.try_get("/meshes/default")).await;
    revoke(&global, "/global-secrets/zone-token-revocations", "GlobalSecret", None).await;
    revoke(&global, "/global-secrets/user-token-revocations", "GlobalSecret", None).await;
    revoke(&global, "/meshes/default/secrets/dataplane-token-revocations-default", "Secret", Some("default"))
        .await;
    let revocations = "/meshes/default/secrets/dataplane-token-revocations-default";
    eventually("the revocation in the zone", || zone.try_get(revocations)).await;
    zone.apply(&ads::dataplane("web-1"));

    let good = json!({"Zone": "zone-1", "Scope": ["cp"]});
    let forge = Forge::steal(&global, ZONE_KEY, USER_KEY, good).await;
    let certificate = std::fs::read_to_string(global.certificate()).unwrap();
    let door = Zones(Grpc::new("global KDS", global.kds, &certificate));
    let zones = Door { forge, door };
    assert_eq!(zones.send(&Shown::Written(bearer)).await.verdict, "let in");
    all_right([run(&zones, &of_zones(), &[&global.process]).await]);
    assert_eq!(zones.send(&Shown::Written(bearer)).await.verdict, "let in");

    let good = json!({"Name": "mesh-system:admin", "Groups": ["mesh-system:admin"]});
    let forge = Forge::steal(&global, USER_KEY, ZONE_KEY, good).await;
    let users = Door { forge, door: Users(Http::plain("global REST", &global.url(""))) };
    assert_eq!(users.send(&Shown::Written(bearer)).await.verdict, "200");
    all_right([run(&users, &of_users(), &[&global.process]).await]);
    assert_eq!(users.send(&Shown::Written(bearer)).await.verdict, "200");

    let good = json!({"Name": "web-1", "Mesh": "default"});
    let forge = Forge::steal(&global, DATAPLANE_KEY, ZONE_KEY, good).await;
    let certificate = std::fs::read_to_string(zone.certificate()).unwrap();
    let proxies = Door { forge, door: Proxies(Grpc::new("ADS", zone.dp_server, &certificate)) };
    assert_eq!(proxies.send(&Shown::Written(bearer)).await.verdict, "served");
    all_right([run(&proxies, &of_proxies(), &[&zone.process]).await]);
    assert_eq!(proxies.send(&Shown::Written(bearer)).await.verdict, "served");
}

fn bearer(token: &str) -> Vec<String> {
    vec![format!("Bearer {token}")]
}

/// The command that makes the token `zone-1` gets in with.
const REMEDY: &str = "straitctl generate zone-token --zone zone-1 --scope cp";

#[tokio::test]
async fn a_zone_with_a_wrong_token_is_told_which_claim_does_not_fit_and_what_makes_a_right_one() {
    let global = Global::start().await;
    let token = |args: &[&str]| {
        let all: Vec<&str> = ["generate", "zone-token"].iter().chain(args).copied().collect();
        global.straitctl(&all).trim().to_owned()
    };
    for (class, token, says) in [
        ("garbage", "garbage".to_owned(), "the token of zone zone-1 was refused: invalid token"),
        (
            "another zone's",
            token(&["--zone", "zone-2", "--scope", "cp"]),
            "it was made for zone \\\"zone-2\\\", not for \\\"zone-1\\\"",
        ),
        (
            "an ingress'",
            token(&["--zone", "zone-1", "--scope", "ingress"]),
            "its scope is [\\\"ingress\\\"], \\\"cp\\\" is needed",
        ),
        ("nobody's", token(&["--scope", "cp"]), "it names no zone"),
        ("no", String::new(), "zone zone-1 shows no token"),
    ] {
        let mut zone = Zone::start_with_token(&global, "zone-1", &token, Options::default()).await;
        let words = ["global does not let this zone in", says, REMEDY, "multizone.zone.kds.tokenFile"];
        let log = eventually(&format!("{class} token is refused in the log"), || {
            let log = zone.process.log();
            async move { if log.contains(REMEDY) { Ok(log) } else { Err(log) } }
        })
        .await;
        assert!(words.iter().all(|words| log.contains(words)), "{class}: {log}");
        assert!(zone.process.runs(), "a refused zone goes on serving");
        let link = zone.get("/strait/link").await;
        assert!(link["lastError"].as_str().is_some_and(|error| error.contains(REMEDY)), "{class}: {link}");
        let missing = global.try_get("/zones/zone-1").await;
        assert!(missing.is_err_and(|e| e.contains("404")), "{class} token registers nothing");
    }
}
