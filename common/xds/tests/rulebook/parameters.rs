//! R63: variants of a resource, one of which a peer is given by the parameters it has.

use std::collections::BTreeMap;

use prost::Message;

use super::{CDS, Delta, EDS, Sotw, Stream, Variant, both, node};
use crate::{
    proto::envoy::service::discovery::v3::{
        DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
        DynamicParameterConstraints, Resource, ResourceLocator, ResourceName,
        dynamic_parameter_constraints::{Type as Constraint, single_constraint::ConstraintType},
    },
    xds::{Input, WantSnapshot, Wanted, variant_name},
};

type Parameters<'a> = &'a [(&'a str, &'a str)];

const PROD: Parameters<'_> = &[("env", "prod")];
const TEST: Parameters<'_> = &[("env", "test")];

fn put(
    world: &mut WantSnapshot,
    type_url: &'static str,
    name: &str,
    parameters: Parameters<'_>,
    content: &str,
) {
    let parameters: BTreeMap<String, String> =
        parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let name = variant_name(name, &parameters).into_owned();
    world.put(Wanted::new(name, type_url, content.to_owned()));
}

fn remove(world: &mut WantSnapshot, name: &str, parameters: Parameters<'_>) {
    let mut other = WantSnapshot::new(1);
    put(&mut other, CDS, name, parameters, "");
    let names: Vec<_> = other.list(CDS).map(|wanted| wanted.name.clone()).collect();
    names.iter().for_each(|name| world.remove(CDS, name));
}

fn locator(name: &str, parameters: Parameters<'_>) -> ResourceLocator {
    let dynamic_parameters =
        parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    ResourceLocator { name: name.to_owned(), dynamic_parameters }
}

/// All that there is to say.
fn responses<D: Variant>(stream: &mut Stream<D>) -> Vec<D::Response> {
    std::iter::from_fn(|| stream.source.next(stream.now, &stream.world)).collect()
}

fn say<D: Variant>(stream: &mut Stream<D>, request: &D::Request) -> Vec<D::Response> {
    stream.source.handle(Input::Request(request), &stream.world).unwrap();
    responses(stream)
}

fn change<D: Variant>(stream: &mut Stream<D>, change: impl FnOnce(&mut WantSnapshot)) -> Vec<D::Response> {
    let before = stream.world.clone();
    change(&mut stream.world);
    stream.world.revision += 1;
    let changed = stream.world.changed_since(&before);
    stream.source.handle(Input::Changed(&changed), &stream.world).unwrap();
    responses(stream)
}

fn asking(
    type_url: &str,
    subscribe: &[ResourceLocator],
    unsubscribe: &[ResourceLocator],
) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        node: Some(node("client")),
        type_url: type_url.to_owned(),
        resource_locators_subscribe: subscribe.to_vec(),
        resource_locators_unsubscribe: unsubscribe.to_vec(),
        ..DeltaDiscoveryRequest::default()
    }
}

fn ack(response: &DeltaDiscoveryResponse) -> DeltaDiscoveryRequest {
    let (type_url, response_nonce) = (response.type_url.clone(), response.nonce.clone());
    DeltaDiscoveryRequest { type_url, response_nonce, ..DeltaDiscoveryRequest::default() }
}

/// `name{key=value,…}`.
fn shown(name: &ResourceName) -> String {
    fn constraints(of: &DynamicParameterConstraints) -> String {
        match of.r#type.as_ref().unwrap() {
            Constraint::Constraint(one) => match one.constraint_type.as_ref().unwrap() {
                ConstraintType::Value(value) => format!("{}={value}", one.key),
                ConstraintType::Exists(_) => one.key.clone(),
            },
            Constraint::AndConstraints(all) => {
                all.constraints.iter().map(constraints).collect::<Vec<_>>().join(",")
            }
            other => panic!("{other:?}"),
        }
    }
    let of = name.dynamic_parameter_constraints.as_ref().map(constraints);
    format!("{}{{{}}}", name.name, of.unwrap_or_default())
}

fn envelope(resource: &Resource) -> String {
    let content = resource.resource.as_ref().map(|any| String::from_utf8_lossy(&any.value).into_owned());
    let name = resource.resource_name.as_ref().map(shown);
    assert!(name.is_none() || resource.name.is_empty(), "it has one name");
    format!("{}@{}", name.unwrap_or_else(|| resource.name.clone()), content.unwrap_or_default())
}

/// The one response there is: what came, and with a minus what went.
fn told(responses: &[DeltaDiscoveryResponse]) -> Vec<String> {
    let [response] = responses else { panic!("{responses:?}") };
    let mut told: Vec<String> = response.resources.iter().map(envelope).collect();
    told.extend(response.removed_resources.iter().map(|name| format!("-{name}")));
    told.extend(response.removed_resource_names.iter().map(|name| format!("-{}", shown(name))));
    told
}

