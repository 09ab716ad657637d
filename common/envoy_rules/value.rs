//! Whether a value is what its member may hold.

use prost::encoding::{WireType, decode_key, decode_varint};

use super::{
    plan::{Scalar, TextPlan, ValuePlan},
    table::{NumberRules, header},
};

/// A value as it stands in an encoded message.
#[derive(Clone, Copy, Debug)]
pub(super) enum WireValue<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Fixed32([u8; 4]),
    Bytes(&'a [u8]),
}

impl<'a> WireValue<'a> {
    /// The next number and value of a message; `None` when there is no such thing.
    pub(super) fn take(bytes: &mut &'a [u8]) -> Option<(u32, Self)> {
        let (number, wire_type) = decode_key(bytes).ok()?;
        Some((number, Self::of(wire_type, bytes)?))
    }

    fn of(wire_type: WireType, bytes: &mut &'a [u8]) -> Option<Self> {
        Some(match wire_type {
            WireType::Varint => Self::Varint(decode_varint(bytes).ok()?),
            WireType::SixtyFourBit => Self::Fixed64(fixed(bytes)?),
            WireType::ThirtyTwoBit => Self::Fixed32(fixed(bytes)?),
            WireType::LengthDelimited => {
                let length = usize::try_from(decode_varint(bytes).ok()?).ok()?;
                let (content, rest) = bytes.split_at_checked(length)?;
                *bytes = rest;
                Self::Bytes(content)
            }
            WireType::StartGroup | WireType::EndGroup => return None,
        })
    }

    /// The items of a packed list.
    pub(super) fn packed(scalar: Scalar, mut bytes: &'a [u8]) -> Option<Vec<Self>> {
        let wire_type = match scalar {
            Scalar::Double => WireType::SixtyFourBit,
            Scalar::Float => WireType::ThirtyTwoBit,
            Scalar::Signed | Scalar::Unsigned | Scalar::Zigzag => WireType::Varint,
            // Which of the two widths it has is not told; nothing is said of any such list.
            Scalar::Fixed | Scalar::FixedSigned | Scalar::Text | Scalar::Bytes => return Some(Vec::new()),
        };
        let mut items = Vec::new();
        while !bytes.is_empty() {
            items.push(Self::of(wire_type, &mut bytes)?);
        }
        Some(items)
    }

    /// As a number, where it is one.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_wrap,
        reason = "bounds are far from where that matters, and signs are encoded like this"
    )]
    fn number(self, scalar: Scalar) -> Option<f64> {
        Some(match (self, scalar) {
            (Self::Varint(value), Scalar::Signed) => value as i64 as f64,
            (Self::Varint(value), Scalar::Zigzag) => ((value >> 1) as i64 ^ -((value & 1) as i64)) as f64,
            (Self::Varint(value), _) => value as f64,
            (Self::Fixed64(bytes), Scalar::Double) => f64::from_le_bytes(bytes),
            (Self::Fixed64(bytes), Scalar::FixedSigned) => i64::from_le_bytes(bytes) as f64,
            (Self::Fixed64(bytes), _) => u64::from_le_bytes(bytes) as f64,
            (Self::Fixed32(bytes), Scalar::Float) => f64::from(f32::from_le_bytes(bytes)),
            (Self::Fixed32(bytes), Scalar::FixedSigned) => f64::from(i32::from_le_bytes(bytes)),
            (Self::Fixed32(bytes), _) => f64::from(u32::from_le_bytes(bytes)),
            (Self::Bytes(_), _) => return None,
        })
    }

    /// The content of something that has a length; nothing of anything else.
    pub(super) fn bytes(self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Varint(_) | Self::Fixed64(_) | Self::Fixed32(_) => &[],
        }
    }
}

fn fixed<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (content, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*content)
}

impl ValuePlan {
    /// What is wrong with a scalar, `None` for the default of its type.
    pub(super) fn of_scalar(&self, scalar: Scalar, value: Option<WireValue<'_>>) -> Option<String> {
        if matches!(scalar, Scalar::Text | Scalar::Bytes) {
            return self.of_text(value.map(WireValue::bytes).unwrap_or_default());
        }
        let number = match value {
            Some(value) => value.number(scalar)?,
            None => 0.0,
        };
        self.of_number(number, "")
    }

    /// What is wrong with a number, or a duration in nanoseconds.
    pub(super) fn of_number(&self, number: f64, unit: &str) -> Option<String> {
        #[expect(clippy::cast_possible_truncation, reason = "what is no such number is in no list of them")]
        let of_enum = number as i32;
        if self.ignore_empty && number == 0.0 {
            return None;
        }
        if !self.defined.is_empty() && !self.defined.contains(&of_enum) {
            return Some(format!("{number} is none of its values"));
        }
        if self.disallowed.contains(&of_enum) {
            return Some(format!("{number} is a value that Envoy takes no more"));
        }
        let broken = self.number.as_ref().and_then(|rules| rules.broken_by(number, unit));
        broken.map(|rule| format!("must be {rule}, and is {}", shown(number, unit)))
    }

