//! What Envoy gets from policies.
//!
//! A policy is one file here and one line in [`ALL`]. Policies are applied in that order, and later ones
//! see the work of earlier ones. Each is applied whether or not the user wrote one, since several have
//! effects by default.

mod header;
mod identity;
mod lookup;
mod mesh_circuit_breaker;
mod mesh_http_route;
mod mesh_retry;
mod mesh_tcp_route;
mod mesh_timeout;
mod mesh_traffic_permission;

use std::collections::{BTreeMap, BTreeSet};

use common::{
    model::Kind,
    policy::rules::{self, Selection},
};

use crate::{
    generator::{Draft, Sidecar, outbound, outbound::Outbound},
    mesh::{MeshContext, Problem, problem::Subject},
};
use lookup::{Rules, TypedPolicy};

/// The effect of one kind of policy.
trait Policy: Sync {
    /// Which kind.
    fn kind(&self) -> &'static Kind;
    /// Changes `draft`. What cannot be applied is reported and left out; every change made is complete.
    fn apply(&self, context: &Context<'_>, draft: &mut Draft, reporter: &mut Reporter<'_>);
}

/// Every policy, in order of application.
static ALL: &[&dyn Policy] = &[
    &mesh_http_route::MeshHttpRoute,
    &mesh_tcp_route::MeshTcpRoute,
    &mesh_timeout::MeshTimeout,
    &mesh_traffic_permission::MeshTrafficPermission,
    &mesh_circuit_breaker::MeshCircuitBreaker,
    &mesh_retry::MeshRetry,
];

/// What policies are applied to.
struct Context<'a> {
    proxy: &'a Sidecar,
    mesh: &'a MeshContext,
    outbounds: Vec<Outbound>,
    /// The proxy as the rules see it; `None` when it cannot be read, which was reported.
    subject: Option<rules::Proxy>,
}

impl Context<'_> {
    /// The policies of `kind` that are for the proxy.
    fn selection(&self, kind: &Kind, reporter: &mut Reporter<'_>) -> Selection {
        let (Some(set), Some(proxy)) = (self.mesh.policies(kind), &self.subject) else {
            return Selection::default();
        };
        let selection = Selection::of(set, proxy, &self.mesh.destinations, false);
        for warning in &selection.warnings {
            reporter.report(warning);
        }
        selection
    }

    /// The rules of the policies of type `P` that are for the proxy.
    fn rules<P: TypedPolicy>(&self, reporter: &mut Reporter<'_>) -> Rules<P::Conf> {
        let selection = self.selection(P::KIND, reporter);
        Rules::new(selection, &self.mesh.destinations, reporter)
    }
}

/// Where a policy says what it left out.
struct Reporter<'a> {
    kind: &'static Kind,
    problems: &'a mut Vec<Problem>,
}

impl Reporter<'_> {
    fn report(&mut self, reason: impl ToString) {
        let subject = Subject::Part(self.kind.name.to_owned());
        let problem = Problem { subject, reason: reason.to_string() };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}

/// Applies every policy.
pub(crate) fn apply_all(proxy: &Sidecar, mesh: &MeshContext, draft: &mut Draft, problems: &mut Vec<Problem>) {
    let outbounds = outbound::all(proxy, mesh, problems);
    draft.consulted.extend(outbounds.iter().map(|outbound| outbound.backend.service.clone()));
    let subject = match rules::Proxy::of(&proxy.dataplane.resource) {
        Ok(subject) => subject,
        Err(error) => {
            let subject = Subject::of(&proxy.dataplane.resource);
            problems.push(Problem { subject, reason: format!("no policy is applied: {error}") });
            None
        }
    };
    let context = Context { proxy, mesh, outbounds, subject };
    for policy in ALL {
        let mut reporter = Reporter { kind: policy.kind(), problems };
        policy.apply(&context, draft, &mut reporter);
    }
}

/// Tag sets to which routes send traffic, of which the ingresses of other zones must know.
pub(crate) fn destination_tags(mesh: &MeshContext) -> BTreeSet<BTreeMap<String, String>> {
    let mut tags = mesh_http_route::destination_tags(mesh);
    tags.extend(mesh_tcp_route::destination_tags(mesh));
    tags
}
