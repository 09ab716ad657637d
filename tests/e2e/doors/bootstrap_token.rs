//! The token of a proxy stays in its file.

use super::ads_peer::token;
use crate::{
    harness::{Global, Options, Zone, control_plane::write, eventually},
    mesh::{Member, Shape},
};

#[tokio::test]
async fn no_dump_of_an_envoy_shows_its_token() {
    let global = Global::start().await;
    let zone = Zone::start_with(&global, "zone-1", Options::default()).await;
    eventually("the mesh in the zone", || zone.try_get("/meshes/default")).await;
    // Envoy is live, so its token was accepted.
    let member = Member::join(&zone, Shape::http("web-1", "web", &[])).await;
    eventually("the zone has configured it", || member.envoy.stat("listener_manager.lds.update_success"))
        .await;
    let tokens: Vec<String> = std::fs::read_dir(zone.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("proxy-token"))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    assert_eq!(tokens.len(), 1);
    let signature = tokens[0].rsplit('.').next().unwrap();
    for path in ["/config_dump?include_eds", "/clusters?format=json", "/server_info", "/stats", "/listeners"]
    {
        let dump = member.envoy.admin(path).await.unwrap();
        assert!(!dump.contains(signature), "{path} shows the token");
    }
    let dump = member.envoy.admin("/config_dump").await.unwrap();
    assert!(dump.contains("credential_injector") && dump.contains("cp_token"), "{dump}");
}

#[tokio::test]
async fn a_token_is_in_the_bootstrap_only_when_somebody_wants_it_there() {
    let global = Global::start().await;
    let zone = Zone::start_with(&global, "zone-1", Options::default()).await;
    eventually("the mesh in the zone", || zone.try_get("/meshes/default")).await;
    zone.apply(
        "{type: Dataplane, mesh: default, name: web-1, networking: {address: 127.0.0.1, inbound: [{port: 80, \
         servicePort: 8080, serviceAddress: 127.0.0.1, tags: {kuma.io/service: web}}]}}",
    );
    let token = token(&zone, &["--name", "web-1"]).await;
    let (server, ca) = (format!("https://{}", zone.dp_server), zone.certificate().display().to_string());
    let ask = |file: &str, content: &str, more: &[&str]| {
        let file = write(zone.folder.path(), file, content).display().to_string();
        let fixed = ["bootstrap", "--cp-address", &server, "--ca-cert-file", &ca, "--name", "web-1"];
        zone.try_straitctl(&[&fixed[..], &["--token-file", &file], more].concat())
    };
    let (ok, made, error) = ask("token", &token, &[]);
    assert!(ok && !made.contains(&token) && made.contains("filename: "), "{made}{error}");
    let (ok, made, error) = ask("token", &token, &["--inline-token"]);
    assert!(ok && made.contains(&token), "{made}{error}");
    let line = format!("{token}\n");
    let (ok, _, error) = ask("line", &line, &[]);
    assert!(!ok && error.contains("white space around the token"), "{error}");
    assert!(ask("line", &line, &["--inline-token"]).0);
    let (ok, _, error) = ask("forged", &token.replace('.', ".x"), &[]);
    assert!(!ok && error.contains("not accepted"), "{error}");
}