#[test]
fn r63_delta_a_locator_is_answered_with_one_variant_and_says_what_that_is_for() {
    let mut stream = Stream::<Delta>::new(&[]);
    for (parameters, content) in
        [(&[][..], "any"), (PROD, "prod"), (&[("env", "prod"), ("ring", "1")], "ring")]
    {
        put(&mut stream.world, CDS, "a", parameters, content);
    }
    let mine = locator("a", &[("env", "prod"), ("color", "red")]);
    let sent = say(&mut stream, &asking(CDS, std::slice::from_ref(&mine), &[]));
    assert_eq!(told(&sent), ["a{env=prod}@prod"], "what others have beside that rules nothing out");
    assert!(say(&mut stream, &ack(&sent[0])).is_empty());
    let sent = change(&mut stream, |world| put(world, CDS, "a", PROD, "prod 2"));
    assert_eq!(told(&sent), ["a{env=prod}@prod 2"]);
    say(&mut stream, &ack(&sent[0]));
    assert!(change(&mut stream, |world| put(world, CDS, "a", &[], "any 2")).is_empty());
    // Another one takes its place: in one response the one goes and the other comes.
    let sent = change(&mut stream, |world| remove(world, "a", PROD));
    assert_eq!(told(&sent), ["a@any 2", "-a{env=prod}"]);
    say(&mut stream, &ack(&sent[0]));
    let sent = change(&mut stream, |world| put(world, CDS, "a", &[("color", "red")], "red"));
    assert_eq!(told(&sent), ["a{color=red}@red", "-a"], "although that goes on to exist");
    say(&mut stream, &ack(&sent[0]));
    let sent = say(&mut stream, &asking(CDS, &[locator("a", &[("ring", "1"), ("env", "prod")])], &[mine]));
    assert_eq!(told(&sent), ["a{env=prod,ring=1}@ring"]);
    say(&mut stream, &ack(&sent[0]));
    assert!(change(&mut stream, |world| put(world, CDS, "a", &[("color", "red")], "red 2")).is_empty());
    assert!(stream.source.is_settled());
}

#[test]
fn r63_delta_that_there_is_no_variant_for_somebody_is_told_until_there_is_one() {
    let mut stream = Stream::<Delta>::new(&[]);
    put(&mut stream.world, EDS, "a", TEST, "test");
    let both = [locator("a", PROD), locator("a", &[("env", "dev")])];
    let sent = say(&mut stream, &asking(EDS, &both, &[]));
    assert_eq!(told(&sent), ["-a"]);
    say(&mut stream, &ack(&sent[0]));
    assert!(change(&mut stream, |world| put(world, EDS, "a", TEST, "test 2")).is_empty());
    let sent = change(&mut stream, |world| put(world, EDS, "a", PROD, "prod"));
    assert_eq!(told(&sent), ["a{env=prod}@prod"]);
}

#[test]
fn r63_delta_a_locator_without_parameters_is_a_name() {
    let mut stream = Stream::<Delta>::new(&[(CDS, "a", "1")]);
    put(&mut stream.world, CDS, "a", PROD, "prod");
    let sent = say(&mut stream, &asking(CDS, &[locator("a", &[])], &[]));
    assert_eq!(told(&sent), ["a@a@1"]);
}

/// A wildcard is for everybody, and variants are for who asks for them.
fn no_variants_for_who_says_nothing<D: Variant>() {
    for names in [&["*"][..], &["a", "b"]] {
        let mut stream = Stream::<D>::new(&[(CDS, "a", "1")]);
        put(&mut stream.world, CDS, "a", PROD, "a@prod");
        put(&mut stream.world, CDS, "b", PROD, "b@prod");
        stream.want(CDS, names);
        assert_eq!(stream.newest().contents(), ["a@1"], "{names:?}");
        stream.settle();
        assert!(change(&mut stream, |world| put(world, CDS, "a", PROD, "a@prod 2")).is_empty());
        // Also when everything is looked at.
        stream.source.handle(Input::Resync, &stream.world).unwrap();
        assert!(responses(&mut stream).is_empty(), "{names:?}");
    }
}
both!(r63_who_says_nothing_about_parameters_gets_no_variants, no_variants_for_who_says_nothing);

#[test]
fn r63_sotw_a_variant_comes_in_an_envelope() {
    let opened = |responses: &[DiscoveryResponse]| -> Vec<String> {
        let [response] = responses else { panic!("{responses:?}") };
        let one = |any: &crate::proto::google::protobuf::Any| {
            let is_packed = any.type_url.ends_with("/envoy.service.discovery.v3.Resource");
            match is_packed {
                true => envelope(&Resource::decode(&any.value[..]).unwrap()),
                false => String::from_utf8_lossy(&any.value).into_owned(),
            }
        };
        response.resources.iter().map(one).collect()
    };
    for (names, others) in [(vec![], &[][..]), (vec!["*".to_owned()], &["any"])] {
        let mut stream = Stream::<Sotw>::new(&[]);
        put(&mut stream.world, CDS, "a", PROD, "prod");
        put(&mut stream.world, CDS, "a", TEST, "test");
        put(&mut stream.world, CDS, "b", &[], "any");
        let mut request = DiscoveryRequest {
            node: Some(node("client")),
            type_url: CDS.to_owned(),
            resource_names: names,
            resource_locators: vec![locator("a", PROD)],
            ..DiscoveryRequest::default()
        };
        let sent = say(&mut stream, &request);
        assert_eq!(opened(&sent), [&["a{env=prod}@prod"][..], others].concat());
        request.response_nonce.clone_from(&sent[0].nonce);
        assert!(say(&mut stream, &request).is_empty());
        // The same client with another parameter.
        request.resource_locators = vec![locator("a", TEST)];
        let sent = say(&mut stream, &request);
        assert_eq!(opened(&sent), [&["a{env=test}@test"][..], others].concat());
    }
}
