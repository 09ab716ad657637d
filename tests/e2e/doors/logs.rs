//! What strangers say is written to the log: as one line, with a limit, and not for ever.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use envoy_types::pb::{
    envoy::{config::core::v3::Node, service::discovery::v3::DiscoveryRequest},
    google::protobuf::{Struct, Value, value::Kind},
};
use futures::future::join_all;
use prost::Message;
use tokio::time::{Duration, Instant, timeout};

use super::stage::{Door, Stage};
use crate::harness::{addresses, http};

/// How long it may take to repeat something often enough, on a machine that has other things to do.
const LOUD: Duration = Duration::from_secs(240);

/// What would be a line of its own, hide one, or turn one round.
const EVILS: [(&str, &str); 6] = [
    ("a newline", "x\n2026-01-01T00:00:00Z ERROR forged: all is lost"),
    ("a carriage return", "x\rforged"),
    ("a terminal's language", "x\u{1b}[2K\u{1b}[1A\u{9b}31mforged"),
    ("a change of direction", "x\u{202e}degrof\u{2066}"),
    ("another line's end", "x\u{2028}forged\u{2029}\u{85}"),
    ("nothing to see", "\u{200b}\u{feff}\0\u{7f}forged"),
];

fn token(alg: &str) -> String {
    let part = |text: String| BASE64_URL_SAFE_NO_PAD.encode(text);
    let header = serde_json::json!({"alg": alg, "typ": "JWT", "kid": alg}).to_string();
    format!("{}.{}.{}", part(header), part("{}".to_owned()), part("signature".to_owned()))
}

/// As somebody on another machine would.
async fn ask(door: &Door, path: &str, token: &str) {
    let url = format!("http://{}{path}", door.address);
    let request = http::client().get(url).bearer_auth(token).header("x-forwarded-for", "10.0.0.1");
    let _refused = request.send().await;
}

fn node(id: &str, size: usize) -> DiscoveryRequest {
    let text = |text: String| Value { kind: Some(Kind::StringValue(text)) };
    let fields = [
        ("dataplane.token".to_owned(), text(id.to_owned())),
        ("dataplane.proxyType".to_owned(), text(id.to_owned())),
        ("version".to_owned(), text("v".repeat(size))),
    ];
    let node = Node {
        id: format!("{id}{}", "i".repeat(size)),
        cluster: id.to_owned(),
        metadata: Some(Struct { fields: fields.into_iter().collect() }),
        user_agent_name: id.to_owned(),
        ..Node::default()
    };
    DiscoveryRequest { node: Some(node), type_url: id.to_owned(), ..DiscoveryRequest::default() }
}

/// Opens an xDS stream and says this first.
async fn stream(door: &Door, request: &DiscoveryRequest) {
    let message = request.encode_to_vec();
    let mut body = vec![0];
    body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend(message);
    let io = door.dial(addresses::loopback(), b"h2").await.unwrap();
    let (mut client, connection) = h2::client::handshake(io).await.unwrap();
    let driver = tokio::spawn(connection);
    let path = "http://a/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
    let head = ::http::Request::post(path).header("content-type", "application/grpc").body(()).unwrap();
    let (response, mut sender) = client.send_request(head, false).unwrap();
    sender.send_data(body.into(), true).unwrap();
    let _ended = timeout(Duration::from_secs(10), async {
        if let Ok(response) = response.await {
            let mut body = response.into_body();
            while let Some(Ok(data)) = body.data().await {
                let _closed = body.flow_control().release_capacity(data.len());
            }
        }
    })
    .await;
    driver.abort();
}

async fn say(doors: &[Door], evil: &str) {
    for door in doors.iter().filter(|door| door.name == "api") {
        ask(door, "/meshes", &token(evil)).await;
        ask(door, &format!("/meshes/{}", percent(evil)), &token("RS256")).await;
    }
    let dp_server = &doors[5];
    stream(dp_server, &node(evil, 0)).await;
    stream(dp_server, &node(&format!("default.{evil}"), 1 << 20)).await;
}

fn percent(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

#[tokio::test]
async fn no_stranger_forges_a_line_in_any_format() {
    for format in ["text", "json"] {
        let mut stage = Stage::set(&[("logging.format", format)]).await;
        let (doors, before) = (stage.doors(), stage.cost());
        for (_, evil) in EVILS {
            say(&doors, evil).await;
        }
        for (name, process) in [("global", &stage.global.process), ("zone", &stage.zone.process)] {
            let log = process.log();
            assert!(log.contains("refused a user token"), "{name} says nothing of it: {log}");
            for line in log.lines() {
                assert!(line.len() < 8 << 10, "{name} wrote a line of {} bytes", line.len());
                let clean = |c: char| {
                    !c.is_control() && !"\u{202e}\u{2066}\u{2028}\u{2029}\u{200b}\u{feff}".contains(c)
                };
                assert!(line.chars().all(clean), "{name}: {line:?}");
                let whole = match format {
                    "json" => serde_json::from_str::<serde_json::Value>(line).is_ok(),
                    _ => line.starts_with("20") && line.get(26..28) == Some("Z "),
                };
                assert!(whole && !line.starts_with("2026-01-01"), "{name}: {line}");
            }
        }
        println!("class: forged log lines ({format}); cases: {}", EVILS.len() * 6);
        stage.stands(before, 64, 64 << 10).await;
    }
}

#[tokio::test]
async fn what_is_repeated_is_counted_rather_than_written() {
    let mut stage = Stage::set(&[]).await;
    let (doors, before) = (stage.doors(), stage.cost());
    let counted = async |name: &str| -> u64 {
        let metrics = stage.global.metrics().await;
        let lines = metrics.lines().filter(|line| line.starts_with(name) && line.contains("INFO"));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    };
    let (total, left_out) = ("log_lines_total", "log_lines_left_out_total");
    let (long, begun) = (token(&"x".repeat(6000)), Instant::now());
    let goal = counted(total).await + 2000;
    // A busy machine turns some away before they are heard.
    while counted(total).await < goal {
        assert!(begun.elapsed() < LOUD, "{} of {goal} are counted", counted(total).await);
        join_all((0..50).map(|_| ask(&doors[0], "/meshes", &long))).await;
    }
    let (written, left_out) = (counted(total).await - counted(left_out).await, counted(left_out).await);
    // A burst, and then one each second, in a few places.
    let allowed = 500 + 3 * begun.elapsed().as_secs();
    assert!(written <= allowed, "{written} were written of {}, {allowed} may be", written + left_out);
    let huge = node(&"n".repeat(1000), 1 << 20);
    for _ in 0..60 {
        stream(&doors[5], &huge).await;
    }
    ask(&doors[0], "/meshes", &long).await;
    println!("class: repeated log lines; cases: 2");
    stage.stands(before, 64, 96 << 10).await;
}
