//! One round of the push loop.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use common::{model::kinds::mesh, store::index::Index};
use tokio::time::Instant;

use super::{Affected, Held, Push, SIGN_AGAIN, SLICE, SWEEP_EVERY, affected::Extent};
use crate::{
    ads::{
        config::Config,
        insight::Certificate,
        metrics,
        node::{Proxy, ProxyId, ProxyKind},
    },
    generator::{self, AdminIdentity, Generated, ProxyMetadata, Sidecar, ZoneIngressProxy},
    mesh::{MeshContext, MeshInput, WorkloadCertificate, ZoneIngress, identity, topology::Difference},
};

/// What is new about a mesh.
enum News {
    /// Who serves these services, and nothing else.
    Services(BTreeMap<String, Difference>),
    /// Anything.
    Anything,
}

/// What is to be done for a proxy.
enum Work<'a> {
    Nothing,
    /// Give it the endpoints of these services.
    Endpoints(&'a BTreeMap<String, Difference>),
    Everything,
}

/// What came out for one proxy.
struct Made {
    generated: Generated,
    certificate: Option<Arc<WorkloadCertificate>>,
    admin: Option<Arc<AdminIdentity>>,
    is_sidecar: bool,
}

/// Why nothing did.
struct Failed {
    reason: String,
    /// Trying again may help though nothing changes.
    retry: bool,
}

impl Failed {
    /// Nothing can be done before something changes.
    fn until_changed(reason: impl ToString) -> Self {
        Self { reason: reason.to_string(), retry: false }
    }
}

impl Push {
    /// Brings everybody up to the newest index.
    pub(super) async fn round(&mut self, mut affected: Affected) {
        let arrivals = self.proxies.take_arrivals();
        let index = self.reader.latest();
        affected.add(&self.index, &index, &self.zone);
        let now = self.env.now();
        let connected = self.proxies.connected();
        let present: BTreeSet<&ProxyId> = connected.iter().map(|p| &p.id).collect();
        self.held.retain(|id, _| present.contains(id));
        let news = self.build_meshes(&index, &connected, &affected).await;
        let nothing = affected.is_nothing();
        let mut made = 0;
        for (done, proxy) in connected.iter().enumerate() {
            let arrived = arrivals.contains(&proxy.id);
            let work = match proxy.id.kind {
                _ if arrived || affected.proxies.contains(&proxy.id.key()) => Work::Everything,
                ProxyKind::Dataplane => self.work(&proxy.id, &news, now),
                ProxyKind::Ingress | ProxyKind::Egress if nothing => Work::Nothing,
                ProxyKind::Ingress | ProxyKind::Egress => Work::Everything,
            };
            match work {
                Work::Nothing => {}
                Work::Endpoints(differences) => self.reassign(&proxy.id, differences, &index),
                Work::Everything => {
                    self.configure(proxy, &index, now, arrived);
                    made += 1;
                }
            }
            if done % SLICE == SLICE - 1 {
                tokio::task::yield_now().await;
            }
        }
        // Forgetting costs the size of everything, so it is done now and then.
        self.configured += made;
        if self.configured > self.held.len() * SWEEP_EVERY {
            self.configured = 0;
            self.interner.sweep();
        }
        self.index = index;
    }

