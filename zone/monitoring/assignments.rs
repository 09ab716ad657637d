//! Which assignments there are, kept up to date change by change.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use common::{
    model::{
        Resource,
        kinds::{dataplane, mesh, mesh_gateway},
    },
    policy::{
        mesh_metric::{self, MetricConf},
        rules::{Destinations, PolicySet, SelectableProxy, Selection},
    },
    proto::kuma::mesh::v1alpha1::{Dataplane, Mesh},
    store::index::Index,
    xds::Version,
};
use imbl::OrdMap;
use serde::Deserialize;

use super::{
    shared::SharedText,
    target::{ClientId, MonitoringAssignment, by_mesh, by_policy},
};
use crate::mesh::OfferedMetrics;

/// Mesh and name of a dataplane.
type DataplaneName = (Arc<str>, Arc<str>);

/// What is told, by who asks. Cloning shares.
pub(super) type ToldAssignments = Arc<BTreeMap<ClientId, ClientAssignments>>;

/// The assignments of one client. Cloning shares.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientAssignments {
    all: OrdMap<DataplaneName, Arc<MonitoringAssignment>>,
    /// A digest of them all.
    version: Option<Version>,
    /// The answers with all of them.
    pub(super) answers: Arc<ClientAnswers>,
}

/// All assignments of one client at one version, as both routes tell them.
#[derive(Debug, Default)]
pub(super) struct ClientAnswers {
    pub(super) assignments: SharedText,
    pub(super) targets: SharedText,
}

impl PartialEq for ClientAssignments {
    fn eq(&self, other: &Self) -> bool {
        // The answers follow from them.
        self.all == other.all && self.version == other.version
    }
}

impl ClientAssignments {
    /// All of them, by mesh and dataplane.
    pub(super) fn iter(&self) -> impl Iterator<Item = &MonitoringAssignment> {
        self.all.values().map(|assignment| &**assignment)
    }

    /// Those in one mesh.
    pub(super) fn iter_in(&self, mesh: &str) -> impl Iterator<Item = &MonitoringAssignment> {
        let first: DataplaneName = (mesh.into(), "".into());
        let named = self.all.range(first..).take_while(move |((of, _), _)| &**of == mesh);
        named.map(|(_, assignment)| &**assignment)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// What tells these from others.
    pub(super) fn version(&self) -> String {
        self.version.unwrap_or_else(|| Version::of(&[])).to_string()
    }

    /// Puts one in place of what there was; says whether it differs.
    fn put(&mut self, name: &DataplaneName, assignment: Option<MonitoringAssignment>) -> bool {
        let known = self.all.get(name);
        if known.map(|known| &**known) == assignment.as_ref() {
            return false;
        }
        let (before, after) = (known.map(|known| digest(known)), assignment.as_ref().map(digest));
        // Whoever is taken out twice is in again, so each counts once.
        for digest in [before, after].into_iter().flatten() {
            self.version = Some(self.version.unwrap_or_else(|| Version::of(&[])).with(digest));
        }
        self.answers = Arc::default();
        match assignment {
            Some(assignment) => self.all.insert(name.clone(), Arc::new(assignment)),
            None => self.all.remove(name),
        };
        if self.all.is_empty() {
            self.version = None;
        }
        true
    }
}

fn digest(assignment: &MonitoringAssignment) -> Version {
    let json = serde_json::to_vec(assignment).expect("it has string keys and no failing serializers");
    Version::of(&json)
}

/// What decides about the dataplanes of one mesh.
struct MeshMetrics {
    policies: PolicySet,
    /// Clients that policies name, whether or not a dataplane answers them.
    named: BTreeSet<Arc<str>>,
    gateways: Vec<Arc<Resource>>,
    mesh: Mesh,
}

impl MeshMetrics {
    /// `None` for a mesh that does not exist, or in which nobody asks.
    fn of(index: &Index, name: &str) -> Option<Self> {
        let mesh = index.find(&mesh::KIND, "", name)?;
        let policies = PolicySet::parse(&mesh_metric::KIND, index.list_in_mesh(&mesh_metric::KIND, name));
        let mesh = mesh.spec::<Mesh>().unwrap_or_default();
        if policies.policies.is_empty() && mesh.metrics.is_none() {
            return None;
        }
        let gateways = index.list_in_mesh(&mesh_gateway::KIND, name).cloned().collect();
        let named =
            index.list_in_mesh(&mesh_metric::KIND, name).flat_map(|policy| clients_of(policy)).collect();
        Some(Self { policies, named, gateways, mesh })
    }

    /// How one dataplane answers, by client. One that cannot be read answers nobody.
    fn answers(&self, resource: &Resource) -> Vec<(ClientId, MonitoringAssignment)> {
        let Ok(spec) = resource.spec::<Dataplane>() else { return Vec::new() };
        match self.selected(resource, &spec) {
            Some(conf) => by_policy(resource, &spec, &conf),
            None => {
                let own = spec.metrics.as_ref();
                let offered = OfferedMetrics::of(&self.mesh, own);
                offered.and_then(|offered| by_mesh(resource, &spec, &offered)).into_iter().collect()
            }
        }
    }

