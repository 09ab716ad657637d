//! What a zone egress shows in a mesh while who signs there changes.

use common::model::kinds::mesh_external_service;

use super::*;

/// A mesh with two backends, of which this one signs.
fn mesh(enabled: &str) -> String {
    format!(
        "{{type: Mesh, name: default, routing: {{zoneEgress: true}}, mtls: {{enabledBackend: {enabled}, backends: \
         [{{name: ca-1, type: builtin}}, {{name: ca-2, type: builtin}}]}}}}"
    )
}

fn egress() -> ProxyId {
    ProxyId::new(ProxyKind::Egress, "", "east-out")
}

fn world() -> World {
    let mut world = World::new(0);
    world.put(&mesh("ca-1"), "");
    world.put_authority();
    world.put_authority_of("default", "ca-2");
    world.put_egress("east-out", 9);
    world.put(
        "{type: MeshExternalService, mesh: default, name: out, spec: {match: {port: 80, protocol: http}, endpoints: \
         [{address: 10.9.0.1, port: 1}]}}",
        "",
    );
    world.settle();
    world
}

fn shown(world: &World) -> &WorkloadCertificate {
    &world.certificates[&(egress(), "default".into())]
}

/// Whoever calls through it hears of the new authority before meeting it.
#[test]
fn an_egress_goes_over_to_another_authority_once_everybody_heard_of_it() {
    let mut world = world();
    assert_eq!(shown(&world).backend, "ca-1");
    let began = world.now;
    world.put(&mesh("ca-2"), "");
    world.settle();
    assert_eq!(shown(&world).backend, "ca-1");
    assert_eq!(world.meshes.next_renewal(), Some(began + TimeDelta::seconds(10)));

    // Nothing that happens meanwhile makes it begin anew, or end sooner.
    world.now += TimeDelta::seconds(9);
    world.put_egress("more-out", 8);
    world.settle();
    assert_eq!(shown(&world).backend, "ca-1");
    assert_eq!(world.meshes.next_renewal(), Some(began + TimeDelta::seconds(10)));

    world.now += TimeDelta::seconds(1);
    world.settle();
    assert_eq!(shown(&world).backend, "ca-2");
    assert!(world.meshes.next_renewal().is_some_and(|at| at > world.now));
}

/// What is not believed any more is of no use, so nothing is waited for.
#[test]
fn an_egress_that_nobody_believes_is_signed_for_at_once() {
    let mut world = world();
    world.put(
        "{type: Mesh, name: default, routing: {zoneEgress: true}, mtls: {enabledBackend: ca-2, backends: [{name: ca-2, \
         type: builtin}]}}",
        "",
    );
    world.settle();
    assert_eq!(shown(&world).backend, "ca-2");
}

/// A certificate that nobody renews is asked for again when it is time to, and not all the time until then.
#[test]
fn an_egress_that_is_refused_asks_for_nothing_until_it_is_told_to() {
    let mut world = world();
    let before = shown(&world).issued;
    world.now += TimeDelta::hours(20);
    world.meshes.renew(world.now);
    world.meshes.configured(world.now);
    let refuse = |(id, request): (ProxyId, SigningRequest)| {
        let signed = Signed { workload: Some(Err("the authority is away".to_owned())), admin: None };
        SigningAnswer { id, request, signed }
    };
    let asked = world.meshes.unsigned(world.now);
    assert!(world.meshes.next_renewal().is_none(), "it waits for an answer");
    let mut failed = Vec::new();
    world.meshes.signed(asked.into_iter().map(refuse).collect(), |id| failed.push(id));
    assert_eq!(failed, [egress()]);
    world.settle();
    assert_eq!(shown(&world).issued, before);
    assert!(world.meshes.next_renewal().is_none(), "nothing is due before it is tried again");
    world.meshes.retry(&egress());
    world.settle();
    assert_eq!(shown(&world).issued, world.now);
}

/// What was shown where nothing is let out any more is not renewed, nor looked at all the time.
#[test]
fn an_egress_shows_nothing_where_nothing_leaves() {
    let mut world = world();
    let key = ResourceKey::new(&mesh_external_service::KIND, "default", "out");
    world.apply(key, None);
    world.settle();
    world.now += TimeDelta::hours(30);
    world.settle();
    assert_eq!(world.meshes.next_renewal(), None);
}
