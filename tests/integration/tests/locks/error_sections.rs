//! The sections `# Errors` name variants as a caller matches them: `Error::NoNode`, and only variants that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::Item;

const ENUMS: [(&str, &str); 7] = [
    ("BarrierError", "recipes/src/barriers/error.rs"),
    ("CacheError", "recipes/src/caches/error.rs"),
    ("CounterError", "recipes/src/counters/error.rs"),
    ("Error", "framework/src/error/kinds.rs"),
    ("LeaderError", "recipes/src/leader/error.rs"),
    ("LockError", "recipes/src/engine/error.rs"),
    ("SharedError", "recipes/src/shared/error.rs"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn variants(of: &str, file: &str) -> BTreeSet<String> {
    let parsed = syn::parse_file(&std::fs::read_to_string(root().join(file)).unwrap()).unwrap();
    let found = parsed.items.into_iter().find_map(|item| match item {
        Item::Enum(found) if found.ident == of => Some(found),
        _ => None,
    });
    found.unwrap().variants.into_iter().map(|variant| variant.ident.to_string()).collect()
}

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Returns the words in backticks of each section, with the number of the line.
fn words_of_sections(source: &str) -> Vec<(usize, String)> {
    let (mut words, mut is_in_section) = (Vec::new(), false);
    for (number, line) in source.lines().enumerate() {
        let Some(text) = line.trim_start().strip_prefix("///") else {
            is_in_section = false;
            continue;
        };
        if text.starts_with(" #") {
            is_in_section = text == " # Errors";
        } else if is_in_section {
            words.extend(text.split('`').skip(1).step_by(2).map(|word| (number + 1, word.to_owned())));
        }
    }
    words
}

#[test]
fn each_variant_in_a_section_of_errors_exists_and_has_its_type() {
    let known: BTreeMap<_, _> = ENUMS.into_iter().map(|(of, file)| (of, variants(of, file))).collect();
    let mut files = Vec::new();
    for folder in ["framework/src", "recipes/src"] {
        sources(&root().join(folder), &mut files);
    }
    let (mut named, mut wrong) = (0, Vec::new());
    for file in files {
        for (line, word) in words_of_sections(&std::fs::read_to_string(&file).unwrap()) {
            let is_wrong = match word.split_once("::") {
                Some((of, variant)) => known.get(of).is_some_and(|variants| {
                    let is_variant = variant.starts_with(|first: char| first.is_ascii_uppercase());
                    named += usize::from(is_variant);
                    is_variant && !variants.contains(variant)
                }),
                None => known.values().any(|variants| variants.contains(&word)),
            };
            if is_wrong {
                wrong.push(format!("{}:{line}: `{word}`", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(named > 200, "{named}");
}
