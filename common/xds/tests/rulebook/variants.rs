//! R41, R42, R61, R62: names that stand for others or are written otherwise; R20 where an author names the version.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use proptest::prelude::*;
use prost::Message;

use super::{CDS, Delta, EDS, LDS, NOTHING, RDS, Sotw, Stream, Variant, both, node};
use crate::{
    proto::envoy::config::route::v3::VirtualHost,
    xds::{Input, OwnVersion, WantSnapshot, Wanted, canonical, envoy::VIRTUAL_HOST as VHDS},
};

const GLOB: &str = "xdstp://x/T/a/*";
const ONE: &str = "xdstp://x/T/a/1";
const TWO: &str = "xdstp://x/T/a/2";
const DEEPER: &str = "xdstp://x/T/a/b/1";

fn members_come_and_go<D: Variant>() {
    for type_url in [CDS, EDS] {
        let mut stream = Stream::<D>::new(&[]);
        let short = type_url.rsplit('.').next().unwrap();
        put_named(&mut stream.world, type_url, DEEPER, "1");
        let told = stream.want(type_url, &[GLOB]);
        match D::IS_DELTA {
            true => assert_eq!(told, [format!("{short} -{GLOB}")], "there is nothing below it"),
            false => assert_eq!(stream.newest().errors, [(GLOB.to_owned(), 5)]),
        }
        stream.settle();
        assert_eq!(renamed(&mut stream, type_url, &[(ONE, "1")], &[]), [ONE]);
        stream.settle();
        let both: &[&str] = if D::IS_DELTA || type_url == EDS { &[TWO] } else { &[ONE, TWO] };
        assert_eq!(renamed(&mut stream, type_url, &[(TWO, "1"), (DEEPER, "2")], &[]), both);
        stream.settle();
        if D::IS_DELTA {
            renamed(&mut stream, type_url, &[], &[ONE]);
            assert_eq!(stream.newest().removed, [ONE]);
            stream.settle();
            renamed(&mut stream, type_url, &[], &[TWO]);
            let removed: Vec<String> =
                stream.sent.iter().rev().take(2).flat_map(|sent| sent.removed.clone()).collect();
            assert!(removed.contains(&TWO.to_owned()), "{removed:?}");
            stream.settle();
            let removed = stream.sent.iter().filter(|sent| sent.removed.contains(&GLOB.to_owned()));
            assert_eq!(removed.count(), 2, "the glob is empty again");
            assert_eq!(renamed(&mut stream, type_url, &[(ONE, "3")], &[]), [ONE]);
        } else if type_url == CDS {
            assert_eq!(renamed(&mut stream, type_url, &[], &[ONE]), [TWO]);
        }
    }
}
both!(r62_s26_members_of_a_glob_come_and_go_and_an_empty_one_is_told, members_come_and_go);

fn parameters_of_a_glob_have_no_order<D: Variant>() {
    const MEMBERS: [&str; 2] = ["xdstp://x/T/a/1?k=1&l=2", "xdstp://x/T/a/2?k=1&l=2"];
    let mut stream = Stream::<D>::new(&[]);
    put_named(&mut stream.world, EDS, MEMBERS[0], "1");
    stream.want(EDS, &["xdstp://x/T/a/*?l=2&k=1"]);
    stream.settle();
    assert_eq!(
        renamed(&mut stream, EDS, &[(MEMBERS[1], "1"), ("xdstp://x/T/a/3?k=1", "1")], &[]),
        [MEMBERS[1]]
    );
    stream.settle();
    assert_eq!(renamed(&mut stream, EDS, &[(MEMBERS[0], "2")], &[]), [MEMBERS[0]]);
    stream.settle();
    if D::IS_DELTA {
        renamed(&mut stream, EDS, &[], &[MEMBERS[0]]);
        assert_eq!(stream.newest().removed, [MEMBERS[0]]);
    }
}
both!(r61_r62_parameters_of_a_glob_have_no_order, parameters_of_a_glob_have_no_order);

