//! Gives each service that is known by its tags a virtual address, at which workloads call it whose traffic is
//! redirected. Computed from proxies, ingresses and external services whenever these change; stored, so that nobody's
//! address changes when a control plane starts again.

mod wishes;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::{
    model::{
        Kind, Origin, Resource, ResourceKey, Spec,
        kinds::{
            config, dataplane, dataplane_networking::networking, legacy, mesh, mesh_gateway,
            virtual_outbound, zone_ingress,
        },
        labels,
    },
    proto::kuma::{mesh::v1alpha1 as proto, system::v1alpha1::Config},
    runtime::Env,
    store::{
        Batch, Precondition, Store, StoreError, Write,
        index::{Index, IndexReader},
    },
};
use tokio_util::sync::CancellationToken;

use self::wishes::{MeshWish, Wish, WishPayer, WishShare, Wishes};
use super::moment::WriteMoment;
use crate::{
    account::Account,
    mesh::{
        AddressBook, Naming,
        address_book::{self, Named, OutboundEntry},
        catalogue::fair_part_of_zone,
        neighbour,
    },
    share::{self, Vacated},
};

/// Bytes of all addresses of a mesh, whoever has them: what is longer is not written.
const LARGEST_BOOK: usize = 64 * 1024 * 1024;

/// Kinds of what wants addresses.
static WISHING: [&Kind; 4] =
    [&dataplane::KIND, &zone_ingress::KIND, &legacy::EXTERNAL_SERVICE, &mesh_gateway::KIND];

/// The kind by which names are made up.
const MADE_UP: &str = "VirtualOutbound";

/// Keeps the addresses of a zone up to date.
pub(super) struct Addresses {
    zone: Arc<str>,
    naming: Naming,
    store: Arc<dyn Store>,
    env: Env,
    reader: IndexReader,
    index: Arc<Index>,
    /// Names somebody makes up, by mesh and their resource.
    made_up: BTreeMap<Arc<str>, BTreeMap<ResourceKey, Arc<proto::VirtualOutbound>>>,
    /// What each resource wants, by mesh, and on whose account.
    wishes: BTreeMap<ResourceKey, Wishes>,
    /// What counts of that.
    shares: BTreeMap<WishPayer, WishShare>,
    /// How many want the same in a mesh.
    wanted: BTreeMap<Arc<str>, BTreeMap<Wish, usize>>,
    /// Meshes of which it is to be looked whether what is stored is right.
    open: BTreeSet<Arc<str>>,
    /// When that may be written next.
    moment: WriteMoment,
}

impl Addresses {
    /// Nothing computed yet.
    pub(super) fn new(
        zone: Arc<str>,
        naming: Naming,
        store: Arc<dyn Store>,
        env: Env,
        reader: IndexReader,
    ) -> Self {
        let index = Arc::new(Index::empty(store.identity()));
        let (made_up, wishes) = (BTreeMap::new(), BTreeMap::new());
        let (wanted, open) = (BTreeMap::new(), BTreeSet::new());
        let (shares, moment) = (BTreeMap::new(), WriteMoment::now());
        Self { zone, naming, store, env, reader, index, made_up, wishes, shares, wanted, open, moment }
    }

    /// Works until `shutdown`.
    pub(super) async fn run(mut self, shutdown: CancellationToken) {
        loop {
            self.follow_newest();
            if !self.open.is_empty() && self.moment.is_there() {
                self.settle().await;
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                open = self.reader.changed() => if !open { return },
                () = self.moment.come(), if !self.open.is_empty() => {}
            }
        }
    }

    /// Takes in what changed in the index.
    fn follow_newest(&mut self) {
        let index = self.reader.latest();
        let changed = index.changed_since(&self.index);
        for key in changed.iter().filter(|key| key.kind.name == MADE_UP) {
            self.follow_made_up(key, &index);
        }
        for key in &changed {
            self.follow(key, &index);
        }
        self.index = index;
    }

    /// Writes what differs from what is stored.
    async fn settle(&mut self) {
        let writes: Vec<Write> = self.open.iter().filter_map(|mesh| self.write(mesh)).collect();
        if writes.is_empty() {
            self.open.clear();
            return;
        }
        self.moment.use_up(&self.env.entropy);
        match self.store.transact(Batch::of(writes)).await {
            Ok(_) => self.open.clear(),
            // Another replica was faster; what it wrote brings the next round.
            Err(error @ (StoreError::Conflict { .. } | StoreError::NotFound { .. })) => {
                tracing::debug!(%error, "the virtual addresses of services are computed again");
            }
            Err(error) => tracing::warn!(%error, "cannot store the virtual addresses of services"),
        }
    }

