//! Every public asynchronous method is polled and dropped in some test.

use std::collections::BTreeSet;
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use syn::{Attribute, ImplItem, Item, ItemImpl, ItemMacro, ReturnType, TraitItem, Type, TypeParamBound, Visibility};

use crate::table;

/// Public methods that no row calls, and why.
const WITHOUT_A_ROW: [(&str, &str); 0] = [];

/// The public asynchronous methods of a source file, and the types for which macros make some.
#[derive(Default)]
struct Methods {
    /// Type, or macro with its `!`, and method.
    found: BTreeSet<(String, String)>,
    /// Macro with its `!`, and the type that it is used for.
    uses: Vec<(String, String)>,
}

impl Methods {
    fn add(&mut self, items: Vec<Item>) {
        for item in items {
            match item {
                Item::Mod(module) if !is_for_tests(&module.attrs) => {
                    self.add(module.content.map(|(_, items)| items).unwrap_or_default());
                }
                Item::Impl(block) if block.trait_.is_none() => self.add_block(block),
                Item::Trait(of) if of.ident == "InterProcessLock" => {
                    let methods = of.items.into_iter().filter_map(|item| match item {
                        TraitItem::Fn(method) if method.sig.asyncness.is_some() => Some(method.sig.ident.to_string()),
                        _ => None,
                    });
                    self.found.extend(methods.map(|method| (of.ident.to_string(), method)));
                }
                Item::Macro(ItemMacro { ident: Some(name), mac, .. }) => {
                    self.add_tokens(&format!("{name}!"), mac.tokens);
                }
                Item::Macro(ItemMacro { mac, .. }) => {
                    let name = mac.path.segments.last().map(|last| format!("{}!", last.ident)).unwrap_or_default();
                    if let Some(TokenTree::Ident(of)) = mac.tokens.into_iter().next() {
                        self.uses.push((name, of.to_string()));
                    }
                }
                _ => {}
            }
        }
    }

    fn add_block(&mut self, block: ItemImpl) {
        let Type::Path(of) = *block.self_ty else { return };
        let Some(of) = of.path.segments.last().map(|last| last.ident.to_string()) else { return };
        for item in block.items {
            let ImplItem::Fn(method) = item else { continue };
            if !matches!(method.vis, Visibility::Public(_)) {
                continue;
            }
            let name = method.sig.ident.to_string();
            if method.sig.asyncness.is_some() || returns_a_future(&method.sig.output) {
                self.found.insert((of.clone(), name));
            }
        }
    }

    /// Adds the methods in the body of a macro: each name behind `pub async fn`, and behind `pub fn` if `impl Future`
    /// follows.
    fn add_tokens(&mut self, of: &str, tokens: TokenStream) {
        let (mut words, mut method): (Vec<String>, Option<String>) = Default::default();
        for token in tokens {
            match token {
                TokenTree::Ident(word) => {
                    if words.ends_with(&["pub".into(), "async".into(), "fn".into()]) {
                        self.found.insert((of.to_owned(), word.to_string()));
                    } else if words.ends_with(&["pub".into(), "fn".into()]) {
                        method = Some(word.to_string());
                    } else if words.ends_with(&["impl".into()]) && word == "Future" {
                        self.found.extend(method.take().map(|method| (of.to_owned(), method)));
                    }
                    words.push(word.to_string());
                }
                TokenTree::Group(group) => self.add_tokens(of, group.stream()),
                _ => words.clear(),
            }
        }
    }
}

fn returns_a_future(output: &ReturnType) -> bool {
    let ReturnType::Type(_, returned) = output else { return false };
    let Type::ImplTrait(returned) = &**returned else { return false };
    let is_future = |bound: &TypeParamBound| match bound {
        TypeParamBound::Trait(bound) => bound.path.segments.last().is_some_and(|last| last.ident == "Future"),
        _ => false,
    };
    returned.bounds.iter().any(is_future)
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("cfg"))
}

#[test]
fn no_asynchronous_method_is_left_out() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/src");
    let mut methods = Methods::default();
    let mut folders = vec![sources];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => methods.add(syn::parse_file(&std::fs::read_to_string(path).unwrap()).unwrap().items),
            }
        }
    }
    let mut public = BTreeSet::new();
    let Methods { found, uses } = methods;
    for (of, method) in found {
        match of.ends_with('!') {
            true => {
                public.extend(uses.iter().filter(|(used, _)| *used == of).map(|(_, lock)| format!("{lock}::{method}")))
            }
            false => drop(public.insert(format!("{of}::{method}"))),
        }
    }
    let tested: BTreeSet<_> = table()
        .iter()
        .map(|row| row.method)
        .chain(WITHOUT_A_ROW.map(|(method, _why)| method))
        .map(ToOwned::to_owned)
        // The stream of all changes is the framework's.
        .filter(|name| !name.starts_with("Changes"))
        .collect();
    assert!(public.len() > 30, "{public:?}");
    assert_eq!(public, tested);
}