/// Puts and removes resources whose content is their name and a generation; gives the names that were sent.
fn renamed<D: Variant>(
    stream: &mut Stream<D>,
    type_url: &'static str,
    put: &[(&str, &str)],
    remove: &[&str],
) -> Vec<String> {
    let before = stream.world.clone();
    put.iter().for_each(|(name, content)| put_named(&mut stream.world, type_url, name, content));
    remove.iter().for_each(|name| stream.world.remove(type_url, name));
    stream.world.revision += 1;
    let changed = stream.world.changed_since(&before);
    let sent = stream.sent.len();
    stream.source.handle(Input::Changed(&changed), &stream.world).unwrap();
    stream.pump();
    let news = stream.sent[sent..].iter().filter(|sent| sent.type_url == type_url);
    news.flat_map(|sent| sent.updated.iter().map(|(_, any)| content_name(&any.value))).collect()
}

/// In a content that is of every type: in each of them the first member is the name.
fn put_named(world: &mut WantSnapshot, type_url: &'static str, name: &str, content: &str) {
    let message =
        VirtualHost { name: name.to_owned(), domains: vec![content.to_owned()], ..VirtualHost::default() };
    // What follows the name would be something else in endpoints.
    let value = VirtualHost { domains: Vec::new(), ..message.clone() }.encode_to_vec();
    let value =
        [value, vec![0xfa, 0x3e, u8::try_from(content.len()).unwrap()], content.as_bytes().to_vec()].concat();
    world.put(Wanted::new(name, type_url, value));
}

fn content_name(value: &[u8]) -> String {
    VirtualHost::decode(value).unwrap().name
}

#[test]
fn r62_delta_a_member_may_be_asked_for_by_name_as_well() {
    let mut stream = Stream::<Delta>::new(&[]);
    for (name, content) in [(ONE, "1"), (TWO, "1")] {
        put_named(&mut stream.world, CDS, name, content);
    }
    stream.want(CDS, &[ONE]);
    stream.settle();
    let names = |stream: &Stream<Delta>| -> Vec<String> {
        stream.newest().updated.iter().filter_map(|(named, _)| Some(named.clone()?.0)).collect()
    };
    stream.want(CDS, &[ONE, GLOB]);
    assert_eq!(names(&stream), [ONE, TWO]);
    stream.settle();
    // It drops what it unsubscribes from, and the glob still stands for that.
    stream.want(CDS, &[GLOB]);
    assert_eq!(names(&stream), [ONE]);
    stream.settle();
    stream.want(CDS, &[GLOB, ONE]);
    stream.settle();
    assert_eq!(stream.want(CDS, &[ONE]), NOTHING);
    assert_eq!(renamed(&mut stream, CDS, &[(ONE, "2"), (TWO, "2")], &[]), [ONE], "two is wanted no more");
    stream.settle();
    assert!(stream.source.is_settled());
}

#[test]
fn r62_r33_r34_delta_what_a_resuming_peer_has_of_a_glob_is_compared() {
    let mut stream = Stream::<Delta>::new(&[]);
    for (name, content) in [(ONE, "1"), (TWO, "2")] {
        put_named(&mut stream.world, CDS, name, content);
    }
    let held = |name: &str| {
        let mut world = WantSnapshot::new(1);
        put_named(&mut world, CDS, name, "1");
        let version = world.list(CDS).next().unwrap().version.to_string();
        (name.to_owned(), version)
    };
    let gone = "xdstp://x/T/a/gone";
    let ask = super::Ask { held: vec![held(ONE), held(TWO), held(gone)], ..stream.wish(CDS, &[GLOB]) };
    stream.raw(&ask).unwrap();
    let sent = stream.sent.clone();
    let updated: Vec<String> =
        sent.iter().flat_map(|sent| sent.updated.iter()).map(|(_, any)| content_name(&any.value)).collect();
    stream.settle();
    let removed: Vec<String> = stream.sent.iter().flat_map(|sent| sent.removed.clone()).collect();
    assert_eq!((updated, removed), (vec![TWO.to_owned()], vec![gone.to_owned()]));
}