    /// Takes in that names are made up in another way, for whoever is in that mesh.
    fn follow_made_up(&mut self, key: &ResourceKey, index: &Index) {
        let of_mesh = self.made_up.entry(Arc::clone(&key.mesh)).or_default();
        match index.get(key).and_then(|resource| resource.spec::<proto::VirtualOutbound>().ok()) {
            Some(spec) => drop(of_mesh.insert(key.clone(), Arc::new(spec))),
            None => drop(of_mesh.remove(key)),
        }
        let in_mesh = [&dataplane::KIND, &legacy::EXTERNAL_SERVICE].into_iter();
        let in_mesh = in_mesh.flat_map(|kind| index.list_in_mesh(kind, &key.mesh));
        let concerned = in_mesh.chain(index.list(&zone_ingress::KIND)).map(|resource| resource.key.clone());
        let concerned: Vec<ResourceKey> = concerned.collect();
        concerned.iter().for_each(|key| self.follow(key, index));
    }

    /// The names somebody makes up in `mesh` for those with these tags.
    fn made_up_for(&self, mesh: &str, tags: &BTreeMap<String, String>) -> Vec<Wish> {
        let of_mesh = self.made_up.get(mesh).into_iter().flatten();
        let meant = of_mesh.filter(|(_, outbound)| virtual_outbound::selects(outbound, tags));
        let wish = |(key, outbound): (&ResourceKey, &Arc<proto::VirtualOutbound>)| {
            let conf = outbound.conf.as_ref()?;
            let made = virtual_outbound::host(conf, tags)
                .and_then(|host| Ok((host, virtual_outbound::port(conf, tags)?)));
            let (host, port) = made
                .inspect_err(|error| tracing::info!(%error, policy = %key, ?tags, "no name is made up"))
                .ok()?;
            let tag_set = virtual_outbound::named_tags(conf, tags);
            let outbound = OutboundEntry { port, tag_set, origin: format!("virtual-outbound:{}", key.name) };
            Some((Named::Domain(host), outbound))
        };
        meant.filter_map(wish).collect()
    }

    /// Takes one change in.
    fn follow(&mut self, key: &ResourceKey, index: &Index) {
        if key.kind == &mesh::KIND {
            self.open.insert(Arc::clone(&key.name));
            // Gateways that let in other meshes have an address in each.
            let gateways: Vec<ResourceKey> =
                index.list(&mesh_gateway::KIND).map(|gateway| gateway.key.clone()).collect();
            gateways.iter().for_each(|gateway| self.follow_wishes(gateway, index));
        } else if key.kind == &config::KIND {
            self.open.extend(address_book::mesh_of(&key.name).map(Arc::from));
        } else if WISHING.contains(&key.kind) {
            self.follow_wishes(key, index);
        }
    }

    /// Takes in what a resource wants.
    fn follow_wishes(&mut self, key: &ResourceKey, index: &Index) {
        let resource = index.get(key);
        let after = resource.map(|resource| self.wishes_of(resource, index)).unwrap_or_default();
        let before = self.wishes.remove(key).unwrap_or_default();
        self.refuse(key, &before, &after);
        let same_payer = before.payer == after.payer;
        // What stays wanted is never let go in between.
        for wish in after.all.iter().filter(|wish| !same_payer || !before.all.contains(wish)) {
            self.more(after.payer.as_ref(), wish);
        }
        for wish in before.all.iter().filter(|wish| !same_payer || !after.all.contains(wish)) {
            self.less(before.payer.as_ref(), wish);
        }
        for payer in [&before.payer, &after.payer].into_iter().flatten() {
            self.tell(key, payer);
        }
        if !after.all.is_empty() || after.refused > 0 {
            self.wishes.insert(key.clone(), after);
        }
    }

    fn share_of(&mut self, payer: &WishPayer) -> &mut WishShare {
        self.shares.entry(payer.clone()).or_insert_with(|| WishShare::of(payer))
    }

    /// Takes in how much of what a resource wants gets no address, whatever room there is, and says so.
    fn refuse(&mut self, key: &ResourceKey, before: &Wishes, after: &Wishes) {
        for (wishes, gives) in [(before, false), (after, true)] {
            let Some(payer) = wishes.payer.as_ref().filter(|_| wishes.refused > 0) else { continue };
            let refused = &mut self.share_of(payer).refused;
            *refused = if gives { *refused + wishes.refused } else { refused.saturating_sub(wishes.refused) };
        }
        if after.refused > 0 && after.refused != before.refused {
            tracing::warn!(
                resource = %key, refused = after.refused,
                "services get no virtual address, for no host can have their names, or their tags are too long"
            );
        }
    }

