//! What the egresses of this zone let out: calls of services in other zones, passed on as they are, and calls of
//! services outside the mesh, which end here and go on as something else.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use chrono::{DateTime, Utc};

use super::{
    admission,
    behind::Side,
    exposure::{EdgeOwn, Exposure, reroutes},
    server_name::yielding,
    sidecar::admin_port_taken,
};
use crate::{
    generator::{
        Chain, ClusterDraft, Draft, Encoded, ResourceCollection, ResourceSet, SharedResources,
        ZoneEgressProxy, admin, egress, envoy::tls, secrets, sni,
    },
    mesh::{
        Authority, Destination, ExternalService, Identity, MeshChange, MeshContext, Problem, TrustBundle,
        UpstreamTrust, WorkloadCertificate, problem::Subject,
    },
    policy,
};

/// Mesh by mesh, what is let out.
#[derive(Debug)]
pub(crate) struct Departures {
    passages: Exposure,
    meshes: BTreeMap<Arc<str>, MeshDepartures>,
    /// Counts how often something else was let out to where no mesh is.
    generation: u64,
}

/// What leaves one mesh.
#[derive(Debug)]
struct MeshDepartures {
    /// Who signs for its egresses, and whom; or why nobody does.
    identity: Result<(Arc<Authority>, Identity), String>,
    /// Who is believed there.
    roots: Arc<str>,
    /// The same by trust domain, where there are several.
    domains: Option<Arc<BTreeMap<String, TrustBundle>>>,
    services: BTreeMap<Destination, Departure>,
}

/// How a service outside the mesh is let out to.
#[derive(Debug, PartialEq)]
struct Departure {
    chains: Vec<Chain>,
    cluster: ClusterDraft,
    /// Whether it is believed what the machine of the egress believes.
    by_machine: bool,
    problems: BTreeSet<Problem>,
}

impl MeshDepartures {
    fn believes(&self, shown: &WorkloadCertificate, now: DateTime<Utc>) -> bool {
        let Some(root) = shown.root().filter(|_| now < shown.expires) else { return false };
        TrustBundle::parse(&self.roots).is_ok_and(|roots| roots.certificates.contains(root))
    }
}

impl Default for Departures {
    fn default() -> Self {
        Self { passages: Exposure::of(Side::Egress), meshes: BTreeMap::new(), generation: 0 }
    }
}

impl Departures {
    /// Follows a mesh, of which this changed; everything when that is not known. Says whether anything is let out
    /// differently, be it only to other endpoints.
    pub(crate) fn follow(&mut self, mesh: &MeshContext, change: Option<&MeshChange>) -> bool {
        let mut differs = self.passages.follow(mesh, change);
        // Who may call may be told by zone, and who is a member of the mesh itself by who else is believed.
        let alike =
            |change: &&MeshChange| !change.everything && !change.zones && !change.trust && !reroutes(change);
        let touched = match change.filter(alike) {
            Some(change) => self.touched(mesh, change),
            None => {
                differs |= self.identify(mesh);
                let known = self.meshes.get(&mesh.mesh).into_iter().flat_map(|mesh| mesh.services.keys());
                let now = mesh.external.iter().map(|service| service.destination.clone());
                known.cloned().chain(now).collect()
            }
        };
        let mut moved = false;
        for destination in touched {
            moved |= self.let_out(mesh, &destination);
        }
        self.generation += u64::from(moved);
        differs | moved
    }

    /// The services outside the mesh that `change` is about.
    fn touched(&self, mesh: &MeshContext, change: &MeshChange) -> BTreeSet<Destination> {
        let known = self.meshes.get(&mesh.mesh).map(|mesh| &mesh.services);
        let meant = |destination: &&Destination| {
            known.is_some_and(|known| known.contains_key(*destination))
                || !outside(mesh, destination).is_empty()
        };
        let mut touched: BTreeSet<Destination> = change.services.keys().filter(meant).cloned().collect();
        let policies = change.policies.iter().filter(|(kind, _)| policy::is_of_egresses(kind));
        let policies: Vec<_> =
            policies.flat_map(|(_, change)| [&change.before, &change.after]).flatten().collect();
        for service in mesh.external.iter().filter(|_| !policies.is_empty()) {
            let subject = policy::external_subject(service);
            if policies.iter().any(|policy| policy.may_select(&subject)) {
                touched.insert(service.destination.clone());
            }
        }
        if change.legacy.iter().any(|(kind, _)| policy::is_of_egresses(kind)) {
            touched.extend(mesh.external.iter().map(|service| service.destination.clone()));
        }
        touched
    }

    /// A mesh is gone; says whether anything of it was let out.
    pub(crate) fn forget(&mut self, mesh: &str) -> bool {
        let gone = self.meshes.remove(mesh).is_some_and(|mesh| !mesh.services.is_empty());
        self.generation += u64::from(gone);
        self.passages.forget(mesh) || gone
    }

