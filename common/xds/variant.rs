//! Variants of one resource: the same name, and parameters that say for whom each is (dynamic parameters).
//!
//! Here a variant has a name of its own: that of the resource, behind which its parameters stand. A peer asks with a
//! *locator*, a name with the parameters it has; that stands for the variant of which it has all parameters, and if there
//! are several for the one that asks for most. What no variant is for is the resource that has no parameters. On the wire
//! there are names and parameters, as the protocol has them.

use std::{borrow::Cow, cmp::Reverse, collections::BTreeMap};

use super::{Name, Want};
use crate::proto::envoy::service::discovery::v3::{
    DynamicParameterConstraints, ResourceLocator, ResourceName,
    dynamic_parameter_constraints::{
        ConstraintList, SingleConstraint, Type as Constraint, single_constraint::ConstraintType,
    },
};

/// Stands between a name and the parameters that somebody has who asks, and at the end: each resource that is told is
/// looked at for it, and the last character is found at once.
const LOCATOR: char = '\u{1}';
/// The same of the parameters of a variant.
const VARIANT: char = '\u{2}';
/// Stands between parameters, and between the key of one and its value.
const NEXT: char = '\u{3}';
const IS: char = '\u{4}';

/// The name of the variant of `name` that is for those who have these parameters.
pub fn variant_name<'a>(name: &'a str, parameters: &BTreeMap<String, String>) -> Cow<'a, str> {
    with_parameters(name, VARIANT, parameters.iter())
}

/// What a peer asks for, as a name.
pub(super) fn located(locator: &ResourceLocator) -> Cow<'_, str> {
    let parameters: BTreeMap<_, _> = locator.dynamic_parameters.iter().collect();
    with_parameters(&locator.name, LOCATOR, parameters.into_iter())
}

fn with_parameters<'a, 'b>(
    name: &'a str,
    mark: char,
    parameters: impl Iterator<Item = (&'b String, &'b String)>,
) -> Cow<'a, str> {
    let texts: Vec<String> = parameters.map(|(key, value)| format!("{key}{IS}{value}")).collect();
    match texts.is_empty() {
        true => Cow::Borrowed(name),
        false => Cow::Owned(format!("{name}{mark}{}{mark}", texts.join(&NEXT.to_string()))),
    }
}

/// Whether this is a name with the parameters of somebody who asks.
pub(super) fn is_locator(name: &str) -> bool {
    name.ends_with(LOCATOR)
}

/// Whether this is the name of a variant, which is for nobody who says nothing about parameters.
pub(super) fn is_variant(name: &str) -> bool {
    name.ends_with(VARIANT)
}

/// The name of the resource without parameters, as everybody else knows it.
pub(super) fn plain_name(name: &str) -> &str {
    match is_locator(name) || is_variant(name) {
        true => name.split([LOCATOR, VARIANT]).next().unwrap_or_default(),
        false => name,
    }
}

/// How all locators of what is called `name`, be it a variant, begin.
pub(super) fn locators_of(name: &str) -> String {
    format!("{}{LOCATOR}", plain_name(name))
}

/// What a locator stands for.
pub(super) fn resolved(want: &dyn Want, type_url: &str, locator: &str) -> Option<Name> {
    let (name, had) = locator.strip_suffix(LOCATOR)?.split_once(LOCATOR)?;
    let had: Vec<&str> = had.split(NEXT).collect();
    let mut best: Option<(Reverse<usize>, Name)> = None;
    want.under(type_url, &format!("{name}{VARIANT}"), &mut |variant| {
        let asked = parameters(&variant.name).filter(|asked| asked.iter().all(|one| had.contains(one)));
        let ranked = asked.map(|asked| (Reverse(asked.len()), Name::clone(&variant.name)));
        if let Some(ranked) = ranked.filter(|ranked| best.as_ref().is_none_or(|best| ranked < best)) {
            best = Some(ranked);
        }
    });
    best.map(|(_, name)| name).or_else(|| Some(want.get(type_url, name)?.name))
}

