#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use proptest::{prelude::*, sample::select};
use prost::Message;
use prost_reflect::{Kind as FieldKind, MapKey, Value as Reflected};
use serde_json::json;

use super::*;
use crate::registry;

/// A dataplane of which `change` made something else.
fn dataplane(change: impl FnOnce(&mut Value)) -> Value {
    let mut json = json!({
        "networking": {
            "outbound": [
                { "tags": { "kuma.io/service": "b", "a": "c" }, "port": 1 },
                { "port": 2, "backendRef": { "kind": "MeshService", "name": "x", "port": 80 } },
                {},
            ],
            "address": "10.0.0.1",
            "inbound": [{ "port": 80, "tags": { "z": "", "kuma.io/service": "web" }, "state": "Ready" }],
            "gateway": null,
            "extra": [1],
        },
        "probes": { "port": 0, "endpoints": [] },
    });
    change(&mut json);
    json
}

/// Encoded, and the fields nobody knows.
type Read = (Vec<u8>, Vec<FieldPath>);

fn both(json: &Value) -> (Option<Read>, Result<Read, SpecError>) {
    let message = descriptor("kuma.mesh.v1alpha1.Dataplane");
    (direct::encode(&message, json.as_object().unwrap(), |_| true), reflected(&message, json))
}

/// A message that says in each of its fields, and in theirs, what is beyond all bounds.
fn extreme(descriptor: MessageDescriptor, seconds: i64, nanos: i32, deep: usize) -> DynamicMessage {
    let mut message = DynamicMessage::new(descriptor.clone());
    match descriptor.full_name() {
        "google.protobuf.Timestamp" | "google.protobuf.Duration" => {
            message.set_field_by_name("seconds", Reflected::I64(seconds));
            message.set_field_by_name("nanos", Reflected::I32(nanos));
        }
        "google.protobuf.Value" => message.set_field_by_name("number_value", Reflected::F64(f64::NAN)),
        _ => {
            for field in descriptor.fields().filter(|_| deep > 0) {
                let FieldKind::Message(inner) = field.kind() else { continue };
                let inner = if field.is_map() { inner.map_entry_value_field().kind() } else { field.kind() };
                let FieldKind::Message(inner) = inner else { continue };
                let inner = Reflected::Message(extreme(inner, seconds, nanos, deep - 1));
                let value = match (field.is_map(), field.is_list()) {
                    (true, _) => Reflected::Map(HashMap::from([(MapKey::String("k".to_owned()), inner)])),
                    (false, true) => Reflected::List(vec![inner]),
                    (false, false) => inner,
                };
                message.set_field(&field, value);
            }
        }
    }
    message
}

#[test]
fn whatever_a_peer_can_encode_has_a_form_in_json() {
    for kind in registry::ALL.iter() {
        let Format::Proto { message } = kind.format else { continue };
        for (seconds, nanos) in [(i64::MIN, i32::MIN), (i64::MAX, i32::MAX), (0, i32::MIN)] {
            let spec = extreme(descriptor(message), seconds, nanos, 8).encode_to_vec();
            let json = to_json(kind, &spec);
            assert!(json.is_ok(), "{message} {seconds}: {json:?}");
        }
    }
}

#[test]
fn what_is_beyond_all_bounds_is_shown_as_the_nearest_that_can_be_said() {
    let insight = "kuma.mesh.v1alpha1.DataplaneInsight";
    let shown = |seconds, nanos| {
        message_to_json(extreme(descriptor(insight), seconds, nanos, 8)).unwrap()["subscriptions"][0].clone()
    };
    assert_eq!(shown(1, 0)["connectTime"], "1970-01-01T00:00:01Z");
    assert!(shown(i64::MAX, 0)["connectTime"].as_str().unwrap().starts_with("9999-12-31T23:59:59"));
    assert!(shown(i64::MIN, -1)["connectTime"].as_str().unwrap().starts_with("0001-01-01T00:00:00"));
    let metadata = message_to_json(extreme(descriptor(insight), 1, 0, 8)).unwrap()["metadata"].clone();
    assert_eq!(metadata, json!({ "k": null }));
}

#[test]
fn what_people_write_takes_the_direct_way() {
    let json = dataplane(|_| ());
    let (direct, reflected) = both(&json);
    let (direct, reflected) = (direct.expect("nothing unusual"), reflected.unwrap());
    assert_eq!(direct, reflected);
    assert_eq!(direct.1, [FieldPath::new("networking").field("extra")]);
}

#[test]
fn what_is_unusual_is_left_to_reflection() {
    let unusual: [fn(&mut Value); 8] = [
        |j| j["networking"]["outbound"][0]["port"] = json!("1"),
        |j| j["networking"]["outbound"][0]["port"] = json!(1.0),
        |j| j["networking"]["outbound"][0]["port"] = json!(-1),
        |j| j["networking"]["outbound"][0]["tags"]["a"] = json!(null),
        |j| j["networking"]["outbound"][0] = json!(null),
        |j| j["networking"]["inbound"][0]["state"] = json!("Odd"),
        |j| j["probes"]["endpoints"] = json!([{ "inbound_port": 1 }]),
        |j| j["networking"] = json!([]),
    ];
    for (i, change) in unusual.into_iter().enumerate() {
        let json = dataplane(change);
        let (direct, reflected) = both(&json);
        // A name as in the proto file is fine unless it is there in both ways.
        match i {
            6 => assert_eq!(direct.unwrap(), reflected.unwrap()),
            _ => assert!(direct.is_none(), "{i}"),
        }
    }
    let twice = dataplane(|j| j["probes"]["endpoints"] = json!([{ "inbound_port": 1, "inboundPort": 2 }]));
    assert!(both(&twice).0.is_none());
}

