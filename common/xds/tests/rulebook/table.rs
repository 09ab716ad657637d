//! Which test holds which rule, and why a rule has none.
//!
//! `r<N>_` begins the name of a test of rule N of the protocol, here or in the crate of the zone; `h<N>_` that of a
//! scenario which harnesses for xDS play, `s<N>_` that of one which they lack, and `b<N>_` that of a bug which other
//! control planes or their clients had; there may be several. The tests are found in the sources.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// The rules, in a few words each.
const RULES: [(&str, &str); 78] = [
    ("r1", "the node comes with the first request"),
    ("r2", "a repeated node resets nothing, another id is an error"),
    ("r3", "state is per stream and type"),
    ("r4", "each response has a nonce of its own"),
    ("r5", "the first request of a type is answered with any nonce"),
    ("r6", "a refusal or stall in one type blocks no other"),
    ("r7", "the newest names are the subscription"),
    ("r8", "types are asked for in any order"),
    ("r9", "`*` may stand beside names"),
    ("r10", "no names ever: all, of listeners and clusters"),
    ("r11", "SotW: no names after names: nothing"),
    ("r12", "Delta: the implied wildcard ends by name only"),
    ("r12a", "dropping the last name is no wildcard"),
    ("r12b", "what the wildcard covers may change"),
    ("r13", "SotW: a stale request is unanswered, its names count"),
    ("r14", "Delta: names count whatever the nonce"),
    ("r15", "error_detail alone tells a NACK"),
    ("r16", "an ACK is not answered"),
    ("r17", "a NACK is not answered with the same again"),
    ("r18", "after a NACK some of it may be in use"),
    ("r19", "an answer may change the subscription"),
    ("r20", "versions are of the content"),
    ("r21", "nothing is sent but changes"),
    ("r22", "a new name is sent at an unchanged version"),
    ("r23", "no name twice in a response"),
    ("r24", "the type of a response is that of its contents"),
    ("r25", "what is not asked for may be sent"),
    ("r26", "a missing name stays subscribed"),
    ("r27", "SotW: listeners and clusters come whole"),
    ("r28", "SotW: of other types what changed"),
    ("r29", "SotW: what exists is sent at once"),
    ("r30", "SotW: a new stream is answered when in doubt"),
    ("r31", "SotW: wanting less is not answered"),
    ("r32", "Delta: a version per resource"),
    ("r33", "Delta: initial_resource_versions"),
    ("r34", "Delta: what went meanwhile is removed"),
    ("r35", "Delta: subscribing again is answered"),
    ("r36", "Delta: a missing name is in removed_resources"),
    ("r37", "Delta: unsubscribing what is not subscribed"),
    ("r38", "Delta: unsubscribing under a wildcard"),
    ("r39", "Delta: a removal is told once"),
    ("r40", "Delta: extensions are never removed"),
    ("r41", "aliases"),
    ("r42", "VHDS after its routes"),
    ("r43", "ODCDS"),
    ("r44", "Delta: late answers, refused names"),
    ("r45", "messages fit the receiver"),
    ("r46", "CDS, EDS, LDS, RDS"),
    ("r47", "make before break"),
    ("r48", "EDS never waits for the answer of CDS"),
    ("r49", "a cluster that is sent is followed by its endpoints"),
    ("r50", "a new route or secret name is answered"),
    ("r51", "a new secret touches nothing else"),
    ("r52", "two clusters with one EDS name"),
    ("r53", "what hangs on a parent that is gone"),
    ("r54", "EDS without CDS"),
    ("r55", "SotW: no names of endpoints are none"),
    ("r56", "changes of clusters merge"),
    ("r57", "TTL only for who can read it"),
    ("r58", "wrappers in SotW only for who can read them"),
    ("r59", "do_not_cache"),
    ("r60", "resource_errors"),
    ("r61", "xdstp names"),
    ("r62", "globs"),
    ("r63", "dynamic parameters"),
    ("r64", "control_plane.identifier"),
    ("r65", "codes"),
    ("r66", "an unknown type leaves the others alone"),
    ("r67", "one response per type is under way"),
    ("r68", "requests before pushes, fairly"),
    ("r69", "hash, payload and answer belong together"),
    ("r70", "not ready is not empty"),
    ("r71", "a lost upstream is not empty"),
    ("r72", "what a stream took is given back"),
    ("r73", "reconnecting and draining"),
    ("r74", "HTTP/2: keepalive and streams"),
    ("r75", "what is served was checked"),
    ("r76", "endpoints of the subscription only"),
];

