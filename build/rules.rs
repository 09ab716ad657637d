//! Reads the rules that stand beside the members of messages in the files that describe them.

use std::collections::{BTreeMap, BTreeSet};

use protox::prost_reflect::{
    Cardinality, DescriptorPool, DynamicMessage, EnumDescriptor, ExtensionDescriptor, FieldDescriptor, Kind,
    MessageDescriptor, Value,
};

use super::table::{
    MemberRules, MessageRules, NumberRules, RequiredChoice, RuleTable, TextRules, ValueRules, header, shape,
};

/// Where something else stands that is looked at in its turn.
const ANY: &str = "google.protobuf.Any";

/// Messages by their names.
pub(super) type Found = BTreeMap<String, MessageRules>;

/// The options in which rules stand.
struct Marks {
    rules: Option<ExtensionDescriptor>,
    required: Option<ExtensionDescriptor>,
    disallowed: Option<ExtensionDescriptor>,
    disallowed_value: Option<ExtensionDescriptor>,
}

/// Adds what is said of the messages in `pool`.
pub(super) fn gather(pool: &DescriptorPool, found: &mut Found) -> Result<(), String> {
    let marks = Marks {
        rules: pool.get_extension_by_name("validate.rules"),
        required: pool.get_extension_by_name("validate.required"),
        disallowed: pool.get_extension_by_name("envoy.annotations.disallowed_by_default"),
        disallowed_value: pool.get_extension_by_name("envoy.annotations.disallowed_by_default_enum"),
    };
    for message in pool.all_messages().filter(|message| !message.is_map_entry()) {
        let name = message.full_name();
        if !name.starts_with("google.protobuf.") && !found.contains_key(name) {
            found.insert(name.to_owned(), message_rules(&message, &marks)?);
        }
    }
    Ok(())
}

/// What is left when messages and members are gone of which there is nothing to look at.
pub(super) fn table(found: Found) -> RuleTable {
    let mut looked_at: BTreeSet<String> = BTreeSet::from([ANY.to_owned()]);
    loop {
        let matters = |rules: &MessageRules| {
            !rules.choices.is_empty() || rules.members.iter().any(|member| counts(member, &looked_at))
        };
        let more: Vec<String> = found
            .iter()
            .filter(|(name, rules)| !looked_at.contains(*name) && matters(rules))
            .map(|(name, _)| name.clone())
            .collect();
        if more.is_empty() {
            break;
        }
        looked_at.extend(more);
    }
    let messages = found.into_values().filter(|rules| looked_at.contains(&rules.name));
    let messages = messages.map(|mut rules| {
        rules.members.retain(|member| counts(member, &looked_at));
        rules.members.sort_by_key(|member| member.number);
        rules
    });
    RuleTable { messages: messages.collect() }
}

fn counts(member: &MemberRules, looked_at: &BTreeSet<String>) -> bool {
    let MemberRules { required, disallowed, fewest, most, unique, value, key, .. } = member;
    *required
        || *disallowed
        || fewest.is_some()
        || most.is_some()
        || *unique
        || value.is_some()
        || key.is_some()
        || (!member.skip && looked_at.contains(&member.message))
}

fn message_rules(message: &MessageDescriptor, marks: &Marks) -> Result<MessageRules, String> {
    let is_required = |options: DynamicMessage| flag(&options, marks.required.as_ref());
    let choices = message.oneofs().filter(|oneof| is_required(oneof.options())).map(|oneof| RequiredChoice {
        name: oneof.name().to_owned(),
        members: oneof.fields().map(|field| field.number()).collect(),
    });
    let members = message
        .fields()
        .map(|field| member_rules(&field, marks).map_err(|error| format!("{}: {error}", field.full_name())));
    Ok(MessageRules {
        name: message.full_name().to_owned(),
        choices: choices.collect(),
        members: members.collect::<Result<_, String>>()?,
    })
}

