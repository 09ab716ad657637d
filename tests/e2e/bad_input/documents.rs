//! Documents that are wrong in their content: the same ones are given to every front that reads them.

use serde_json::{Value, json};

use super::table::{Case, case};
use crate::harness::tally::Class::Content;

/// A document as its author wrote it.
#[derive(Clone)]
pub struct Document {
    /// Segment of the path REST has it under.
    pub collection: &'static str,
    /// Its name, as far as who sends it knows.
    pub name: String,
    /// The text; JSON is YAML as well.
    pub text: String,
}

const REFUSED: &[&str] = &["refused"];
const TAKEN: &[&str] = &["taken"];
/// Either is right: what nobody here knows the meaning of may be kept for those who do, and of what Envoy would
/// refuse the zone leaves out the one rule and says so.
const EITHER: &[&str] = &["refused", "taken"];

fn row(
    collection: &'static str,
    what: &'static str,
    text: String,
    verdicts: &'static [&'static str],
    says: &'static [&'static str],
) -> Case<Document> {
    case(Content, what, Document { collection, name: "web-9".to_owned(), text }, verdicts, says)
}

/// `base` with a raw text in the place of one of its members.
fn replaced(mut base: Value, pointer: &str, raw: &str) -> String {
    *base.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer} is there")) = json!("@@");
    base.to_string().replace("\"@@\"", raw)
}

fn dataplane() -> Value {
    json!({"type": "Dataplane", "mesh": "default", "name": "web-9", "labels": {"team": "a"}, "networking": {
        "address": "10.0.0.9",
        "inbound": [{"port": 80, "servicePort": 8080, "tags": {"kuma.io/service": "web", "kuma.io/protocol": "http"}}],
        "outbound": [{"port": 10_001, "tags": {"kuma.io/service": "db"}}]}})
}

fn with(pointer: &str, raw: &str) -> String {
    replaced(dataplane(), pointer, raw)
}

const PORT: &str = "/networking/inbound/0/port";
const ADDRESS: &str = "/networking/address";
const SERVICE: &str = "/networking/inbound/0/tags/kuma.io~1service";
const TAGS: &str = "/networking/inbound/0/tags";
const OUTBOUND: &str = "/networking/outbound/0/port";