/// Rules that need no test, and why.
const DO_NOT_APPLY: [(&str, &str); 1] =
    [("r73", "binds clients; a zone ends its streams with UNAVAILABLE when it stops")];

/// What was wrong in other control planes and clients, in a few words each.
const BUGS: [(&str, &str); 35] = [
    ("b1", "a reader that waits for the writer: all types at once (go-control-plane 875)"),
    ("b2", "a client that does not read holds up updates (go-control-plane 503)"),
    ("b3", "a new name at an unchanged version is not sent (go-control-plane 399, 463)"),
    ("b4", "unsubscribed and subscribed again is not sent again (go-control-plane 431)"),
    (
        "b5",
        "nothing is sent before all names exist (go-control-plane 63, 119, 426; grpc-go 5131; kuma 12098)",
    ),
    ("b6", "after an answer no change is sent any more (go-control-plane 458)"),
    ("b7", "an unknown name is not told to be missing (go-control-plane 488, 565)"),
    ("b8", "a changed cluster without its endpoints (go-control-plane 245, 583, 981, 1035; envoy 13009)"),
    ("b9", "listeners before clusters (go-control-plane 705)"),
    (
        "b10",
        "what is refused is sent in a loop (go-control-plane 46, 794, 962; istio 8471, 21111; xds-relay 165)",
    ),
    ("b11", "what a stream took is not given back (go-control-plane 370, 429, 570)"),
    ("b12", "what a node says when it comes back is not seen (go-control-plane 538)"),
    ("b13", "of two changes between two requests none is sent (go-control-plane 1318)"),
    ("b14", "a wildcard that ends, or does not, after names (go-control-plane 558, 559, 1300)"),
    ("b15", "versions that begin anew after a restart (go-control-plane 341; contour 6250; osm 858)"),
    ("b16", "what went while a client was away stays (istio 41494; java-control-plane 463)"),
    ("b17", "an answer with a part is taken for all (istio 34949, 36273)"),
    ("b18", "endpoints before clusters hang (istio 39937, 50579)"),
    ("b19", "served before anything is known (istio 20295, 24117, 25495, 25733)"),
    ("b20", "a resource of a difference without name or version (istio 49293)"),
    ("b21", "a first request that makes no sense ends the process (istio 27964, 33156, 36491, 48030)"),
    ("b22", "nothing from another replica (kuma 2171)"),
    ("b23", "the newer stream of a proxy ends with the older (kuma 4616)"),
    ("b24", "a version that is not that of the content (kuma 1313)"),
    ("b25", "both sides wait for room to send (kuma 14486)"),
    ("b26", "a lost upstream deletes (kuma 9455)"),
    ("b27", "one bad resource ends the stream; pauses that never become short again (kuma 17752)"),
    ("b28", "a late answer for endpoints after a change of clusters (consul 17640, 19866)"),
    ("b29", "a limit of streams under which some never get through (consul 15753)"),
    ("b30", "what a node was given before it went is given again (envoy-gateway 6618)"),
    ("b31", "two responses of one version with one nonce (cilium 45288)"),
    ("b32", "replicas with different versions of the same (centraldogma 1360)"),
    ("b33", "routes before listeners; no names are a subscription (java-control-plane 134, 411)"),
    ("b34", "too few streams; no names are not heard (grpc-java 11264, 12885)"),
    (
        "b35",
        "nonces after an empty response, names beside old ones, late refusals (envoy 3355, 3359, 9447; spire 820)",
    ),
];