/// Names of members and texts of every message of ours, and some that are of none.
static WORDS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut words: Vec<String> = ["1h30m", "5s", "x", "", "[a.b]"].map(str::to_owned).into();
    for message in POOL.all_messages().filter(|message| message.full_name().starts_with("kuma.")) {
        words.extend(message.fields().map(|field| field.json_name().to_owned()));
        let enums = message.fields().filter_map(|field| match field.kind() {
            FieldKind::Enum(values) => values.values().next().map(|value| value.name().to_owned()),
            _ => None,
        });
        words.extend(enums);
    }
    words
});

fn words() -> &'static [String] {
    &WORDS
}

/// JSON as somebody might write it who knows the fields of `message` and makes mistakes.
fn authored(message: MessageDescriptor, depth: u32) -> BoxedStrategy<Value> {
    let fields: Vec<_> = message.fields().collect();
    if fields.is_empty() || depth == 0 {
        return anything();
    }
    let member = select(fields).prop_flat_map(move |field| {
        let name = prop_oneof![9 => Just(field.json_name().to_owned()), 1 => Just(field.name().to_owned())];
        (name, value_of(&field, depth))
    });
    let odd = (select(words()), anything());
    prop::collection::vec(prop_oneof![20 => member.boxed(), 1 => odd.boxed()], 0..5)
        .prop_map(|members| Value::Object(members.into_iter().collect()))
        .boxed()
}

fn value_of(field: &prost_reflect::FieldDescriptor, depth: u32) -> BoxedStrategy<Value> {
    let one = |kind: FieldKind| match kind {
        FieldKind::Message(message) if !message.full_name().starts_with("google.") => {
            authored(message, depth - 1)
        }
        FieldKind::Enum(values) => select(values.values().map(|v| v.name().to_owned()).collect::<Vec<_>>())
            .prop_map(Value::from)
            .boxed(),
        FieldKind::Bool => any::<bool>().prop_map(Value::from).boxed(),
        FieldKind::String => select(words()).prop_map(Value::from).boxed(),
        FieldKind::Message(_) => anything(),
        _ => prop_oneof![Just(0_i64), Just(-1), 1_i64..70_000, any::<i64>()].prop_map(Value::from).boxed(),
    };
    let right = match field.kind() {
        FieldKind::Message(entry) if field.is_map() => {
            let value = one(entry.map_entry_value_field().kind());
            prop::collection::vec((select(words()), value), 0..4)
                .prop_map(|entries| Value::Object(entries.into_iter().collect()))
                .boxed()
        }
        kind if field.is_list() => prop::collection::vec(one(kind), 0..4).prop_map(Value::Array).boxed(),
        kind => one(kind),
    };
    prop_oneof![40 => right, 1 => anything()].boxed()
}

fn anything() -> BoxedStrategy<Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..70_000).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        select(words()).prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!({ "a": [1, null, "b"] })),
    ]
    .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Of every protobuf kind: what is encoded directly is what reflection makes of it.
    #[test]
    fn both_ways_agree(
        (message, json) in select(registry::ALL.iter().filter_map(|kind| match kind.format {
            Format::Proto { message } => Some(message),
            Format::Json { .. } => None,
        }).collect::<Vec<_>>()).prop_flat_map(|message| (Just(message), authored(descriptor(message), 4)))
    ) {
        let message = descriptor(message);
        let Value::Object(members) = &json else { return Ok(()) };
        if let Some(direct) = direct::encode(&message, members, |_| true) {
            let reflected = reflected(&message, &json);
            prop_assert!(reflected.is_ok(), "only the direct way reads {json}: {reflected:?}");
            prop_assert_eq!(direct, reflected.unwrap(), "{}", json);
        }
    }
}

/// What a put of a dataplane with many outbounds costs, shown with `--nocapture`; run it optimised.
#[test]
#[ignore = "a measurement"]
fn a_dataplane_with_a_thousand_outbounds() {
    let outbounds: Vec<Value> = (0..1000)
        .map(|n| json!({ "port": 10_001 + n, "tags": { "kuma.io/service": format!("service-{n:06}") } }))
        .collect();
    let json = dataplane(|j| j["networking"]["outbound"] = outbounds.into());
    let message = descriptor("kuma.mesh.v1alpha1.Dataplane");
    let members = json.as_object().unwrap();
    let rounds = 20;
    let timed = |what: &str, run: &dyn Fn()| {
        let begun = tokio::time::Instant::now();
        (0..rounds).for_each(|_| run());
        println!("{what}: {:?}", begun.elapsed() / rounds);
    };
    timed("direct", &|| drop(direct::encode(&message, members, |_| true)));
    timed("reflected", &|| drop(reflected(&message, &json)));
    let spec = from_json(&crate::model::kinds::dataplane::KIND, &json).unwrap();
    timed("settled", &|| drop(crate::model::kinds::dataplane::KIND.settle_authored(&spec)));
    let text = json.to_string().into_bytes();
    timed("read", &|| drop(crate::model::text::json(&text, crate::model::text::TextLimits::BODY)));
}