#[test]
fn r61_delta_parameters_have_no_order_and_are_echoed_as_they_were_asked_for() {
    let (asked, here) = ("xdstp://x/T/a?b=2&a=1", "xdstp://x/T/a?a=1&b=2");
    assert_eq!(canonical(asked), here);
    let mut stream = Stream::<Delta>::new(&[]);
    assert_eq!(stream.want(EDS, &[asked]), [format!("ClusterLoadAssignment -{asked}")]);
    stream.settle();
    for generation in ["1", "2"] {
        assert_eq!(renamed(&mut stream, EDS, &[(here, generation)], &[]), [here]);
        let told = stream.newest().updated[0].0.clone().unwrap().0;
        assert_eq!(told, asked);
        stream.settle();
    }
    stream.want(EDS, &[asked, here]);
    assert_eq!(stream.newest().updated[0].0.clone().unwrap().0, here);
    stream.settle();
    assert_eq!(renamed(&mut stream, EDS, &[(here, "3")], &[]).len(), 2, "each under its name");
    stream.settle();
    renamed(&mut stream, EDS, &[], &[here]);
    assert_eq!(stream.newest().removed, [here, asked]);
    stream.settle();
    assert_eq!(stream.want(EDS, &[here]), NOTHING);
    assert_eq!(renamed(&mut stream, EDS, &[(here, "4")], &[]), [here], "it is asked for once now");
}

fn parameters_have_no_order<D: Variant>() {
    let (asked, here) = ("xdstp://x/T/a?b=2&a=1#later", "xdstp://x/T/a?a=1&b=2");
    for type_url in [CDS, LDS] {
        let mut stream = Stream::<D>::new(&[]);
        put_named(&mut stream.world, type_url, here, "1");
        stream.want(type_url, &[asked]);
        assert_eq!(stream.newest().updated.len(), 1, "{type_url}");
        stream.settle();
        assert_eq!(renamed(&mut stream, type_url, &[(here, "2")], &[]), [here]);
    }
}
both!(r61_parameters_have_no_order, parameters_have_no_order);

fn plain_names_by_way_of_an_authority<D: Variant>() {
    for (type_url, generation) in [(LDS, "1"), (CDS, "1"), (EDS, "1")] {
        let mut stream = Stream::<D>::new(&[]);
        let asked = format!("xdstp://anybody/{}/web%3A80", type_url.rsplit('/').next().unwrap());
        stream.want(type_url, &[&asked]);
        stream.settle();
        assert_eq!(renamed(&mut stream, type_url, &[("web:80", generation)], &[]), [&*asked], "{type_url}");
        stream.settle();
        assert_eq!(renamed(&mut stream, type_url, &[("web:80", "2"), ("other", "1")], &[]), [&*asked]);
        stream.settle();
    }
}
both!(r61_a_plain_name_may_be_asked_for_by_way_of_an_authority, plain_names_by_way_of_an_authority);

fn put_host(world: &mut WantSnapshot, name: &str, domain: &str, on_demand: bool) {
    let domains = vec![domain.to_owned()];
    let host = VirtualHost { name: name.to_owned(), domains, ..VirtualHost::default() };
    world.put(Wanted { on_demand, ..Wanted::new(name, VHDS, host.encode_to_vec()) });
}

/// Changes virtual hosts and gives, of what was sent, each name with its aliases and whether there is content.
fn host<D: Variant>(stream: &mut Stream<D>, change: impl FnOnce(&mut WantSnapshot)) -> Vec<String> {
    let (before, sent) = (stream.world.clone(), stream.sent.len());
    change(&mut stream.world);
    stream.world.revision += 1;
    let changed = stream.world.changed_since(&before);
    stream.source.handle(Input::Changed(&changed), &stream.world).unwrap();
    stream.pump();
    stream.settle();
    hosts(stream, sent)
}

fn hosts<D: Variant>(stream: &Stream<D>, since: usize) -> Vec<String> {
    let mut shown = Vec::new();
    for sent in stream.sent[since..].iter().filter(|sent| sent.type_url == VHDS) {
        for (named, any) in &sent.updated {
            let name = named.clone().unwrap().0;
            let aliases =
                sent.aliases.iter().find(|(of, _)| *of == name).map(|(_, aliases)| aliases.join(","));
            let vacant = if any.value.is_empty() { " vacant" } else { "" };
            shown.push(format!("{name}({}){vacant}", aliases.unwrap_or_default()));
        }
        shown.extend(sent.removed.iter().map(|name| format!("-{name}")));
    }
    shown
}

fn ask(stream: &mut Stream<Delta>, names: &[&str]) -> Vec<String> {
    let since = stream.sent.len();
    stream.want(VHDS, names);
    stream.settle();
    hosts(stream, since)
}

