//! The account of Curator's own tests in `tests/conformance/conformance.md` is right: every test that it names is there. So is every
//! test that the page of the default client names.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};

/// Parts of a test's path that are not files or folders.
const NOT_FILES: [&str; 7] =
    ["tests", "in_process", "apache", "curator_framework", "curator_recipes", "curator_discovery", "curator_test"];

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The rows of the table: an upstream test, and ours or the reason why none exists.
fn rows() -> Vec<(String, String)> {
    let account = std::fs::read_to_string(project().join("tests/conformance/conformance.md")).unwrap();
    let cells = account.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "));
    let rows = cells.filter(|(upstream, _)| !upstream.starts_with("---") && *upstream != "Curator's test");
    rows.map(|(upstream, ours)| (upstream.trim().to_owned(), ours.trim().to_owned())).collect()
}

/// Every function of the project's sources, with the files that have one of that name.
fn functions() -> BTreeMap<String, Vec<PathBuf>> {
    let mut functions: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    let mut folders =
        ["framework/src", "recipes/src", "recipes/discovery/src", "tests", "examples"].map(PathBuf::from).to_vec();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(project().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let source = std::fs::read_to_string(project().join(&path)).unwrap();
                let tokens = source.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                let mut names = BTreeSet::new();
                add_functions(tokens, &mut names);
                for name in names {
                    functions.entry(name).or_default().push(path.clone());
                }
            }
        }
    }
    functions
}

/// Adds the name behind each `fn`, also inside of macros.
fn add_functions(tokens: TokenStream, names: &mut BTreeSet<String>) {
    let mut is_behind_fn = false;
    for token in tokens {
        match token {
            TokenTree::Ident(word) if is_behind_fn => {
                names.insert(word.to_string());
                is_behind_fn = false;
            }
            TokenTree::Ident(word) => is_behind_fn = word == "fn",
            TokenTree::Group(group) => add_functions(group.stream(), names),
            _ => is_behind_fn = false,
        }
    }
}

/// Returns whether a file can be the one that a path of modules names.
fn is_in(file: &Path, modules: &[&str]) -> bool {
    let stem = file.with_extension("");
    let parts: Vec<_> = stem.iter().filter_map(|part| part.to_str()).collect();
    let mut rest = parts.iter();
    modules.iter().filter(|module| !NOT_FILES.contains(module)).all(|module| rest.any(|part| part == module))
}

/// Says whether a function of this path exists: modules, then its name.
fn exists(path: &str, functions: &BTreeMap<String, Vec<PathBuf>>) -> bool {
    let mut modules: Vec<_> = path.split("::").collect();
    let files = modules.pop().and_then(|name| functions.get(name));
    !modules.is_empty() && files.is_some_and(|files| files.iter().any(|file| is_in(file, &modules)))
}

#[test]
fn every_test_that_the_account_names_is_there() {
    let functions = functions();
    let mut wrong = Vec::new();
    for (upstream, ours) in rows() {
        if let Some(reason) = ours.strip_prefix("n/a: ") {
            if reason.is_empty() {
                wrong.push(format!("{upstream}: no reason"));
            }
            continue;
        }
        for path in ours.split(", ") {
            if !exists(path.trim_matches('`'), &functions) {
                wrong.push(format!("{upstream}: there is no {path}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_account_has_one_row_for_each_upstream_test() {
    let mut seen = BTreeSet::new();
    for (upstream, _) in rows() {
        assert!(upstream.contains('.'), "{upstream} is no TestClass.testMethod");
        assert!(seen.insert(upstream.clone()), "{upstream} has two rows");
    }
    assert!(seen.len() > 100, "only {} rows", seen.len());
}

#[test]
fn every_test_that_the_page_of_the_default_client_names_is_there() {
    let page = std::fs::read_to_string(project().join("framework/docs/client.md")).unwrap();
    let (_, compared) = page.split_once("# Compared with").unwrap();
    let functions = functions();
    let tests: Vec<_> = compared.split('`').skip(1).step_by(2).filter(|quoted| quoted.contains("::")).collect();
    assert!(tests.len() >= 20, "{tests:?}");
    let missing: Vec<_> = tests.into_iter().filter(|test| !exists(test, &functions)).collect();
    assert_eq!(missing, [""; 0]);
}
