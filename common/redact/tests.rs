#![allow(clippy::unwrap_used)]

use base64::{
    Engine,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use super::*;

/// Secrets that one can tell by their looks.
fn secrets() -> Vec<(&'static str, String)> {
    let jwt = |header: &str| {
        let part = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
        format!(
            "{}.{}.{}",
            part(header),
            part(r#"{"Name":"web-1"}"#),
            BASE64_URL_SAFE_NO_PAD.encode([7; 256])
        )
    };
    let key = rcgen::KeyPair::generate().unwrap();
    let rsa = crate::token::new_signing_key().unwrap().pem().to_owned();
    let der = |pem: &str| pem.lines().filter(|line| !line.starts_with('-')).collect::<String>();
    vec![
        ("token", jwt(r#"{"alg":"RS256","kid":"1"}"#)),
        ("spaced token", jwt("{ \"alg\": \"RS256\" }")),
        ("broken token", jwt("{\n\"alg\":\"none\"}")),
        ("key", key.serialize_pem()),
        ("key without its frame", der(&key.serialize_pem())),
        ("RSA key without its frame", der(&rsa)),
        ("RSA key", rsa),
        ("password hash", "$2b$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy".to_owned()),
    ]
}

/// What a secret looks like on its way.
fn disguises(secret: &str) -> Vec<(&'static str, String)> {
    let base64 = BASE64_STANDARD.encode(secret);
    let wrapped: Vec<&str> =
        (0..base64.len()).step_by(76).map(|at| &base64[at..base64.len().min(at + 76)]).collect();
    vec![
        ("as it is", secret.to_owned()),
        ("in words", format!("the value is {secret} today")),
        ("after a name", format!("cluster.outbound_{secret}")),
        ("in JSON", json!({"inner": {"a": [secret]}}).to_string()),
        ("in JSON in JSON", json!({"inner": json!({"b": secret}).to_string()}).to_string()),
        ("in YAML", format!("type: Dataplane\nnetworking:\n  inline: {secret}\n")),
        ("percent-encoded", utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string()),
        ("in a query", format!("http://a/b?x={}&y=1", utf8_percent_encode(secret, NON_ALPHANUMERIC))),
        ("in base64", base64.clone()),
        ("in lines of base64", wrapped.join("\n")),
        ("in base64 twice", BASE64_STANDARD.encode(&base64)),
        ("in base64 for addresses", BASE64_URL_SAFE_NO_PAD.encode(secret)),
        ("in base64 after a path", format!("/var/run/{base64}")),
        ("in base64 with something before", BASE64_STANDARD.encode(format!("x {secret}"))),
        ("in hexadecimal", secret.bytes().map(|b| format!("{b:02x}")).collect()),
    ]
}

/// Pieces of a secret none of which may be left. A text that is cut still tells its beginning.
fn traces(secret: &str) -> Vec<String> {
    let longest = secret.split(['\n', '.', ' ']).max_by_key(|part| part.len()).unwrap_or_default();
    let base64 = BASE64_STANDARD.encode(secret);
    vec![longest.to_owned(), base64[8..40.min(base64.len())].to_owned()]
}

#[test]
fn a_secret_is_found_in_every_disguise() {
    for (what, secret) in secrets() {
        for (how, disguised) in disguises(&secret) {
            let shown = text(&disguised);
            assert!(shown.contains(REDACTED), "{what} {how}: {disguised}\nbecame {shown}");
            for trace in traces(&secret) {
                assert!(!shown.contains(&trace), "{what} {how}: {trace} is left in {shown}");
            }
            let named = json!({ "a": 1, &disguised: { "b": [{ &disguised: 2 }] } });
            for (place, mut document) in [
                ("in a member", json!({"configs": [{"typedConfig": {"value": disguised}}]})),
                ("as its name", named.clone()),
                ("as a name in a document in a text", json!({"inner": named.to_string()})),
            ] {
                json(&mut document);
                let shown = document.to_string();
                assert!(!shown.contains(&traces(&secret)[0]), "{what} {how} {place}: {shown}");
            }
        }
    }
}

/// What policies have places for, and what is made of them for an Envoy.
#[test]
fn a_secret_is_known_where_anything_may_stand() {
    let certificate = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap().cert.pem();
    let utf16: Vec<u8> = "hunter2hunter2hunter2".encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (secret, mut document) in [
        ("hunter2", json!({"conf": {"url": "http://traces.example/api?key=hunter2"}})),
        ("hunter2", json!({"url": "http://traces.example/api?a=b&license-key=hunter2"})),
        ("hunter2", json!({"url": "http://traces.example/api?subscriptionKey=hunter2&a=b"})),
        ("hunter2", json!({"tags": [{"name": "api-key", "literal": "hunter2"}]})),
        (
            "hunter2",
            json!({"tags": [{"name": "dd-token", "header": {"name": "x-dd", "default": "hunter2"}}]}),
        ),
        ("hunter2", json!({"tags": [{"name": "dd-token", "default": "hunter2"}]})),
        ("hunter2", json!({"customTags": [{"tag": "api-key", "literal": {"value": "hunter2"}}]})),
        (
            "hunter2",
            json!({"customTags": [{"tag": "token", "requestHeader": {"name": "x", "defaultValue": "hunter2"}}]}),
        ),
        ("aHVudGVyMg", json!({"default": {"tcp": {"send": "aHVudGVyMg==", "receive": ["T0s="]}}})),
        ("T0s", json!({"conf": {"tcp": {"send": "aHVudGVyMg==", "receive": ["T0s="]}}})),
        ("hunter2", json!({"tcpHealthCheck": {"send": {"text": "hunter2"}, "receive": [{"text": "00"}]}})),
        ("hunter2", json!({"tls": {"certificates": [{"inlineString": "hunter2"}]}})),
        ("hunter2", json!({"tls": {"certificates": [{"inlineString": format!("{certificate}\nhunter2")}]}})),
        ("hunter2", json!({"tls": {"certificates": [{"inlineString": {"value": "hunter2"}}]}})),
        (
            &BASE64_STANDARD.encode(&utf16)[..16],
            json!({"tls": {"certificates": [{"inline": BASE64_STANDARD.encode(&utf16)}]}}),
        ),
        (
            "hunter2",
            json!({"conf": {"cert": {"inlineString": certificate}, "key": {"inlineString": "hunter2"}}}),
        ),
    ] {
        let before = document.to_string();
        json(&mut document);
        let shown = document.to_string();
        assert!(!shown.contains(secret) && shown.contains(REDACTED), "{before}\nbecame {shown}");
        let public = before.contains("BEGIN CERTIFICATE");
        assert_eq!(shown.contains("BEGIN CERTIFICATE"), public, "{shown}: certificates stay");
    }
}

#[test]
fn what_stands_beside_secrets_stays() {
    let certificate = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap().cert.pem();
    let document = json!({
        "to": [{"targetRef": {"kind": "MeshService", "name": "token"}, "default": {"tcp": {"idleTimeout": "1h"}}}],
        "rules": [{"name": "auth", "default": {"backendRefs": [{"kind": "MeshService", "name": "auth", "weight": 1}]}}],
        "tags": [{"name": "team", "literal": "core"}, {"name": "version", "header": {"name": "x-version", "default": "v1"}}],
        "customTags": [{"tag": "team", "literal": {"value": "core"}}],
        "networking": {"inbound": [{"port": 80, "tags": {"kuma.io/service": "auth", "team": "key"}}]},
        "url": "http://traces.example/api?monkey=1&keys=2&author=x",
        "tls": {"certificates": [{"inlineString": certificate}, {"inline": BASE64_STANDARD.encode(&certificate)}, {"file": "/a.pem"}]},
        "conf": {"tcp": {"rules": [{"backends": [{"weight": 1}]}]}, "cert": {"inlineString": certificate}},
        "key": {"name": "a"}, "probe": {"tcp": {}, "send": "a", "receive": "b"},
    });
    let mut shown = document.clone();
    json(&mut shown);
    assert_eq!(shown, document);
}

#[test]
fn a_secret_is_known_by_where_it_stands() {
    let check = |document: Value| {
        let mut shown = document.clone();
        json(&mut shown);
        let text = shown.to_string();
        assert!(!text.contains("hunter2") && text.contains(REDACTED), "{text}");
    };
    check(json!({"initial_metadata": [{"key": "anything", "value": "hunter2"}]}));
    check(json!({"initialMetadata": [{"key": "anything", "rawValue": "aHVudGVyMg", "value": "hunter2"}]}));
    check(json!({"private_key": {"inline_string": "hunter2"}}));
    check(json!({"requestHeadersToAdd": [{"header": {"key": "Authorization", "value": "hunter2"}}]}));
    check(json!({"headers": [{"name": "x-api-key", "stringMatch": {"exact": "hunter2"}}]}));
    check(json!({"headers": [{"name": "cookie", "values": ["hunter2"]}]}));
    check(json!({"env": [{"name": "DB_PASSWORD", "value": "hunter2"}]}));
    check(json!({"x-auth-token": "hunter2"}));
    check(json!({"metadata": {"fields": {"clientSecret": {"stringValue": "hunter2"}}}}));
    check(json!({"callCredentials": [{"accessToken": "hunter2"}]}));
    check(json!({"password": 1, "authPassword": {"inlineString": "hunter2"}}));
    check(json!({"sessionTicketKeys": {"keys": [{"inlineBytes": "hunter2"}]}}));
    check(json!({"secret": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
        "name": "s", "genericSecret": {"secret": {"inlineString": "hunter2"}}}}));
    check(json!({"@type": "type.googleapis.com/envoy.extensions.filters.http.basic_auth.v3.BasicAuth",
        "users": {"inlineString": "hunter2"}}));
    check(json!({"type": "Secret", "data": "hunter2"}));
    check(json!({"Secret": "hunter2"}));
    check(json!({"Secret": {"total": "x", "value": "hunter2"}}));
    check(json!({"keys": [{"kty": "oct", "k": "hunter2"}]}));
    check(json!({"localJwks": {"inlineString": r#"{"keys":[{"kty":"RSA","n":"abc","d":"hunter2"}]}"#}}));
    check(json!({"uri": "postgres://kuma:hunter2@10.0.0.1:5432/db"}));
    check(json!({"dataplane.resource": "type: Dataplane\nlabels:\n  token: hunter2\n"}));
    for yaml in [
        "private_key: {inline_string: hunter2}",
        "a:\n  private_key:\n    inline_string: hunter2\n",
        "- generic_secret:\n    secret: { inlineBytes: hunter2 }\n",
        "header:\n  key: x-api-key\n  value: hunter2\n",
        "{ name: a, password: { filename: x, inline_string: hunter2 } }",
        "%YAML 1.2\n---\npassword:\n  - hunter2\n",
        "privateKey:\n  inlineString: >-\n    hunter2\n",
        "private_key: &k {inline_string: hunter2}\nother: *k\n",
    ] {
        check(json!({"spec": {"value": yaml}}));
        check(json!({"error": format!("{yaml}\n")}));
        check(json!({"inner": json!({"value": yaml}).to_string()}));
    }
    check(json!({"error": "cannot parse key: \"authorization\" value: \"hunter2\""}));
    check(json!({"error": r#"in {\"password\": \"hunter2\"}"#}));
    check(json!({"error": "bad private_key: {inline_string: hunter2} and more"}));
    check(json!({"error": "cannot load\nprivate_key {\n  inline_string: \"hunter2\"\n}\n: no"}));
    check(json!({"error": "cannot load private_key:\n    inlineString: hunter2, at all"}));
    check(json!({"error": r#"in {\"password\": {\"inline_bytes\": \"hunter2\"}}: no"#}));
    check(json!({"tokens": {"hunter2": {"valid": true}}}));
    check(json!({"headers": [{"name": "x-api-key", "values": {"hunter2": 1}}]}));
    check(json!({"password=hunter2": true, "a": {"postgres://kuma:hunter2@10.0.0.1/db": 1}}));
    check(json!({"line": "GET / password=hunter2&x=1"}));
    check(json!({"line": "Authorization: Bearer hunter2hunter2"}));
    for name in ["sig", "Signature", "X-Amz-Signature", "X-Goog-Signature", "X-Amz-Security-Token"] {
        check(json!({"uri": format!("https://store.example/a?sv=1&{name}=hunter2%2Bhunter2&se=2")}));
        check(
            json!({"inner": json!({"uri": format!("https://store.example/a?{name}=hunter2")}).to_string()}),
        );
    }
    check(json!({"inlineCode": r#"handle:headers():add("x-api-key","hunter2")"#}));
    check(json!({"code": "h:headers():replace('Authorization', 'hunter2')"}));
}

/// Of a member that stands twice some readers take the first, and others the last.
#[test]
fn a_document_that_says_a_thing_twice_is_withheld() {
    for twice in [
        r#"{"password": "hunter2", "password": ""}"#,
        r#"{"a": {"x-auth": "1"}, "users": [{"pwd": "hunter2", "pwd": ""}]}"#,
        "password: hunter2\npassword: ''\n",
        "a: 1\nprivateKey:\n  inlineString: hunter2\nprivateKey: {}\n",
    ] {
        let mut document = json!({"text": twice, "in": json!({"text": twice}).to_string()});
        json(&mut document);
        assert!(!document.to_string().contains("hunter2"), "{document}");
    }
    let deep = format!("{}{}{}", "[".repeat(100), r#"{"password": "hunter2"}"#, "]".repeat(100));
    assert_eq!(text(&deep), REDACTED, "nor is what is deeper than anybody looks");
}

#[test]
fn what_patches_bring_along_is_for_those_who_write_them() {
    let code = "function envoy_on_request(h) h:headers():add('x-mine', 'hunter2') end";
    let changes = json!([
        {"httpFilter": {"operation": "AddFirst", "match": {"name": "router"}, "value": code}},
        {"cluster": {"operation": "Patch", "jsonPatches": [
            {"op": "add", "path": "/a", "value": {"typedConfig": {"value": {"opaque": "hunter2"}}}}]}},
    ]);
    let older = json!({"imports": ["default-proxy"], "modifications": changes, "resources": [{"name": "a", "version": "1", "resource": code}]});
    for document in [
        json!({"type": "MeshProxyPatch", "spec": {"default": {"appendModifications": changes}}}),
        json!({"items": [{"rules": [{"conf": {"appendModifications": changes}}]}]}),
        json!({"type": "ProxyTemplate", "conf": older}),
    ] {
        let mut shown = document;
        patches(&mut shown);
        let text = shown.to_string();
        assert!(!text.contains("hunter2") && text.contains("AddFirst") && text.contains("router"), "{text}");
    }
    let mut plain = json!({"resources": [{"resource": {"a": 1}}], "modifications": 3, "value": "stays"});
    let before = plain.clone();
    patches(&mut plain);
    assert_eq!(plain, before);
}

#[test]
fn what_is_no_secret_stays() {
    let document = json!({
        "name": "backend", "cluster": "auth-token", "key": "kuma.io/service", "value": "token-service",
        "tokenBucket": {"maxTokens": 100, "tokensPerFill": 10, "fillInterval": "1s"},
        "tlsCertificateSdsSecretConfigs": [{"name": "identity_cert:secret:default", "sdsConfig": {"ads": {}}}],
        "privateKey": {"filename": "/etc/key.pem"},
        "dynamicActiveSecrets": [{"name": "mesh_ca:secret:default", "secret": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "name": "mesh_ca",
            "validationContext": {"trustedCa": {"inlineString": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"}}}}],
        "resources": {"Secret": 2, "GlobalSecret": {"total": 3}}, "rejections": {"Secret": "no such key"},
        "stat": {"Secret": {"responsesSent": "12"}, "GlobalSecret": {"version": "ab", "lastRejection": null}},
        "empty": "", "password": "", "uri": "spiffe://default/backend", "at": "http://10.0.0.1:80/a@b",
        "basic": "Basic constraints are critical", "yaml": "name: x\nconnect_timeout: 5s\n# a comment\n", "name2": "cluster.token.upstream_rq_total",
    });
    let mut shown = document.clone();
    json(&mut shown);
    assert_eq!(shown, document);
    for line in
        ["cluster.a_token.upstream_cx_total: 12", "listener.0.0.0.0_80.http.eyes.rq: 0", "server.state: 0"]
    {
        assert_eq!(text(line), line);
    }
    let pair = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
    let public = BASE64_STANDARD.encode(pair.cert.pem());
    assert_eq!(text(&public), public, "certificates are public");
    let public = pair.signing_key.public_key_pem();
    assert_eq!(text(&public), public, "public keys are");
}

#[test]
fn of_the_words_of_a_peer_a_part_is_shown() {
    for (what, secret) in secrets() {
        let said = format!("cannot take {secret}: {}", "no ".repeat(100));
        let shown = words(&said, 200);
        assert!(shown.starts_with("cannot take") && shown.len() <= 200, "{what}: {shown}");
        assert!(traces(&secret).iter().all(|trace| !shown.contains(trace)), "{what}: {shown}");
    }
}

#[test]
fn of_endless_words_no_more_is_looked_through_than_is_shown() {
    let most = |longest: usize| longest * SEARCHED + SEARCHED_ANYWAY;
    let endless = |words: &str| words.repeat((10 << 20) / words.len());
    for longest in [0, 200, 4096] {
        for said in ["no ", "a", "ż", "eyJ", "a line\n", "password=", "a: b\n"].map(endless) {
            let looked_through = searched(&said, longest).unwrap();
            assert!(said.starts_with(looked_through) && looked_through.len() <= most(longest));
            assert!(words(&said, longest).len() <= longest);
        }
    }
    // What is short is looked through as a whole.
    let short = "no ".repeat(most(200) / 3);
    assert_eq!(searched(&short, 200), Some(short.as_str()));
    // A long line behind a short one is what there is to say.
    let said = format!("user error\nweb.default: {}", endless("no "));
    assert_eq!(words(&said, 200), &said[..200]);
    // Half of a document is none.
    let document = json!({"password": "hunter2", "more": endless("a ")}).to_string();
    assert_eq!(words(&document, 200), REDACTED);
    // What is cut is no secret that nobody knows any more: the line it stands in goes.
    for (what, secret) in secrets() {
        let before = "no ".repeat((most(200) - 100) / 3);
        let said = format!("{before}\nit says {secret}: {}", endless("no "));
        let looked_through = searched(&said, 200).unwrap();
        assert!(traces(&secret).iter().all(|trace| !text(looked_through).contains(trace)), "{what}");
    }
}

#[test]
fn names_that_become_one_keep_their_members() {
    let token = |name: &str| format!("{}.{name}.c2ln", BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#));
    let mut document =
        json!({ token("a"): 1, "[redacted] 1": 2, "other": 3, token("b"): 4, token("c"): 5, REDACTED: 6 });
    json(&mut document);
    let members = document.as_object().unwrap();
    let mut values: Vec<u64> = members.values().filter_map(Value::as_u64).collect();
    values.sort_unstable();
    assert_eq!(values, [1, 2, 3, 4, 5, 6], "{document}");
    assert_eq!((&members["other"], &members[REDACTED]), (&json!(3), &json!(6)));
}

#[tokio::test]
async fn a_dump_that_cannot_be_looked_through_is_withheld() {
    let dumped = async |text: &str, is_json| dump(Bytes::copy_from_slice(text.as_bytes()), is_json).await;
    assert_eq!(dumped("{\"a\":1}", true).await.unwrap(), "{\n \"a\": 1\n}\n");
    assert_eq!(dumped("server.live: 1\n", false).await.unwrap(), "server.live: 1\n");
    for cut in ["", "not found", "{\"initial_metadata\": [{\"value\": \"x\"", "{\"a\":1,\"a\":2}"] {
        assert_eq!(dumped(cut, true).await, Err(Withheld::NotJson), "{cut}");
    }
}

#[tokio::test]
async fn a_dump_of_more_than_is_looked_through_is_withheld() {
    let withheld = async |body: Vec<u8>, is_json| dump(body.into(), is_json).await.map(|shown| shown.len());
    let limits = TextLimits::DUMP;
    let long = || vec![b'x'; limits.bytes + 1];
    assert_eq!(withheld(long(), true).await, Err(Withheld::TooMuch));
    assert_eq!(withheld(long(), false).await, Err(Withheld::TooMuch));
    assert_eq!(withheld("[".repeat(1000).into(), true).await, Err(Withheld::TooMuch));
    // Each of these takes a hundred times its length.
    let objects = format!("[{}0]", "{\"\":0},".repeat(limits.values / 3));
    assert_eq!(withheld(objects.into(), true).await, Err(Withheld::TooMuch));
    // What is indented so deep is as long.
    let deep = format!("{}{}0{}", "[".repeat(90), "0,".repeat(limits.bytes / 90), "]".repeat(90));
    assert_eq!(withheld(deep.into(), true).await, Err(Withheld::TooMuch));
    // A byte that is no text becomes three.
    let no_text = Bytes::from_static(&[0xff; 4]);
    assert_eq!(dumped_text(&no_text, 11), Err(Withheld::TooMuch));
    assert_eq!(dumped_text(&no_text, 12).unwrap().len(), 12);
}

#[tokio::test]
async fn what_nobody_waits_for_takes_its_room_until_it_is_done() {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let working = tokio::spawn(off_thread(usize::MAX, move || {
        let _waits = (begun.send(()), released.recv());
    }));
    has_begun.await.unwrap();
    working.abort();
    assert!(working.await.unwrap_err().is_cancelled());
    let mut other = std::pin::pin!(dump(Bytes::from_static(b"{}"), true));
    assert!(futures::poll!(other.as_mut()).is_pending());
    release.send(()).unwrap();
    assert_eq!(other.await.unwrap(), "{}\n");
}

/// Long ones; the time is bounded by the patience of whoever runs the tests, not asserted.
#[test]
fn what_was_made_to_take_long_does_not() {
    let mut nested = "\"x\"".to_owned();
    for _ in 0..12 {
        nested = Value::String(format!("{}{nested}{}", "[".repeat(120), "]".repeat(120))).to_string();
    }
    let long = |piece: &str| piece.repeat((1 << 17) / piece.len());
    for text in [
        nested,
        long("eyJ"),
        long("eyJhIjoi."),
        long("%41"),
        long("MIIEvQIBADAN"),
        long("-----BEGIN PRIVATE KEY-----"),
        long("password="),
        long("a://b:"),
        long("key: \"token\" value"),
        long("\u{fffd}"),
    ] {
        let mut document = json!({"a": text});
        json(&mut document);
    }
}

#[test]
fn a_text_costs_no_more_than_its_length_explains() {
    let packed = |text: String| BASE64_STANDARD.encode(text);
    let words = "nothing to hide here, ".repeat(3 << 13);
    let thrice = |text: &str| packed(packed(packed(text.to_owned())));
    for (text, is_withheld) in [
        (thrice(&words[..16 << 10]), false),
        (thrice(&words.repeat(4)), true),
        ("eyJ".repeat(1 << 19), true),
        (words, false),
    ] {
        let effort = Effort::of(text.len());
        let shown = text_at(&text, effort.start());
        assert_eq!(&*shown == REDACTED, is_withheld, "{} bytes: {}", text.len(), effort.left());
        assert_eq!(effort.left() == 0, is_withheld, "what costs too much is withheld, and nothing else");
    }
    // Also where it stands in a document inside a text.
    let inside = json!({"a": json!({"b": "eyJ".repeat(1 << 19)}).to_string()});
    let mut shown = inside.clone();
    json(&mut shown);
    assert!(!shown.to_string().contains("eyJeyJ"), "nothing of it is shown");
}

#[test]
fn what_there_is_of_a_secret_type_is_listed_by_name() {
    let url = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
    let mut document = json!({url: {"identity_cert:secret:default": {"content": "hunter2"}}});
    json(&mut document);
    assert_eq!(document, json!({url: {"identity_cert:secret:default": {"content": REDACTED}}}));
}