    /// One more wants this.
    fn more(&mut self, payer: Option<&WishPayer>, wish: &MeshWish) {
        let is_taken = payer.is_none_or(|payer| self.share_of(payer).share.add(wish));
        if is_taken {
            self.count(&wish.0, &wish.1, true);
        }
    }

    /// One less wants this.
    fn less(&mut self, payer: Option<&WishPayer>, wish: &MeshWish) {
        let vacated = match payer.and_then(|payer| self.shares.get_mut(payer)) {
            Some(known) => known.share.remove(wish),
            None => Vacated { let_go: true, follows: Vec::new() },
        };
        for (mesh, wish) in &vacated.follows {
            self.count(mesh, wish, true);
        }
        if vacated.let_go {
            self.count(&wish.0, &wish.1, false);
        }
    }

    /// Says how much of what somebody has is not taken.
    fn tell(&mut self, key: &ResourceKey, payer: &WishPayer) {
        let Some(known) = self.shares.get(payer) else { return };
        let (beyond, left_out, is_empty) = (known.share.beyond(), known.left_out(), known.is_empty());
        if let WishPayer::Zone(zone) = payer {
            share::note_left_out(zone, "tags", left_out);
        }
        if beyond > 0 {
            let (most, bytes) = payer.most();
            tracing::warn!(
                resource = %key, ?payer, beyond, most, bytes,
                "more services than get virtual addresses here on one account: the rest has none"
            );
        }
        if is_empty {
            self.shares.remove(payer);
        }
    }

    /// One more or one less in `mesh` wants this. Only the first and the last make a difference.
    fn count(&mut self, mesh: &Arc<str>, wish: &Wish, more: bool) {
        let of_mesh = self.wanted.entry(Arc::clone(mesh)).or_default();
        let count = of_mesh.entry(wish.clone()).or_default();
        let differs = if more { *count == 0 } else { *count <= 1 };
        *count = if more { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            of_mesh.remove(wish);
        }
        if of_mesh.is_empty() {
            self.wanted.remove(mesh);
        }
        if differs {
            self.open.insert(Arc::clone(mesh));
        }
    }

    fn wishes_of(&self, resource: &Resource, index: &Index) -> Wishes {
        if resource.kind() != &zone_ingress::KIND {
            let account = Some(Account::of(resource)).filter(|account| *account != Account::Operators);
            let payer = account.map(WishPayer::Account);
            return Wishes::of(payer, self.local_wishes(resource, index), &self.naming);
        }
        let spec = resource.spec::<proto::ZoneIngress>().ok().filter(|_| !self.is_ours(resource));
        let Some(spec) = spec else { return Wishes::default() };
        let zone = resource.label(labels::ZONE).unwrap_or(&spec.zone).into();
        let wishes = |offered: &proto::zone_ingress::AvailableService| {
            self.of_tags(&offered.mesh.as_str().into(), &offered.tags, 0)
        };
        let (taken, _) = fair_part_of_zone(spec.available_services.clone());
        let wanted = taken.iter().flat_map(wishes).collect();
        Wishes::of(Some(WishPayer::Zone(zone)), wanted, &self.naming)
    }

    /// What a resource wants that is no ingress.
    fn local_wishes(&self, resource: &Resource, index: &Index) -> BTreeSet<MeshWish> {
        let kind = resource.kind();
        let mesh = &resource.key.mesh;
        if kind == &mesh_gateway::KIND {
            let others = index.list(&mesh::KIND).filter(|other| other.name() != &**mesh);
            let others: Vec<Arc<str>> = others.map(|other| Arc::clone(&other.key.name)).collect();
            let wishes = of_gateway(resource);
            let in_mesh =
                |other: &Arc<str>| wishes.iter().map(|w| (Arc::clone(other), w.clone())).collect::<Vec<_>>();
            return others.iter().flat_map(in_mesh).collect();
        }
        if kind == &dataplane::KIND {
            let ours = Some(&resource.spec).filter(|_| self.is_ours(resource));
            let inbounds = ours.and_then(|spec| networking(spec).ok()).map(|networking| networking.inbound);
            let known = inbounds.into_iter().flatten().filter(|inbound| {
                use proto::dataplane::networking::inbound::State;
                inbound.state() != State::Ignored
            });
            return known.flat_map(|inbound| self.of_tags(mesh, &inbound.tags, 0)).collect();
        }
        let spec = resource.spec::<proto::ExternalService>().unwrap_or_default();
        let mut wishes = outside(resource.name(), &spec);
        if let Some(service) = spec.tags.get(labels::TAG_SERVICE) {
            let tags = [(labels::TAG_SERVICE.to_owned(), service.clone())].into();
            wishes.extend(self.made_up_for(mesh, &tags));
        }
        wishes.into_iter().map(|wish| (Arc::clone(mesh), wish)).collect()
    }

