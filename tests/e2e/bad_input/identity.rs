//! A zone that says that something is another's, in every place and for every kind it may send.

use common::{
    kds::order,
    model::{Kind, Scope, kinds},
};
use serde_json::{Value, json};

use super::{
    grpc::Call,
    kds::{Make, Sent, Zoned, encoded, response, spec, up},
    table::{Answer, Case, Front, all_right, case, run, tally},
};
use crate::harness::{
    Global,
    tally::{Class::Identity, Tally},
};

/// The zone that is robbed, and the names of its items.
const OWNER: &str = "zone-2";
/// Attributed to who sends it, or not taken at all.
const HARMLESS: &[&str] = &["attributed", "refused"];
const REFUSED: &[&str] = &["refused"];

/// A response with one item, and where to look for what became of it.
pub struct Claim {
    kind: &'static Kind,
    name: String,
    call: Call,
}

fn kinds() -> Vec<&'static Kind> {
    order::requested_by_global()
}

/// What the owner has of a kind.
fn owned(kind: &'static Kind) -> Sent {
    Sent::new(OWNER, kind, &format!("theirs-{}", kind.name.to_lowercase()), spec(kind))
}

fn claim(kind: &'static Kind, name: String, sent: &Sent) -> Claim {
    Claim { kind, name, call: up(&[response(kind.name, "1", vec![sent.item()], &[])]) }
}

/// What the liar has of a kind, with this spec.
fn mine(kind: &'static Kind, by: Make, spec: Vec<u8>) -> Sent {
    Sent::new(by.zone(), kind, &format!("mine-{}", kind.name.to_lowercase()), spec)
}

/// What goes for every kind: a label, its own wire name, and what others own.
fn of_every_kind(table: &mut Vec<Case<Claim>>, by: Make) {
    for kind in kinds() {
        let (sent, theirs) = (mine(kind, by, spec(kind)), owned(kind));
        let (name, taken) = (sent.name(), theirs.name());
        let mut row = |what: &str, name: &str, sent: &Sent, verdicts, says: &'static [&'static str]| {
            let claim = claim(kind, name.to_owned(), sent);
            table.push(case(Identity, format!("{}: {what} ({by:?})", kind.name), claim, verdicts, says));
        };
        let zone = sent.clone().labelled("kuma.io/zone", OWNER);
        match by {
            Make::Kumas => row("label of the zone", &name, &zone, &["attributed"], &[]),
            Make::Ours => {
                row("label of the zone", &name, &zone, REFUSED, &["names zone \"zone-2\"", "kuma.io/zone"])
            }
        }
        row("label of the origin", &name, &sent.clone().labelled("kuma.io/origin", "global"), HARMLESS, &[]);
        row("name of another zone's", &taken, &theirs, REFUSED, &["zone-2"]);
        let mut elsewhere = sent.clone();
        elsewhere.wire = theirs.wire.clone();
        row("wire name of another zone's", &taken, &elsewhere, &["untouched", "refused"], &[]);
        let nobody = up(&[response(kind.name, "1", vec![], &[&theirs.wire])]);
        let removal = Claim { kind, name: taken, call: nobody };
        table.push(case(
            Identity,
            format!("{}: removal of another zone's ({by:?})", kind.name),
            removal,
            &["untouched"],
            &[],
        ));
        let mut as_other = response(kind.name, "1", vec![sent.item()], &[]);
        as_other.control_plane.get_or_insert_default().identifier = OWNER.to_owned();
        let posing = Claim { kind, name: name.clone(), call: up(&[as_other]) };
        table.push(case(
            Identity,
            format!("{}: identifier of another ({by:?})", kind.name),
            posing,
            &["attributed"],
            &[],
        ));
    }
}

/// Where a spec names a zone, alone and twice: what is read first and what is read last must be one.
#[rustfmt::skip]
fn in_specs(table: &mut Vec<Case<Claim>>, by: Make) {
    let verdicts: &[&str] = match by {
        Make::Kumas => &["attributed"],
        Make::Ours => REFUSED,
    };
    let mut row = |what: &str, kind: &'static Kind, spec: Vec<u8>| {
        let sent = mine(kind, by, spec);
        // What names two zones is nobody's honest mistake: whoever sends it, it may be refused.
        let verdicts = if what.contains("twice") || what.contains("then") { HARMLESS } else { verdicts };
        let what = format!("{}: {what} ({by:?})", kind.name);
        table.push(case(Identity, what, claim(kind, sent.name(), &sent), verdicts, &[]));
    };
    let theirs = json!({"kuma.io/service": "web", "kuma.io/zone": OWNER});
    let dataplane = &kinds::dataplane::KIND;
    let networking = |part: &str, value: Value| {
        let mut spec = json!({"networking": {"address": "10.0.0.1"}});
        spec["networking"][part] = value;
        encoded(dataplane, &spec)
    };
    row("tag of an inbound", dataplane, networking("inbound", json!([{"port": 80, "tags": theirs}])));
    row("tag of the second inbound", dataplane, networking("inbound",
        json!([{"port": 80, "tags": {"kuma.io/service": "web"}}, {"port": 81, "tags": theirs}])));
    row("tag of a gateway", dataplane, networking("gateway", json!({"tags": theirs})));
    for kind in [&kinds::zone_ingress::KIND, &kinds::zone_egress::KIND] {
        let networking = json!({"address": "10.0.0.1", "port": 10001});
        let named = |zone: &str| encoded(kind, &json!({"zone": zone, "networking": networking}));
        let (mine, other) = (named(by.zone()), named(OWNER));
        row("zone", kind, other.clone());
        row("zone, mine and then another's", kind, [&mine[..], &other].concat());
        row("zone, another's and then mine", kind, [&other[..], &mine].concat());
        row("zone with a NUL", kind, named("zone-1\0zone-2"));
    }
    let ingress = &kinds::zone_ingress::KIND;
    let networking = json!({"address": "10.0.0.1", "port": 10001});
    let services = |tags: &Value| encoded(ingress, &json!({"networking": networking, "availableServices": [{"tags": tags}]}));
    row("tag of a service", ingress, services(&theirs));
    row("tag of a service, twice", ingress, twice_in_a_map(&networking, &[by.zone(), OWNER]));
    row("tag of a service, twice the other way", ingress, twice_in_a_map(&networking, &[OWNER, by.zone()]));
}

