//! Variables of the environment that look like settings and are none: misspelt, of a newer release, of Kuma
//! without a counterpart here.
//!
//! One that would change who may do what, or what is encrypted, must not be dropped without a word: whoever
//! set it relies on it. It stops the start. The others only do nothing, which is said.

use std::collections::BTreeSet;

use super::{Config, PREFIXES, leaves, variables_of};

/// Settings of Kuma whose variable is not named after their path.
const ALIASES: [(&str, &str); 6] = [
    ("access.static.viewConfigDump.users", "ACCESS_STATIC_GET_CONFIG_DUMP_USERS"),
    ("access.static.viewConfigDump.groups", "ACCESS_STATIC_GET_CONFIG_DUMP_GROUPS"),
    ("xdsServer.dataplaneDeregistrationDelay", "XDS_DATAPLANE_DEREGISTRATION_DELAY"),
    ("dnsServer.serviceVipPort", "DNS_SERVICE_SERVICE_VIP_PORT"),
    ("tracing.openTelemetry.enabled", "TRACING_OPENTELEMETRY_ENABLED"),
    ("tracing.openTelemetry.endpoint", "TRACING_OPENTELEMETRY_ENDPOINT"),
];

/// Sections that are about nothing but security, wherever they stand.
const SECTIONS: [&str; 3] = ["ACCESS_", "RBAC_", "SECURITY_"];

/// Words of a name, that of Kuma or one someone made up, that promise security.
#[rustfmt::skip]
const WORDS: [&str; 71] = [
    "ACL", "ALLOW", "ALLOWED", "ALLOWLIST", "ANONYMOUS", "AUTH", "AUTHENTICATE", "AUTHENTICATION", "AUTHN",
    "AUTHORIZATION", "AUTHZ", "BEARER", "BLACKLIST", "CA", "CACERT", "CERT", "CERTIFICATE", "CERTIFICATES", "CERTS",
    "CIPHER", "CIPHERS", "CORS", "CREDENTIAL", "CREDENTIALS", "CRL", "DENIED", "DENY", "DENYLIST", "ENCRYPT",
    "ENCRYPTION", "FIPS", "FORBID", "GROUPS", "HMAC", "HTTPS", "INSECURE", "ISSUER", "JWT", "KEY", "KEYS",
    "LOCALHOST", "MTLS", "OIDC", "PASSWD", "PASSWORD", "PERMISSION", "PERMISSIONS", "PKI", "RBAC", "READONLY",
    "RESTRICT", "RESTRICTED", "ROLE", "ROLES", "SECRET", "SECRETS", "SECURE", "SECURITY", "SIGNING", "SSL", "TLS",
    "TOKEN", "TOKENS", "TRUST", "TRUSTED", "UNSAFE", "USERS", "VALIDATOR", "VERIFY", "WHITELIST", "X509",
];

/// Settings of the programs beside a proxy and of Kuma's installer, which may share an environment.
const OF_OTHER_PROGRAMS: [&str; 2] = ["DATAPLANE_", "CONTROL_PLANE_"];

/// The names under which the setting at `path` may stand in the environment after the prefix, the
/// strongest last.
pub(super) fn names(path: &str, regular: String) -> Vec<String> {
    let aliases = ALIASES.iter().filter(|(of, _)| *of == path).map(|(_, name)| (*name).to_owned());
    aliases.chain([regular]).collect()
}

/// Variables that are no setting of this process.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Strangers {
    /// Would change security: the process must not start.
    pub(super) refused: Vec<String>,
    /// Do nothing.
    pub(super) idle: Vec<String>,
}

/// Those among `variables`.
pub(super) fn strangers<C: Config>(variables: impl Iterator<Item = (String, String)>) -> Strangers {
    let known: BTreeSet<String> = leaves(&super::defaults::<C>())
        .iter()
        .flat_map(|leaf| PREFIXES.map(|prefix| variables_of(leaf, prefix)))
        .flatten()
        .collect();
    let mut strangers = Strangers::default();
    for (name, value) in variables.filter(|(name, _)| !known.contains(name)) {
        let rest = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)?.strip_prefix('_'));
        let Some(rest) = rest else { continue };
        // An empty value sets nothing.
        if promises_security(rest) && !is_elsewhere::<C>(rest) && !value.is_empty() {
            strangers.refused.push(name);
        } else {
            strangers.idle.push(name);
        }
    }
    strangers.refused.sort();
    strangers.idle.sort();
    strangers
}

/// Whether somebody who sets it relies on it for security.
fn promises_security(name: &str) -> bool {
    let words = |name: &str| name.split('_').any(|word| WORDS.contains(&word));
    SECTIONS.iter().any(|section| name.starts_with(section)) || name.contains("READ_ONLY") || words(name)
}