    /// What policies say, where one selects the dataplane: then its mesh has no say.
    fn selected(&self, resource: &Resource, spec: &Dataplane) -> Option<MetricConf> {
        if self.policies.policies.is_empty() {
            return None;
        }
        let proxy = SelectableProxy::new(resource, spec)?.with_gateway(&self.gateways);
        // These policies point at proxies and at nothing else.
        let selection = Selection::of(&self.policies, &proxy, &Destinations::default(), false);
        let (conf, _) = selection.single()?;
        Some(serde_json::from_value(conf).unwrap_or_default())
    }
}

/// The clients that a policy names.
fn clients_of(policy: &Resource) -> Vec<Arc<str>> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct MetricSpec {
        default: MetricConf,
    }
    let spec: MetricSpec = serde_json::from_slice(&policy.spec).unwrap_or_default();
    let backends = spec.default.backends.into_iter().flatten().filter_map(|backend| backend.prometheus);
    let clients = backends.filter_map(|prometheus| prometheus.client_id).filter(|client| !client.is_empty());
    clients.map(Arc::from).collect()
}

/// All assignments, and what they follow from.
pub(super) struct Assignments {
    index: Arc<Index>,
    meshes: BTreeMap<Arc<str>, MeshMetrics>,
    clients: BTreeMap<ClientId, ClientAssignments>,
}

impl Assignments {
    /// Those that follow from `index`.
    pub(super) fn new(index: &Arc<Index>) -> Self {
        let mut new = Self { index: Arc::clone(index), meshes: BTreeMap::new(), clients: BTreeMap::new() };
        let meshes: Vec<Arc<str>> = index.list(&mesh::KIND).map(|mesh| Arc::from(mesh.name())).collect();
        for mesh in &meshes {
            new.renew(mesh);
        }
        new.keep_named();
        new
    }

    /// What is told now.
    pub(super) fn told(&self) -> ToldAssignments {
        Arc::new(self.clients.clone())
    }

    /// Goes on to a newer index; says whether anything is told differently.
    pub(super) fn follow(&mut self, newer: &Arc<Index>) -> bool {
        let changed = newer.changed_since(&self.index);
        self.index = Arc::clone(newer);
        let (mut meshes, mut dataplanes) = (BTreeSet::<Arc<str>>::new(), BTreeSet::<DataplaneName>::new());
        for key in &changed {
            if key.kind == &mesh::KIND {
                meshes.insert(Arc::from(&*key.name));
            } else if key.kind == &mesh_metric::KIND || key.kind == &mesh_gateway::KIND {
                meshes.insert(Arc::from(&*key.mesh));
            } else if key.kind == &dataplane::KIND {
                dataplanes.insert((Arc::from(&*key.mesh), Arc::from(&*key.name)));
            }
        }
        let mut differs = false;
        for mesh in &meshes {
            differs |= self.renew(mesh);
        }
        for name in dataplanes.iter().filter(|(mesh, _)| !meshes.contains(mesh)) {
            differs |= self.renew_one(name);
        }
        self.keep_named() | differs
    }

    /// Keeps a place for each client that a policy names: whom no dataplane answers any more is told so, and not what is
    /// for everybody. Says whether anybody is told differently by that.
    fn keep_named(&mut self) -> bool {
        let named: BTreeSet<Arc<str>> =
            self.meshes.values().flat_map(|mesh| mesh.named.iter().cloned()).collect();
        let before = self.clients.len();
        let is_named = |id: &ClientId| id.as_ref().is_some_and(|id| named.contains(id));
        self.clients.retain(|id, client| !client.all.is_empty() || is_named(id));
        let mut differs = self.clients.len() != before;
        for client in named {
            self.clients.entry(Some(client)).or_insert_with(|| {
                differs = true;
                ClientAssignments::default()
            });
        }
        differs
    }

    /// Looks at a mesh anew.
    fn renew(&mut self, mesh: &Arc<str>) -> bool {
        match MeshMetrics::of(&self.index, mesh) {
            Some(metrics) => drop(self.meshes.insert(Arc::clone(mesh), metrics)),
            None => drop(self.meshes.remove(mesh)),
        }
        let known = self.clients.values().flat_map(|client| client.all.keys());
        let mut names: HashSet<DataplaneName> = known.filter(|(of, _)| of == mesh).cloned().collect();
        if self.meshes.contains_key(mesh) {
            let all = self.index.list_in_mesh(&dataplane::KIND, mesh);
            names.extend(all.map(|resource| (Arc::clone(mesh), Arc::from(resource.name()))));
        }
        names.iter().fold(false, |differs, name| self.renew_one(name) | differs)
    }

    /// Looks at one dataplane anew.
    fn renew_one(&mut self, name: &DataplaneName) -> bool {
        let (mesh, dataplane) = (&*name.0, &*name.1);
        let resource = self.index.find(&dataplane::KIND, mesh, dataplane);
        let answers =
            self.meshes.get(mesh).zip(resource).map(|(metrics, resource)| metrics.answers(resource));
        let mut answers: BTreeMap<ClientId, MonitoringAssignment> = answers.into_iter().flatten().collect();
        for client in answers.keys() {
            self.clients.entry(client.clone()).or_default();
        }
        self.clients
            .iter_mut()
            .fold(false, |differs, (id, client)| client.put(name, answers.remove(id)) | differs)
    }
}

#[cfg(test)]
mod tests;
