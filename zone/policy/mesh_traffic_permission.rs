//! `MeshTrafficPermission`: who may call. With mutual TLS and without a policy, nobody.

mod by_match;
mod by_tags;

use std::sync::Arc;

use common::{
    model::Kind,
    policy::{
        legacy::LegacyPolicy,
        mesh_traffic_permission::{self, TrafficPermissionConf, TrafficPermissionRuleConf},
        rules::{InboundRules, Policy, RulesError, Selection, Subset, Tag},
    },
    proto::envoy::{
        config::rbac::v3::Rbac,
        extensions::filters::{http::rbac::v3::Rbac as HttpRbac, network::rbac::v3::Rbac as NetworkRbac},
    },
};

use super::{InboundConfs, PolicyEffect, Reporter, client, inbound_of, lookup};
use crate::{
    generator::{Chain, Draft, ListenerDraft, Terminal, envoy::filter, metric_name},
    mesh::{Inbound, MeshContext},
};

/// Why permissions are not enforced where nobody shows who he is.
pub(super) const NO_CLIENTS: &str =
    "has no effect, because the proxy has no identity for mutual TLS: everybody is let in";

/// See the module.
pub(super) struct MeshTrafficPermissionEffect;

impl PolicyEffect for MeshTrafficPermissionEffect {
    const KIND: &'static Kind = &mesh_traffic_permission::KIND;
    type Conf = TrafficPermissionConf;

    fn inbounds(
        &self,
        mesh: &MeshContext,
        confs: &InboundConfs<'_, TrafficPermissionConf>,
        draft: &mut Draft,
        reporter: &mut Reporter<'_>,
    ) {
        for listener in draft.listeners.values_mut() {
            let Some(inbound) = inbound_of(&listener.role) else { continue };
            if listener.chains.iter().all(|chain| chain.tls.is_none()) {
                if !confs.selection.policies.is_empty() {
                    reporter.report(NO_CLIENTS);
                }
                continue;
            }
            let permissions = Permissions::of(confs.selection, inbound, mesh, reporter);
            enforce(listener, &permissions);
        }
    }
}

/// Why it cannot be told who may call at some inbound.
pub(super) fn undecided(selection: &Selection) -> Option<RulesError> {
    let by_tags = |policies: &[Arc<Policy>]| policies.iter().all(|policy| policy.rules.is_empty());
    let inbounds = selection.inbounds.iter().filter(|(_, policies)| by_tags(policies));
    inbounds.map(|(key, _)| key).find_map(|key| selection.access_rules(key).err())
}

/// What a filter over connections is told by an older policy, whose sources may connect.
pub(super) fn of_sources(mesh: &MeshContext, policy: &LegacyPolicy) -> Rbac {
    let groups = policy
        .sources
        .iter()
        .map(|source| Subset(source.r#match.iter().map(|(key, value)| Tag::is(key, value)).collect()));
    by_tags::permit(mesh, policy.resource.display_name(), &groups.collect::<Vec<_>>())
}

/// Lets in nobody.
pub(super) fn nobody() -> Rbac {
    by_tags::nobody()
}

/// Takes out of a chain what this put there.
pub(super) fn forget(chain: &mut Chain) {
    chain.filters.permission = None;
    if let Terminal::Http(http) = &mut chain.terminal {
        http.filters.permission = None;
    }
}

/// What the RBAC filter of one inbound is told.
#[derive(Clone, Debug, Default)]
struct Permissions {
    rules: Option<Rbac>,
    shadow_rules: Option<Rbac>,
    matcher: Option<by_match::Matcher>,
    shadow_matcher: Option<by_match::Matcher>,
    /// Whether a condition looks at the server name.
    needs_server_name: bool,
}

impl Permissions {
    /// Policies with `rules` win over those with `from`. Whatever cannot be read allows nobody.
    fn of(selection: &Selection, inbound: &Inbound, mesh: &MeshContext, reporter: &mut Reporter<'_>) -> Self {
        let key = lookup::inbound_key(inbound);
        let policies = selection.inbound(&key);
        // Where the mesh has no authority of its own nobody is known by tags.
        let only_by_identity = policies.is_empty() && mesh.mtls.is_none();
        if only_by_identity || policies.iter().any(|policy| !policy.rules.is_empty()) {
            return Self::by_match(&selection.inbound_rules(&key), reporter);
        }
        let rules = match selection.access_rules(&key) {
            Ok(rules) => rules,
            Err(error) => {
                reporter.report(error);
                return Self { rules: Some(by_tags::nobody()), ..Self::default() };
            }
        };
        let mut groups = Vec::new();
        for rule in &rules.0 {
            match rule.conf::<TrafficPermissionConf>() {
                Ok(conf) => groups.extend(conf.action.map(|action| (&rule.subset, action))),
                Err(error) => reporter.report(error),
            }
        }
        if mesh.has_trust_domains() && groups.iter().any(|(subset, _)| !subset.0.is_empty()) {
            reporter.report(
                "clients with an identity from a MeshIdentity are in none of the groups it names: they have no tags; \
                 permit them by rules with their SPIFFE identities",
            );
        }
        let (rules, shadow_rules) = by_tags::rbac(mesh, &groups);
        Self { rules: Some(rules), shadow_rules, ..Self::default() }
    }

    fn by_match(rules: &InboundRules, reporter: &mut Reporter<'_>) -> Self {
        let mut confs = Vec::new();
        for rule in &rules.0 {
            match rule.conf::<TrafficPermissionRuleConf>() {
                Ok(conf) => confs.push((client::name_of(&rule.origin), conf)),
                Err(error) => reporter.report(error),
            }
        }
        let mut conditions = confs.iter().flat_map(|(_, conf)| by_match::conditions(conf));
        if conditions.any(|condition| client::predicate(condition).is_none()) {
            reporter.report("a condition is left out that names neither an identity nor a server name");
        }
        let needs_server_name = confs.iter().any(|(_, conf)| by_match::looks_at_server_name(conf));
        let (matcher, shadow_matcher) = by_match::matchers(&confs);
        Self { matcher: Some(matcher), shadow_matcher, needs_server_name, ..Self::default() }
    }
}

/// Puts the filter first in every chain that knows who calls. Plaintext of a permissive mesh passes.
fn enforce(listener: &mut ListenerDraft, permissions: &Permissions) {
    let Permissions { rules, shadow_rules, matcher, shadow_matcher, needs_server_name } = permissions.clone();
    let stat_prefix = format!("{}.", metric_name(&listener.message.name));
    for Chain { filters, terminal, .. } in listener.chains.iter_mut().filter(|c| c.tls.is_some()) {
        if let Terminal::Http(http) = terminal {
            let config = HttpRbac {
                rules: rules.clone(),
                shadow_rules: shadow_rules.clone(),
                matcher: matcher.clone(),
                shadow_matcher: shadow_matcher.clone(),
                ..HttpRbac::default()
            };
            http.filters.permission = Some(filter::http("envoy.filters.http.rbac", &config));
        } else {
            let config = NetworkRbac {
                stat_prefix: stat_prefix.clone(),
                rules: rules.clone(),
                shadow_rules: shadow_rules.clone(),
                matcher: matcher.clone(),
                shadow_matcher: shadow_matcher.clone(),
                ..NetworkRbac::default()
            };
            filters.permission = Some(filter::network("envoy.filters.network.rbac", &config));
        }
    }
    listener.inspects_tls |= needs_server_name;
}
