//! Which formats Envoy accepts. One that it does not would cost the proxy the whole listener.

/// Operators that take nothing.
const PLAIN: &[&str] = &[
    "ACCESS_LOG_TYPE",
    "BYTES_RECEIVED",
    "BYTES_RETRANSMITTED",
    "BYTES_SENT",
    "CONNECTION_ID",
    "CONNECTION_TERMINATION_DETAILS",
    "CUSTOM_FLAGS",
    "DOWNSTREAM_CX_RTT",
    "DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED",
    "DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_SENT",
    "DOWNSTREAM_DETECTED_CLOSE_TYPE",
    "DOWNSTREAM_DIRECT_LOCAL_ADDRESS",
    "DOWNSTREAM_DIRECT_LOCAL_ADDRESS_ENDPOINT_ID",
    "DOWNSTREAM_DIRECT_LOCAL_PORT",
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS",
    "DOWNSTREAM_DIRECT_REMOTE_PORT",
    "DOWNSTREAM_HANDSHAKE_DURATION",
    "DOWNSTREAM_HEADER_BYTES_RECEIVED",
    "DOWNSTREAM_HEADER_BYTES_SENT",
    "DOWNSTREAM_LOCAL_ADDRESS",
    "DOWNSTREAM_LOCAL_ADDRESS_ENDPOINT_ID",
    "DOWNSTREAM_LOCAL_CLOSE_REASON",
    "DOWNSTREAM_LOCAL_DNS_SAN",
    "DOWNSTREAM_LOCAL_EMAIL_SAN",
    "DOWNSTREAM_LOCAL_IP_SAN",
    "DOWNSTREAM_LOCAL_OTHERNAME_SAN",
    "DOWNSTREAM_LOCAL_PORT",
    "DOWNSTREAM_LOCAL_SUBJECT",
    "DOWNSTREAM_LOCAL_URI_SAN",
    "DOWNSTREAM_PEER_CERT",
    "DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_1",
    "DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_256",
    "DOWNSTREAM_PEER_CHAIN_SERIALS",
    "DOWNSTREAM_PEER_DNS_SAN",
    "DOWNSTREAM_PEER_EMAIL_SAN",
    "DOWNSTREAM_PEER_FINGERPRINT_1",
    "DOWNSTREAM_PEER_FINGERPRINT_256",
    "DOWNSTREAM_PEER_IP_SAN",
    "DOWNSTREAM_PEER_ISSUER",
    "DOWNSTREAM_PEER_ISSUER_FINGERPRINT_256",
    "DOWNSTREAM_PEER_ISSUER_SERIAL",
    "DOWNSTREAM_PEER_OTHERNAME_SAN",
    "DOWNSTREAM_PEER_SERIAL",
    "DOWNSTREAM_PEER_SUBJECT",
    "DOWNSTREAM_PEER_URI_SAN",
    "DOWNSTREAM_REMOTE_ADDRESS",
    "DOWNSTREAM_REMOTE_PORT",
    "DOWNSTREAM_TLS_CIPHER",
    "DOWNSTREAM_TLS_GROUP",
    "DOWNSTREAM_TLS_SESSION_ID",
    "DOWNSTREAM_TLS_VERSION",
    "DOWNSTREAM_TRANSPORT_FAILURE_REASON",
    "DOWNSTREAM_WIRE_BYTES_RECEIVED",
    "DOWNSTREAM_WIRE_BYTES_SENT",
    "DURATION",
    "FILTER_CHAIN_NAME",
    "GRPC_STATUS_NUMBER",
    "HOSTNAME",
    "LOCAL_REPLY_BODY",
    "PACKETS_RETRANSMITTED",
    "PROTOCOL",
    "REQUESTED_SERVER_NAME",
    "REQUEST_DURATION",
    "REQUEST_HEADERS_BYTES",
    "REQUEST_TX_DURATION",
    "RESPONSE_CODE",
    "RESPONSE_DURATION",
    "RESPONSE_FLAGS",
    "RESPONSE_FLAGS_LONG",
    "RESPONSE_HEADERS_BYTES",
    "RESPONSE_TRAILERS_BYTES",
    "RESPONSE_TX_DURATION",
    "ROUNDTRIP_DURATION",
    "ROUTE_NAME",
    "SPAN_ID",
    "STREAM_ID",
    "TLS_JA3_FINGERPRINT",
    "TLS_JA4_FINGERPRINT",
    "TRACE_ID",
    "UNIQUE_ID",
    "UPSTREAM_CLUSTER",
    "UPSTREAM_CLUSTER_RAW",
    "UPSTREAM_CONNECTION_ID",
    "UPSTREAM_CONNECTION_IDS_ATTEMPTED",
    "UPSTREAM_CONNECTION_POOL_READY_DURATION",
    "UPSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED",
    "UPSTREAM_DECOMPRESSED_HEADER_BYTES_SENT",
    "UPSTREAM_DETECTED_CLOSE_TYPE",
    "UPSTREAM_HEADER_BYTES_RECEIVED",
    "UPSTREAM_HEADER_BYTES_SENT",
    "UPSTREAM_HOST",
    "UPSTREAM_HOSTS_ATTEMPTED",
    "UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT",
    "UPSTREAM_HOST_NAME",
    "UPSTREAM_HOST_NAMES_ATTEMPTED",
    "UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT",
    "UPSTREAM_HOST_NAME_WITHOUT_PORT",
    "UPSTREAM_LOCAL_ADDRESS",
    "UPSTREAM_LOCAL_CLOSE_REASON",
    "UPSTREAM_LOCAL_DNS_SAN",
    "UPSTREAM_LOCAL_IP_SAN",
    "UPSTREAM_LOCAL_PORT",
    "UPSTREAM_LOCAL_URI_SAN",
    "UPSTREAM_PEER_CERT",
    "UPSTREAM_PEER_DNS_SAN",
    "UPSTREAM_PEER_IP_SAN",
    "UPSTREAM_PEER_ISSUER",
    "UPSTREAM_PEER_SUBJECT",
    "UPSTREAM_PEER_URI_SAN",
    "UPSTREAM_PROTOCOL",
    "UPSTREAM_REMOTE_ADDRESS",
    "UPSTREAM_REMOTE_ADDRESS_ENDPOINT_ID",
    "UPSTREAM_REMOTE_PORT",
    "UPSTREAM_REQUEST_ATTEMPT_COUNT",
    "UPSTREAM_SERVER_NAME",
    "UPSTREAM_TLS_CIPHER",
    "UPSTREAM_TLS_GROUP",
    "UPSTREAM_TLS_SESSION_ID",
    "UPSTREAM_TLS_VERSION",
    "UPSTREAM_TRANSPORT_FAILURE_REASON",
    "UPSTREAM_WIRE_BYTES_RECEIVED",
    "UPSTREAM_WIRE_BYTES_SENT",
    "VIRTUAL_CLUSTER_NAME",
];

