#![allow(clippy::unwrap_used)]

use serde::Deserialize;

use super::*;

#[derive(Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Sample {
    store: StoreSection,
    api_server: ApiServer,
    access: AccessSection,
    zones: Vec<String>,
}

impl Config for Sample {
    const HELP: &'static [(&'static str, &'static str)] = &[];

    fn validate(&self) -> Result<(), ConfigError> {
        Ok(())
    }
}

fn sample(args: &[&str], env: &[(&str, &str)]) -> Result<Sample, ConfigError> {
    let args = ["sample"].iter().chain(args);
    let matches = command::<Sample>(Command::new("sample")).try_get_matches_from(args).unwrap();
    merge(&matches, |name| env.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

#[test]
fn a_flag_wins_over_the_environment_and_that_over_the_file() {
    let file = file("apiServer: {http: {port: 1}}\nstore: {postgres: {dbName: file}}\n");
    let file = file.path().to_str().unwrap();
    let env = [("STRAIT_API_SERVER_HTTP_PORT", "2"), ("KUMA_STORE_POSTGRES_HOST", "db")];

    let config = sample(&["-c", file], &[]).unwrap();
    assert_eq!((config.api_server.http.port, config.store.postgres.db_name.as_str()), (1, "file"));
    let config = sample(&["-c", file], &env).unwrap();
    assert_eq!((config.api_server.http.port, config.store.postgres.host.as_str()), (2, "db"));
    let config = sample(&["-c", file, "--apiServer.http.port", "3", "--zones", "a, b"], &env).unwrap();
    assert_eq!((config.api_server.http.port, config.zones), (3, vec!["a".to_owned(), "b".to_owned()]));
}

#[test]
fn our_prefix_wins_over_kumas() {
    let env = [("STRAIT_STORE_TYPE", "memory"), ("KUMA_STORE_TYPE", "postgres")];
    assert_eq!(sample(&[], &env).unwrap().store.kind, StoreType::Memory);
}

#[test]
fn what_does_not_fit_is_named() {
    let unknown = file("apiServer: {htttp: {}}");
    let unknown = sample(&["-c", unknown.path().to_str().unwrap()], &[]).unwrap_err().to_string();
    assert!(unknown.contains("htttp"), "{unknown}");
    let value = sample(&["--apiServer.http.port", "many"], &[]).unwrap_err().to_string();
    assert!(value.contains("--apiServer.http.port"), "{value}");
    let missing = sample(&["-c", "/nowhere.yaml"], &[]).unwrap_err().to_string();
    assert!(missing.contains("/nowhere.yaml"), "{missing}");
}

#[test]
fn what_may_be_a_password_is_not_shown() {
    let refused = |text: &str| {
        let file = file(text);
        sample(&["-c", file.path().to_str().unwrap()], &[]).unwrap_err().to_string()
    };
    for text in [
        "store: {postgres: {password: 987654321}}",
        "store: \"postgres://u:987654321@h/db\"",
        "store: {postgres: 987654321}",
        "store: {postgres: \"987654321\"}",
        "apiServer: {http: {port: \"987654321\"}}",
    ] {
        let refused = refused(text);
        assert!(refused.contains("setting ") && refused.contains("expected"), "{refused}");
        assert!(!refused.contains("987654321"), "{refused}");
    }
    assert!(refused("apiServer: {http: {port: 99999}}").contains("99999"));
}

#[test]
fn a_section_that_stands_twice_is_refused() {
    let twice = [
        "apiServer: {readOnly: true, authn: {anonymousMayWrite: false}}\nstore: {type: memory}\napiServer: {http: {port: 1}}\n",
        "apiServer:\n  http: {port: 1}\n  http: {enabled: false}\n",
        "{\"apiServer\": {\"readOnly\": true, \"readOnly\": false}}",
        "runtime: {kubernetes: {}}\nruntime: {universal: {}}\n",
    ];
    for text in twice {
        let file = file(text);
        let path = file.path().to_str().unwrap();
        let refused = sample(&["-c", path], &[]).unwrap_err().to_string();
        assert!(
            refused.contains("duplicate") && refused.contains("line") && refused.contains(path),
            "{refused}"
        );
    }
}

#[test]
fn a_file_is_read_as_yaml_says() {
    let read = |text: &str| sample(&["-c", file(text).path().to_str().unwrap()], &[]);
    for nothing in ["", "# apiServer: {readOnly: true}\n", "---\n", "apiServer: {}\n"] {
        assert!(!read(nothing).unwrap().api_server.read_only, "{nothing:?}");
    }
    for switched in ["true", "True", "TRUE"] {
        let config = read(&format!("apiServer: {{readOnly: {switched}}}\nzones: [a, b]\n")).unwrap();
        assert!(config.api_server.read_only, "{switched}");
        assert_eq!(config.zones, ["a", "b"]);
    }
    for none in ["- a\n", "text\n", "7\n", "a: 1\n---\nb: 2\n"] {
        assert!(read(none).is_err(), "{none:?}");
    }
}

#[test]
fn secrets_are_masked() {
    let shown = masked(&Sample::default());
    assert_eq!(shown["store"]["postgres"]["password"], "*****");
    assert_eq!(shown["store"]["postgres"]["user"], "kuma");
}

#[test]
fn nobody_is_administrator_by_address_unless_somebody_says_so() {
    let name = "KUMA_API_SERVER_AUTHN_LOCALHOST_IS_ADMIN";
    for (environment, is_admin) in [(&[][..], false), (&[(name, "true")], true), (&[(name, "false")], false)]
    {
        assert_eq!(sample(&[], environment).unwrap().api_server.authn.localhost_is_admin, is_admin);
    }
    let kumas_file = file("apiServer: {authn: {localhostIsAdmin: true}}");
    let path = kumas_file.path().display().to_string();
    assert!(sample(&["--config-file", &path], &[]).unwrap().api_server.authn.localhost_is_admin);
}

#[test]
fn rights_are_set_as_kuma_sets_them() {
    let users =
        |config: &Sample| config.access.rules.view_config_dump.users.iter().cloned().collect::<Vec<_>>();
    let by_kumas_name = sample(&[], &[("KUMA_ACCESS_STATIC_GET_CONFIG_DUMP_USERS", "ann,bob")]).unwrap();
    assert_eq!(users(&by_kumas_name), ["ann", "bob"]);
    let by_path = [
        ("KUMA_ACCESS_STATIC_GET_CONFIG_DUMP_USERS", "ann"),
        ("KUMA_ACCESS_STATIC_VIEW_CONFIG_DUMP_USERS", "bob"),
        ("STRAIT_ACCESS_STATIC_GENERATE_DP_TOKEN_GROUPS", "issuers"),
    ];
    let by_path = sample(&["--access.static.viewStats.groups", "ops"], &by_path).unwrap();
    assert_eq!(users(&by_path), ["bob"], "the name that fits the path is the stronger one");
    assert_eq!(by_path.access.rules.generate_dp_token.groups, ["issuers".to_owned()].into());
    assert_eq!(by_path.access.rules.view_stats.groups, ["ops".to_owned()].into());
    let file = file("access: {type: static, static: {generateDpToken: {users: [], groups: [issuers]}}}");
    let by_file = sample(&["-c", file.path().to_str().unwrap()], &[]).unwrap();
    assert!(by_file.access.rules.generate_dp_token.users.is_empty());
    let nobody = sample(&[], &[("KUMA_ACCESS_STATIC_ADMIN_RESOURCES_GROUPS", "")]).unwrap();
    assert!(nobody.access.rules.admin_resources.groups.is_empty());

    let other = sample(&[], &[("KUMA_ACCESS_TYPE", "custom-rbac")]).unwrap_err().to_string();
    assert!(other.contains("access.type") && other.contains("custom-rbac"), "{other}");
    let certificates = sample(&[], &[("KUMA_API_SERVER_AUTHN_TYPE", "adminClientCerts")]).unwrap();
    let refused = certificates.api_server.authn.validate().unwrap_err().to_string();
    assert!(
        refused.contains("apiServer.authn.type: adminClientCerts is not supported: use tokens"),
        "{refused}"
    );
}

#[test]
fn a_provider_is_named_as_a_whole_or_not_at_all() {
    let check = |settings: &[(&str, &str)]| {
        let flags = settings.iter().flat_map(|(name, value)| {
            [format!("--apiServer.authn.openIdConnect.{name}"), (*value).to_owned()]
        });
        let flags: Vec<String> = flags.collect();
        let config = sample(&flags.iter().map(String::as_str).collect::<Vec<_>>(), &[]).unwrap();
        config.api_server.authn.validate().map_err(|error| error.to_string())
    };
    let issuer = ("issuer", "https://login.example");
    assert_eq!(check(&[]), Ok(()));
    assert_eq!(check(&[issuer, ("clientId", "page")]), Ok(()));
    assert_eq!(check(&[issuer, ("audience", "strait"), ("usernamePrefix", "sso:")]), Ok(()));
    assert_eq!(
        check(&[("issuer", "http://127.0.0.1:80"), ("cliClientId", "cli")]),
        Ok(()),
        "that is this machine"
    );
    for (settings, named) in [
        (&[("clientId", "page")][..], "clientId: needs apiServer.authn.openIdConnect.issuer"),
        (&[issuer], "clientId: is needed"),
        (&[("issuer", "http://login.example"), ("clientId", "page")], "issuer: must be an https://"),
        (&[("issuer", "login.example"), ("clientId", "page")], "issuer: must be"),
        (&[("issuer", "https://a@login.example"), ("clientId", "page")], "issuer: must be"),
        (
            &[issuer, ("clientId", "page"), ("clientSecret", "s"), ("clientSecretFile", "f")],
            "clientSecretFile: ",
        ),
        (&[issuer, ("clientId", "page"), ("scopes", "profile")], "scopes: must have openid"),
        (&[issuer, ("clientId", "page"), ("usernameClaim", "")], "usernameClaim: cannot be empty"),
        (
            &[issuer, ("clientId", "page"), ("groupsPrefix", "mesh-system:")],
            "usernamePrefix: and groupsPrefix",
        ),
        (&[issuer, ("clientId", "page"), ("usernamePrefix", "mesh-")], "usernamePrefix: and groupsPrefix"),
    ] {
        let refused = check(settings).unwrap_err();
        assert!(refused.contains(named), "{settings:?}: {refused}");
    }
    let variable = [("STRAIT_API_SERVER_AUTHN_OPEN_ID_CONNECT_CLIENT_SECRET", "hidden")];
    let file = ["--apiServer.authn.openIdConnect.clientSecretFile", "/etc/secret"];
    let shown = masked(&sample(&file, &variable).unwrap());
    let shown = &shown["apiServer"]["authn"]["openIdConnect"];
    assert_eq!(
        (&shown["clientSecret"], &shown["clientSecretFile"]),
        (&"*****".into(), &"/etc/secret".into())
    );
}

#[test]
fn what_has_no_effect_here_is_passed_over_and_told() {
    let kept = "store: {cache: {enabled: true}, postgres: {dbName: file}}\nreports: {enabled: false}\n";
    let kept = file(&format!("{kept}dpServer: {{hds: {{refreshInterval: 10s}}}}\n"));
    let path = kept.path().to_str().unwrap();
    assert_eq!(sample(&["-c", path], &[]).unwrap().store.postgres.db_name, "file");
    let matches =
        command::<Sample>(Command::new("sample")).try_get_matches_from(["sample", "-c", path]).unwrap();
    let told = settings_without_effect::<Sample>(&matches);
    assert_eq!(told, ["dpServer.hds.refreshInterval", "store.cache", "reports"]);
    // What stands beside it in a section that is not known here stays an error.
    let other = file("dpServer: {hds: {refreshInterval: 10s, other: 1}}");
    let refused = sample(&["-c", other.path().to_str().unwrap()], &[]).unwrap_err().to_string();
    assert!(refused.contains("dpServer"), "{refused}");
    let wrong = file("store: {cache: {}, type: paper}");
    let refused = sample(&["-c", wrong.path().to_str().unwrap()], &[]).unwrap_err().to_string();
    assert!(refused.contains("store.type") && refused.contains(wrong.path().to_str().unwrap()), "{refused}");
}

#[test]
fn no_setting_that_promises_security_is_passed_over() {
    for (path, _) in WITHOUT_EFFECT {
        let variable = Leaf { path: (*path).to_owned(), default: Value::Null }.variable("KUMA");
        let strangers = environment::strangers::<Sample>([(variable.clone(), "1".to_owned())].into_iter());
        assert_eq!(strangers.idle, [variable]);
    }
}
