//! What one logged line says: placeholders of the mesh replaced, those of Envoy left for Envoy.

use std::collections::HashMap;

use common::{
    policy::mesh_access_log::{LogField, LogFormatType, LogLineFormat, OpenTelemetryLog, operators},
    proto::{
        envoy::config::core::v3::{
            DataSource, SubstitutionFormatString, data_source::Specifier, substitution_format_string::Format,
        },
        google::protobuf::{Struct, Value, value::Kind},
        opentelemetry::proto::common::v1::{
            AnyValue, ArrayValue, KeyValue, KeyValueList, any_value::Value as Any,
        },
    },
};
use serde_json::Value as Json;

use crate::policy::{
    caller::{Caller, Particular},
    telemetry,
};

const OF_CONNECTIONS: &str = "[%START_TIME%] %RESPONSE_FLAGS% %KUMA_MESH% %KUMA_SOURCE_ADDRESS_WITHOUT_PORT%(%KUMA_SOURCE_SERVICE%)->%UPSTREAM_HOST%(%KUMA_DESTINATION_SERVICE%) took %DURATION%ms, sent %BYTES_SENT% bytes, received: %BYTES_RECEIVED% bytes";
const OF_REQUESTS: &str = r#"[%START_TIME%] %KUMA_MESH% "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" "%REQ(X-B3-TRACEID?X-DATADOG-TRACEID)%" "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%KUMA_SOURCE_SERVICE%" "%KUMA_DESTINATION_SERVICE%" "%KUMA_SOURCE_ADDRESS_WITHOUT_PORT%" "%UPSTREAM_HOST%""#;

/// What the placeholders of the mesh stand for at one place.
pub(super) struct PlaceholderValues<'a> {
    pub(super) mesh: &'a str,
    pub(super) zone: &'a str,
    pub(super) direction: &'static str,
    pub(super) source: &'a str,
    pub(super) destination: &'a str,
    pub(super) caller: &'a Caller,
    /// Whether requests are logged, and not connections.
    pub(super) http: bool,
}

/// What a line that has this text has to know of the caller.
pub(super) fn asks(text: &str) -> impl Iterator<Item = Particular> {
    let named = [
        ("%KUMA_SOURCE_SERVICE%", Particular::Service),
        ("%KUMA_SOURCE_ADDRESS", Particular::Address),
        ("%KUMA_WORKLOAD%", Particular::Workload),
    ];
    named.into_iter().filter(move |(placeholder, _)| text.contains(placeholder)).map(|(_, asked)| asked)
}

/// The texts of a format; those of the default when there is none.
pub(super) fn texts(format: Option<&LogLineFormat>) -> Vec<&str> {
    match format {
        Some(LogLineFormat { kind: LogFormatType::Plain, plain: Some(plain), .. }) => vec![plain],
        Some(LogLineFormat { kind: LogFormatType::Json, json: Some(fields), .. }) => {
            fields.iter().map(|field| field.value.as_str()).collect()
        }
        _ => vec![OF_CONNECTIONS, OF_REQUESTS],
    }
}

