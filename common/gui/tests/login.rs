//! Logging in through a provider.

use std::sync::Arc;

use super::*;
use crate::{
    access::User,
    config::OpenIdConnectSection,
    oidc::{
        OpenIdProvider, PageSession,
        signer::{self, ISSUER, Signer},
    },
};

async fn api() -> TestApi {
    let provider = Arc::new(signer::provider(&[&Signer::new("1")]));
    with(Mode::Global, |config| config.open_id = Some(provider)).await.0
}

fn session(api: &TestApi, groups: &[&str], issuer: &str) -> String {
    let user = User::vouched_for("ann".to_owned(), groups.iter().map(|group| (*group).to_owned()).collect());
    let provider =
        OpenIdProvider::new(&OpenIdConnectSection { issuer: issuer.to_owned(), ..signer::settings() })
            .unwrap();
    let session = PageSession::new(user, &provider, api.env.now() + chrono::TimeDelta::hours(1));
    format!("strait-global={}", session.seal(&api.index.current()).unwrap())
}

fn cookies(parts: &Parts) -> Vec<String> {
    parts.headers.get_all("set-cookie").iter().map(|cookie| cookie.to_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_login_leads_to_the_provider_and_only_its_browser_comes_back() {
    let api = api().await;
    let (_, body) = look(&api, "/gui/session?to=/gui/zones", "").await;
    assert!(
        body.contains("Log in with login.example") && body.contains("/gui/login?to=%2Fgui%2Fzones"),
        "{body}"
    );
    let (parts, _) = look(&api, "/gui/login?to=/gui/zones", "").await;
    assert_eq!(parts.status.as_u16(), 303);
    let to = parts.headers[header::LOCATION].to_str().unwrap().to_owned();
    assert!(to.starts_with(&format!("{ISSUER}/auth?")), "{to}");
    let url = reqwest::Url::parse(&to).unwrap();
    let asked =
        |name: &str| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
    assert_eq!(asked("response_type").as_deref(), Some("code"));
    assert_eq!(asked("client_id").as_deref(), Some("page"));
    assert_eq!(asked("redirect_uri").as_deref(), Some("http://cp.example/gui/login/done"));
    assert_eq!(asked("code_challenge_method").as_deref(), Some("S256"));
    assert_eq!(asked("scope").as_deref(), Some("openid profile email"));
    let state = asked("state").unwrap();
    assert!(
        state.len() >= 20
            && asked("nonce").unwrap().len() >= 20
            && asked("code_challenge").unwrap().len() >= 40
    );
    let set = cookies(&parts);
    assert!(set.len() == 1 && set[0].starts_with("strait-global-login=~"), "{set:?}");
    assert!(set[0].contains("; Path=/gui/login; HttpOnly; SameSite=Lax; Max-Age=600"), "{set:?}");
    let kept = set[0].split(';').next().unwrap();
    assert!(!kept.contains(&state), "it is sealed");

    let refused = async |path: &str, cookie: &str, status: u16, words: &str| {
        let (parts, body) = look(&api, path, cookie).await;
        assert_eq!(parts.status.as_u16(), status, "{path}: {body}");
        assert!(body.contains(words), "{path}: {body}");
        assert!(
            cookies(&parts).iter().all(|cookie| !cookie.starts_with("strait-global=")),
            "nobody is logged in"
        );
        assert!(parts.headers.contains_key("content-security-policy"));
    };
    let not_begun = "not begun in this browser";
    refused(&format!("/gui/login/done?code=c&state={state}"), "", 400, not_begun).await;
    refused("/gui/login/done?code=c&state=x", kept, 400, not_begun).await;
    refused("/gui/login/done?code=c", kept, 400, not_begun).await;
    let as_session = session(&api, &[], ISSUER).replace("strait-global=", "strait-global-login=");
    refused(&format!("/gui/login/done?code=c&state={state}"), &as_session, 400, not_begun).await;
    let evil = format!("/gui/login/done?state={state}&error=%3Cscript%3E&error_description=no");
    refused(&evil, kept, 403, "&lt;script&gt;: no").await;
    let mixed = format!("/gui/login/done?state={state}&code=c&iss=https://evil.example");
    refused(&mixed, kept, 403, "is not the provider here").await;
    refused(&format!("/gui/login/done?state={state}"), kept, 403, "sent no code").await;
}

#[tokio::test]
async fn who_logged_in_is_known_on_the_page_alone() {
    let api = api().await;
    let ann = session(&api, &["devs"], ISSUER);
    let (_, body) = look(&api, "/gui/session", &ann).await;
    assert!(
        body.contains(
            "You are <strong>ann</strong>, of devs, mesh-system:openid, mesh-system:authenticated."
        ),
        "{body}"
    );
    let secret = "/gui/resources/globalsecrets/user-token-signing-key-1";
    assert_eq!(look(&api, secret, &ann).await.0.status.as_u16(), 403);
    for (other, why) in [
        (session(&api, &["mesh-system:admin"], "https://evil.example"), "another provider"),
        (ann.replace('~', "~1"), "a key there is not"),
        (format!("{ann}AAAA"), "what we did not seal"),
        ("strait-global=~".to_owned(), "nothing"),
    ] {
        let (parts, body) = look(&api, "/gui/session", &other).await;
        assert!(
            parts.status.as_u16() == 200 && body.contains("You have not said who you are"),
            "{why}: {body}"
        );
    }
    // The API takes no cookies, and no session as a token.
    let sealed = ann.split_once('=').unwrap().1;
    let bearer = Request::get("/meshes")
        .header("host", "cp.example")
        .header("authorization", format!("Bearer {sealed}"));
    assert_eq!(api.send_from([10, 0, 0, 1], bearer.body(Body::empty()).unwrap()).await.unwrap().0, 401);
    let (_, who) = look(&api, "/who-am-i", &ann).await;
    assert!(who.contains("mesh-system:anonymous"), "{who}");

    // A form from elsewhere is not let in by the cookie.
    let (parts, _) = send(&api, "/gui/session/end", &ann, "", &[("sec-fetch-site", "cross-site")]).await;
    assert_eq!(parts.status.as_u16(), 403);
    let (parts, body) = send(&api, "/gui/session/end", &ann, "", OWN).await;
    assert_eq!(parts.status.as_u16(), 200);
    assert!(
        body.contains("Log out there too")
            && body.contains("https://login.example/out?a=b&amp;client_id=page"),
        "{body}"
    );
    assert!(
        cookies(&parts)[0].starts_with("strait-global=; Path=/gui;") && body.contains(">Sign in<"),
        "{body}"
    );
    let (parts, _) = send(&api, "/gui/session/end", "", "", OWN).await;
    assert_eq!(parts.status.as_u16(), 303, "without a login there is nothing to end elsewhere");
}

#[tokio::test]
async fn one_comes_back_to_the_page_and_nowhere_else() {
    for to in ["/gui", "/gui/zones", "/gui/resources/meshtimeouts/quick?mesh=default"] {
        assert_eq!(visit::within(to), to);
    }
    for to in [
        "",
        "https://evil.example",
        "//evil.example",
        "/guide",
        "/gui//evil.example",
        "/gui/../meshes",
        "/gui\\evil",
        "/gui/session",
        "/gui/login?to=/gui",
        "/gui/\nx",
        "/meshes",
        "javascript:alert(1)",
        "/gui/é",
    ] {
        assert_eq!(visit::within(to), "/gui", "{to}");
    }
    let (api, _) = with(Mode::Global, |config| config.access.read_resources = AccessRule::admins()).await;
    let (parts, _) = look(&api, "/gui/dataplanes?mesh=default&search=a%20b", "").await;
    let to = "/gui/session?to=%2Fgui%2Fdataplanes%3Fmesh%3Ddefault%26search%3Da%2520b";
    assert_eq!((parts.status.as_u16(), parts.headers[header::LOCATION].to_str().unwrap()), (303, to));
    let (_, body) = look(&api, to, "").await;
    assert!(body.contains("value=\"/gui/dataplanes?mesh=default&amp;search=a%20b\""), "{body}");
    let form = format!("token={}&to=%2Fgui%2Fzones", token(&api, &["mesh-system:admin"]).await);
    let (parts, _) = send(&api, "/gui/session", "", &form, OWN).await;
    assert_eq!(parts.headers[header::LOCATION], "/gui/zones");
    assert_eq!(look(&api, "/gui/login", "").await.0.status.as_u16(), 404, "there is no provider");
}
