//! What calls tell about who makes them: tags, and names that stand in access logs and traces.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use common::{
    model::{kinds::workload, kri::Kri, labels},
    policy::{mesh_access_log, rules::Selection},
};

use super::{ALL, Selections};
pub(crate) use crate::generator::Particular;
use crate::{
    generator::{Giver, Particulars, ProxyMetadata, XdsClient},
    mesh::{Dataplane, MeshContext},
};

/// The service of a proxy that serves nothing, and of clients nobody knows.
pub(super) const UNKNOWN: &str = "unknown";

/// What of a proxy itself decides how it calls others. Nothing is there that is not asked for, so that proxies
/// share what they call wherever nobody has to tell them apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    /// Whether its machine has IPv6.
    pub(crate) ipv6: bool,
    /// Whether the addresses it calls are only recognised, and not its own.
    pub(crate) recognised: bool,
    /// Who reads what is made for it.
    pub(crate) client: XdsClient,
    /// By whom it was given the identity it shows; `None` for one that it has from the mesh.
    pub(crate) identity: Option<Giver>,
    /// The tags it tells whom it calls; `None` when nobody wants to know.
    pub(crate) tags: Option<String>,
    /// What stands in logs and traces.
    particulars: BTreeMap<Particular, String>,
}

impl Caller {
    /// What policies ask about `dataplane`, which was given its `identity` by this, `more` by those of the older kinds.
    pub(crate) fn of(
        mesh: &MeshContext,
        dataplane: &Dataplane,
        metadata: &ProxyMetadata,
        identity: Option<Giver>,
        more: impl IntoIterator<Item = Particular>,
    ) -> Self {
        let mut asked: BTreeSet<Particular> = ALL
            .iter()
            .filter(|effect| effect.may_tell())
            .flat_map(|effect| {
                let selection = Selections::of_kind(mesh, dataplane, effect.kind());
                let tells = |selection: Selection| -> Vec<Particular> {
                    selection.policies.iter().flat_map(|policy| effect.tells(policy)).collect()
                };
                selection.map(tells).unwrap_or_default()
            })
            .collect();
        if dataplane.gateway.is_some() && logs_what_comes_in(mesh, dataplane) {
            // The listeners of a gateway are shared, and what comes in is told as by the proxy.
            use Particular::{Address, LogPipe, Service, Workload};
            asked.extend([Service, Address, Workload, LogPipe]);
        }
        asked.extend(more);
        let tags = super::tells_tags(mesh).then(|| told(&dataplane.all_tags()));
        let mut caller = Self::default();
        if !asked.is_empty() {
            caller = Self::everything(mesh, dataplane, metadata);
            if asked.contains(&Particular::Address) {
                asked.insert(Particular::Host);
            }
            caller.particulars.retain(|particular, _| asked.contains(particular));
        }
        let recognised = metadata.recognises_calls(dataplane);
        let tags = tags.filter(|tags| !tags.is_empty());
        Self { ipv6: metadata.ipv6, recognised, client: metadata.client(), identity, tags, ..caller }
    }

    /// All there is to tell about `dataplane` in logs and traces.
    pub(super) fn everything(mesh: &MeshContext, dataplane: &Dataplane, metadata: &ProxyMetadata) -> Self {
        let host = |address: IpAddr| match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        let told = [
            (Particular::Service, Some(service_of(dataplane))),
            (Particular::Address, dataplane.address.map(|address| address.to_string())),
            (Particular::Host, dataplane.address.map(host)),
            (Particular::Workload, workload(mesh, dataplane)),
            (Particular::LogPipe, log_pipe(mesh, dataplane, metadata)),
        ];
        let particulars = told.into_iter().filter_map(|(particular, value)| Some((particular, value?)));
        Self { particulars: particulars.collect(), ..Self::default() }
    }

    /// The same with markers in place of what distinguishes this proxy from others, and what they stand for. Those
    /// who differ in nothing else share what they call.
    pub(crate) fn abstracted(self) -> (Self, Particulars) {
        let mut particulars = Particulars::default();
        let mut abstracted = |(particular, text)| (particular, particulars.abstracted(particular, text));
        let texts = self.particulars.into_iter().map(&mut abstracted).collect();
        let tags = self.tags.map(|tags| abstracted((Particular::Tags, tags)).1);
        (Self { tags, particulars: texts, ..self }, particulars)
    }

    /// One particular; empty when there is none.
    pub(super) fn get(&self, particular: Particular) -> &str {
        self.particulars.get(&particular).map_or("", String::as_str)
    }
}

/// The service by which `dataplane` is known. One that is nothing but an edge of its zone has none, and is known by its
/// workload or its own name.
pub(super) fn service_of(dataplane: &Dataplane) -> String {
    let services = dataplane.all_tags().remove(labels::TAG_SERVICE);
    let is_edge = !dataplane.listeners.is_empty() && dataplane.inbounds.is_empty();
    let edge = || {
        let workload = dataplane.resource.label(labels::WORKLOAD).filter(|name| !name.is_empty());
        workload.unwrap_or(dataplane.name()).to_owned()
    };
    let named = services.into_iter().flatten().next();
    named.or_else(|| is_edge.then(edge)).unwrap_or_else(|| UNKNOWN.to_owned())
}

/// Whether a policy asks for logs of what comes in.
fn logs_what_comes_in(mesh: &MeshContext, dataplane: &Dataplane) -> bool {
    let logs = Selections::of_kind(mesh, dataplane, &mesh_access_log::KIND);
    let policies = logs.iter().flat_map(|selection| &selection.policies);
    policies.into_iter().any(|policy| !policy.from.is_empty() || !policy.rules.is_empty())
}

/// Tags as sidecars tell them each other: each between ampersands, so that a pattern finds whole ones.
fn told(tags: &BTreeMap<String, BTreeSet<String>>) -> String {
    let one = |(key, values): (&String, &BTreeSet<String>)| {
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        format!("&{key}={}&", values.join(","))
    };
    tags.iter().map(one).collect()
}

fn workload(mesh: &MeshContext, dataplane: &Dataplane) -> Option<String> {
    let name = dataplane.resource.label(labels::WORKLOAD).filter(|name| !name.is_empty())?;
    let namespace = dataplane.resource.label(labels::NAMESPACE).unwrap_or_default();
    let kri = Kri {
        short: workload::KIND.short,
        mesh: mesh.mesh.to_string(),
        zone: mesh.zone.to_string(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        section: String::new(),
    };
    Some(kri.to_string())
}

/// As kuma-dp calls it, within what a path to a socket may have.
fn log_pipe(mesh: &MeshContext, dataplane: &Dataplane, metadata: &ProxyMetadata) -> Option<String> {
    if metadata.work_dir.is_empty() {
        return None;
    }
    Some(super::telemetry::socket(metadata, &format!("kuma-al-{}-{}", dataplane.name(), mesh.mesh)))
}
