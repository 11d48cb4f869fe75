//! The values of options: numbers, times and access control lists.

use std::time::Duration;

use clap::Args;
use curator_framework::{Acl, Permission};

/// Parses a number above zero.
pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("it must be at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

/// Parses a time: a number of seconds, or numbers with the units d, h, m, s and ms in this order, as `1h30m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (mut rest, mut seconds, mut before) = (text, 0.0, f64::INFINITY);
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, behind) = rest.split_at(digits);
        let letters = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(letters);
        let unit = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "" if rest == text => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return Err("the units are ms, s, m, h and d, the longest first".to_owned()),
        };
        let number: f64 = number.parse().map_err(|_not_one| "it is not a number".to_owned())?;
        if unit >= before {
            return Err("the longest unit comes first".to_owned());
        }
        (rest, seconds, before) = (behind, seconds + number * unit, unit);
        if rest.is_empty() {
            return Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string());
        }
    }
}

/// Parses a path. The slash at its end, as a shell completes it, is left out.
#[expect(clippy::unnecessary_wraps, reason = "a parser of clap returns a result")]
pub(crate) fn path(text: &str) -> Result<String, String> {
    let path = text.strip_suffix('/').filter(|path| !path.is_empty()).unwrap_or(text);
    Ok(path.to_owned())
}

/// Parses a number of bytes with the unit K, M or G, or without one.
pub(crate) fn bytes(text: &str) -> Result<usize, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit: usize = match unit {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return Err("the units are K, M and G".to_owned()),
    };
    let number: usize = number.parse().map_err(|_not_one| "it is not a number".to_owned())?;
    number.checked_mul(unit).ok_or_else(|| "it is too large".to_owned())
}

/// The access to the nodes.
#[derive(Debug, Args)]
pub(crate) struct Access {
    /// The access control list of the nodes that this program creates, parents included: open, creator (only these
    /// credentials), read-only (others may list and read), or scheme:id:cdrwa[,…] as in ZooKeeper. The default is that
    /// of Java's Curator, with credentials too: all clients of the path must be allowed to create nodes below it
    #[arg(long, default_value = "open", value_parser = access_list, env = "CURATOR_ACL")]
    pub(crate) acl: AccessList,
}

/// An access control list.
#[derive(Debug, Clone)]
pub(crate) struct AccessList(pub(crate) Vec<Acl>);

impl AccessList {
    /// Returns `true` if an entry means the credentials of this client.
    pub(crate) fn names_the_creator(&self) -> bool {
        self.0.iter().any(|entry| entry.scheme == "auth")
    }
}

/// Parses an access control list.
fn access_list(text: &str) -> Result<AccessList, String> {
    let everyone = |permissions| Acl::new(permissions, "world", "anyone");
    match text {
        "open" => Ok(AccessList(Acl::open_unsafe())),
        "creator" => Ok(AccessList(Acl::creator_all())),
        "read-only" => Ok(AccessList([Acl::creator_all(), vec![everyone(Permission::READ)]].concat())),
        entries => entries.split(',').map(access_entry).collect::<Result<_, _>>().map(AccessList),
    }
}

fn access_entry(text: &str) -> Result<Acl, String> {
    let form = || "it is open, creator, read-only, or scheme:id:cdrwa[,…]".to_owned();
    let (scheme, rest) = text.split_once(':').ok_or_else(form)?;
    let (id, letters) = rest.rsplit_once(':').ok_or_else(form)?;
    let mut permissions = Permission::NONE;
    for letter in letters.chars() {
        permissions = permissions
            | match letter {
                'c' => Permission::CREATE,
                'd' => Permission::DELETE,
                'r' => Permission::READ,
                'w' => Permission::WRITE,
                'a' => Permission::ADMIN,
                _ => return Err(format!("{letter:?} is not one of the permissions c, d, r, w and a")),
            };
    }
    if scheme.is_empty() || letters.is_empty() {
        return Err(form());
    }
    // ZooKeeper compares the hash. A password in its place would shut out all clients, and all could read it.
    if scheme == "digest" && id.split_once(':').is_none_or(|(_, hash)| hash.len() != 28 || !hash.ends_with('=')) {
        return Err(
            "digest needs user:hash with ZooKeeper's hash; auth::cdrwa stands for your own credentials".to_owned()
        );
    }
    Ok(Acl::new(permissions, scheme.to_owned(), id.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_lists_are_those_of_zookeeper() {
        let entry = |text: &str| access_list(text).map(|list| list.0[0].clone());
        assert_eq!(
            entry("digest:me:tdj+C43EtoAJMyvE6oNlBFuMEPw=:cr").unwrap(),
            Acl::new(Permission::CREATE | Permission::READ, "digest", "me:tdj+C43EtoAJMyvE6oNlBFuMEPw=")
        );
        assert_eq!(entry("auth::cdrwa").unwrap(), Acl::creator_all()[0]);
        assert_eq!(
            access_list("open,world:anyone:r").unwrap_err(),
            "it is open, creator, read-only, or scheme:id:cdrwa[,…]"
        );
        for text in ["", "creators", "world:anyone", "world:anyone:", ":x:r", "world:anyone:rx", "digest:me:word:r"] {
            assert!(access_list(text).is_err(), "{text}");
        }
    }
}