/// Operators that say which part they mean, and may be cut to a length.
const WITH_ARGUMENT: &[&str] = &[
    "CEL",
    "COMMON_DURATION",
    "DYNAMIC_METADATA",
    "ENVIRONMENT",
    "FILTER_STATE",
    "METADATA",
    "QUERY_PARAM",
    "REQ",
    "REQUEST_HEADER",
    "RESP",
    "RESPONSE_HEADER",
    "RESPONSE_TRAILER",
    "TRAILER",
    "TYPED_CEL",
    "UPSTREAM_FILTER_STATE",
];

/// The same, which are never cut.
const WHOLE_WITH_ARGUMENT: &[&str] = &["CLUSTER_METADATA", "UPSTREAM_METADATA"];

/// Operators that may say how they are shown.
const WITH_FORM: &[&str] = &[
    "DOWNSTREAM_DIRECT_LOCAL_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_PEER_CERT_V_END",
    "DOWNSTREAM_PEER_CERT_V_START",
    "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
    "EMIT_TIME",
    "EMIT_TIME_LOCAL",
    "RESPONSE_CODE_DETAILS",
    "START_TIME",
    "START_TIME_LOCAL",
    "UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
    "UPSTREAM_PEER_CERT_V_END",
    "UPSTREAM_PEER_CERT_V_START",
    "UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
];

/// The first thing in `format` that Envoy would refuse, in words.
#[must_use]
pub fn problem(format: &str) -> Option<String> {
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            rest = after;
            continue;
        }
        let Some((operator, after)) = Operator::read(rest) else {
            return Some("a percent sign that is no placeholder has to be written twice".to_owned());
        };
        if !operator.is_known() {
            let argument = operator.argument.map(|argument| format!("({argument})")).unwrap_or_default();
            return Some(format!("{}{argument} is no placeholder here", operator.name));
        }
        rest = after;
    }
    None
}