    /// What somebody wants who serves with these tags.
    fn of_tags(&self, mesh: &Arc<str>, tags: &BTreeMap<String, String>, port: u32) -> Vec<MeshWish> {
        let Some(service) = tags.get(labels::TAG_SERVICE) else { return Vec::new() };
        let own = [address_book::of_service(service, port)].into_iter();
        own.chain(self.made_up_for(mesh, tags)).map(|wish| (Arc::clone(mesh), wish)).collect()
    }

    fn is_ours(&self, resource: &Resource) -> bool {
        matches!(&resource.origin, Origin::Zone(owner) if **owner == *self.zone)
    }

    /// What makes the store say what is right of `mesh`; `None` when it does.
    fn write(&self, mesh: &Arc<str>) -> Option<Write> {
        let key = address_book::key(mesh);
        let stored = self.index.get(&key);
        if self.index.find(&mesh::KIND, "", mesh).is_none() {
            return stored.map(|stored| Write::delete_when(key, Precondition::At(stored.revision)));
        }
        let spec = stored.and_then(|stored| stored.spec::<Config>().ok());
        let text = spec.map(|spec| spec.config).unwrap_or_default();
        let book = AddressBook::parse(&text).unwrap_or_else(|error| {
            tracing::warn!(%error, mesh = &**mesh, "virtual addresses are given anew");
            AddressBook::default()
        });
        let mut wanted: BTreeMap<Named, BTreeSet<OutboundEntry>> = BTreeMap::new();
        for (named, outbound) in self.wanted.get(mesh).into_iter().flat_map(BTreeMap::keys) {
            wanted.entry(named.clone()).or_default().insert(outbound.clone());
        }
        let after = book.with(&wanted, &self.naming).text();
        if after == text || (stored.is_none() && wanted.is_empty()) {
            return None;
        }
        if after.len() > LARGEST_BOOK {
            tracing::warn!(
                mesh = &**mesh,
                bytes = after.len(),
                most = LARGEST_BOOK,
                "the services of this mesh have too much in virtual addresses together: those that are stored stay as they are"
            );
            return None;
        }
        let now = self.env.now();
        let mut resource = stored.map_or_else(|| Resource::new(key, now), |known| Resource::clone(known));
        resource = resource.with_spec(Spec::encode(&Config { config: after }));
        resource.modified = now;
        resource.origin = Origin::Zone(Arc::clone(&self.zone));
        let before = stored.map_or(Precondition::Absent, |stored| Precondition::At(stored.revision));
        Some(Write::put_when(resource, before))
    }
}

/// The names of a service outside the mesh: that of its tag, and that of its host unless it wants none.
fn outside(name: &str, service: &proto::ExternalService) -> Vec<Wish> {
    let Some(tag) = service.tags.get(labels::TAG_SERVICE) else { return Vec::new() };
    let networking = service.networking.clone().unwrap_or_default();
    let Some((host, port)) = networking.address.rsplit_once(':') else { return Vec::new() };
    let Ok(port) = port.parse() else { return Vec::new() };
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let (service, outbound) = address_book::of_service(tag, port);
    let of_host = OutboundEntry { origin: format!("external-service:{name}"), ..outbound.clone() };
    let by_host = (!networking.disable_host_dns_entry).then_some((Named::Host(host), of_host));
    [(service, outbound)].into_iter().chain(by_host).collect()
}

/// What the listeners of a gateway want in other meshes, by the names they are called there.
fn of_gateway(resource: &Resource) -> Vec<Wish> {
    let spec = resource.spec::<proto::MeshGateway>().unwrap_or_default();
    let (mesh, name) = (&*resource.key.mesh, resource.display_name());
    let Some(selector) = spec.selectors.first() else { return Vec::new() };
    let listeners = spec.conf.iter().flat_map(|conf| &conf.listeners).filter(|listener| listener.cross_mesh);
    let wish = |listener: &proto::mesh_gateway::Listener| {
        let hostname = neighbour::hostname(&listener.hostname, name, mesh);
        let tags = spec.tags.iter().chain(&listener.tags).chain(&selector.r#match);
        let mut tag_set: BTreeMap<String, String> = tags.map(|(k, v)| (k.clone(), v.clone())).collect();
        tag_set.insert(labels::MESH.to_owned(), mesh.to_owned());
        let origin = format!("mesh-gateway:{mesh}:{name}:{hostname}");
        (Named::Domain(hostname), OutboundEntry { port: listener.port, tag_set, origin })
    };
    listeners.map(wish).collect()
}

#[cfg(test)]
mod tests;
