//! Core names: how a resource is called once it has travelled.

use super::{Resource, labels};

/// Longest name a resource may have.
pub const MAX_NAME: usize = 253;
/// What hashing adds to a name that is not cut: a dash and the hash.
pub const SUFFIX: usize = 17;
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// FNV-1a, 64 bit.
pub fn fnv1a_64(parts: &[&[u8]]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in parts.iter().flat_map(|p| p.iter()) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash
}

/// The name `display_name` gets when it is synced: itself, cut to 236 bytes, a dash, and 16 characters
/// that hash mesh, name, zone and namespace (absent ones contribute nothing).
///
/// Equal on every control plane, because its inputs travel as labels.
pub fn hashed(mesh: &str, display_name: &str, zone: Option<&str>, namespace: Option<&str>) -> String {
    let parts = [mesh, display_name, zone.unwrap_or(""), namespace.unwrap_or("")].map(str::as_bytes);
    let hex = format!("{:016x}", fnv1a_64(&parts));
    let suffix = hex.bytes().map(|c| char::from(ALPHABET[usize::from(c) % ALPHABET.len()]));

    let mut cut = display_name.len().min(MAX_NAME - SUFFIX);
    while !display_name.is_char_boundary(cut) {
        cut -= 1;
    }
    let mut name = String::with_capacity(cut + SUFFIX);
    name.push_str(&display_name[..cut]);
    name.push('-');
    name.extend(suffix);
    name
}

/// Whether a name has the form of a hashed one.
pub fn is_hashed(name: &str) -> bool {
    let end = name.len().checked_sub(SUFFIX).and_then(|at| name.as_bytes().get(at..));
    end.is_some_and(|end| end[0] == b'-' && end[1..].iter().all(|c| ALPHABET.contains(c)))
}

/// The hashed name of `resource`, from its display name and its zone and namespace labels.
pub fn hashed_name(resource: &Resource) -> String {
    hashed(
        resource.mesh(),
        resource.display_name(),
        resource.label(labels::ZONE),
        resource.label(labels::NAMESPACE),
    )
}

#[cfg(test)]
mod tests {
    use super::hashed;

    /// Names a Kuma control plane is known to give.
    #[test]
    fn hashed_names_equal_kumas() {
        let check = |mesh, name, zone, namespace, expected| {
            assert_eq!(hashed(mesh, name, zone, namespace), expected, "{mesh}/{name}");
        };
        let none = None;
        check("default", "default-timeout-global", none, none, "default-timeout-global-54dbd4c66zwbcf9c");
        check("default", "redis-zone-1", Some("zone-1"), none, "redis-zone-1-2v6wfvvcvbc9f55d");
        check("", "foo", none, none, "foo-zxw6c95d42zfz9cc");
        check("", "foo", Some("zone-1"), Some("custom-ns"), "foo-696vzv497z4cv4f4");
        check("", "ingress", Some("kuma-4"), none, "ingress-xzfw5d7w6f69x9fc");
    }

    #[test]
    fn long_names_are_cut_on_a_character_boundary() {
        let name = hashed("default", &"é".repeat(200), None, None);
        assert!(name.len() <= super::MAX_NAME);
    }
}