    /// What is wrong with a text, or with bytes.
    pub(super) fn of_text(&self, text: &[u8]) -> Option<String> {
        if self.ignore_empty && text.is_empty() {
            return None;
        }
        self.text.as_ref().and_then(|plan| plan.broken_by(text))
    }
}

fn shown(number: f64, unit: &str) -> String {
    if unit.is_empty() { number.to_string() } else { format!("{}{unit}", number / 1e9) }
}

impl NumberRules {
    /// The rule that `number` breaks, in words.
    fn broken_by(&self, number: f64, unit: &str) -> Option<String> {
        let Self { equal, below, at_most, above, at_least, among, but } = self;
        let list = |all: &[f64]| all.iter().map(|one| shown(*one, unit)).collect::<Vec<_>>().join(", ");
        // What is no number at all is within no bounds.
        let outside = |bound: &Option<f64>, within: fn(f64, f64) -> bool| {
            bound.filter(|bound| !within(number, *bound)).map(|bound| shown(bound, unit))
        };
        let bounds = [
            (outside(equal, |a, b| a == b), "equal to"),
            (outside(below, |a, b| a < b), "less than"),
            (outside(at_most, |a, b| a <= b), "at most"),
            (outside(above, |a, b| a > b), "greater than"),
            (outside(at_least, |a, b| a >= b), "at least"),
        ];
        if let Some((bound, words)) = bounds.into_iter().find_map(|(bound, words)| Some((bound?, words))) {
            return Some(format!("{words} {bound}"));
        }
        if !among.is_empty() && !among.contains(&number) {
            return Some(format!("one of {}", list(among)));
        }
        but.contains(&number).then(|| format!("none of {}", list(but)))
    }
}

impl TextPlan {
    fn broken_by(&self, bytes: &[u8]) -> Option<String> {
        let rules = &self.rules;
        let Ok(text) = std::str::from_utf8(bytes) else {
            return self.wrong_length(bytes.len(), bytes.len());
        };
        let length = self.wrong_length(text.chars().count(), bytes.len());
        let wrong = |is: bool, words: String| (!is).then_some(words);
        length
            .or_else(|| {
                let equal = rules.equal.as_ref()?;
                wrong(text == equal, format!("must be {equal:?}"))
            })
            .or_else(|| {
                self.pattern.as_ref().and_then(|p| wrong(p.is_match(text), format!("must be like {p}")))
            })
            .or_else(|| wrong(text.starts_with(&rules.prefix), format!("must begin with {:?}", rules.prefix)))
            .or_else(|| wrong(text.ends_with(&rules.suffix), format!("must end with {:?}", rules.suffix)))
            .or_else(|| {
                wrong(text.contains(&rules.contains), format!("must have {:?} in it", rules.contains))
            })
            .or_else(|| {
                let lacks = rules.lacks.is_empty() || !text.contains(&rules.lacks);
                wrong(lacks, format!("must not have {:?} in it", rules.lacks))
            })
            .or_else(|| {
                let listed = rules.among.is_empty() || rules.among.iter().any(|one| one == text);
                wrong(listed, format!("must be one of {:?}", rules.among))
            })
            .or_else(|| {
                wrong(!rules.but.iter().any(|one| one == text), format!("must be none of {:?}", rules.but))
            })
            .or_else(|| wrong_in_header(rules.header, bytes).map(str::to_owned))
    }

    fn wrong_length(&self, chars: usize, bytes: usize) -> Option<String> {
        let rules = &self.rules;
        let few = |bound: Option<u64>, is: usize| bound.filter(|bound| (is as u64) < *bound);
        let many = |bound: Option<u64>, is: usize| bound.filter(|bound| (is as u64) > *bound);
        if few(rules.fewest_chars, chars).or(few(rules.fewest_bytes, bytes)) == Some(1) {
            return Some("must not be empty".to_owned());
        }
        let bounds = [
            (few(rules.fewest_chars, chars), "at least", "characters"),
            (many(rules.most_chars, chars), "at most", "characters"),
            (few(rules.fewest_bytes, bytes), "at least", "bytes"),
            (many(rules.most_bytes, bytes), "at most", "bytes"),
        ];
        let broken = bounds.into_iter().find_map(|(bound, words, unit)| Some((bound?, words, unit)));
        broken.map(|(bound, words, unit)| format!("must have {words} {bound} {unit}"))
    }
}

fn wrong_in_header(kind: i32, text: &[u8]) -> Option<&'static str> {
    let in_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_|~`,".contains(byte);
    match kind {
        header::NONE => None,
        header::NAME => {
            let name = text.strip_prefix(b":").unwrap_or(text);
            let is = !name.is_empty() && name.iter().all(in_name);
            (!is).then_some("must be the name of a header")
        }
        header::VALUE => {
            let controls = text.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t');
            controls.then_some("must not have control characters in it")
        }
        header::LINE => {
            let ends = text.iter().any(|byte| [0, b'\n', b'\r'].contains(byte));
            ends.then_some("must not have ends of lines in it, nor zeros")
        }
        other => unreachable!("the build script wrote the part {other} of a header"),
    }
}
