//! Goes through an encoded message and notes what breaks a rule.

use std::collections::BTreeSet;

use super::{
    BrokenRule,
    noted::Noted,
    plan::{MemberPlan, MemberShape, MessagePlan, RuleBook, Scalar, ValueKind},
    value::WireValue,
};
use crate::model::FieldStep;

/// Messages within messages. Who encodes or reads them stops there as well.
const DEEPEST: usize = 100;

/// A look at one resource.
pub(super) struct RuleWalk<'b> {
    book: &'b RuleBook,
    depth: usize,
    noted: Noted,
}

impl<'b> RuleWalk<'b> {
    /// What is wrong with `message`.
    pub(super) fn of(book: &'b RuleBook, type_url: &str, message: &[u8]) -> Vec<BrokenRule> {
        let mut walk = Self { book, depth: 0, noted: Noted::default() };
        if let Some(plan) = book.of(type_url) {
            walk.look_at(plan, message, &FieldStep::Root);
        }
        walk.noted.0
    }

    fn look_at(&mut self, plan: &'b MessagePlan, message: &[u8], at: &FieldStep<'_>) {
        if self.depth >= DEEPEST {
            self.noted.note(at, "lies too deep");
            return;
        }
        self.depth += 1;
        let read = self.members(plan, message, at);
        let looked = plan.look.is_none_or(|look| look(&mut self.noted, message, at).is_some());
        if read.is_none() || !looked {
            self.noted.note(at, "is not encoded as its type says");
        }
        self.depth -= 1;
    }

    /// `None` when it is no such message.
    fn members(&mut self, plan: &'b MessagePlan, message: &[u8], at: &FieldStep<'_>) -> Option<()> {
        let mut rest = message;
        let mut counts = vec![0_usize; plan.members.len()];
        let mut chosen = vec![false; plan.choices.len()];
        while !rest.is_empty() {
            let (number, value) = WireValue::take(&mut rest)?;
            for ((_, members), chosen) in plan.choices.iter().zip(&mut chosen) {
                *chosen |= members.contains(&number);
            }
            let Ok(place) = plan.members.binary_search_by_key(&number, |member| member.number) else {
                continue;
            };
            let member = &plan.members[place];
            let step = at.field(&member.name);
            match (member.shape, member.kind, value) {
                (MemberShape::List, ValueKind::Scalar(scalar), WireValue::Bytes(packed))
                    if !matches!(scalar, Scalar::Text | Scalar::Bytes) =>
                {
                    for item in WireValue::packed(scalar, packed)? {
                        self.value(member, item, &step.index(counts[place]))?;
                        counts[place] += 1;
                    }
                    continue;
                }
                (MemberShape::List, ..) => self.value(member, value, &step.index(counts[place]))?,
                (MemberShape::Map, ..) => self.entry(member, value.bytes(), &step)?,
                (MemberShape::Implied | MemberShape::Told, ..) => self.value(member, value, &step)?,
            }
            counts[place] += 1;
        }
        for ((name, _), _) in plan.choices.iter().zip(chosen).filter(|(_, chosen)| !chosen) {
            self.noted.note(&at.field(name), "is required");
        }
        for (member, count) in plan.members.iter().zip(counts) {
            self.count(member, count, &at.field(&member.name));
            if member.unique {
                self.unique(member, message, &at.field(&member.name))?;
            }
        }
        Some(())
    }

    /// What is said of how often a member is there.
    fn count(&mut self, member: &MemberPlan, count: usize, at: &FieldStep<'_>) {
        if count == 0 && member.required {
            self.noted.note(at, "is required");
        }
        if count > 0 && member.disallowed {
            self.noted.note(at, "is something that Envoy takes no more");
        }
        if let Some(fewest) = member.fewest.filter(|fewest| (count as u64) < *fewest) {
            self.noted.note(at, format!("must have at least {fewest} of them"));
        }
        if let Some(most) = member.most.filter(|most| (count as u64) > *most) {
            self.noted.note(at, format!("must have at most {most} of them"));
        }
        if let (0, MemberShape::Implied, ValueKind::Scalar(scalar), Some(rules)) =
            (count, member.shape, member.kind, &member.value)
            && let Some(reason) = rules.of_scalar(scalar, None)
        {
            self.noted.note(at, reason);
        }
    }