#[test]
fn r41_s24_delta_a_host_is_answered_with_its_virtual_host_or_with_nothing_under_its_name() {
    let mut stream = Stream::<Delta>::new(&[]);
    put_host(&mut stream.world, "r/first", "first.example", false);
    put_host(&mut stream.world, "r/on-demand", "*.example", true);
    put_host(&mut stream.world, "other/x", "x.example", false);
    assert_eq!(ask(&mut stream, &["r"]), ["r/first()"], "what is there from the beginning");
    let known = ["r", "r/a.example"];
    assert_eq!(ask(&mut stream, &known), ["r/on-demand(r/a.example)"]);
    let known = [&known[..], &["r/b.example"]].concat();
    assert_eq!(ask(&mut stream, &known), ["r/on-demand(r/a.example,r/b.example)"], "it waits for word");
    let known = [&known[..], &["r/first.example"]].concat();
    assert_eq!(ask(&mut stream, &known), ["r/first(r/first.example)"]);
    let known = [&known[..], &["r/nobody.test"]].concat();
    assert_eq!(ask(&mut stream, &known), ["r/nobody.test(r/nobody.test) vacant"]);
    // Whoever asked hears of it when there is one.
    let told = host(&mut stream, |world| put_host(world, "r/late", "nobody.test", true));
    assert_eq!(told, ["r/late(r/nobody.test)"]);
    assert_eq!(host(&mut stream, |world| put_host(world, "r/unheard", "unheard.test", true)), NOTHING);
    let told = host(&mut stream, |world| world.remove(VHDS, "r/on-demand"));
    assert_eq!(told, ["-r/a.example", "-r/b.example", "-r/on-demand"]);
}

#[test]
fn r41_delta_hosts_that_somebody_called_once_are_not_remembered_for_ever() {
    let mut stream = Stream::<Delta>::new(&[]);
    put_host(&mut stream.world, "r/some", "*.example", true);
    put_host(&mut stream.world, "r/own", "own.test", true);
    let mut known = vec!["r/own.test".to_owned()];
    for round in 0..8 {
        let hosts = (0..3000).map(|n| format!("r/{round}-{n}.{}", ["example", "nowhere"][n % 2]));
        known.extend(hosts);
        let names: Vec<&str> = known.iter().map(String::as_str).collect();
        let told = ask(&mut stream, &names);
        assert!(told.iter().filter(|told| told.ends_with(" vacant")).count() == 1500, "round {round}");
    }
    let remembered = stream.source.interest(VHDS).unwrap().names().len();
    assert!(remembered <= 13_000, "{remembered} hosts");
    // Who asks again is answered again, and what somebody is given is followed.
    let subscribe = vec!["r/0-1.nowhere".to_owned(), "r/0-0.example".to_owned()];
    let again = super::Ask { subscribe, type_url: VHDS.to_owned(), ..super::Ask::default() };
    let since = stream.sent.len();
    stream.raw(&again).unwrap();
    stream.settle();
    let told = hosts(&stream, since);
    let has = |told: &[String], begins: &str, ends: &str| {
        told.iter().any(|told| told.starts_with(begins) && told.ends_with(ends))
    };
    assert!(has(&told, "r/some(", ")") && has(&told, "r/0-1.nowhere(r/0-1.nowhere)", " vacant"), "{told:?}");
    for name in ["r/some", "r/own"] {
        let told = host(&mut stream, |world| world.remove(VHDS, name));
        assert!(has(&told, &format!("-{name}"), name), "{name}");
    }
}

#[test]
fn r41_delta_where_nothing_is_there_from_the_beginning_that_is_said() {
    let mut stream = Stream::<Delta>::new(&[]);
    assert_eq!(ask(&mut stream, &["r"]), ["r/(r) vacant"]);
    assert_eq!(host(&mut stream, |world| put_host(world, "r/a", "*", false)), ["r/a()"]);
}

#[test]
fn r42_delta_virtual_hosts_are_told_again_after_their_routes() {
    let mut stream = Stream::<Delta>::new(&[(RDS, "r", "1"), (RDS, "q", "1")]);
    put_host(&mut stream.world, "r/first", "first.example", false);
    put_host(&mut stream.world, "r/on-demand", "*.example", true);
    put_host(&mut stream.world, "q/x", "x.example", false);
    stream.want(RDS, &["r", "q"]);
    stream.settle();
    ask(&mut stream, &["r", "r/a.example", "q"]);
    let since = stream.sent.len();
    stream.change(&[(RDS, "r", "2")], &[]);
    stream.settle();
    let types: Vec<&str> = stream.sent[since..].iter().map(|sent| &*sent.type_url).collect();
    assert_eq!(types, [RDS, VHDS]);
    assert_eq!(hosts(&stream, since), ["r/first()", "r/on-demand(r/a.example)"]);
}

