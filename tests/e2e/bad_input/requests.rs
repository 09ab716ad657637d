//! Requests to REST that are forged, smuggled or out of bounds, that the caller may not make, or that are too much.

use common::{model::Kind, registry};
use reqwest::{Method, StatusCode};
use serde_json::json;

use super::{
    http::{Http, get, put, request},
    table::{Case, all_right, case, run, tally},
};
use crate::harness::{
    Global, Options, Zone, eventually,
    tally::{
        Class::{Callers, Rights, Sizes},
        Tally,
    },
};

type Row = Case<Vec<u8>>;

const DENIED: &[&str] = &["401", "403"];
/// No request at all: told so, or hung up on.
const NO_REQUEST: &[&str] = &["400", "closed"];
const METHOD: &[&str] = &["405", "400", "404", "501"];
const SECRETS: &str = "/global-secrets";
/// What only an administrator may read.
const SECRET: &[&str] = &["zone-token-signing-key", "PRIVATE KEY"];

fn headers(what: &'static str, headers: &str) -> Row {
    case(Callers, what, get(SECRETS, headers), DENIED, &[]).hiding(SECRET)
}

fn hosted(what: &'static str, host: &str, verdicts: &'static [&'static str]) -> Row {
    let bytes = format!("GET {SECRETS} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    case(Callers, what, bytes.into_bytes(), verdicts, &[]).hiding(SECRET)
}

/// Somebody who would pass for a program on this machine.
#[rustfmt::skip]
fn spoofed() -> Vec<Row> {
    const EITHER: &[&str] = &["401", "403", "400", "closed"];
    vec![
        headers("forwarded for somebody", "x-forwarded-for: 192.0.2.1\r\n"),
        headers("forwarded for this machine, it says", "x-forwarded-for: 127.0.0.1\r\n"),
        headers("forwarded for nobody", "x-forwarded-for: \r\n"),
        headers("forwarded twice", "x-forwarded-for: 127.0.0.1\r\nx-forwarded-for: 192.0.2.1\r\n"),
        headers("forwarded, in capitals", "X-FORWARDED-FOR: 127.0.0.1\r\n"),
        headers("a real address", "x-real-ip: 127.0.0.1\r\n"),
        headers("forwarded by the standard", "forwarded: for=127.0.0.1;host=localhost\r\n"),
        headers("came by another host", "x-forwarded-host: global.example\r\n"),
        headers("came by a proxy", "via: 1.1 proxy\r\n"),
        headers("a page from elsewhere", "origin: http://evil.example\r\n"),
        headers("a page from nowhere", "origin: null\r\n"),
        headers("a page from nearly here", "origin: http://localhost.evil.example\r\n"),
        headers("a page from another port", "origin: http://localhost:8080\r\n"),
        headers("a page as a user", "origin: http://localhost@evil.example\r\n"),
        headers("a site from elsewhere", "sec-fetch-site: cross-site\r\n"),
        headers("a site from next door", "sec-fetch-site: same-site\r\n"),
        hosted("a name that leads here", "evil.example", DENIED),
        hosted("a name that leads here, with the port", "evil.example:5681", DENIED),
        hosted("a name that begins as an address", "127.0.0.1.evil.example", DENIED),
        hosted("a name that begins as this machine", "localhost.evil.example", DENIED),
        hosted("a name with a user", "localhost@evil.example", EITHER),
        hosted("a name with a path", "localhost/evil.example", EITHER),
        hosted("no name", "", EITHER),
        hosted("an address of another machine", "192.0.2.1", DENIED),
        hosted("an address in octal", "0177.0.0.1", DENIED),
        hosted("an address of everybody", "0.0.0.0", DENIED),
        case(Callers, "two hosts", b"GET /global-secrets HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\nconnection: close\r\n\r\n".to_vec(),
            &["400", "401", "403", "closed"], &[]).hiding(SECRET),
        case(Callers, "no host", b"GET /global-secrets HTTP/1.1\r\nconnection: close\r\n\r\n".to_vec(), &["400", "401", "403"], &[]).hiding(SECRET),
        case(Callers, "a time without hosts", b"GET /global-secrets HTTP/1.0\r\n\r\n".to_vec(), &["400", "401", "403"], &[]).hiding(SECRET),
        case(Callers, "a page that asks first", request("OPTIONS", SECRETS, "origin: http://evil.example\r\naccess-control-request-method: PUT\r\n", ""),
            &["403", "405", "401"], &[]).hiding(&["access-control-allow"]),
        case(Callers, "a page that reads", get("/meshes", "origin: http://evil.example\r\n"), &["200", "403"], &[]).hiding(&["access-control-allow"]),
        case(Callers, "a page that makes an administrator", request("POST", "/tokens/user",
            "origin: http://evil.example\r\ncontent-type: application/json\r\n", r#"{"name":"a","groups":["mesh-system:admin"],"validFor":"1h"}"#), DENIED, &[]).hiding(&["eyJ"]),
        case(Callers, "a form that makes an administrator", request("POST", "/tokens/user",
            "content-type: application/x-www-form-urlencoded\r\n", "name=a"), &["415"], &[]).hiding(&["eyJ"]),
        case(Callers, "text that makes an administrator", request("POST", "/tokens/user",
            "content-type: text/plain\r\n", r#"{"name":"a"}"#), &["415"], &[]).hiding(&["eyJ"]),
        case(Callers, "files that make an administrator", request("POST", "/tokens/user",
            "content-type: multipart/form-data; boundary=x\r\n", "--x--"), &["415"], &[]).hiding(&["eyJ"]),
        case(Callers, "a stranger that makes a zone's token", request("POST", "/tokens/zone", "x-forwarded-for: 192.0.2.1\r\ncontent-type: application/json\r\n",
            r#"{"zone":"zone-1","scope":["cp"],"validFor":"1h"}"#), DENIED, &[]).hiding(&["eyJ"]),
        case(Callers, "a stranger that makes a mesh", request("PUT", "/meshes/stranger", "x-forwarded-for: 192.0.2.1\r\ncontent-type: application/json\r\n",
            r#"{"type":"Mesh","name":"stranger"}"#), DENIED, &[]),
        case(Callers, "a stranger that deletes a mesh", request("DELETE", "/meshes/default", "x-forwarded-for: 192.0.2.1\r\n", ""), DENIED, &[]),
        case(Callers, "another method in a header", get("/meshes/default", "x-http-method-override: DELETE\r\n"), &["200"], &["\"default\""]),
        case(Callers, "another path in a header", get("/meshes/default", "x-original-url: /global-secrets\r\nx-rewrite-url: /global-secrets\r\n"), &["200"], &["\"default\""]).hiding(SECRET),
    ]
}

/// Paths that lead nowhere.
#[rustfmt::skip]
fn paths() -> Vec<Row> {
    let long = format!("/meshes/{}", "x".repeat(32 << 10));
    let kri = format!("/_kri/kri_m____{}_", "x".repeat(4_000));
    let paths = [
        "/meshes/../global-secrets", "/meshes/%2e%2e/global-secrets", "/meshes/default/..%2f..%2fglobal-secrets",
        "//global-secrets", "/./global-secrets", "/global-secrets;x", "/global-secrets%00",
        "/meshes/default%00", "/meshes/%c0%ae%c0%ae/secrets", "/meshes/%ff", "/meshes/%", "/meshes/%zz", "/etc/passwd",
        "/..//..//etc/passwd", "/meshes/default/secrets/..%2f..%2f..%2fetc%2fpasswd", "/meshes/..%5c..%5cwindows",
        "/meshes/nowhere/dataplanes", "/meshes/default/dataplanes/none/xds", "/meshes/default/dataplanes/..%2fx/xds",
        "/meshes/default/dataplanes/none/shutdown", "/meshes/default/dataplanes/none/quitquitquit",
        "/_kri/%00", "/_kri/kri", "/_kri/kri_________", &kri, &long, "*", "/meshes/default/_rules", "/zones/none/_overview",
    ];
    let row = |path: &str| {
        let what = format!("path {}", path.chars().take(60).collect::<String>());
        case(Callers, what, get(path, ""), &["400", "404", "405", "414", "431"], &[]).hiding(SECRET)
    };
    paths.iter().map(|path| row(path)).collect()
}

/// Bytes that two readers would understand differently.
#[rustfmt::skip]
fn smuggled() -> Vec<Row> {
    let row = |what: &'static str, bytes: &str| {
        case(Callers, what, bytes.as_bytes().to_vec(), NO_REQUEST, &[]).hiding(SECRET)
    };
    let posted = |what: &'static str, headers: &str, body: &str| {
        row(what, &format!("POST /tokens/zone HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n{body}"))
    };
    let hidden = "GET /global-secrets HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let asked = |line: &str| format!("{line}\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    let many = (0..2_000).map(|n| format!("x-{n}: y\r\n")).collect::<String>();
    vec![
        posted("two lengths", "content-length: 5\r\ncontent-length: 50\r\n", hidden),
        posted("lengths in a list", "content-length: 5, 50\r\n", hidden),
        posted("a length below nothing", "content-length: -1\r\n", hidden),
        posted("a length with a sign", "content-length: +5\r\n", hidden),
        posted("a length in hexadecimal", "content-length: 0x10\r\n", hidden),
        posted("a length of words", "content-length: much\r\n", hidden),
        posted("a length beyond numbers", "content-length: 99999999999999999999999\r\n", hidden),
        posted("chunks of another sort", "transfer-encoding: xchunked\r\n", hidden),
        posted("chunks and then none", "transfer-encoding: chunked, identity\r\n", hidden),
        posted("a chunk of no size", "transfer-encoding: chunked\r\ncontent-type: application/json\r\n", "zz\r\n"),
        posted("a chunk below nothing", "transfer-encoding: chunked\r\ncontent-type: application/json\r\n", "-1\r\nx\r\n0\r\n\r\n"),
        posted("a chunk beyond numbers", "transfer-encoding: chunked\r\ncontent-type: application/json\r\n", "fffffffffffffffff\r\n"),
        row("a header with a space before its colon", "GET /meshes HTTP/1.1\r\nhost : localhost\r\n\r\n"),
        row("a header with a NUL", "GET /meshes HTTP/1.1\r\nhost: localhost\r\nx: a\0b\r\n\r\n"),
        row("a header without a name", "GET /meshes HTTP/1.1\r\nhost: localhost\r\n: x\r\n\r\n"),
        row("a header without a colon", "GET /meshes HTTP/1.1\r\nhost: localhost\r\nnonsense\r\n\r\n"),
        row("a header that goes on", "GET /meshes HTTP/1.1\r\nhost: localhost\r\nx: a\r\n b: c\r\n\r\n"),
        row("a version there is not", &asked("GET /meshes HTTP/9.9")),
        row("no version", "GET /meshes\r\n\r\n"),
        row("two spaces", &asked("GET  /meshes HTTP/1.1")),
        row("a newline in the path", "GET /mes\nhes HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        row("a method with a NUL", &asked("G\0T /meshes HTTP/1.1")),
        row("a greeting of TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\u{fc}\x03\x03\r\n\r\n"),
        row("words of mail", "HELO localhost\r\nMAIL FROM: <a@b>\r\n\r\n"),
        row("nothing but newlines", &"\r\n".repeat(1_000)),
        case(Callers, "both lengths and chunks", format!("POST /tokens/zone HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{hidden}").into_bytes(),
            &["400", "closed", "401", "403", "422"], &[]).hiding(SECRET),
        case(Sizes, "2,000 headers", get("/meshes", &many), &["431", "400", "closed"], &[]),
        case(Sizes, "a header of 1 MiB", get("/meshes", &format!("x: {}\r\n", "y".repeat(1 << 20))), &["431", "400", "closed"], &[]),
        case(Sizes, "a path of 1 MiB", get(&format!("/{}", "x".repeat(1 << 20)), ""), &["414", "431", "400", "closed"], &[]),
    ]
}

/// Queries that ask for what there is not.
#[rustfmt::skip]
fn queries() -> Vec<Row> {
    let bad = |query: &str| case(Callers, format!("query {query}"), get(&format!("/meshes?{query}"), ""), &["400"], &[]);
    let harmless = |what: &'static str, query: &str| case(Callers, what, get(&format!("/meshes?{query}"), ""), &["200", "400", "414", "431"], &[]).hiding(SECRET);
    let mut table: Vec<Row> = ["size=-1", "size=0", "size=1001", "size=99999999999999999999", "size=abc", "size=1.5", "size=%00", "size=0x10",
        "offset=-1", "offset=9223372036854775808", "offset=abc", "offset=1e9", "offset=%20"].into_iter().map(bad).collect();
    table.extend([
        harmless("an offset beyond the end", "offset=9223372036854775807&size=1000"),
        harmless("a size twice", "size=1&size=1000"),
        harmless("a filter of everything", "filter[labels.a]=%00&name=..%2f..&tag=a:b:c:d&filter=*"),
        harmless("a query of 32 KiB", &format!("name={}", "x".repeat(32 << 10))),
        harmless("500 questions", &"a=b&".repeat(500)),
    ]);
    table
}

/// Requests for tokens, methods, formats.
#[rustfmt::skip]
fn requests() -> Vec<Row> {
    let token = |what: &'static str, kind: &str, body: &str, verdicts| {
        let bytes = request("POST", &format!("/tokens/{kind}"), "content-type: application/json\r\n", body);
        case(Callers, what, bytes, verdicts, &[]).hiding(&["eyJ"])
    };
    const WRONG: &[&str] = &["400", "404", "422"];
    let mut table = vec![
        token("no mesh", "dataplane", r#"{"name":"a","validFor":"1h"}"#, WRONG),
        token("a mesh there is not", "dataplane", r#"{"mesh":"nowhere","validFor":"1h"}"#, WRONG),
        token("a mesh with a path", "dataplane", r#"{"mesh":"../default","validFor":"1h"}"#, WRONG),
        token("a sort of proxy there is not", "dataplane", r#"{"mesh":"default","type":"router"}"#, WRONG),
        token("a time below nothing", "dataplane", r#"{"mesh":"default","validFor":"-1h"}"#, WRONG),
        token("a time of words", "zone", r#"{"zone":"a","scope":["cp"],"validFor":"soon"}"#, WRONG),
        token("a scope there is not", "zone", r#"{"zone":"a","scope":["everything"],"validFor":"1h"}"#, WRONG),
        token("no time for a user", "user", r#"{"name":"a"}"#, WRONG),
        token("no name of a user", "user", r#"{"groups":["a"],"validFor":"1h"}"#, WRONG),
        token("no JSON", "user", "{", WRONG),
        token("a list", "zone", "[]", WRONG),
        token("tags 10,000 deep", "dataplane", &format!(r#"{{"mesh":"default","tags":{}"#, "[".repeat(10_000)), WRONG),
        case(Callers, "an answer in HTML", get("/meshes", "accept: text/html\r\n"), &["406"], &[]),
        case(Callers, "an answer in a wild format", get("/meshes", "accept: ;;;,,,/\r\n"), &["406", "400", "200"], &[]),
        case(Callers, "a document in YAML", request("PUT", "/meshes/a", "content-type: text/yaml\r\n", "type: Mesh"), &["415"], &["`straitctl apply` takes YAML"]),
        case(Callers, "a document in UTF-16", put("/meshes/a", b"\xff\xfe{\0}\0"), &["400"], &[]),
        case(Callers, "a document that is no UTF-8", put("/meshes/a", b"{\"type\":\"Mesh\",\"name\":\"\xff\"}"), &["400"], &[]),
    ];
    for method in ["POST", "PATCH", "TRACE", "PROPFIND", "LOCK", "get", "X-INVENTED", &"M".repeat(300)] {
        let what = format!("method {}", method.chars().take(20).collect::<String>());
        table.push(case(Callers, what, request(method, "/meshes/default", "content-type: application/json\r\n", "{}"), METHOD, &[]));
    }
    let connect = "CONNECT 127.0.0.1:22 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    table.push(case(Callers, "a tunnel", connect.as_bytes().to_vec(), &["400", "403", "404", "405", "501", "closed"], &[]));
    table
}

/// Bodies too large, too small, or not there.
#[rustfmt::skip]
fn sizes() -> Vec<Row> {
    let padded = |bytes: usize| {
        let frame = r#"{"type":"Mesh","name":"wide","labels":{"pad":""}}"#.len();
        format!(r#"{{"type":"Mesh","name":"wide","labels":{{"pad":"{}"}}}}"#, "x".repeat(bytes - frame))
    };
    let limit = 4 << 20;
    let promised = |what: &'static str, length: u64, sent: &str| {
        let head = format!("PUT /meshes/wide HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{sent}");
        case(Sizes, what, head.into_bytes(), &["413", "400", "408", "431", "closed"], &[])
    };
    vec![
        case(Sizes, "no body", put("/meshes/wide", ""), &["400"], &[]),
        case(Sizes, "one byte", put("/meshes/wide", "{"), &["400"], &["not JSON"]),
        case(Sizes, "a byte below the limit", put("/meshes/wide", padded(limit - 1)), &["400", "413"], &[]),
        case(Sizes, "at the limit", put("/meshes/wide", padded(limit)), &["400", "413"], &[]),
        case(Sizes, "a byte above the limit", put("/meshes/wide", padded(limit + 1)), &["413"], &["spread it over several resources"]),
        case(Sizes, "20 MiB", put("/meshes/wide", padded(20 << 20)), &["413", "closed"], &[]),
        promised("100 MiB promised, one byte sent", 100 << 20, "{"),
        promised("2^63 promised", 1 << 63, "{"),
        promised("2^64 - 1 promised", u64::MAX, "{"),
        case(Sizes, "500,000 commas", put("/meshes/wide", format!("[{}]", ",".repeat(500_000))), &["400"], &[]),
        case(Sizes, "200,000 members", put("/meshes/wide", format!("{{{}\"z\":0}}", (0..200_000).map(|n| format!("\"m{n}\":0,")).collect::<String>())), &["400", "413"], &[]),
        case(Sizes, "a label of 3 MiB", put("/meshes/wide", padded(3 << 20)), &["400", "413"], &[]),
        case(Sizes, "a number of 3 MiB", put("/meshes/wide", format!(r#"{{"type":"Mesh","name":"wide","x":{}}}"#, "9".repeat(3 << 20))), &["400", "413"], &[]),
    ]
}

/// Writes of every kind the other side owns, and of those that nobody writes.
#[rustfmt::skip]
fn verbs(written_here: fn(&Kind) -> bool) -> Vec<Row> {
    let mut table = Vec::new();
    for kind in registry::ALL.iter().filter(|kind| !kind.path.is_empty() && (kind.read_only || !written_here(kind))) {
        let (path, mesh) = match kind.is_mesh_scoped() {
            true => (format!("/meshes/default/{}/x", kind.path), Some("default")),
            false => (format!("/{}/x", kind.path), None),
        };
        let body = json!({"type": kind.name, "name": "x", "mesh": mesh, "spec": {}});
        table.push(case(Rights, format!("{}: written", kind.name), put(&path, body.to_string()), &["405"], &[]));
        table.push(case(Rights, format!("{}: deleted", kind.name), request("DELETE", &path, "", ""), &["405", "404"], &[]));
    }
    table
}

fn on_global() -> Vec<Row> {
    let mut table = spoofed();
    for more in
        [paths(), smuggled(), queries(), requests(), sizes(), verbs(|kind| kind.flow.written_by_global())]
    {
        table.extend(more);
    }
    table
}

fn on_zone() -> Vec<Row> {
    // What a stranger may not do differs in what there is to take: a zone makes no tokens of zones.
    let mut table: Vec<Row> =
        spoofed().into_iter().filter(|case| !case.what.contains("stranger that")).collect();
    for more in [paths(), smuggled(), queries(), sizes(), verbs(|kind| kind.flow.written_by_zone())] {
        table.extend(more);
    }
    table.retain(|case| !NOT_ON_ZONES.contains(&&*case.what));
    table
}

/// A zone writes no meshes, so their size is none of its business.
const NOT_ON_ZONES: &[&str] = &[
    "no body",
    "one byte",
    "500,000 commas",
    "200,000 members",
    "a byte below the limit",
    "at the limit",
    "a byte above the limit",
    "20 MiB",
    "100 MiB promised, one byte sent",
    "2^63 promised",
    "a label of 3 MiB",
    "a number of 3 MiB",
];

/// What is tried.
pub fn count() -> Tally {
    let mut all = tally(&on_global());
    all.join(&tally(&on_zone()));
    all
}

/// Whoever passes for a program on this machine gets everything.
fn trusting_this_machine() -> Options {
    Options::default().with("apiServer.authn.localhostIsAdmin", "true")
}

#[tokio::test]
async fn requests_nobody_should_make_open_nothing_on_global() {
    let global = Global::start_with(trusting_this_machine()).await;
    let rest = Http::plain("global REST", &global.url(""));
    all_right([run(&rest, &on_global(), &[&global.process]).await]);
    assert_eq!(global.get("/meshes").await["total"], 1, "nothing of it was stored or deleted");
    let mesh = json!({"type": "Mesh", "name": "after"});
    assert_eq!(global.call(Method::PUT, "/meshes/after", Some(mesh)).await.0, StatusCode::CREATED);
}

#[tokio::test]
async fn requests_nobody_should_make_open_nothing_on_a_zone() {
    let global = Global::start().await;
    let zone = Zone::start_with(&global, "zone-1", trusting_this_machine()).await;
    eventually("the mesh in the zone", || zone.try_get("/meshes/default")).await;
    let rest = Http::plain("zone REST", &zone.url(""));
    all_right([run(&rest, &on_zone(), &[&zone.process]).await]);
    zone.apply(&super::ads::dataplane("after"));
    zone.get("/meshes/default/dataplanes/after").await;
}