fn member_rules(field: &FieldDescriptor, marks: &Marks) -> Result<MemberRules, String> {
    let of_map = match field.kind() {
        Kind::Message(entry) if field.is_map() => {
            Some((entry.map_entry_key_field(), entry.map_entry_value_field()))
        }
        _ => None,
    };
    let of_value = of_map.as_ref().map_or(field, |(_, value)| value);
    let options = field.options();
    let mut member = MemberRules {
        number: field.number(),
        name: field.name().to_owned(),
        kind: of_value.field_descriptor_proto().r#type().into(),
        key_kind: of_map.as_ref().map_or(0, |(key, _)| key.field_descriptor_proto().r#type().into()),
        shape: match field.cardinality() {
            _ if field.is_map() => shape::MAP,
            Cardinality::Repeated => shape::LIST,
            _ if field.supports_presence() => shape::TOLD,
            _ => shape::IMPLIED,
        },
        message: match of_value.kind() {
            Kind::Message(message) => message.full_name().to_owned(),
            _ => String::new(),
        },
        disallowed: flag(&options, marks.disallowed.as_ref()),
        ..MemberRules::default()
    };
    if let Some(rules) = marks.rules.as_ref().filter(|rules| options.has_extension(rules)) {
        let rules = options.get_extension(rules);
        read(rules.as_message().ok_or("rules are a message")?, of_value, &mut member)?;
    }
    // Which member of several it is says that it is there.
    member.required &= field.containing_oneof().is_none_or(|oneof| oneof.is_synthetic());
    if let Kind::Enum(of) = of_value.kind() {
        let disallowed = no_longer(&of, marks);
        if !disallowed.is_empty() {
            member.value.get_or_insert_default().disallowed = disallowed;
        }
    }
    Ok(member)
}

fn no_longer(of: &EnumDescriptor, marks: &Marks) -> Vec<i32> {
    let is = |options: DynamicMessage| flag(&options, marks.disallowed_value.as_ref());
    of.values().filter(|value| is(value.options())).map(|value| value.number()).collect()
}

fn flag(options: &DynamicMessage, mark: Option<&ExtensionDescriptor>) -> bool {
    let set = mark.filter(|mark| options.has_extension(mark)).map(|mark| options.get_extension(mark));
    set.is_some_and(|set| set.as_bool() == Some(true))
}

/// Everything that is said in the option; what is not known here must not be passed over.
fn read(rules: &DynamicMessage, of: &FieldDescriptor, member: &mut MemberRules) -> Result<(), String> {
    for (said, value) in rules.fields() {
        let rules = value.as_message().ok_or("rules are messages")?;
        match said.name() {
            "message" => (member.required, member.skip) = (is(rules, "required"), is(rules, "skip")),
            "repeated" => {
                (member.fewest, member.most) = (count(rules, "min_items"), count(rules, "max_items"));
                member.unique = is(rules, "unique");
                refuse(rules, &["min_items", "max_items", "unique", "items", "ignore_empty"])?;
                if let Some(items) = part(rules, "items") {
                    read_inner(&items, of, &mut member.value)?;
                }
            }
            "map" => {
                (member.fewest, member.most) = (count(rules, "min_pairs"), count(rules, "max_pairs"));
                refuse(rules, &["min_pairs", "max_pairs", "keys", "values", "ignore_empty"])?;
                if let Some(values) = part(rules, "values") {
                    read_inner(&values, of, &mut member.value)?;
                }
                if let Some(keys) = part(rules, "keys") {
                    read_inner(&keys, of, &mut member.key)?;
                }
            }
            other => {
                member.required |= ["any", "duration", "timestamp"].contains(&other) && is(rules, "required");
                member.value = Some(value_rules(other, rules, of)?);
            }
        }
    }
    if member.value.as_ref().is_some_and(|value| *value == ValueRules::default()) {
        member.value = None;
    }
    Ok(())
}

/// What is said of the items of a list, or the keys or values of a map.
fn read_inner(
    rules: &DynamicMessage,
    of: &FieldDescriptor,
    inner: &mut Option<ValueRules>,
) -> Result<(), String> {
    for (said, value) in rules.fields() {
        let rules = value.as_message().ok_or("rules are messages")?;
        match said.name() {
            // Of something in a list it says nothing that its being there does not.
            "message" => {}
            other => *inner = Some(value_rules(other, rules, of)?),
        }
    }
    Ok(())
}

fn value_rules(kind: &str, rules: &DynamicMessage, of: &FieldDescriptor) -> Result<ValueRules, String> {
    let mut value = ValueRules { ignore_empty: is(rules, "ignore_empty"), ..ValueRules::default() };
    match kind {
        "string" | "bytes" => value.text = Some(texts(rules, kind == "bytes")?),
        "any" => {
            refuse(rules, &["required", "in", "not_in"])?;
            let text =
                TextRules { among: list(rules, "in"), but: list(rules, "not_in"), ..TextRules::default() };
            value.text = (text != TextRules::default()).then_some(text);
        }
        _ => {
            let number = numbers(rules)?;
            value.number = (number != NumberRules::default()).then_some(number);
        }
    }
    if kind == "enum"
        && is(rules, "defined_only")
        && let Kind::Enum(of) = of.kind()
    {
        value.defined = of.values().map(|value| value.number()).collect();
    }
    Ok(value)
}

fn numbers(rules: &DynamicMessage) -> Result<NumberRules, String> {
    refuse(
        rules,
        &["const", "lt", "lte", "gt", "gte", "in", "not_in", "required", "ignore_empty", "defined_only"],
    )?;
    let one =
        |name: &str| rules.fields().find(|(field, _)| field.name() == name).and_then(|(_, v)| number(v));
    let all = |name: &str| -> Vec<f64> {
        let list = rules.fields().find(|(field, _)| field.name() == name);
        list.and_then(|(_, list)| list.as_list()).into_iter().flatten().filter_map(number).collect()
    };
    Ok(NumberRules {
        equal: one("const"),
        below: one("lt"),
        at_most: one("lte"),
        above: one("gt"),
        at_least: one("gte"),
        among: all("in"),
        but: all("not_in"),
    })
}

#[expect(clippy::cast_precision_loss, reason = "bounds are far from where that matters")]
fn number(value: &Value) -> Option<f64> {
    Some(match value {
        Value::Bool(flag) => f64::from(u8::from(*flag)),
        Value::I32(number) | Value::EnumNumber(number) => f64::from(*number),
        Value::U32(number) => f64::from(*number),
        Value::I64(number) => *number as f64,
        Value::U64(number) => *number as f64,
        Value::F32(number) => f64::from(*number),
        Value::F64(number) => *number,
        // A duration.
        Value::Message(message) => {
            let part = |name: &str| message.get_field_by_name(name).and_then(|part| number(&part));
            part("seconds")? * 1e9 + part("nanos")?
        }
        _ => return None,
    })
}

fn texts(rules: &DynamicMessage, of_bytes: bool) -> Result<TextRules, String> {
    let known = [
        "min_len",
        "max_len",
        "min_bytes",
        "max_bytes",
        "pattern",
        "prefix",
        "suffix",
        "contains",
        "const",
        "not_contains",
        "in",
        "not_in",
        "well_known_regex",
        "strict",
        "ignore_empty",
        "uri",
    ];
    refuse(rules, &known)?;
    let text = |name: &str| {
        let value = rules.get_field_by_name(name)?;
        value.as_str().map(str::to_owned)
    };
    let strict = rules.get_field_by_name("strict").is_none_or(|strict| strict.as_bool() == Some(true));
    let well_known = rules.get_field_by_name("well_known_regex").and_then(|regex| regex.as_enum_number());
    let (chars, bytes) = if of_bytes { (None, Some("len")) } else { (Some("len"), Some("bytes")) };
    let bound = |which: &str, unit: Option<&str>| count(rules, &format!("{which}_{}", unit?));
    Ok(TextRules {
        fewest_chars: bound("min", chars),
        most_chars: bound("max", chars),
        fewest_bytes: bound("min", bytes),
        most_bytes: bound("max", bytes),
        pattern: text("pattern").unwrap_or_default(),
        prefix: text("prefix").unwrap_or_default(),
        suffix: text("suffix").unwrap_or_default(),
        contains: text("contains").unwrap_or_default(),
        lacks: text("not_contains").unwrap_or_default(),
        among: list(rules, "in"),
        but: list(rules, "not_in"),
        header: match well_known {
            Some(1) if strict => header::NAME,
            Some(2) if strict => header::VALUE,
            Some(1 | 2) => header::LINE,
            _ => header::NONE,
        },
        equal: text("const").filter(|_| rules.has_field_by_name("const")),
    })
}

fn refuse(rules: &DynamicMessage, known: &[&str]) -> Result<(), String> {
    match rules.fields().find(|(field, _)| !known.contains(&field.name())) {
        Some((unknown, _)) => Err(format!("nobody here knows the rule {:?}", unknown.full_name())),
        None => Ok(()),
    }
}

fn is(rules: &DynamicMessage, name: &str) -> bool {
    rules.get_field_by_name(name).is_some_and(|value| value.as_bool() == Some(true))
}

fn count(rules: &DynamicMessage, name: &str) -> Option<u64> {
    rules.has_field_by_name(name).then(|| rules.get_field_by_name(name)).flatten().and_then(|v| v.as_u64())
}

fn part(rules: &DynamicMessage, name: &str) -> Option<DynamicMessage> {
    let set = rules.has_field_by_name(name).then(|| rules.get_field_by_name(name)).flatten();
    set.and_then(|part| part.as_message().cloned())
}

fn list(rules: &DynamicMessage, name: &str) -> Vec<String> {
    let value = rules.get_field_by_name(name);
    let items = value.as_ref().and_then(|value| value.as_list()).into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}