    /// What a sidecar can tell of the news, and whether its certificate is due.
    fn work<'a>(&self, id: &ProxyId, news: &'a BTreeMap<Arc<str>, News>, now: DateTime<Utc>) -> Work<'a> {
        let Some(held) = self.held.get(id) else { return Work::Everything };
        if held.again.is_some_and(|at| at <= now) {
            return Work::Everything;
        }
        match (news.get(&id.mesh), &held.uses) {
            (None, _) => Work::Nothing,
            (Some(News::Services(differences)), Some(uses)) => match uses.effect(differences) {
                None => Work::Nothing,
                Some(Difference::Endpoints) => Work::Endpoints(differences),
                Some(Difference::Character) => Work::Everything,
            },
            (Some(_), _) => Work::Everything,
        }
    }

    /// Builds the contexts somebody needs and that are missing or touched, and drops the others. Says how
    /// those built differ from what they were.
    async fn build_meshes(
        &mut self,
        index: &Index,
        connected: &[Arc<Proxy>],
        affected: &Affected,
    ) -> BTreeMap<Arc<str>, News> {
        let mut needed: BTreeSet<Arc<str>> = BTreeSet::new();
        for proxy in connected {
            match proxy.id.kind {
                ProxyKind::Dataplane => {
                    needed.insert(Arc::clone(&proxy.id.mesh));
                }
                ProxyKind::Ingress | ProxyKind::Egress => {
                    needed.extend(index.list(&mesh::KIND).map(|m| Arc::clone(&m.key.name)));
                }
            }
        }
        self.meshes.retain(|name, _| needed.contains(name));
        self.broken.retain(|name, _| needed.contains(name));
        let mut news = BTreeMap::new();
        for name in needed {
            let known = self.meshes.contains_key(&name) || self.broken.contains_key(&name);
            let extent = affected.extent(&name).or((!known).then_some(Extent::Whole));
            if let Some(extent) = extent {
                let before = self.meshes.get(&name).cloned();
                self.build_mesh(&name, index);
                let what = match (extent, before, self.meshes.get(&name)) {
                    (Extent::Topology, Some(before), Some(after)) => {
                        News::Services(before.topology.differences(&after.topology))
                    }
                    _ => News::Anything,
                };
                news.insert(name, what);
                tokio::task::yield_now().await;
            }
        }
        news
    }

    fn build_mesh(&mut self, name: &Arc<str>, index: &Index) {
        let hosts = self.hosts.borrow().clone();
        let input = MeshInput::from_index(&self.zone, name, index, hosts);
        let previous = self.meshes.get(name);
        match MeshContext::build(&input, previous.map(Arc::as_ref)) {
            Ok(context) => {
                for problem in &context.problems {
                    if previous.is_none_or(|p| !p.problems.contains(problem)) {
                        tracing::warn!(mesh = &**name, %problem, "left out of the mesh");
                    }
                }
                self.broken.remove(name);
                self.meshes.insert(Arc::clone(name), Arc::new(context));
            }
            Err(error) => {
                self.meshes.remove(name);
                self.broken.insert(Arc::clone(name), error.to_string());
            }
        }
    }

    /// Generates for one proxy and publishes what differs; what it has all the same when it `arrived`,
    /// for it may have been away.
    fn configure(&mut self, proxy: &Arc<Proxy>, index: &Index, now: DateTime<Utc>, arrived: bool) {
        let start = Instant::now();
        let mut held = self.held.remove(&proxy.id).unwrap_or_default();
        let (result, problems, config) = match self.generate(proxy, &held, index, now) {
            Ok(made) => {
                let problems: Vec<String> = made.generated.problems.iter().map(ToString::to_string).collect();
                held.again = made.certificate.as_deref().map(identity::renewal_time);
                held.certificate = made.certificate;
                held.admin = made.admin;
                held.uses = made.is_sidecar.then_some(made.generated.assignments);
                let set = made.generated.set;
                let differs = held.config.as_ref().is_none_or(|known| *known.resources() != set);
                let config = differs.then(|| Arc::new(Config::new(index.revision, set)));
                (if differs { "changed" } else { "skip" }, problems, config)
            }
            Err(failed) => {
                // Whatever changes may help.
                held.uses = None;
                held.again = failed.retry.then(|| now + SIGN_AGAIN);
                ("error", vec![failed.reason], None)
            }
        };
        metrics::generated(proxy.id.kind, result, start.elapsed());
        for problem in problems.iter().filter(|p| !held.problems.contains(p)) {
            tracing::warn!(proxy = %proxy.id, problem, "left out of the configuration");
        }
        held.problems.clone_from(&problems);
        let news = arrived || config.is_some();
        held.config = config.or(held.config);
        self.proxies.publish(&proxy.id, held.config.clone().filter(|_| news), problems);
        self.held.insert(proxy.id.clone(), held);
    }

    /// Replaces the endpoints of services of which nothing else changed.
    fn reassign(&mut self, id: &ProxyId, differences: &BTreeMap<String, Difference>, index: &Index) {
        let start = Instant::now();
        let (Some(held), Some(context)) = (self.held.get_mut(id), self.meshes.get(&id.mesh)) else { return };
        let (Some(known), Some(uses)) = (&held.config, &held.uses) else { return };
        let renewed = uses.renewed(known.resources(), differences, &context.topology, &self.interner);
        metrics::generated(id.kind, if renewed.is_some() { "changed" } else { "skip" }, start.elapsed());
        if let Some(set) = renewed {
            let config = Arc::new(Config::new(index.revision, set));
            held.config = Some(Arc::clone(&config));
            self.proxies.publish(id, Some(config), held.problems.clone());
        }
    }

    fn generate(
        &self,
        proxy: &Proxy,
        held: &Held,
        index: &Index,
        now: DateTime<Utc>,
    ) -> Result<Made, Failed> {
        let metadata = ProxyMetadata::of_node(&proxy.metadata);
        match proxy.id.kind {
            ProxyKind::Dataplane => self.sidecar(&proxy.id, metadata, held, now),
            ProxyKind::Ingress => self.zone_ingress(&proxy.id, metadata, held, index, now),
            ProxyKind::Egress => {
                Err(Failed::until_changed("configuration of zone egresses is not generated"))
            }
        }
    }

    fn sidecar(
        &self,
        id: &ProxyId,
        metadata: ProxyMetadata,
        held: &Held,
        now: DateTime<Utc>,
    ) -> Result<Made, Failed> {
        let context = self.meshes.get(&id.mesh).ok_or_else(|| {
            let reason = self.broken.get(&id.mesh).map_or("the mesh is not known yet", String::as_str);
            Failed::until_changed(reason)
        })?;
        let dataplane = context.dataplanes.get(&id.name);
        let dataplane =
            dataplane.ok_or_else(|| Failed::until_changed(format!("{} does not exist (yet)", id.key())))?;
        let certificate = context
            .certificate(dataplane, held.certificate.as_ref(), now)
            .map_err(|e| Failed { reason: e.to_string(), retry: true })?;
        self.insights.certificate(id, certificate.as_deref().map(|c| shown(c, context)));
        let admin = self.admin_identity(&metadata, &dataplane.networking().address, held, now);
        let sidecar = Sidecar {
            dataplane: Arc::clone(dataplane),
            metadata,
            certificate: certificate.clone(),
            admin: admin.clone(),
        };
        let generated =
            generator::sidecar(&sidecar, context, &self.interner).map_err(Failed::until_changed)?;
        Ok(Made { generated, certificate, admin, is_sidecar: true })
    }

    fn zone_ingress(
        &self,
        id: &ProxyId,
        metadata: ProxyMetadata,
        held: &Held,
        index: &Index,
        now: DateTime<Utc>,
    ) -> Result<Made, Failed> {
        let resource = index.get(&id.key());
        let resource =
            resource.ok_or_else(|| Failed::until_changed(format!("{} does not exist (yet)", id.key())))?;
        let ingress = ZoneIngress::read(resource, &self.hosts.borrow()).map_err(Failed::until_changed)?;
        let problems = ingress.problems.clone();
        let address = ingress.spec.networking.as_ref().map_or("", |networking| &networking.address);
        let admin = self.admin_identity(&metadata, address, held, now);
        let meshes: Vec<Arc<MeshContext>> = self.meshes.values().cloned().collect();
        let mut generated = generator::zone_ingress(
            &ZoneIngressProxy { ingress: Arc::new(ingress), metadata, admin: admin.clone() },
            &meshes,
            &self.interner,
        );
        generated.problems.extend(problems);
        Ok(Made { generated, certificate: None, admin, is_sidecar: false })
    }

    /// What the Envoy of a proxy at `address` shows to those who ask it from here: what it has, as long as
    /// that fits.
    fn admin_identity(
        &self,
        metadata: &ProxyMetadata,
        address: &str,
        held: &Held,
        now: DateTime<Utc>,
    ) -> Option<Arc<AdminIdentity>> {
        let address = self.hosts.borrow().resolve(address).ok()?;
        metadata.admin.as_ref().filter(|endpoint| endpoint.needs_listener(address))?;
        if let Some(known) = held.admin.as_ref().filter(|identity| identity.address == address) {
            return Some(Arc::clone(known));
        }
        match self.admin.as_ref()?.identity(address, now) {
            Ok(identity) => Some(Arc::new(identity)),
            Err(error) => {
                tracing::warn!(%address, %error, "no certificate for the admin endpoint of an Envoy");
                None
            }
        }
    }
}

fn shown(certificate: &WorkloadCertificate, context: &MeshContext) -> Certificate {
    let backends = context.spec.mtls.iter().flat_map(|m| &m.backends);
    Certificate {
        expires: certificate.expires,
        issued: certificate.issued,
        backend: certificate.backend.clone(),
        supported: backends.map(|b| b.name.clone()).collect(),
    }
}