/// `NAME(argument):length`
struct Operator<'a> {
    name: &'a str,
    argument: Option<&'a str>,
    is_cut: bool,
}

impl<'a> Operator<'a> {
    /// Reads one behind its percent sign; gives what comes after the other one.
    fn read(text: &'a str) -> Option<(Self, &'a str)> {
        let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let (name, rest) = text.split_at(text.find(|c| !is_name(c))?);
        if name.is_empty() {
            return None;
        }
        let Some(rest) = rest.strip_prefix('(') else {
            let (is_cut, rest) = Self::end(rest)?;
            return Some((Self { name, argument: None, is_cut }, rest));
        };
        // The argument ends with the first bracket behind which the operator can end.
        let line = rest.find('\n').unwrap_or(rest.len());
        rest[..line].match_indices(')').find_map(|(at, _)| {
            let (is_cut, after) = Self::end(&rest[at + 1..])?;
            Some((Self { name, argument: Some(&rest[..at]), is_cut }, after))
        })
    }

    /// The length, if any, and the percent sign.
    fn end(text: &'a str) -> Option<(bool, &'a str)> {
        let Some(length) = text.strip_prefix(':') else { return Some((false, text.strip_prefix('%')?)) };
        let (digits, rest) = length.split_at(length.find(|c: char| !c.is_ascii_digit())?);
        digits.parse::<u16>().ok()?;
        Some((true, rest.strip_prefix('%')?))
    }

    fn is_known(&self) -> bool {
        let argument = self.argument.unwrap_or_default();
        if WITH_ARGUMENT.contains(&self.name) {
            return self.fits(argument);
        }
        match self.name {
            "PATH" => ["", "WQ", "NQ"].contains(&argument.split(':').next().unwrap_or_default()),
            "QUERY_PARAMS" => ["", "ORIG", "DECODED"].contains(&argument),
            _ if self.is_cut => false,
            "GRPC_STATUS" => ["", "CAMEL_STRING", "SNAKE_STRING", "NUMBER"].contains(&argument),
            name if WHOLE_WITH_ARGUMENT.contains(&name) => !argument.is_empty(),
            name if WITH_FORM.contains(&name) => true,
            name => self.argument.is_none() && PLAIN.contains(&name),
        }
    }

    fn fits(&self, argument: &str) -> bool {
        match self.name {
            "REQ" | "RESP" | "TRAILER" | "REQUEST_HEADER" | "RESPONSE_HEADER" | "RESPONSE_TRAILER" => {
                let mut names = argument.split('?');
                let is_header = |name: &str| {
                    http::HeaderName::from_bytes(name.strip_prefix(':').unwrap_or(name).as_bytes()).is_ok()
                };
                argument.matches('?').count() <= 1 && names.all(is_header)
            }
            "METADATA" => {
                let of = argument.split(':').next().unwrap_or_default();
                ["DYNAMIC", "CLUSTER", "ROUTE", "UPSTREAM_HOST", "LISTENER", "VIRTUAL_HOST"].contains(&of)
            }
            "FILTER_STATE" | "UPSTREAM_FILTER_STATE" => match argument.split_once(':') {
                Some((_, form)) => ["PLAIN", "TYPED"].contains(&form) || form.starts_with("FIELD:"),
                None => !argument.is_empty(),
            },
            _ => !argument.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::problem;

    #[test]
    fn what_envoy_knows_is_a_placeholder() {
        for good in [
            "",
            "100%%",
            "[%START_TIME%] %REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH):10%",
            "%START_TIME(%s)% %RESPONSE_CODE% %DYNAMIC_METADATA(a:b):5%",
            "%CEL(request.path.startsWith('/'))% %UPSTREAM_HOST%",
        ] {
            assert_eq!(problem(good), None, "{good}");
        }
    }

    #[test]
    fn what_envoy_would_refuse_is_told() {
        for bad in [
            "100%",
            "%KUMA_ELSE%",
            "%REQ%",
            "%REQ(a b)%",
            "%req(a)%",
            "%REQ(a)",
            "%DURATION:5%",
            "%START_TIME(\n)%",
            "%GRPC_STATUS(a)%",
            "a % b",
        ] {
            assert!(problem(bad).is_some(), "{bad}");
        }
    }
}