impl PlaceholderValues<'_> {
    /// `text` with the placeholders of the mesh replaced.
    fn replaced(&self, text: &str) -> String {
        let with_port = format!("{}:0", self.caller.get(Particular::Host));
        text.replace("%KUMA_SOURCE_ADDRESS%", &with_port)
            .replace("%KUMA_SOURCE_ADDRESS_WITHOUT_PORT%", self.caller.get(Particular::Address))
            .replace("%KUMA_SOURCE_SERVICE%", self.source)
            .replace("%KUMA_DESTINATION_SERVICE%", self.destination)
            .replace("%KUMA_MESH%", self.mesh)
            .replace("%KUMA_TRAFFIC_DIRECTION%", self.direction)
            .replace("%KUMA_ZONE%", self.zone)
            .replace("%KUMA_WORKLOAD%", self.caller.get(Particular::Workload))
    }

    /// The same, for Envoy.
    ///
    /// # Errors
    /// Why Envoy would not take it.
    fn usable(&self, text: &str) -> Result<String, String> {
        let text = self.replaced(text);
        operators::problem(&text).map_or(Ok(text), Err)
    }

    fn default_format(&self) -> &'static str {
        if self.http { OF_REQUESTS } else { OF_CONNECTIONS }
    }

    /// A line of a file.
    ///
    /// # Errors
    /// Why Envoy would not take the format.
    pub(super) fn line(&self, format: Option<&LogLineFormat>) -> Result<SubstitutionFormatString, String> {
        let message = match self.message(format)? {
            Kind::StringValue(text) => {
                let source =
                    DataSource { specifier: Some(Specifier::InlineString(text)), ..DataSource::default() };
                Format::TextFormatSource(source)
            }
            Kind::StructValue(object) => Format::JsonFormat(object),
            _ => Format::JsonFormat(Struct::default()),
        };
        Ok(substitution(message, format))
    }

    /// A line for whoever runs the proxy, who passes its message on to `address`.
    ///
    /// # Errors
    /// Why Envoy would not take the format.
    pub(super) fn line_for(
        &self,
        address: &str,
        format: Option<&LogLineFormat>,
    ) -> Result<SubstitutionFormatString, String> {
        let message = Value { kind: Some(self.message(format)?) };
        // A percent sign would be taken for a placeholder.
        let address = Value { kind: Some(Kind::StringValue(address.replace('%', "%%"))) };
        let fields = HashMap::from([("address".to_owned(), address), ("message".to_owned(), message)]);
        Ok(substitution(Format::JsonFormat(Struct { fields }), format))
    }

    fn message(&self, format: Option<&LogLineFormat>) -> Result<Kind, String> {
        let plain = match format {
            Some(LogLineFormat { kind: LogFormatType::Json, json: Some(fields), .. }) => {
                return Ok(Kind::StructValue(self.object(fields)?));
            }
            Some(LogLineFormat { plain: Some(plain), .. }) => plain,
            _ => self.default_format(),
        };
        Ok(Kind::StringValue(self.usable(plain)? + "\n"))
    }

    fn object(&self, fields: &[LogField]) -> Result<Struct, String> {
        let value = |field: &LogField| {
            let value = Value { kind: Some(Kind::StringValue(self.usable(&field.value)?)) };
            Ok((field.key.clone(), value))
        };
        Ok(Struct { fields: fields.iter().map(value).collect::<Result<_, String>>()? })
    }

    /// The body of a record.
    ///
    /// # Errors
    /// Why Envoy would not take it.
    pub(super) fn body(&self, log: &OpenTelemetryLog) -> Result<AnyValue, String> {
        match &log.body {
            None => Ok(telemetry::text(self.usable(self.default_format())?)),
            Some(Json::String(text)) => Ok(telemetry::text(self.usable(text)?)),
            Some(json) => match any_value(json) {
                Some(mut value) => self.replace_in(&mut value).map(|()| value),
                None => Ok(telemetry::text(self.usable(&json.to_string())?)),
            },
        }
    }

    fn replace_in(&self, value: &mut AnyValue) -> Result<(), String> {
        match &mut value.value {
            Some(Any::StringValue(text)) => *text = self.usable(text)?,
            Some(Any::ArrayValue(list)) => {
                list.values.iter_mut().try_for_each(|item| self.replace_in(item))?;
            }
            Some(Any::KvlistValue(members)) => {
                for KeyValue { key, value, .. } in &mut members.values {
                    *key = self.replaced(key);
                    value.as_mut().map_or(Ok(()), |value| self.replace_in(value))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The attributes of a record.
    ///
    /// # Errors
    /// Why Envoy would not take one.
    pub(super) fn attributes(&self, log: &OpenTelemetryLog) -> Result<KeyValueList, String> {
        let one = |LogField { key, value }: &LogField| {
            let value = Some(telemetry::text(self.usable(value)?));
            Ok(KeyValue { key: self.replaced(key), value, ..KeyValue::default() })
        };
        Ok(KeyValueList { values: log.attributes.iter().map(one).collect::<Result<_, String>>()? })
    }
}

fn substitution(line: Format, format: Option<&LogLineFormat>) -> SubstitutionFormatString {
    SubstitutionFormatString {
        format: Some(line),
        omit_empty_values: format.is_some_and(|format| format.omit_empty_values),
        ..SubstitutionFormatString::default()
    }
}

/// A value in the JSON form of OTLP; `None` when it is not one.
fn any_value(json: &Json) -> Option<AnyValue> {
    let object = json.as_object().filter(|object| object.len() == 1)?;
    let (name, json) = object.iter().next()?;
    let list = |json: &Json| json.get("values").and_then(Json::as_array).cloned();
    let value = match name.as_str() {
        "stringValue" => Any::StringValue(json.as_str()?.to_owned()),
        "boolValue" => Any::BoolValue(json.as_bool()?),
        "intValue" => Any::IntValue(json.as_i64().or_else(|| json.as_str()?.parse().ok())?),
        "doubleValue" => Any::DoubleValue(json.as_f64()?),
        "arrayValue" => {
            let values = list(json)?.iter().map(any_value).collect::<Option<_>>()?;
            Any::ArrayValue(ArrayValue { values })
        }
        "kvlistValue" => {
            let member = |json: &Json| {
                let key = json.get("key")?.as_str()?.to_owned();
                Some(KeyValue { key, value: Some(any_value(json.get("value")?)?), ..KeyValue::default() })
            };
            Any::KvlistValue(KeyValueList { values: list(json)?.iter().map(member).collect::<Option<_>>()? })
        }
        _ => return None,
    };
    Some(AnyValue { value: Some(value) })
}
