//! `MeshTrafficPermission`: who may call. With mutual TLS and without a policy, nobody.

mod by_match;
mod by_tags;

use common::{
    model::Kind,
    policy::{
        mesh_traffic_permission::{self, Conf, RuleConf},
        rules::{InboundRules, Selection},
    },
    proto::envoy::{
        config::rbac::v3::Rbac,
        extensions::filters::{http::rbac::v3::Rbac as HttpRbac, network::rbac::v3::Rbac as NetworkRbac},
    },
};

use super::{Context, Policy, Reporter, lookup};
use crate::{
    generator::{Chain, Draft, ListenerDraft, Role, Terminal, envoy::filter, metric_name},
    mesh::{Inbound, MeshContext},
};

/// See the module.
pub(super) struct MeshTrafficPermission;

impl Policy for MeshTrafficPermission {
    fn kind(&self) -> &'static Kind {
        &mesh_traffic_permission::KIND
    }

    fn apply(&self, context: &Context<'_>, draft: &mut Draft, reporter: &mut Reporter<'_>) {
        if context.mesh.mtls.is_none() {
            return;
        }
        let selection = context.selection(&mesh_traffic_permission::KIND, reporter);
        for listener in draft.listeners.values_mut() {
            let Role::Inbound(inbound) = &listener.role else { continue };
            let permissions = Permissions::of(&selection, inbound, context.mesh, reporter);
            enforce(listener, &permissions);
        }
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
        if policies.iter().any(|policy| !policy.rules.is_empty()) {
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
            match rule.conf::<Conf>() {
                Ok(conf) => groups.extend(conf.action.map(|action| (&rule.subset, action))),
                Err(error) => reporter.report(error),
            }
        }
        let (rules, shadow_rules) = by_tags::rbac(mesh, &groups);
        Self { rules: Some(rules), shadow_rules, ..Self::default() }
    }

    fn by_match(rules: &InboundRules, reporter: &mut Reporter<'_>) -> Self {
        let mut confs = Vec::new();
        for rule in &rules.0 {
            match rule.conf::<RuleConf>() {
                Ok(conf) => confs.push((by_match::name_of(&rule.origin), conf)),
                Err(error) => reporter.report(error),
            }
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
            http.filters.insert(0, filter::http("envoy.filters.http.rbac", &config));
        } else {
            let config = NetworkRbac {
                stat_prefix: stat_prefix.clone(),
                rules: rules.clone(),
                shadow_rules: shadow_rules.clone(),
                matcher: matcher.clone(),
                shadow_matcher: shadow_matcher.clone(),
                ..NetworkRbac::default()
            };
            filters.insert(0, filter::network("envoy.filters.network.rbac", &config));
        }
    }
    if needs_server_name && listener.message.listener_filters.is_empty() {
        listener.message.listener_filters.push(filter::tls_inspector());
    }
}
