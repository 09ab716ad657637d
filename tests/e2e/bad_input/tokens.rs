//! Zones and proxies that are not who they say.

use crate::harness::{Global, Options, Zone, eventually};

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
