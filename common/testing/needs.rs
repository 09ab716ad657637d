//! What tests need that is not in the repository.
//!
//! One rule: what `demo/setup.sh test` installs must be there, and so must whatever a variable names; a
//! test fails without it, because a test that quietly does nothing looks like one that passed. Only what
//! nobody can install, and an Envoy that somebody said is not there, is left out, and that is said even
//! where the output of passing tests is not shown.

use std::{
    env,
    io::Write,
    path::{Path, PathBuf},
};

/// Names the Envoy to run.
const ENVOY: &str = "ENVOY_BIN";
/// Set to `1`, leaves out what needs Envoy.
const WITHOUT_ENVOY: &str = "WITHOUT_ENVOY";
/// Names the folder of the gRPC libraries.
const GRPC_LIBRARIES: &str = "GRPC_LIBRARIES";
/// Names the folder of the provider of OpenID Connect.
const OPENID_PROVIDER: &str = "OPENID_PROVIDER";
/// Names the folder of the golden cases.
const GOLDENS: &str = "GOLDENS_DIR";
/// Names the folder of a bare Debian.
const DEBIAN: &str = "DEBIAN_ROOT";
/// Names a binary of Kuma's that runs a proxy.
const KUMA_DP: &str = "KUMA_DP";
/// Names a binary of Kuma's control plane.
const KUMA_CP: &str = "KUMA_CP";

/// The Envoy to run: the one `ENVOY_BIN` names, or the one that `demo/setup.sh test` fetched. `None` when
/// `WITHOUT_ENVOY=1` says to leave the test out.
///
/// # Panics
/// When it is not there.
pub fn envoy() -> Option<PathBuf> {
    let given = Given { named: variable(ENVOY), usual: ".strait/envoy/envoy", optional: false };
    if variable(WITHOUT_ENVOY).is_some_and(|v| v == "1") {
        say(&format!("{WITHOUT_ENVOY}=1: what needs Envoy is left out"));
        return None;
    }
    match given.find() {
        Ok(found) => found,
        Err(missing) => panic!(
            "no Envoy at {}: run `demo/setup.sh test`, or name one in {ENVOY}; {WITHOUT_ENVOY}=1 leaves such \
             tests out",
            missing.display()
        ),
    }
}

/// The folder of the gRPC libraries: a Python environment in `venv`, packages for Node in `node_modules`.
///
/// # Panics
/// When it is not there.
pub fn grpc_libraries() -> PathBuf {
    let given = Given { named: variable(GRPC_LIBRARIES), usual: ".strait/grpc", optional: false };
    match given.find() {
        Ok(Some(found)) => found,
        Ok(None) => unreachable!("it is not optional"),
        Err(missing) => panic!(
            "no gRPC libraries at {}: run `demo/setup.sh test`, or name their folder in {GRPC_LIBRARIES}",
            missing.display()
        ),
    }
}

/// The folder with the provider of OpenID Connect, in `node_modules`: the one `OPENID_PROVIDER` names, or the one that
/// `demo/setup.sh test` made where it reached the registry of npm.
///
/// # Panics
/// When the folder that is named does not exist.
pub fn openid_provider() -> Option<PathBuf> {
    let given =
        Given { named: variable(OPENID_PROVIDER), usual: ".strait/openid/node_modules", optional: true };
    let found = given.find();
    let found = found.unwrap_or_else(|missing| {
        panic!("{OPENID_PROVIDER} names {}, which does not exist", missing.display())
    });
    if found.is_none() {
        say("no provider of OpenID Connect in .strait/openid: nobody logs in through one");
    }
    found
}

/// The folder of the golden cases: the one `GOLDENS_DIR` names, or the one beside this repository if there
/// is one, which not everybody has.
///
/// # Panics
/// When the folder that is named does not exist.
pub fn goldens() -> Option<PathBuf> {
    let given = Given { named: variable(GOLDENS), usual: "../shared/data/kuma-goldens", optional: true };
    let found = given.find();
    let found =
        found.unwrap_or_else(|missing| panic!("{GOLDENS} names {}, which does not exist", missing.display()));
    if found.is_none() {
        say(&format!("{GOLDENS} is not set: no golden case is replayed"));
    }
    found
}

/// The folder of a bare Debian with systemd: the one `DEBIAN_ROOT` names, or the one that `demo/setup.sh test` made where it
/// is root and reached a mirror.
///
/// # Panics
/// When the folder that is named does not exist.
pub fn debian() -> Option<PathBuf> {
    let given = Given { named: variable(DEBIAN), usual: ".strait/debian", optional: true };
    let found = given.find();
    let found =
        found.unwrap_or_else(|missing| panic!("{DEBIAN} names {}, which does not exist", missing.display()));
    if found.is_none() {
        say("no bare Debian in .strait/debian: no package is installed");
    }
    found
}

/// The unmodified kuma-dp that `KUMA_DP` names, if it does.
///
/// # Panics
/// When it does not exist.
pub fn kuma_dp() -> Option<PathBuf> {
    named(KUMA_DP, "no unmodified kuma-dp is run")
}

/// The unmodified control plane that `KUMA_CP` names, if it does.
///
/// # Panics
/// When it does not exist.
pub fn kuma_cp() -> Option<PathBuf> {
    named(KUMA_CP, "no mesh is shared with an unmodified control plane")
}

/// What only somebody who has it can name.
fn named(variable_name: &str, without: &str) -> Option<PathBuf> {
    let Some(named) = variable(variable_name) else {
        say(&format!("{variable_name} is not set: {without}"));
        return None;
    };
    match (Given { named: Some(named), usual: "", optional: false }).find() {
        Ok(found) => found,
        Err(missing) => panic!("{variable_name} names {}, which does not exist", missing.display()),
    }
}

/// Says that something is left out, for a reason that nobody can do anything about here.
pub fn left_out(what: &str) {
    say(what);
}

/// Where to look for something.
struct Given {
    named: Option<String>,
    usual: &'static str,
    optional: bool,
}

impl Given {
    /// What is there, or where nothing is. Relative paths start at the root of the repository, wherever a
    /// test runs.
    fn find(self) -> Result<Option<PathBuf>, PathBuf> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let named = self.named.is_some();
        let path = root.join(self.named.unwrap_or_else(|| self.usual.to_owned()));
        match path.exists() {
            true => Ok(Some(path)),
            false if named || !self.optional => Err(path),
            false => Ok(None),
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "tests have no configuration")]
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Past the capture of the test harness, which hides the output of tests that pass.
fn say(what: &str) {
    let _nobody_listens = writeln!(std::io::stderr(), "SKIPPED: {what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(named: Option<&str>, usual: &'static str, optional: bool) -> Result<bool, ()> {
        let given = Given { named: named.map(str::to_owned), usual, optional };
        given.find().map(|found| found.is_some()).map_err(|_| ())
    }

    #[test]
    fn only_what_is_optional_and_not_named_may_be_missing() {
        assert_eq!(find(None, "common/lib.rs", false), Ok(true));
        assert_eq!(find(None, "nowhere", false), Err(()));
        assert_eq!(find(None, "nowhere", true), Ok(false));
        assert_eq!(find(Some("nowhere"), "common/lib.rs", true), Err(()));
        assert_eq!(find(Some("common/lib.rs"), "nowhere", true), Ok(true), "from the root of the repository");
    }
}