/// An ingress with one service whose tag `kuma.io/zone` stands there once for each of `zones`: a map on the
/// wire is a list, and who reads it decides which entry counts.
fn twice_in_a_map(networking: &Value, zones: &[&str]) -> Vec<u8> {
    let entry = |tag: &str, value: &str| {
        let mut entry = Vec::new();
        prost::encoding::string::encode(1, &tag.to_owned(), &mut entry);
        prost::encoding::string::encode(2, &value.to_owned(), &mut entry);
        entry
    };
    let mut service = Vec::new();
    prost::encoding::bytes::encode(1, &entry("kuma.io/service", "web"), &mut service);
    for zone in zones {
        prost::encoding::bytes::encode(1, &entry("kuma.io/zone", zone), &mut service);
    }
    let mut spec = encoded(&kinds::zone_ingress::KIND, &json!({"networking": networking}));
    prost::encoding::bytes::encode(3, &service, &mut spec);
    spec
}

fn table(by: Make) -> Vec<Case<Claim>> {
    let mut table = Vec::new();
    of_every_kind(&mut table, by);
    in_specs(&mut table, by);
    table
}

/// What is tried.
pub fn count() -> Tally {
    let mut all = tally(&table(Make::Kumas));
    all.join(&tally(&table(Make::Ours)));
    all
}

impl Make {
    /// The zone that lies in this table.
    fn zone(self) -> &'static str {
        match self {
            Self::Kumas => "zone-1",
            Self::Ours => "zone-3",
        }
    }
}

/// Sends as one zone, and looks in global's REST for whose it is afterwards.
struct Liar<'a> {
    global: &'a Global,
    zoned: Zoned,
    zone: &'static str,
}

impl Liar<'_> {
    fn path(kind: &Kind, name: &str) -> String {
        let path = kind.path;
        if kind.scope == Scope::Mesh {
            format!("/meshes/default/{path}/{name}")
        } else {
            format!("/{path}/{name}")
        }
    }

    /// Whose an item is: `attributed` to who sent it, `untouched` with its owner, `absent` or `posed`.
    async fn whose(&self, kind: &Kind, name: &str) -> Answer {
        let Ok(stored) = self.global.try_get(&Self::path(kind, name)).await else {
            return Answer::new("absent", "");
        };
        let labels = &stored["labels"];
        let text = stored.to_string();
        let is = |zone: &str, other: &str| {
            labels["kuma.io/zone"] == zone && !text.contains(&format!("\"{other}\""))
        };
        let verdict = match (labels["kuma.io/origin"].as_str(), name.starts_with("theirs-")) {
            (Some("zone"), true) if is(OWNER, self.zone) => "untouched",
            (Some("zone"), false) if is(self.zone, OWNER) => "attributed",
            _ => "posed",
        };
        Answer::new(verdict, text)
    }
}

impl Front for Liar<'_> {
    type Input = Claim;

    fn name(&self) -> &str {
        "global KDS"
    }

    async fn send(&self, input: &Claim) -> Answer {
        let said = self.zoned.send(&input.call).await;
        let whose = self.whose(input.kind, &input.name).await;
        let text = format!("{}\n{}", said.text, whose.text);
        match (said.verdict.as_str(), whose.verdict.as_str()) {
            // What was refused is not there, or is as it was.
            ("refused", "posed") | (_, "posed") => Answer::new("posed", text),
            ("refused", _) => Answer::new("refused", text),
            ("taken", whose) => Answer::new(whose, text),
            (other, _) => Answer::new(other, text),
        }
    }
}

#[tokio::test]
async fn nothing_that_a_zone_says_makes_something_another_ones() {
    let global = Global::start().await;
    let owner = Zoned::new(&global, OWNER, Make::Kumas);
    for kind in kinds() {
        let taken = owner.send(&up(&[response(kind.name, "1", vec![owned(kind).item()], &[])])).await;
        assert_eq!(taken.verdict, "taken", "{}: {}", kind.name, taken.text);
    }
    let mut outcomes = Vec::new();
    for make in [Make::Ours, Make::Kumas] {
        let zoned = Zoned::new(&global, make.zone(), make);
        let liar = Liar { global: &global, zoned, zone: make.zone() };
        outcomes.push(run(&liar, &table(make), &[&global.process]).await);
    }
    all_right(outcomes);
    // All of the owner's is where it was, under the owner's name.
    let zoned = Zoned::new(&global, "zone-1", Make::Kumas);
    let looking = Liar { global: &global, zoned, zone: "zone-1" };
    for kind in kinds() {
        let whose = looking.whose(kind, &owned(kind).name()).await;
        assert_eq!(whose.verdict, "untouched", "{}: {}", kind.name, whose.text);
    }
}
