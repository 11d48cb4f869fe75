//! Whether every public asynchronous method is polled and dropped somewhere.

use std::collections::BTreeSet;
use std::path::Path;

use crate::operations::{LONG, holding, taking};
use crate::shared_cancellation::METHODS;

/// The public asynchronous methods in a source text, and the macros that make some for a type.
fn add_methods(source: &str, methods: &mut BTreeSet<(String, String)>, uses: &mut Vec<(String, String)>) {
    let (mut of, mut of_macro) = (String::new(), String::new());
    for line in source.split("#[cfg(test)]").next().unwrap_or_default().lines().map(str::trim) {
        let word = |text: &str| text.split([' ', '{', '<', '(', ':', ',']).next().unwrap_or_default().to_owned();
        if let Some(name) = line.strip_prefix("macro_rules! ") {
            of_macro = word(name);
        } else if let Some(name) = line.strip_prefix("impl ").or_else(|| line.strip_prefix("pub trait ")) {
            of = if word(name) == "$lock" { format!("{of_macro}!") } else { word(name) };
        } else if let Some(name) = line.strip_prefix("pub async fn ") {
            methods.insert((of.clone(), word(name)));
        } else if let Some(name) =
            line.strip_prefix("async fn ").filter(|_| of == "InterProcessLock" && line.ends_with(';'))
        {
            methods.insert((of.clone(), word(name)));
        } else if let Some((name, arguments)) = line.split_once("!(") {
            uses.push((format!("{name}!"), word(arguments)));
        }
        assert!(
            !line.contains("-> impl Future") || line.contains("fn attempt") || !line.starts_with("pub fn"),
            "{line}"
        );
    }
}

#[test]
fn no_asynchronous_method_is_left_out() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/src");
    let (mut methods, mut uses) = (BTreeSet::new(), Vec::new());
    let mut folders = vec![sources];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => add_methods(&std::fs::read_to_string(path).unwrap(), &mut methods, &mut uses),
            }
        }
    }
    let mut public = BTreeSet::new();
    for (of, method) in methods {
        match of.ends_with('!') {
            true => {
                public.extend(uses.iter().filter(|(used, _)| *used == of).map(|(_, lock)| format!("{lock}::{method}")))
            }
            false => drop(public.insert(format!("{of}::{method}"))),
        }
    }
    let tested: BTreeSet<_> = taking(LONG)
        .iter()
        .map(|taking| taking.name.to_owned())
        .chain(holding().iter().map(|holding| holding.name.to_owned()))
        .chain(METHODS.map(ToOwned::to_owned))
        .collect();
    assert!(public.len() > 30, "{public:?}");
    assert_eq!(public, tested);
}