fn parameters(variant: &str) -> Option<Vec<&str>> {
    Some(variant.strip_suffix(VARIANT)?.split_once(VARIANT)?.1.split(NEXT).collect())
}

/// The name of a variant as the protocol has it, and what its parameters have to be; `None` for any other name.
pub(super) fn resource_name(name: &str) -> Option<ResourceName> {
    let constraints = parameters(name)?.into_iter().map(|parameter| {
        let (key, value) = parameter.split_once(IS).unwrap_or((parameter, ""));
        let value = Some(ConstraintType::Value(value.to_owned()));
        let constraint = SingleConstraint { key: key.to_owned(), constraint_type: value };
        DynamicParameterConstraints { r#type: Some(Constraint::Constraint(constraint)) }
    });
    let mut constraints: Vec<_> = constraints.collect();
    let all = match constraints.len() {
        1 => constraints.pop(),
        _ => {
            let all = Constraint::AndConstraints(ConstraintList { constraints });
            Some(DynamicParameterConstraints { r#type: Some(all) })
        }
    };
    Some(ResourceName { name: plain_name(name).to_owned(), dynamic_parameter_constraints: all })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::xds::{WantSnapshot, Wanted};

    const TYPE: &str = "t";

    fn parameters(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn asked(name: &str, all: &[(&str, &str)]) -> String {
        let dynamic_parameters = parameters(all).into_iter().collect();
        located(&ResourceLocator { name: name.to_owned(), dynamic_parameters }).into_owned()
    }

    #[test]
    fn a_locator_stands_for_the_variant_that_asks_for_most_of_what_it_has() {
        let mut world = WantSnapshot::new(1);
        let variants: [&[(&str, &str)]; 4] =
            [&[], &[("env", "prod")], &[("env", "prod"), ("ring", "1")], &[("ring", "1")]];
        for variant in variants {
            world.put(Wanted::new(&*variant_name("a", &parameters(variant)), TYPE, vec![]));
        }
        world.put(Wanted::new(&*variant_name("ab", &parameters(variants[1])), TYPE, vec![]));
        for (had, expected) in [
            (&[("env", "test")][..], variants[0]),
            (&[("env", "prod")], variants[1]),
            (&[("env", "prod"), ("color", "red")], variants[1]),
            (&[("ring", "1"), ("env", "prod")], variants[2]),
            (&[("ring", "1"), ("env", "test")], variants[3]),
        ] {
            let found = resolved(&world, TYPE, &asked("a", had)).unwrap();
            assert_eq!(*found, *variant_name("a", &parameters(expected)), "{had:?}");
        }
        assert_eq!(resolved(&world, TYPE, &asked("ab", &[("env", "test")])), None);
        assert_eq!(resolved(&world, TYPE, &asked("b", &[("env", "prod")])), None);
    }

    #[test]
    fn names_are_told_from_each_other() {
        let (one, two) = (parameters(&[("k", "v")]), parameters(&[("k", "v"), ("l", "")]));
        let (variant, locator) = (variant_name("a", &one), asked("a", &[("k", "v")]));
        assert!(is_variant(&variant) && !is_locator(&variant));
        assert!(is_locator(&locator) && !is_variant(&locator));
        assert!(locator.starts_with(&locators_of(&variant)) && !variant.starts_with(&locators_of("a")));
        for name in ["a", &*variant, &*locator] {
            assert_eq!(plain_name(name), "a");
        }
        assert_eq!(asked("a", &[]), "a", "who has no parameters asks as everybody does");
        assert_eq!(variant_name("a", &parameters(&[])), "a");
        assert_eq!(resource_name("a"), None);
        let told = resource_name(&variant_name("a", &two)).unwrap();
        let constraints = told.dynamic_parameter_constraints.unwrap().r#type.unwrap();
        let Constraint::AndConstraints(all) = constraints else { panic!("{constraints:?}") };
        assert_eq!((told.name.as_str(), all.constraints.len()), ("a", 2));
    }
}
