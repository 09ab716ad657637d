//! How a descriptor is written down: what holds for most kinds, and then what is special about one.

use super::{
    Caveat, Column, Flow, Format, ItemForm, Kind, KubernetesForm, PolicyTraits, PortsIn, Presets, Referent,
    Resource, Scope, Shape, Spec, SyncStage, TagSets, ZoneField, accept, accept_and_keep, check, keep,
    no_labels, normalize, nothing, settle,
};

impl Kind {
    /// A kind whose spec is an unchecked protobuf `message`.
    pub const fn proto(name: &'static str, path: &'static str, message: &'static str) -> Self {
        Self::new(name, path, Format::Proto { message })
    }

    /// A kind whose spec is an unchecked JSON object.
    pub const fn json(name: &'static str, path: &'static str) -> Self {
        Self::new(name, path, Format::Json { status: false }).kubernetes(KubernetesForm::Namespaced)
    }

    const fn new(name: &'static str, path: &'static str, format: Format) -> Self {
        Self {
            name,
            path,
            alias: "",
            arg: "",
            short: "",
            scope: Scope::Mesh,
            flow: Flow::from_bits(0),
            known_by: None,
            format,
            read_only: false,
            is_insight: false,
            is_proxy: false,
            admin_only: false,
            keeps_name: false,
            policy: None,
            item_form: ItemForm::Default,
            referent: None,
            service: None,
            sync_stage: SyncStage::Rest,
            zone_fields: &[],
            largest: Self::LARGEST,
            outlives_mesh: false,
            kubernetes: KubernetesForm::Cluster,
            tag_sets: None,
            deprecated: &[],
            caveat: nothing,
            columns: &[],
            presets: Presets { durations: &[], objects: &[] },
            empty_status: "{}",
            is_typed: false,
            shape: &Shape::Any,
            check: accept,
            normalize: keep,
            settle: accept_and_keep,
            label: no_labels,
        }
    }

    /// Decodes, validates and normalises specs of this kind as `S`.
    pub const fn typed<S: Spec>(mut self) -> Self {
        self.is_typed = true;
        self.check = check::<S>;
        self.normalize = normalize::<S>;
        self.settle = settle::<S>;
        self
    }

    /// Sets what a JSON spec must look like before it is decoded.
    pub const fn shaped(mut self, shape: &'static Shape) -> Self {
        self.shape = shape;
        self
    }

    /// Sets the scope to [`Scope::Global`].
    pub const fn global(mut self) -> Self {
        self.scope = Scope::Global;
        self
    }

    /// Sets ownership and direction of sync, in Kuma's bits.
    pub const fn flow(mut self, bits: u8) -> Self {
        self.flow = Flow::from_bits(bits);
        self
    }

    /// Zones that ask for it get copies of those of the others: what a zone of Kuma does not know.
    pub const fn across_our_zones(mut self) -> Self {
        self.flow = self.flow.and_across_our_zones();
        self
    }

    /// Only peers that say this know the kind; those of Kuma do not.
    pub const fn known_by(mut self, feature: &'static str) -> Self {
        self.known_by = Some(feature);
        self
    }

    /// Sets command line argument and short name.
    pub const fn named(mut self, arg: &'static str, short: &'static str) -> Self {
        self.arg = arg;
        self.short = short;
        self
    }

    /// Sets the second path.
    pub const fn alias(mut self, path: &'static str) -> Self {
        self.alias = path;
        self
    }

    /// Gives a JSON kind a `status`.
    pub const fn with_status(mut self) -> Self {
        self.format = Format::Json { status: true };
        self
    }

    /// Sets what is shown as the status while nobody has written one, as JSON.
    pub const fn empty_status(mut self, json: &'static str) -> Self {
        self.empty_status = json;
        self
    }

    /// Adds labels that follow from the spec to what is written here.
    pub const fn labelled(mut self, label: fn(&mut Resource)) -> Self {
        self.label = label;
        self
    }

    /// Makes it an insight: small, and written by the control plane only.
    pub const fn insight(mut self) -> Self {
        self.is_insight = true;
        self.read_only = true;
        self.largest(Self::LARGEST_PROXY)
    }

    /// Makes it the description of a proxy.
    pub const fn proxy(mut self) -> Self {
        self.is_proxy = true;
        self.largest(Self::LARGEST_PROXY)
    }

    /// Makes it a service, with ports here in its spec.
    pub const fn service(mut self, ports: PortsIn) -> Self {
        self.service = Some(ports);
        self
    }

    /// Sets when it is asked for in a sync.
    pub const fn synced(mut self, stage: SyncStage) -> Self {
        self.sync_stage = stage;
        self
    }

    /// Sets where the spec names the zone it belongs to.
    pub const fn zone_fields(mut self, fields: &'static [ZoneField]) -> Self {
        self.zone_fields = fields;
        self
    }

    /// Sets how large a resource may be.
    pub const fn largest(mut self, bytes: usize) -> Self {
        self.largest = bytes;
        self
    }

    /// Keeps resources when their mesh is deleted.
    pub const fn outlives_mesh(mut self) -> Self {
        self.outlives_mesh = true;
        self
    }

    /// Sets how it would stand in Kubernetes.
    pub const fn kubernetes(mut self, form: KubernetesForm) -> Self {
        self.kubernetes = form;
        self
    }

    /// Lets lists be filtered by the tags `sets` finds.
    pub const fn tagged(mut self, sets: TagSets) -> Self {
        self.tag_sets = Some(sets);
        self
    }

    /// Names the members of the spec nobody should use any more.
    pub const fn deprecated(mut self, members: &'static [&'static str]) -> Self {
        self.deprecated = members;
        self
    }

    /// Says what of a spec is stored and has no effect.
    pub const fn caveat(mut self, caveat: Caveat) -> Self {
        self.caveat = caveat;
        self
    }

    /// Adds columns to tables for people.
    pub const fn columns(mut self, columns: &'static [Column]) -> Self {
        self.columns = columns;
        self
    }

    /// Sets what is filled in before policies of the kind are merged.
    pub const fn presets(mut self, presets: Presets) -> Self {
        self.presets = presets;
        self
    }

    /// Forbids writes through REST.
    pub const fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Restricts access to administrators.
    pub const fn admin_only(mut self) -> Self {
        self.admin_only = true;
        self
    }

    /// Keeps the name unhashed on the way down.
    pub const fn keeps_name(mut self) -> Self {
        self.keeps_name = true;
        self
    }

    /// Marks the kind as a policy.
    pub const fn policy(mut self, traits: PolicyTraits) -> Self {
        self.policy = Some(traits);
        self
    }

    /// Sets where items of the policy keep what is merged.
    pub const fn items(mut self, form: ItemForm) -> Self {
        self.item_form = form;
        self
    }

    /// Lets items of policies point at resources of the kind.
    pub const fn referent(mut self, referent: Referent) -> Self {
        self.referent = Some(referent);
        self
    }
}