/// Dataplanes in JSON.
#[rustfmt::skip]
pub fn dataplanes() -> Vec<Case<Document>> {
    let row = |what, text: String, verdicts, says| row("dataplanes", what, text, verdicts, says);
    let port = |what, raw: &str, says| row(what, with(PORT, raw), REFUSED, says);
    const AT_PORT: &[&str] = &["networking.inbound[0].port"];
    let address = |what, text: &str| row(what, with(ADDRESS, &json!(text).to_string()), REFUSED, &["networking.address"]);
    let named = |what, name: &str| {
        let text = with("/name", &json!(name).to_string());
        case(Content, what, Document { collection: "dataplanes", name: name.to_owned(), text }, REFUSED, &[])
    };
    let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
    let many = |count: usize| (0..count).map(|n| format!("\"t{n}\":\"x\"")).collect::<Vec<_>>().join(",");
    vec![
        port("port 0", "0", AT_PORT),
        port("port below nothing", "-1", &["port"]),
        port("port 65536", "65536", AT_PORT),
        port("port 2^32 + 80", "4294967376", &["port"]),
        port("port 2^63", "9223372036854775808", &["port"]),
        port("port 2^64", "18446744073709551616", &["port"]),
        port("port of a billion digits", &"9".repeat(10_000), &[]),
        port("port and a half", "80.5", &["port"]),
        port("port 1e400", "1e400", &[]),
        port("port that is a list", "[80]", &["port"]),
        port("port that is an object", "{}", &["port"]),
        port("port that is true", "true", &["port"]),
        port("port of words", "\"eighty\"", &["port"]),
        row("port in quotes", with(PORT, "\"80\""), EITHER, &[]),
        port("NaN for a port", "NaN", &[]),
        port("infinity for a port", "-Infinity", &[]),
        row("outbound port 0", with(OUTBOUND, "0"), REFUSED, &["networking.outbound[0].port"]),
        row("outbound port 65536", with(OUTBOUND, "65536"), REFUSED, &["networking.outbound[0].port"]),
        row("service port 70000", with("/networking/inbound/0/servicePort", "70000"), REFUSED, &["networking.inbound[0].servicePort"]),
        address("no address", ""),
        address("address with a port", "10.0.0.9:80"),
        address("address with a scheme", "http://10.0.0.9"),
        address("address with a zone", "fe80::1%eth0"),
        address("address in brackets", "[::1]"),
        address("address of everybody", "0.0.0.0"),
        address("address of everybody in IPv6", "::"),
        address("address with a NUL", "10.0.0.9\0"),
        address("address with a newline", "10.0.0.9\nx: y"),
        address("address in wide digits", "１０.0.0.9"),
        address("address with dots only", "..."),
        address("address of 5 parts of 300", "300.300.300.300.300/.."),
        address("address that reads backwards", "\u{202e}9.0.0.01"),
        row("address of 4 KiB", with(ADDRESS, &json!("a".repeat(4096)).to_string()), REFUSED, &["networking.address"]),
        row("IPv4 within IPv6", with(ADDRESS, "\"::ffff:10.0.0.9\""), EITHER, &[]),
        row("address that is a number", with(ADDRESS, "7"), REFUSED, &["address"]),
        row("no service among the tags", with(TAGS, r#"{"team":"a"}"#), REFUSED, &["networking.inbound[0].tags", "kuma.io/service"]),
        row("empty service", with(SERVICE, "\"\""), REFUSED, &["networking.inbound[0].tags"]),
        row("service with a newline", with(SERVICE, r#""web\nx""#), REFUSED, &["networking.inbound[0].tags"]),
        row("service with a NUL", with(SERVICE, r#""web\u0000""#), REFUSED, &[]),
        row("service with spaces", with(SERVICE, "\"a b\""), REFUSED, &["networking.inbound[0].tags"]),
        row("service that looks like another", with(SERVICE, "\"wеb\""), REFUSED, &["networking.inbound[0].tags"]),
        row("service that is a list", with(SERVICE, "[\"web\"]"), REFUSED, &["tags"]),
        row("service that is nothing", with(SERVICE, "null"), REFUSED, &["tags"]),
        row("half a surrogate", with(SERVICE, r#""\ud800""#), REFUSED, &[]),
        row("tag without a name", with(TAGS, r#"{"kuma.io/service":"web","":"x"}"#), REFUSED, &["networking.inbound[0].tags"]),
        row("tag with a wild name", with(TAGS, r#"{"kuma.io/service":"web","a b\n":"x"}"#), REFUSED, &["networking.inbound[0].tags"]),
        row("20,000 tags", with(TAGS, &format!("{{\"kuma.io/service\":\"web\",{}}}", many(20_000))), EITHER, &[]),
        row("protocol there is not", with("/networking/inbound/0/tags/kuma.io~1protocol", "\"gopher\""), REFUSED, &["kuma.io/protocol"]),
        row("no networking", replaced(dataplane(), "/networking", "{}"), REFUSED, &["networking"]),
        row("networking that is text", replaced(dataplane(), "/networking", "\"x\""), REFUSED, &["networking"]),
        row("neither inbound nor address", replaced(dataplane(), "/networking", r#"{"inbound":[]}"#), REFUSED, &["networking.address"]),
        row("lists 10,000 deep", with("/networking/inbound", &deep), REFUSED, &[]),
        row("labels 10,000 deep", with("/labels", &deep), REFUSED, &[]),
        row("a member nobody knows", with("/labels", "{}").replacen("{", "{\"nonsense\":{\"a\":1},", 1), EITHER, &[]),
        row("a member twice", with("/labels", "{}").replacen("{", "{\"name\":\"web-8\",", 1), REFUSED, &[]),
        row("a tag twice", with(TAGS, r#"{"kuma.io/service":"web","kuma.io/service":"db"}"#), EITHER, &[]),
        row("label of a number", with("/labels/team", "7"), REFUSED, &["labels[\"team\"]", "must be a string"]),
        row("label of 1 KiB", with("/labels/team", &json!("x".repeat(1024)).to_string()), REFUSED, &["label"]),
        row("label with a newline", with("/labels/team", r#""a\nb""#), REFUSED, &["labels[\"team\"]"]),
        row("label that looks like another", with("/labels/team", "\"а\""), REFUSED, &["labels[\"team\"]"]),
        row("label with a wild name", with("/labels", r#"{"../x":"y"}"#), REFUSED, &["labels["]),
        named("name in capitals", "WEB-9"),
        named("name that looks like another", "wеb-9"),
        named("name of dots", ".."),
        named("name of 300 letters", &"w".repeat(300)),
        named("name with spaces", "web 9"),
        named("name that is a flag", "--web"),
        row("no name", with("/name", "\"\""), REFUSED, &[]),
        row("name that is a number", with("/name", "9"), REFUSED, &["name"]),
        row("another kind", with("/type", "\"Mesh\""), REFUSED, &[]),
        row("a kind nobody knows", with("/type", "\"Dаtaplane\""), REFUSED, &[]),
        row("a mesh with a path", with("/mesh", "\"../default\""), REFUSED, &[]),
        row("no closing brace", dataplane().to_string().trim_end_matches('}').to_owned(), REFUSED, &[]),
        row("a comma too many", dataplane().to_string().replace("8080,", "8080,,"), REFUSED, &[]),
        row("nothing", String::new(), REFUSED, &[]),
        row("only a number", "7".to_owned(), REFUSED, &[]),
        row("only null", "null".to_owned(), REFUSED, &[]),
        row("only a list", "[]".to_owned(), REFUSED, &[]),
    ]
}

/// Dataplanes in YAML, wrong in ways that JSON does not know.
#[rustfmt::skip]
pub fn yaml() -> Vec<Case<Document>> {
    let row = |what, text: String, verdicts, says| {
        case(Content, what, Document { collection: "dataplanes", name: "web-9".to_owned(), text }, verdicts, says)
    };
    let networking = "networking: {address: 10.0.0.9, inbound: [{port: 80, tags: {kuma.io/service: web}}]}\n";
    let head = "type: Dataplane\nmesh: default\nname: web-9\n";
    let base = |labels: &str| format!("{head}{labels}{networking}");
    let mut laughs = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (n, letter) in ('b'..='i').enumerate() {
        let before = char::from(b'a' + u8::try_from(n).unwrap());
        let nine = vec![format!("*{before}"); 9].join(", ");
        laughs.push_str(&format!("{letter}: &{letter} [{nine}]\n"));
    }
    let aliases = format!("a: &a [{}]\nb: [{}]\n", vec!["x"; 1_000].join(","), vec!["*a"; 2_000].join(","));
    vec![
        row("a billion laughs", format!("{laughs}{}", base("")), REFUSED, &[]),
        row("a billion laughs as a label", base(&format!("{laughs}labels: {{team: *i}}\n")), REFUSED, &[]),
        row("2,000 aliases of 1,000 items", format!("{aliases}{}", base("")), REFUSED, &[]),
        row("an alias of itself", base("labels: &a {team: *a}\n"), REFUSED, &[]),
        row("an alias of nothing", base("labels: {team: *nobody}\n"), REFUSED, &[]),
        row("a merge of itself", base("labels: &a {<<: *a}\n"), REFUSED, &[]),
        row("an include", base("labels: {team: !include /etc/passwd}\n"), REFUSED, &[]),
        row("a tag of another language", base("labels: !!python/object/apply:os.system [id]\n"), REFUSED, &[]),
        row("a key twice", format!("{head}{}", base("")), REFUSED, &["duplicate"]),
        row("a key that is a list", base("? [a, b]\n: c\n"), REFUSED, &[]),
        row("a tab", format!("{head}\tnetworking: x\n"), REFUSED, &[]),
        row("a label that is no", base("labels: {team: no}\n"), EITHER, &[]),
        row("a label that is a date", base("labels: {team: 2026-01-01}\n"), EITHER, &[]),
        row("a label that is NaN", base("labels: {team: .nan}\n"), REFUSED, &[]),
        row("a port in octal", format!("{head}{}", networking.replace("80", "0o120")), EITHER, &[]),
        row("a port that is infinite", format!("{head}{}", networking.replace("80", ".inf")), REFUSED, &[]),
        row("mappings 40,000 deep", format!("{head}networking: {}", "{a: ".repeat(40_000)), REFUSED, &[]),
        row("lists 40,000 deep", format!("{head}networking: {}", "[".repeat(40_000)), REFUSED, &[]),
        row("lists 40,000 deep in block style", format!("{head}networking:\n  {}x\n", "- ".repeat(40_000)), REFUSED, &[]),
        row("keys 5,000 deep", format!("{head}networking: {}", "? ".repeat(5_000)), REFUSED, &[]),
        row("anchors by the thousand", format!("{head}{}{networking}", (0..20_000).map(|n| format!("k{n}: &a{n} x\n")).collect::<String>()), EITHER, &[]),
        row("a text that never ends", format!("{head}networking: \"x"), REFUSED, &[]),
        row("a directive nobody knows", format!("%NONSENSE 1\n---\n{}", base("")), EITHER, &[]),
        row("a version of YAML there is not", format!("%YAML 9.9\n---\n{}", base("")), EITHER, &[]),
        row("control characters", base("labels: {team: \"\u{1}\"}\n"), REFUSED, &[]),
        row("only a comment", "# nothing\n".to_owned(), REFUSED, &[]),
        row("only an anchor", "&a\n".to_owned(), REFUSED, &[]),
    ]
}

/// Policies and meshes in JSON, for global.
#[rustfmt::skip]
pub fn policies() -> Vec<Case<Document>> {
    let timeout = |raw: &str| replaced(json!({"type": "MeshTimeout", "mesh": "default", "name": "web-9", "spec": {"to": [
        {"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": "5s"}}]}}), "/spec/to/0/default/connectionTimeout", raw);
    let after = |what, raw: &str| row("meshtimeouts", what, timeout(raw), REFUSED, &["spec.to[0].default.connectionTimeout"]);
    let target = |what, raw: &str, verdicts, says| row("meshtimeouts", what, replaced(json!({"type": "MeshTimeout", "mesh": "default",
        "name": "web-9", "spec": {"targetRef": {"kind": "Mesh"}, "to": [{"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": "5s"}}]}}),
        "/spec/targetRef", raw), verdicts, says);
    let http = |pointer: &str, raw: &str| replaced(json!({"type": "MeshHTTPRoute", "mesh": "default", "name": "web-9", "spec": {
        "targetRef": {"kind": "Mesh"}, "to": [{"targetRef": {"kind": "MeshService", "name": "web"}, "rules": [{
            "matches": [{"path": {"type": "RegularExpression", "value": "/a.*"}, "headers": [{"type": "Exact", "name": "x-a", "value": "b"}]}],
            "default": {"filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x-b", "value": "c"}]}}],
                "backendRefs": [{"kind": "MeshService", "name": "web", "weight": 1}]}}]}]}}), pointer, raw);
    let route = |what, pointer: &str, raw: &str, verdicts, says| row("meshhttproutes", what, http(pointer, raw), verdicts, says);
    let regex = |what, regex: &str, verdicts, says| route(what, "/spec/to/0/rules/0/matches/0/path/value", &json!(regex).to_string(), verdicts, says);
    const PATH: &[&str] = &["spec.to[0].rules[0].matches[0].path.value"];
    let weight = "/spec/to/0/rules/0/default/backendRefs/0/weight";
    let header = "/spec/to/0/rules/0/default/filters/0/requestHeaderModifier/set/0";
    let retry = |what, raw: &str, says| row("meshretries", what, replaced(json!({"type": "MeshRetry", "mesh": "default", "name": "web-9",
        "spec": {"to": [{"targetRef": {"kind": "Mesh"}, "default": {"http": {"numRetries": 1, "retryOn": ["5xx"]}}}]}}),
        "/spec/to/0/default/http", raw), REFUSED, says);
    let breaker = |what, raw: &str| row("meshcircuitbreakers", what, replaced(json!({"type": "MeshCircuitBreaker", "mesh": "default", "name": "web-9",
        "spec": {"to": [{"targetRef": {"kind": "Mesh"}, "default": {"connectionLimits": {"maxConnections": 1}}}]}}),
        "/spec/to/0/default/connectionLimits/maxConnections", raw), REFUSED, &["maxConnections"]);
    let mesh = |what, raw: &str, verdicts, says| row("meshes", what, format!("{{\"type\":\"Mesh\",\"name\":\"web-9\",{raw}}}"), verdicts, says);
    let backend = |conf: &str| format!("\"mtls\":{{\"enabledBackend\":\"ca\",\"backends\":[{{\"name\":\"ca\",\"type\":\"builtin\",{conf}}}]}}");
    let opaque = |what, kind: &str, collection, spec: &str, verdicts| row(collection, what,
        format!("{{\"type\":\"{kind}\",\"mesh\":\"default\",\"name\":\"web-9\",\"spec\":{spec}}}"), verdicts, &[]);
    let many = |count: usize| vec![r#"{"targetRef":{"kind":"Mesh"},"default":{"connectionTimeout":"5s"}}"#; count].join(",");
    vec![
        after("a duration below nothing", "\"-5s\""),
        after("a duration without end", "\"99999999999999999h\""),
        after("a duration in years", "\"1y\""),
        after("a duration in no unit", "\"5\""),
        after("a duration in wide digits", "\"５s\""),
        after("a duration that is a number", "5"),
        after("a duration that is a list", "[]"),
        after("an empty duration", "\"\""),
        after("a duration and more", "\"5s; rm -rf\""),
        after("a duration of 64 KiB of nines", &json!("9".repeat(64 << 10) + "s").to_string()),
        target("a target of no kind", "{}", REFUSED, &["spec.targetRef.kind"]),
        target("a target nobody knows", r#"{"kind":"MeshNonsense"}"#, REFUSED, &["spec.targetRef.kind"]),
        target("a target that looks like another", r#"{"kind":"Mеsh"}"#, REFUSED, &["spec.targetRef.kind"]),
        target("a target that is text", "\"Mesh\"", REFUSED, &["spec.targetRef"]),
        target("a target with a wild name", r#"{"kind":"Dataplane","name":"../../x"}"#, EITHER, &[]),
        target("a target with wild labels", r#"{"kind":"Dataplane","labels":{"a b\n":"c"}}"#, EITHER, &[]),
        target("a target both by name and labels", r#"{"kind":"Dataplane","name":"a","labels":{"a":"b"}}"#, REFUSED, &["spec.targetRef"]),
        row("meshtimeouts", "2,000 rules", format!("{{\"type\":\"MeshTimeout\",\"mesh\":\"default\",\"name\":\"web-9\",\"spec\":{{\"to\":[{}]}}}}", many(2_000)), EITHER, &[]),
        row("meshtimeouts", "no rules", r#"{"type":"MeshTimeout","mesh":"default","name":"web-9","spec":{"to":[]}}"#.to_owned(), REFUSED, &["spec"]),
        row("meshtimeouts", "a spec that is a list", r#"{"type":"MeshTimeout","mesh":"default","name":"web-9","spec":[]}"#.to_owned(), REFUSED, &["spec"]),
        row("meshtimeouts", "a spec that is nothing", r#"{"type":"MeshTimeout","mesh":"default","name":"web-9","spec":null}"#.to_owned(), REFUSED, &["spec"]),
        row("meshtimeouts", "a spec twice", r#"{"type":"MeshTimeout","mesh":"default","name":"web-9","spec":{},"spec":{"to":[]}}"#.to_owned(), REFUSED, &[]),
        row("meshtimeouts", "a date of mail", timeout("\"5s\"").replacen("{", "{\"creationTime\":\"Mon, 02 Jan 2006 15:04:05 -0700\",", 1), EITHER, &[]),
        row("meshtimeouts", "a date of no calendar", timeout("\"5s\"").replacen("{", "{\"creationTime\":\"2026-02-30T25:61:61Z\",", 1), EITHER, &[]),
        regex("an open group", "/a(", EITHER, &[]),
        regex("an open class", "/[a", EITHER, &[]),
        regex("a repetition of nothing", "*", EITHER, &[]),
        regex("a look ahead", "/a(?=b)", EITHER, &[]),
        regex("a back reference", "/(a)\\1", EITHER, &[]),
        regex("a repetition without bounds", "/a{1000}{1000}{1000}", EITHER, &[]),
        regex("one that others need ages for", "/(a+)+$", TAKEN, &[]),
        regex("an empty one", "", REFUSED, PATH),
        regex("64 KiB of alternatives", &"(a|b)".repeat(13_000), EITHER, &[]),
        regex("groups 1,000 deep", &format!("{}a{}", "(".repeat(1_000), ")".repeat(1_000)), EITHER, &[]),
        route("weight below nothing", weight, "-1", REFUSED, &["weight"]),
        route("weight 2^63", weight, "9223372036854775808", REFUSED, &["weight"]),
        route("weight and a half", weight, "0.5", REFUSED, &["weight"]),
        route("weight of words", weight, "\"much\"", REFUSED, &["weight"]),
        route("weight 0 alone", weight, "0", EITHER, &[]),
        route("a header with a newline", header, r#"{"name":"x-b","value":"c\r\nx-admin: yes"}"#, EITHER, &[]),
        route("a header name with a newline", header, r#"{"name":"x-b\r\nx-admin","value":"c"}"#, EITHER, &[]),
        route("a header name with a space", header, r#"{"name":"x b","value":"c"}"#, EITHER, &[]),
        route("a header without a name", header, r#"{"name":"","value":"c"}"#, EITHER, &[]),
        route("a header with a NUL", header, r#"{"name":"x-b","value":"c\u0000"}"#, EITHER, &[]),
        route("a header of HTTP/2 itself", header, r#"{"name":":authority","value":"c"}"#, EITHER, &[]),
        route("a filter nobody knows", "/spec/to/0/rules/0/default/filters", r#"[{"type":"Nonsense"}]"#, REFUSED, &["filters[0]"]),
        route("a filter without its settings", "/spec/to/0/rules/0/default/filters", r#"[{"type":"URLRewrite"}]"#, REFUSED, &["filters[0]"]),
        route("a path without a slash", "/spec/to/0/rules/0/matches/0/path", r#"{"type":"Exact","value":"a"}"#, REFUSED, PATH),
        retry("retries below nothing", r#"{"numRetries":-1}"#, &["numRetries"]),
        retry("retries 2^32", r#"{"numRetries":4294967296}"#, &["numRetries"]),
        retry("a reason nobody knows", r#"{"retryOn":["Whenever"]}"#, &["retryOn"]),
        retry("a back-off of nothing", r#"{"numRetries":1,"backOff":{}}"#, &["backOff"]),
        breaker("connections below nothing", "-1"),
        breaker("no connections", "0"),
        breaker("connections 2^32", "4294967296"),
        breaker("connections and a half", "1.5"),
        mesh("a backend there is not", "\"mtls\":{\"enabledBackend\":\"x\"}", REFUSED, &["mtls.enabledBackend"]),
        mesh("a backend of no type", r#""mtls":{"enabledBackend":"ca","backends":[{"name":"ca","type":"nonsense"}]}"#, REFUSED, &["mtls.backends[0]"]),
        mesh("two backends of one name", r#""mtls":{"enabledBackend":"ca","backends":[{"name":"ca","type":"builtin"},{"name":"ca","type":"builtin"}]}"#, REFUSED, &["mtls.backends[1]"]),
        mesh("certificates for a time below nothing", &backend(r#""dpCert":{"rotation":{"expiration":"-1h"}}"#), REFUSED, &["mtls.dpcert.rotation.expiration"]),
        mesh("certificates for ever", &backend(r#""dpCert":{"rotation":{"expiration":"999999999d"}}"#), REFUSED, &["mtls.dpcert.rotation.expiration"]),
        mesh("an authority of 7 bits", &backend(r#""conf":{"caCert":{"RSAbits":7}}"#), REFUSED, &["mtls.backends[0]"]),
        mesh("an authority of a billion bits", &backend(r#""conf":{"caCert":{"RSAbits":1000000000}}"#), REFUSED, &["mtls.backends[0]"]),
        mesh("an authority of words", &backend(r#""conf":{"caCert":{"RSAbits":"many"}}"#), REFUSED, &["mtls.backends[0]"]),
        mesh("an authority that is over", &backend(r#""conf":{"caCert":{"expiration":"0s"}}"#), REFUSED, &["mtls.backends[0]"]),
        mesh("an authority from a file there is not", r#""mtls":{"enabledBackend":"ca","backends":[{"name":"ca","type":"provided","conf":{"cert":{"file":"/etc/passwd"},"key":{"file":"/etc/shadow"}}}]}"#, EITHER, &[]),
        mesh("an authority that is none", r#""mtls":{"enabledBackend":"ca","backends":[{"name":"ca","type":"provided","conf":{"cert":{"inlineString":"x"},"key":{"inlineString":"y"}}}]}"#, EITHER, &[]),
        mesh("mtls that is text", "\"mtls\":\"on\"", REFUSED, &["mtls"]),
        opaque("a rate below nothing", "MeshRateLimit", "meshratelimits", r#"{"from":[{"targetRef":{"kind":"Mesh"},"default":{"local":{"http":{"requestRate":{"num":-1,"interval":"1s"}}}}}]}"#, REFUSED),
        opaque("a percentage of 1,000", "MeshFaultInjection", "meshfaultinjections", r#"{"from":[{"targetRef":{"kind":"Mesh"},"default":{"http":[{"abort":{"httpStatus":500,"percentage":1000}}]}}]}"#, REFUSED),
        opaque("a patch with a bomb in it", "MeshProxyPatch", "meshproxypatches", &json!({"default": {"appendModifications": [{"cluster": {
            "operation": "Add", "value": "a: &a [x,x]\nb: &b [*a,*a]\nname: *b\n"}}]}}).to_string(), EITHER),
        opaque("a backend with a wild address", "MeshAccessLog", "meshaccesslogs", r#"{"to":[{"targetRef":{"kind":"Mesh"},"default":{"backends":[{"type":"Tcp","tcp":{"address":"::::"}}]}}]}"#, EITHER),
        opaque("a spec of another kind", "MeshTLS", "meshtlses", r#"{"to":7}"#, EITHER),
    ]
}
