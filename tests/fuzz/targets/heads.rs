//! The heads of requests to the API: whom they come from, on which condition they write.

use std::sync::LazyLock;

use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, header},
};
use common::{mode::Mode, rest::ApiConfig, testing::api::TestApi};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};

use super::{Target, choice};
use crate::corpus::Corpus;

/// The address of a request on its first line, its headers on the others.
pub static HEADS: Target = Target { name: "request-heads", costs: 4, run, seeds };

const MESH: &str = r#"{"type":"Mesh","name":"default"}"#;

struct Site {
    runtime: Runtime,
    api: TestApi,
    /// The entity tag of the mesh.
    tag: String,
}

static SITE: LazyLock<Site> = LazyLock::new(|| {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let mesh = json!({"type": "Mesh", "name": "default"});
    let config = ApiConfig::new(Mode::Global);
    let api = runtime.block_on(TestApi::start(config, &[mesh])).expect("an API");
    let tag = format!("\"{}\"", api.index.current().revision);
    Site { runtime, api, tag }
});

fn run(data: &[u8]) {
    let Some((what, text)) = choice(data, 4) else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let (is_near, writes) = (what % 2 == 1, what / 2 == 1);
    let mut lines = text.lines();
    let Ok(uri) = lines.next().unwrap_or_default().parse::<Uri>() else { return };
    let headers: HeaderMap = lines
        .filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            let name: HeaderName = name.trim().parse().ok()?;
            Some((name, HeaderValue::from_bytes(value.trim_matches([' ', '\t']).as_bytes()).ok()?))
        })
        .collect();
    let path = if writes { "/meshes/default" } else { "/global-secrets" };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path.parse().expect("a path"));
    if parts.authority.is_none() {
        parts.scheme = None;
    }
    let Ok(target) = Uri::from_parts(parts) else { return };
    let mut request = Request::new(Body::from(if writes { MESH } else { "" }));
    *request.method_mut() = if writes { axum::http::Method::PUT } else { axum::http::Method::GET };
    *request.uri_mut() = target;
    *request.headers_mut() = headers.clone();
    let site = &*SITE;
    let peer = if is_near { [127, 0, 0, 1] } else { [10, 0, 0, 1] };
    let (status, shown) = site.runtime.block_on(site.api.send_from(peer, request)).expect("an answer");
    assert_ne!(status, 500, "{shown}");
    if (200..300).contains(&status) {
        assert!(is_near, "a stranger is no administrator: {text}");
        is_for_this_machine(&uri, &headers);
        if writes {
            is_let_through(&headers, &site.tag);
        }
    }
}

/// Whoever is trusted says everywhere that the request is for this machine, and nobody passed it on.
fn is_for_this_machine(uri: &Uri, headers: &HeaderMap) {
    let authority = uri.authority().map(|authority| authority.as_str().to_owned());
    let hosts = headers
        .get_all(header::HOST)
        .iter()
        .map(|host| String::from_utf8_lossy(host.as_bytes()).into_owned());
    let named: Vec<String> = authority.into_iter().chain(hosts).collect();
    assert!(!named.is_empty() && named.iter().all(|host| *host == named[0]), "{named:?}");
    let name = named[0].to_ascii_lowercase();
    let bare = name.strip_prefix('[').map_or_else(
        || name.rsplit_once(':').map_or(name.as_str(), |(name, _)| name),
        |rest| rest.split(']').next().unwrap_or_default(),
    );
    let is_near =
        bare == "localhost" || bare.parse().is_ok_and(|ip: std::net::IpAddr| ip.to_canonical().is_loopback());
    assert!(is_near, "{named:?}");
    for passed_on in ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"] {
        assert!(!headers.contains_key(passed_on), "{passed_on}");
    }
}

/// A write whose condition is not that of what is there never happens.
fn is_let_through(headers: &HeaderMap, tag: &str) {
    let texts =
        |name| headers.get_all(name).iter().map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
    let matches: Vec<String> = texts(header::IF_MATCH).collect();
    let names_it =
        |text: &String| text.split(',').any(|one| [tag, "*"].contains(&one.trim_matches([' ', '\t'])));
    assert!(matches.is_empty() || matches.iter().any(names_it), "{matches:?}");
    assert!(!texts(header::IF_NONE_MATCH).any(|text| names_it(&text)), "it is there");
}

fn seeds(_corpus: &Corpus) -> Vec<Vec<u8>> {
    let heads = [
        "/\nhost: localhost:5681\nif-match: W/\"1\", \"1\"",
        "/\nhost: 127.0.0.1\nif-match: *\nuser-agent: curl",
        "/\nhost: localhost\nif-none-match: \"7\"\norigin: http://localhost",
        "http://localhost:5681/\nhost: localhost:5681\naccept: application/json",
        "http://localhost/\nhost: global.example",
        "/\nhost: [::1]:5681\nx-forwarded-for: 10.0.0.1\nvia: 1.1 a",
        "/\nhost: global.example\nauthorization: Bearer a.b.c\nforwarded: for=10.0.0.1",
    ];
    let of = |what: u8| heads.iter().map(move |head| [&[what][..], head.as_bytes()].concat());
    (0..4).flat_map(of).collect()
}