/// Whether it is for another program, or was put there by Kubernetes for a service of this name.
fn is_elsewhere<C: Config>(name: &str) -> bool {
    let of_others = C::ELSEWHERE.iter().chain(&OF_OTHER_PROGRAMS);
    of_others.copied().any(|section| name.starts_with(section)) || is_service_link(name)
}

/// `<SERVICE>_SERVICE_HOST`, `<SERVICE>_SERVICE_PORT…`, `<SERVICE>_PORT`, `<SERVICE>_PORT_<N>_TCP…`.
fn is_service_link(name: &str) -> bool {
    let words: Vec<&str> = name.split('_').collect();
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    words.ends_with(&["SERVICE", "HOST"])
        || words.ends_with(&["PORT"])
        || words.windows(2).any(|pair| pair == ["SERVICE", "PORT"])
        || words
            .windows(3)
            .any(|of| of[0] == "PORT" && is_number(of[1]) && matches!(of[2], "TCP" | "UDP" | "SCTP"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::Sample;

    fn sorted(names: &[&str]) -> Strangers {
        strangers::<Sample>(names.iter().map(|name| ((*name).to_owned(), "1".to_owned())))
    }

    #[test]
    fn what_promises_security_is_refused() {
        #[rustfmt::skip]
        let of_kuma = [
            "KUMA_ACCESS_STATIC_SOMETHING_NEW", "KUMA_API_SERVER_AUTHN_TOKENS_VALIDATOR_USE_SECRETS",
            "KUMA_API_SERVER_AUTH_CLIENT_CERTS_DIR", "KUMA_API_SERVER_CORS_ALLOWED_DOMAINS",
            "KUMA_API_SERVER_HTTPS_REQUIRE_CLIENT_CERT", "KUMA_API_SERVER_HTTPS_TLS_CA_FILE",
            "KUMA_API_SERVER_HTTPS_TLS_CIPHER_SUITES", "KUMA_API_SERVER_HTTPS_TLS_MIN_VERSION",
            "KUMA_DIAGNOSTICS_TLS_ENABLED", "KUMA_DP_SERVER_AUTHN_DP_PROXY_DP_TOKEN_ENABLE_ISSUER",
            "KUMA_DP_SERVER_AUTHN_ENABLE_RELOADABLE_TOKENS", "KUMA_DP_SERVER_AUTH_TYPE",
            "KUMA_GENERAL_TLS_MIN_VERSION", "KUMA_INTER_CP_SERVER_TLS_MIN_VERSION",
            "KUMA_MONITORING_ASSIGNMENT_SERVER_TLS_ENABLED", "KUMA_RBAC_STATIC_ADMIN_RESOURCES_USERS",
            "KUMA_RUNTIME_KUBERNETES_ALLOWED_USERS", "KUMA_STORE_POSTGRES_TLS_CERT_PATH",
            "KUMA_STORE_POSTGRES_TLS_KEY_PATH", "STRAIT_ACCESS_STATIC_VIEW_STATS_GROUP",
            "STRAIT_API_SERVER_AUTHN_LOCALHOST_IS_ADMN",
        ];
        let found = sorted(&of_kuma);
        assert_eq!((found.refused.as_slice(), found.idle.len()), (of_kuma.map(str::to_owned).as_slice(), 0));
    }

    #[test]
    fn what_only_does_nothing_is_noticed() {
        #[rustfmt::skip]
        let names = [
            "KUMA_BOOTSTRAP_SERVER_PARAMS_ADMIN_ACCESS_LOG_PATH", "KUMA_CONTROL_PLANE_CA_CERT",
            "KUMA_DATAPLANE_RUNTIME_TOKEN", "KUMA_DP_SERVER_HDS_CHECK_TIMEOUT", "KUMA_ENVIRONMENT",
            "KUMA_GENERAL_DNS_CACHE_TTL", "KUMA_RUNTIME_KUBERNETES_CLIENT_CONFIG_QPS", "KUMA_STORE_TYP",
            "STRAIT_AUTH_PORT_80_TCP_ADDR", "STRAIT_AUTH_SERVICE_HOST", "STRAIT_PORT", "STRAIT_STORE_TYP",
        ];
        let found = sorted(&names);
        assert_eq!((found.idle.as_slice(), found.refused.len()), (names.map(str::to_owned).as_slice(), 0));
        assert_eq!(
            sorted(&["STRAIT_STORE_TYPE", "KUMA_STORE_TYPE", "STRAITCTL_TOKEN"]),
            Strangers::default()
        );
    }

    #[test]
    fn the_words_are_sorted_and_told_once() {
        assert!(WORDS.is_sorted_by(|a, b| a < b), "{WORDS:?}");
    }
}