#[test]
fn r33_r41_delta_a_resuming_peer_keeps_its_virtual_hosts() {
    let mut stream = Stream::<Delta>::new(&[]);
    put_host(&mut stream.world, "r/first", "first.example", false);
    let version = stream.world.list(VHDS).next().unwrap().version.to_string();
    let held = vec![("r/first".to_owned(), version), ("r/gone".to_owned(), "x".to_owned())];
    let ask = super::Ask { held, ..stream.wish(VHDS, &["r"]) };
    stream.raw(&ask).unwrap();
    stream.settle();
    assert_eq!(hosts(&stream, 0), ["-r/gone"]);
}

fn own<D: Variant>(stream: &mut Stream<D>, name: &str, content: &str, version: &str) -> Vec<String> {
    let before = stream.world.clone();
    stream.world.revision += 1;
    let own = OwnVersion { text: version.into(), given: stream.world.revision };
    let plain = Wanted::new(name, CDS, format!("{name}@{content}"));
    let digest = crate::xds::Version::of_parts([content.as_bytes(), version.as_bytes()]);
    stream.world.put(Wanted { own_version: Some(Arc::new(own)), version: digest, ..plain });
    let changed = stream.world.changed_since(&before);
    stream.source.handle(Input::Changed(&changed), &stream.world).unwrap();
    stream.pump()
}

#[test]
fn r20_delta_a_version_of_the_author_is_told_with_each_resource() {
    let mut stream = Stream::<Delta>::new(&[]);
    own(&mut stream, "A", "1", "1");
    own(&mut stream, "B", "1", "1");
    stream.want(CDS, &["*"]);
    let told = |stream: &Stream<Delta>| -> Vec<(String, String)> {
        stream.newest().updated.iter().filter_map(|(named, _)| named.clone()).collect()
    };
    let pair = |name: &str, version: &str| (name.to_owned(), version.to_owned());
    assert_eq!(told(&stream), [pair("A", "1"), pair("B", "1")]);
    stream.settle();
    own(&mut stream, "A", "1", "2");
    assert_eq!(told(&stream), [pair("A", "2")], "another version is told, whatever is in it");
}

#[test]
fn r33_delta_who_resumes_at_a_version_of_the_author_is_told_what_differs_from_that() {
    let mut stream = Stream::<Delta>::new(&[]);
    own(&mut stream, "same", "1", "7");
    own(&mut stream, "newer", "1", "8");
    own(&mut stream, "digest", "1", "7");
    stream.change(&[(CDS, "digest", "1")], &[]);
    let held = [("same", "7"), ("newer", "7"), ("digest", "7"), ("gone", "7")];
    let held = held.map(|(name, version)| (name.to_owned(), version.to_owned())).to_vec();
    let ask = super::Ask { held, ..stream.wish(CDS, &["*"]) };
    stream.raw(&ask).unwrap();
    assert_eq!(stream.newest().names(), ["digest", "newer"]);
    assert_eq!(stream.newest().removed, ["gone"]);
    stream.settle();
    // Who asks for it again on the same stream may have dropped it.
    stream.want(CDS, &["same"]);
    assert_eq!(stream.newest().names(), ["same"]);
}

#[test]
fn r20_sotw_the_version_given_last_is_that_of_all_if_each_has_one() {
    let mut stream = Stream::<Sotw>::new(&[]);
    own(&mut stream, "A", "1", "1");
    own(&mut stream, "B", "1", "1");
    stream.want(CDS, &[]);
    assert_eq!((stream.newest().version.as_str(), stream.newest().names().len()), ("1", 2));
    stream.settle();
    own(&mut stream, "A", "2", "2");
    assert_eq!(stream.newest().version, "2");
    stream.settle();
    stream.change(&[(CDS, "C", "1")], &[]);
    let digest = stream.newest().version.clone();
    assert_eq!(digest.len(), 32, "one of them has none");
    let mut again = Stream::<Sotw>::over(crate::xds::SourceSettings::ads("cp"), stream.world.clone());
    let ask = super::Ask { version: digest.clone(), node: Some(node("envoy")), ..again.wish(CDS, &[]) };
    again.raw(&ask).unwrap();
    assert_eq!(again.newest().version, digest);
}

