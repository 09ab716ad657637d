//! The control plane on this machine: the token of its administrator lies in a file that only those read who
//! may be that.
//!
//! It is for that control plane only. It goes to loopback addresses, to the ports it was made for, and neither
//! by a proxy nor by a redirect to anybody else.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
};

use anyhow::bail;
use common::token::{self, AdminFileError, AdminTokenFile};
use reqwest::Url;

/// A name of this machine wherever one is needed, which nobody is asked about.
pub(crate) const LOCALHOST: &str = "localhost";

/// What is known about the administrator of a control plane on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LocalCredential {
    /// His token.
    Token(String),
    /// None, and why; for who is refused without one.
    Nothing(String),
}

/// The addresses of [`LOCALHOST`]. The port is the one of the request.
pub(crate) fn loopback() -> [SocketAddr; 2] {
    [(Ipv4Addr::LOCALHOST, 0).into(), (Ipv6Addr::LOCALHOST, 0).into()]
}

/// The token for the control plane at `url`, when that is the one on this machine with this work folder.
///
/// # Errors
/// When the file with it is not safe to use.
pub(crate) fn admin_token(url: &Url, work_dir: &Path) -> anyhow::Result<Option<LocalCredential>> {
    if !is_this_machine(url) {
        return Ok(None);
    }
    let file = AdminTokenFile::in_folder(work_dir);
    let path = file.path().display();
    let token = match file.read() {
        Ok(token) => token,
        Err(error @ (AdminFileError::Absent(_) | AdminFileError::File { .. })) => {
            return Ok(Some(LocalCredential::Nothing(format!(
                "{error}; --work-dir names the folder of a control plane on this machine, and its owner may read \
                 the token in it"
            ))));
        }
        Err(error @ AdminFileError::Owner { owner, .. }) => bail!(
            "{error}: run straitctl as that user (sudo -u '#{owner}' straitctl ...), or show a token with --token"
        ),
        Err(error @ AdminFileError::Mode { .. }) => bail!(
            "{error}: the control plane replaces it within seconds while it runs; if it does not run, delete the file"
        ),
        Err(error @ (AdminFileError::Irregular(_) | AdminFileError::Content(_))) => {
            bail!("{error}: delete it, the control plane writes it again while it runs, or at its start")
        }
    };
    let (ports, port) = (token::ports_of(&token), url.port_or_known_default().unwrap_or_default());
    if ports.contains(&port) {
        return Ok(Some(LocalCredential::Token(token)));
    }
    Ok(Some(LocalCredential::Nothing(format!(
        "the token in {path} is for a control plane that listens on {}; --work-dir names the folder of another one",
        if ports.is_empty() {
            "no port".to_owned()
        } else {
            ports.iter().map(u16::to_string).collect::<Vec<_>>().join(" and ")
        }
    ))))
}

/// Whether nothing but this machine can be meant.
fn is_this_machine(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host == LOCALHOST || address.parse().is_ok_and(|address: IpAddr| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, chown},
    };

    use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
    use tempfile::TempDir;

    use super::*;

    /// Not who runs tests.
    const SOMEBODY: u32 = 65_531;

    /// A token for these ports, signed by nobody.
    fn token(ports: &str) -> String {
        let part = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
        let header = part(r#"{"alg":"RS256","kid":"1"}"#);
        format!("{header}.{}.AAAA", part(&format!(r#"{{"Name":"a","Groups":["a"],"Ports":{ports}}}"#)))
    }

    fn folder(token: &str) -> TempDir {
        let folder = TempDir::new().unwrap();
        AdminTokenFile::in_folder(folder.path()).write(token).unwrap();
        folder
    }

    fn found(url: &str, work_dir: &Path) -> Option<LocalCredential> {
        admin_token(&url.parse().unwrap(), work_dir).unwrap()
    }

    #[test]
    fn it_is_for_the_ports_of_its_control_plane_on_this_machine() {
        let token = token("[5681,5682,80]");
        let folder = folder(&token);
        for url in [
            "http://localhost:5681",
            "http://LOCALHOST:5681/",
            "https://localhost:5682",
            "http://127.0.0.1:5681",
            "http://127.9.8.7:5681",
            "http://[::1]:5681",
            "http://[::ffff:127.0.0.1]:5681",
            "http://localhost",
        ] {
            assert_eq!(found(url, folder.path()), Some(LocalCredential::Token(token.clone())), "{url}");
        }
        for url in ["http://localhost:15681", "https://127.0.0.1", "http://[::1]:1"] {
            let Some(LocalCredential::Nothing(why)) = found(url, folder.path()) else { panic!("{url}") };
            assert!(why.contains("80 and 5681 and 5682") && why.contains("--work-dir"), "{why}");
        }
        for url in [
            "http://10.0.0.1:5681",
            "http://0.0.0.0:5681",
            "http://global.example:5681",
            "https://global.example:5681",
            "http://localhost.example:5681",
            "http://localhost.:5681",
            "http://127.0.0.1.example:5681",
            "http://localhost@global.example:5681",
            "http://[::2]:5681",
            "http://[::ffff:10.0.0.1]:5681",
        ] {
            assert_eq!(found(url, folder.path()), None, "{url}");
        }
    }

    #[test]
    fn a_token_of_somebody_else_goes_nowhere() {
        for other in ["[]", "null", "\"5681\""] {
            let found = found("http://localhost:5681", folder(&token(other)).path());
            assert!(matches!(found, Some(LocalCredential::Nothing(_))), "{other}: {found:?}");
        }
        assert!(matches!(
            found("http://localhost:5681", folder("a.b.c").path()),
            Some(LocalCredential::Nothing(_))
        ));
        let nowhere = found("http://localhost:5681", Path::new("/nowhere"));
        assert!(
            matches!(nowhere, Some(LocalCredential::Nothing(why)) if why.contains("/nowhere/admin-user-token"))
        );
    }

    #[test]
    fn a_file_that_is_not_safe_says_what_to_do() {
        let folder = folder(&token("[5681]"));
        let path = folder.path().join("admin-user-token");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let look = |url: &str| admin_token(&url.parse().unwrap(), folder.path());
        let error = look("http://localhost:5681").unwrap_err().to_string();
        assert!(error.contains("644") && error.contains("delete the file"), "{error}");
        assert!(look("http://global.example:5681").unwrap().is_none(), "elsewhere it does not matter");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(look("http://localhost:5681"), Ok(Some(LocalCredential::Token(_)))));
        // Only root can make a file somebody else's, and to others whatever is root's is that.
        if chown(&path, Some(SOMEBODY), None).is_ok() {
            let error = look("http://localhost:5681").unwrap_err().to_string();
            let says = [format!("belongs to user {SOMEBODY}"), format!("sudo -u '#{SOMEBODY}'")];
            assert!(says.iter().all(|words| error.contains(words)), "{error}");
        }
    }
}