    fn unique(&mut self, member: &MemberPlan, message: &[u8], at: &FieldStep<'_>) -> Option<()> {
        let (mut rest, mut seen) = (message, BTreeSet::new());
        while !rest.is_empty() {
            let (number, value) = WireValue::take(&mut rest)?;
            if number == member.number && !seen.insert(value.bytes()) {
                self.noted.note(at, "must not have the same twice");
            }
        }
        Some(())
    }

    /// One value of a member.
    fn value(&mut self, member: &'b MemberPlan, value: WireValue<'_>, at: &FieldStep<'_>) -> Option<()> {
        match member.kind {
            ValueKind::Scalar(scalar) => {
                if let Some(reason) =
                    member.value.as_ref().and_then(|rules| rules.of_scalar(scalar, Some(value)))
                {
                    self.noted.note(at, reason);
                }
            }
            ValueKind::Wrapped(scalar) => {
                let inner = only_member(value.bytes(), 1)?;
                if let Some(reason) = member.value.as_ref().and_then(|rules| rules.of_scalar(scalar, inner)) {
                    self.noted.note(at, reason);
                }
            }
            ValueKind::Duration => {
                if let Some(rules) = &member.value
                    && let Some(reason) = rules.of_number(nanoseconds(value.bytes())?, "s")
                {
                    self.noted.note(at, reason);
                }
            }
            ValueKind::Message(place) => {
                let book = self.book;
                self.look_at(book.at(place), value.bytes(), at);
            }
            ValueKind::Packed => self.packed(member, value.bytes(), at)?,
            ValueKind::Opaque => {}
        }
        Some(())
    }

    fn entry(&mut self, member: &'b MemberPlan, entry: &[u8], at: &FieldStep<'_>) -> Option<()> {
        let key = only_member(entry, 1)?.map(WireValue::bytes).unwrap_or_default();
        let name = String::from_utf8_lossy(key);
        let at = at.key(&name);
        if let Some(reason) = member.key.as_ref().and_then(|rules| rules.of_text(key)) {
            self.noted.note(&at, format!("the key {reason}"));
        }
        match (only_member(entry, 2)?, member.kind) {
            (Some(value), _) => self.value(member, value, &at),
            (None, ValueKind::Scalar(_)) => Some(()),
            // An empty message.
            (None, _) => self.value(member, WireValue::Bytes(&[]), &at),
        }
    }

    /// Something of any type, which says of which.
    fn packed(&mut self, member: &'b MemberPlan, any: &[u8], at: &FieldStep<'_>) -> Option<()> {
        let type_url = only_member(any, 1)?.map(WireValue::bytes).unwrap_or_default();
        let type_url = std::str::from_utf8(type_url).ok()?;
        if let Some(reason) = member.value.as_ref().and_then(|rules| rules.of_text(type_url.as_bytes())) {
            self.noted.note(at, format!("its type {reason}"));
        }
        if let Some(plan) = self.book.of(type_url) {
            let message = only_member(any, 2)?.map(WireValue::bytes).unwrap_or_default();
            self.look_at(plan, message, at);
        }
        Some(())
    }
}

/// The member with this number of a message in which each is there once; the last one counts.
fn only_member(mut message: &[u8], number: u32) -> Option<Option<WireValue<'_>>> {
    let mut found = None;
    while !message.is_empty() {
        let (at, value) = WireValue::take(&mut message)?;
        if at == number {
            found = Some(value);
        }
    }
    Some(found)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_wrap,
    reason = "bounds are far from where that matters, and signs are encoded like this"
)]
fn nanoseconds(duration: &[u8]) -> Option<f64> {
    let part = |number| {
        Some(match only_member(duration, number)? {
            Some(WireValue::Varint(value)) => value as i64 as f64,
            _ => 0.0,
        })
    };
    Some(part(1)? * 1e9 + part(2)?)
}