/// What an incremental client does: it asks, drops what it no longer asks for, and keeps what it is told.
#[derive(Default)]
struct Holder {
    asked: BTreeSet<String>,
    held: BTreeMap<String, String>,
}

impl Holder {
    fn covers(&self, name: &str) -> bool {
        let below = |glob: &str| {
            let rest = glob.strip_suffix('*').and_then(|before| name.strip_prefix(before));
            rest.is_some_and(|rest| !rest.contains('/') && rest != "*")
        };
        self.asked.contains(name) || self.asked.iter().any(|asked| below(asked))
    }

    fn hear(&mut self, sent: &super::Sent) {
        for (named, any) in &sent.updated {
            let (name, version) = named.clone().unwrap();
            assert!(self.covers(&name), "{name} was not asked for");
            assert_eq!(content_name(&any.value), name);
            assert!(!sent.removed.contains(&name));
            self.held.insert(name, version);
        }
        sent.removed.iter().for_each(|name| drop(self.held.remove(name)));
    }
}

/// What happens: something is written or goes, is asked for or no more, or the peer answers.
#[derive(Clone, Debug)]
enum Happening {
    Put(usize, u8),
    Remove(usize),
    Ask(usize),
    Leave(usize),
    Answer,
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let one = prop_oneof![
        (0..4_usize, any::<u8>()).prop_map(|(name, content)| Happening::Put(name, content)),
        (0..4_usize).prop_map(Happening::Remove),
        (0..6_usize).prop_map(Happening::Ask),
        (0..6_usize).prop_map(Happening::Leave),
        Just(Happening::Answer),
    ];
    proptest::collection::vec(one, 1..60)
}

proptest! {
    #[test]
    fn r62_delta_a_peer_ends_up_with_what_there_is_of_what_it_asks_for(happenings in happenings()) {
        let names = [ONE, TWO, DEEPER, "xdstp://x/T/a/b/2", GLOB, "xdstp://x/T/a/b/*"];
        let mut stream = Stream::<Delta>::new(&[]);
        let (mut peer, mut heard) = (Holder::default(), 0);
        stream.want(CDS, &[]);
        // Nothing by default from here on.
        let leave = super::Ask { unsubscribe: vec!["*".to_owned()], type_url: CDS.to_owned(), ..super::Ask::default() };
        stream.raw(&leave).unwrap();
        for happening in happenings {
            match happening {
                Happening::Put(at, content) => {
                    renamed(&mut stream, CDS, &[(names[at], &content.to_string())], &[]);
                }
                Happening::Remove(at) => {
                    renamed(&mut stream, CDS, &[], &[names[at]]);
                }
                Happening::Ask(at) => {
                    peer.asked.insert(names[at].to_owned());
                    let subscribe = vec![names[at].to_owned()];
                    let ask = super::Ask { subscribe, type_url: CDS.to_owned(), ..super::Ask::default() };
                    stream.raw(&ask).unwrap();
                }
                Happening::Leave(at) => {
                    if peer.asked.remove(names[at]) {
                        let kept = |name: &String| peer.covers(name) && name != names[at];
                        let kept: BTreeSet<String> = peer.held.keys().filter(|name| kept(name)).cloned().collect();
                        peer.held.retain(|name, _| kept.contains(name));
                    }
                    let unsubscribe = vec![names[at].to_owned()];
                    let ask = super::Ask { unsubscribe, type_url: CDS.to_owned(), ..super::Ask::default() };
                    stream.raw(&ask).unwrap();
                }
                Happening::Answer => {
                    if stream.source.stalled_since().is_some() {
                        stream.ack(CDS);
                    }
                }
            }
            for sent in &stream.sent[heard..] {
                peer.hear(sent);
            }
            heard = stream.sent.len();
        }
        stream.settle();
        stream.sent[heard..].iter().for_each(|sent| peer.hear(sent));
        let there = stream.world.list(CDS).filter(|wanted| peer.covers(&wanted.name));
        let expected: BTreeMap<String, String> =
            there.map(|wanted| (wanted.name.to_string(), wanted.version.to_string())).collect();
        prop_assert_eq!(&peer.held, &expected);
    }
}