    /// Notes who signs for egresses; says whether that is somebody else.
    fn identify(&mut self, mesh: &MeshContext) -> bool {
        let identity = mesh.lacks_egress_certificate(None, DateTime::UNIX_EPOCH);
        let identity = match identity {
            Ok(Some(identity)) => Ok(identity),
            Ok(None) => Err("the mesh has no mutual TLS".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        let roots: Arc<str> = mesh.mtls.as_ref().map(|mtls| Arc::clone(&mtls.roots)).unwrap_or_default();
        let domains = mesh.has_trust_domains().then(|| Arc::clone(&mesh.trust_domains));
        let known = self.meshes.get(&mesh.mesh);
        let known = known.filter(|known| known.roots == roots && known.domains == domains);
        let same = match (known.map(|mesh| &mesh.identity), &identity) {
            (Some(Ok((a, x))), Ok((b, y))) => Arc::ptr_eq(a, b) && x == y,
            (Some(Err(a)), Err(b)) => a == b,
            _ => false,
        };
        if !same {
            let services = self.meshes.remove(&mesh.mesh).map(|mesh| mesh.services).unwrap_or_default();
            self.meshes.insert(Arc::clone(&mesh.mesh), MeshDepartures { identity, roots, domains, services });
            self.generation += 1;
        }
        !same
    }

    /// Lets out who calls `destination`; says whether that makes a difference.
    fn let_out(&mut self, mesh: &MeshContext, destination: &Destination) -> bool {
        let departure = self.departure(mesh, destination);
        let Some(of_mesh) = self.meshes.get_mut(&mesh.mesh) else { return false };
        if of_mesh.services.get(destination) == departure.as_ref() {
            return false;
        }
        match departure {
            Some(departure) => of_mesh.services.insert(destination.clone(), departure),
            None => of_mesh.services.remove(destination),
        };
        true
    }

    fn departure(&self, mesh: &MeshContext, destination: &Destination) -> Option<Departure> {
        let services = outside(mesh, destination);
        let usable: Vec<_> =
            services.iter().filter(|service| !service.endpoints.is_empty()).cloned().collect();
        let first = usable.first().filter(|_| mesh.mtls.is_some())?;
        let server_names = match destination {
            Destination::External(_) => {
                vec![sni::of_resource(first.resource.display_name(), first.port, &mesh.mesh, "mes")]
            }
            _ => self.passages.server_names(mesh, &first.service),
        };
        if server_names.is_empty() {
            return None;
        }
        let name = egress::external_cluster(&mesh.mesh, first);
        let by_machine =
            usable.iter().flat_map(|service| &service.tls).any(|tls| tls.trust == UpstreamTrust::Machine);
        let (mut cluster, mut problems) = (egress::to_outside(&mesh.mesh, &name, &usable), BTreeSet::new());
        let chains = server_names.iter().map(|name| egress::external(&mesh.mesh, first, name));
        let mut chains: Vec<Chain> = chains.collect();
        if mesh.has_trust_domains() {
            let domains = mesh.trust_domains.keys().map(String::as_str);
            let accepted = egress::members_of(&mesh.mesh, domains);
            chains.iter_mut().for_each(|chain| chain.tls = Some(accepted.clone()));
        }
        policy::apply_egress(mesh, first, &mut chains, &mut cluster, &mut problems);
        Some(Departure { chains, cluster, by_machine, problems })
    }

    /// Whether a certificate is to be shown in this mesh, and somebody signs it.
    pub(crate) fn needs(&self, mesh: &str) -> bool {
        self.meshes.get(mesh).is_some_and(|mesh| mesh.identity.is_ok() && !mesh.services.is_empty())
    }

    /// The meshes in which somebody else is to sign than who signed what is `shown` there, while that is believed: all who
    /// meet it have to hear of the other one first.
    pub(crate) fn succeeded(
        &self,
        shown: &BTreeMap<Arc<str>, Arc<WorkloadCertificate>>,
        now: DateTime<Utc>,
    ) -> BTreeSet<Arc<str>> {
        let succeeds = |(name, shown): &(&Arc<str>, &Arc<WorkloadCertificate>)| {
            self.meshes.get(*name).is_some_and(|mesh| {
                let signer = mesh.identity.as_ref();
                signer.is_ok_and(|(authority, identity)| !authority.is_akin(shown, identity))
                    && mesh.believes(shown, now)
            })
        };
        shown.iter().filter(succeeds).map(|(name, _)| Arc::clone(name)).collect()
    }

    /// What has to be signed for who shows `shown` in the meshes, one after the other; nothing where it `waits`.
    pub(crate) fn unsigned(
        &self,
        shown: &BTreeMap<Arc<str>, Arc<WorkloadCertificate>>,
        waits: impl Fn(&str) -> bool,
        now: DateTime<Utc>,
    ) -> Option<(Arc<Authority>, Identity)> {
        let needed = self.meshes.iter().filter(|(_, mesh)| !mesh.services.is_empty());
        let mut lacking = needed.filter_map(|(name, mesh)| {
            let (authority, identity) = mesh.identity.as_ref().ok().filter(|_| !waits(name))?;
            let good = shown.get(name).is_some_and(|shown| !authority.must_replace(shown, identity, now));
            (!good).then(|| (Arc::clone(authority), identity.clone()))
        });
        lacking.next()
    }

    /// What is the own of `proxy`: its listener, the services outside all meshes, and what it shows in each.
    pub(crate) fn own(&self, proxy: &ZoneEgressProxy, refused: &BTreeMap<Arc<str>, String>) -> EdgeOwn {
        let mut draft = Draft::default();
        let mut problems: BTreeSet<Problem> = proxy.egress.problems.iter().cloned().collect();
        problems.extend(self.passages.refused().cloned());
        let passages = self.passages.doors(&mut problems);
        let passages = passages.into_iter().map(|(name, cluster)| egress::passage(name, cluster)).collect();
        let mut outside = Vec::new();
        for (name, mesh) in self.meshes.iter().filter(|(_, mesh)| !mesh.services.is_empty()) {
            let shown = mesh.identity.as_ref().map_err(Clone::clone).and_then(|_| {
                let missing = || refused.get(name).cloned().unwrap_or_else(|| "not signed yet".to_owned());
                proxy.certificates.get(name).ok_or_else(missing)
            });
            match shown {
                Ok(shown) => {
                    secrets::of_mesh(name, shown, &mesh.roots, &mut draft);
                    if let Some(domains) = &mesh.domains {
                        secrets::of_domains(name, domains, &mut draft);
                    }
                    self.leave(mesh, proxy, &mut outside, &mut draft, &mut problems);
                }
                Err(reason) => {
                    let subject = Subject::Part(format!("services outside mesh {name}"));
                    let reason = format!("the egress has no certificate to show there: {reason}");
                    problems.insert(Problem { subject, reason });
                }
            }
        }
        // What global says is outside comes before what other zones say.
        let chains = yielding(passages, outside, &mut problems);
        if let Some(listener) = egress::listener(proxy, chains) {
            draft.listeners.insert(listener.message.name.clone(), listener);
        }
        if !admin::generate(&proxy.metadata, proxy.admin.as_ref(), |_, _| false, &mut draft) {
            problems.insert(admin_port_taken(Subject::of(&proxy.egress.resource)));
        }
        EdgeOwn {
            generation: self.generation(),
            resources: admission::admitted_whole(draft.finish(), &mut problems),
            listens: proxy.egress.listen.is_some(),
            problems,
        }
    }

    /// Adds what leaves one mesh.
    fn leave(
        &self,
        mesh: &MeshDepartures,
        proxy: &ZoneEgressProxy,
        chains: &mut Vec<Chain>,
        draft: &mut Draft,
        problems: &mut BTreeSet<Problem>,
    ) {
        for departure in mesh.services.values() {
            problems.extend(departure.problems.iter().cloned());
            let mut cluster = departure.cluster.clone();
            if proxy.egress.listen.is_some_and(|listen| listen.is_ipv6()) {
                egress::look_up_ipv6(&mut cluster);
            }
            let known = proxy.metadata.system_ca.as_deref();
            match (departure.by_machine, known) {
                (true, None) => {
                    let reason = "nobody gets there: it has no CA of its own, and the egress does not say which \
                                  certificates its machine believes";
                    let subject = Subject::Part(cluster.message.name.clone());
                    problems.insert(Problem { subject, reason: reason.to_owned() });
                    continue;
                }
                (true, Some(path)) => tls::believe_machine(&mut cluster.tls, path),
                (false, _) => {}
            }
            chains.extend(departure.chains.iter().cloned());
            draft.clusters.insert(cluster.message.name.clone(), cluster);
        }
    }

    fn generation(&self) -> u64 {
        // Both only grow, so no two states have one sum.
        self.generation + self.passages.generation()
    }

    /// Whether `own` names what is let out now.
    pub(crate) fn is_current(&self, own: &EdgeOwn) -> bool {
        own.generation == self.generation()
    }

    /// What the proxy with this of its own gets in place of what it had `before`, and what it keeps of that.
    pub(crate) fn configure(
        &self,
        own: &EdgeOwn,
        before: Option<&ResourceSet>,
    ) -> (ResourceSet, Vec<Arc<Encoded>>) {
        let shared = if own.listens { self.passages.shared().clone() } else { ResourceCollection::default() };
        own.beside(&SharedResources::new(shared, None), before)
    }
}

/// What is known outside the mesh as `destination`, and reached from this zone.
fn outside(mesh: &MeshContext, destination: &Destination) -> Vec<Arc<ExternalService>> {
    // Whoever serves it in the mesh comes first.
    let served = mesh.topology.service(destination);
    let here = served.exit.is_none() && !served.endpoints.is_empty();
    if here || !served.beyond.is_empty() || served.endpoints.iter().any(|endpoint| endpoint.remote) {
        return Vec::new();
    }
    let known: Vec<&Arc<ExternalService>> = match destination {
        Destination::Service(name) => mesh.external.tagged(name).collect(),
        Destination::External(name) => mesh.external.resource(name).into_iter().collect(),
        Destination::Subset(_)
        | Destination::Port(..)
        | Destination::MultiZone(..)
        | Destination::Through(_)
        | Destination::Here(_)
        | Destination::Abroad(_) => Vec::new(),
    };
    known.into_iter().filter(|service| service.is_reached_from(&mesh.zone)).cloned().collect()
}