/// Scenarios and bugs that need no test here, and why.
const NOT_PLAYED: [(&str, &str); 2] = [
    ("s35", "played with real processes: tests/e2e/resilience, traffic_flows_while_global_and_zone_restart"),
    (
        "b29",
        "played with real processes: tests/e2e/doors/ads_slots, where strangers who take all places keep nobody out",
    ),
];

/// Where tests of rules stand, from the root of the workspace.
const FOLDERS: [&str; 2] = ["common/xds", "zone/ads"];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let all = entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    all.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

/// The tests whose names begin with the number of a rule, as `folder: name`.
fn tests() -> BTreeMap<String, Vec<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = BTreeMap::<String, Vec<String>>::new();
    for folder in FOLDERS {
        for path in sources(&root.join(folder)) {
            for name in names(&fs::read_to_string(path).unwrap()) {
                for rule in name.split('_').take_while(|part| is_number(part)) {
                    found.entry(rule.to_owned()).or_default().push(format!("{folder}: {name}"));
                }
            }
        }
    }
    found
}

/// Names of tests in a source: functions behind an attribute that says so, and the first word after `both!(`, which may
/// stand in the line below.
fn names(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    let (mut is_test, mut is_next) = (false, false);
    for line in source.lines().map(str::trim) {
        let below = std::mem::replace(&mut is_next, line == "both!(").then_some(line);
        let named = below.or_else(|| line.strip_prefix("both!(")).or_else(|| {
            let function = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")?;
            is_test.then_some(function)
        });
        if let Some(name) = named {
            let name = name.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
            names.extend(name.split('_').next().is_some_and(is_number).then(|| name.to_owned()));
        }
        let is_attribute = line.starts_with("#[") || line.starts_with("//");
        is_test =
            line.starts_with("#[test]") || line.starts_with("#[tokio::test") || (is_test && is_attribute);
    }
    names
}

/// Whether this part of a name is the number of a rule.
fn is_number(part: &str) -> bool {
    part.strip_prefix(['r', 'h', 's', 'b']).is_some_and(|number| {
        number.starts_with(|c: char| c.is_ascii_digit())
            && number.trim_end_matches(['a', 'b']).chars().all(|c| c.is_ascii_digit())
    })
}

#[test]
fn every_rule_has_a_test_or_a_reason() {
    let tests = tests();
    let scenarios = (1..=18).map(|n| format!("h{n}")).chain((1..=40).map(|n| format!("s{n}")));
    let mut rows: Vec<(String, &str)> = RULES.map(|(rule, words)| (rule.to_owned(), words)).into();
    rows.extend(scenarios.map(|scenario| (scenario, "")));
    rows.extend(BUGS.map(|(bug, words)| (bug.to_owned(), words)));
    let (mut table, mut missing) = (String::new(), Vec::new());
    for (rule, words) in &rows {
        let held = tests.get(rule).map(|tests| tests.join("\n       "));
        let reason = DO_NOT_APPLY.iter().chain(&NOT_PLAYED).find(|(known, _)| known == rule);
        let reason = reason.map(|(_, reason)| format!("no test: {reason}"));
        assert!(held.is_none() || reason.is_none(), "{rule} has a test, and a reason to have none");
        let Some(shown) = held.or(reason) else {
            missing.push(rule);
            continue;
        };
        let colon = if words.is_empty() { "" } else { ": " };
        table += &format!("{}{colon}{words}\n       {shown}\n", rule.to_uppercase());
    }
    println!("{table}");
    assert!(missing.is_empty(), "neither a test nor a reason to have none: {missing:?}");
    let strangers: Vec<_> =
        tests.keys().filter(|rule| rows.iter().all(|(known, _)| known != *rule)).collect();
    assert!(strangers.is_empty(), "no such rule: {strangers:?}");
}

#[test]
fn tests_are_found_by_their_attributes() {
    let source = "#[test]\nfn r1_a() {}\nfn r2_b() {}\n#[tokio::test]\n#[ignore]\nasync fn h3_c() {}\n\
                  both!(r12a_d, d);\n#[test]\nfn rest() {}\n#[test]\nfn s() {}";
    assert_eq!(names(source), ["r1_a", "h3_c", "r12a_d"]);
}
