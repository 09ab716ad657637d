//! JSON as a schema reads it: an object is an object. Left to itself, a struct may also be read from a list of its
//! members.

use serde::{
    Deserializer, Serialize,
    de::{
        DeserializeSeed, Error as _, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor,
        value::StrDeserializer,
    },
    forward_to_deserialize_any,
};
use serde_json::{Error, Map, Value};

/// A value, read strictly.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
pub(super) struct StrictValue<'v>(pub(super) &'v Value);

impl<'de> Deserializer<'de> for StrictValue<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(flag) => visitor.visit_bool(*flag),
            Value::Number(number) => number.deserialize_any(visitor),
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => visitor.visit_seq(StrictItems(items.iter())),
            Value::Object(members) => visitor.visit_map(StrictMembers::of(members)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(_) => Err(Error::invalid_type(Unexpected::Seq, &visitor)),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq
        tuple tuple_struct map identifier
    }
}

struct StrictItems<'v>(std::slice::Iter<'v, Value>);

impl<'de> SeqAccess<'de> for StrictItems<'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        self.0.next().map(|item| seed.deserialize(StrictValue(item))).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

struct StrictMembers<'v> {
    members: serde_json::map::Iter<'v>,
    value: Option<&'v Value>,
}

impl<'v> StrictMembers<'v> {
    fn of(members: &'v Map<String, Value>) -> Self {
        Self { members: members.iter(), value: None }
    }
}

impl<'de> MapAccess<'de> for StrictMembers<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((name, value)) = self.members.next() else { return Ok(None) };
        self.value = Some(value);
        let name: StrDeserializer<'de, Error> = name.as_str().into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let value = self.value.take().ok_or_else(|| Error::custom("a value is asked for before its name"))?;
        seed.deserialize(StrictValue(value))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.members.len())
    }
}
