//! Rules for inbound traffic.

use std::{cmp::Reverse, collections::HashMap, sync::Arc};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Policy, RuleOrigin, decode_conf, order};
use crate::{model::SpecError, policy::PeerMatch};

/// One rule, not merged with others: rules with conditions each stand alone.
#[derive(Clone, Debug)]
pub struct InboundRule {
    /// The condition; none means all traffic.
    pub condition: Option<PeerMatch>,
    /// The configuration.
    pub conf: Value,
    /// Where it came from.
    pub origin: RuleOrigin,
}

impl InboundRule {
    /// The configuration in the type of its kind.
    ///
    /// # Errors
    /// [`SpecError`] when it does not decode.
    pub fn conf<C: DeserializeOwned>(&self) -> Result<C, SpecError> {
        decode_conf(&self.conf)
    }
}

/// Rules of one inbound: those with the narrowest condition first, and among equals the least specific
/// policy first.
#[derive(Clone, Debug, Default)]
pub struct InboundRules(pub Vec<InboundRule>);

impl InboundRules {
    /// The rules that `policies` of one kind have for inbound traffic. Policies with `rules` give those;
    /// of policies with `from`, only kinds that accept nothing but the whole mesh there give any.
    pub fn build(policies: &[Arc<Policy>]) -> Self {
        let mut sorted: Vec<&Arc<Policy>> = policies.iter().collect();
        sorted.sort_by(|a, b| order::by_attributes(a, b).then_with(|| order::by_name(a, b)));
        let mut rules: Vec<InboundRule> = sorted.into_iter().flat_map(rules_of).collect();
        rules.sort_by_key(|rule| rule.condition.as_ref().map_or((u8::MAX, u8::MAX), PeerMatch::precedence));
        Self(rules)
    }

    /// What applies to traffic that meets no condition: all rules without one, merged.
    ///
    /// # Errors
    /// [`SpecError`] when the merged configuration does not decode.
    pub fn unconditional<C: DeserializeOwned>(&self) -> Result<Option<C>, SpecError> {
        self.general().map(|conf| decode_conf(&conf)).transpose()
    }

    /// What applies to traffic that meets a condition: the rules with that condition, merged over those
    /// without any. The narrowest condition comes first, and among equals the longest, then that of the
    /// most specific policy: traffic that meets several gets what the first says.
    ///
    /// # Errors
    /// [`SpecError`] when a merged configuration does not decode.
    pub fn conditional<C: DeserializeOwned>(&self) -> Result<Vec<(PeerMatch, C)>, SpecError> {
        let mut conditions: Vec<&PeerMatch> = Vec::new();
        let mut said: HashMap<&PeerMatch, Vec<&Value>> = HashMap::new();
        for rule in self.0.iter().rev() {
            let Some(condition) = &rule.condition else { continue };
            let confs = said.entry(condition).or_default();
            if confs.is_empty() {
                conditions.push(condition);
            }
            confs.push(&rule.conf);
        }
        conditions.sort_by_key(|condition| (condition.precedence(), Reverse(condition.length())));
        // What is said of everybody is merged once, and not again for each of them.
        let general = self.general();
        let conf = |condition: &PeerMatch| {
            let own = said.remove(condition).unwrap_or_default();
            let confs = general.iter().chain(own.into_iter().rev());
            let merged = self.merge(&confs.collect::<Vec<_>>()).unwrap_or_default();
            Ok((condition.clone(), decode_conf(&merged)?))
        };
        conditions.into_iter().map(conf).collect()
    }

    /// The rules without condition, merged.
    fn general(&self) -> Option<Value> {
        let without = self.0.iter().filter(|rule| rule.condition.is_none());
        self.merge(&without.map(|rule| &rule.conf).collect::<Vec<_>>())
    }

    fn merge(&self, confs: &[&Value]) -> Option<Value> {
        self.0.first()?.origin.policy.strategy().merge(confs).into_iter().next()
    }
}

fn rules_of(policy: &Arc<Policy>) -> Vec<InboundRule> {
    let origin = |index| RuleOrigin { policy: Arc::clone(policy), index };
    if !policy.rules.is_empty() {
        let rules = policy.rules.iter().enumerate().flat_map(|(index, rule)| {
            let conditions = if rule.matches.is_empty() {
                vec![None]
            } else {
                rule.matches.iter().cloned().map(Some).collect()
            };
            conditions.into_iter().map(move |condition| InboundRule {
                condition,
                conf: rule.conf.clone(),
                origin: origin(index),
            })
        });
        return rules.collect();
    }
    if !policy.resource.kind().policy.is_some_and(|p| p.from_as_rules) {
        return Vec::new();
    }
    let rule = |(index, item): (usize, &super::PolicyItem)| InboundRule {
        condition: None,
        conf: item.conf.clone(),
        origin: origin(index),
    };
    policy.from.iter().enumerate().map(rule).collect()
}
