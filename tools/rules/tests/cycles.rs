//! No two files of a crate import each other, directly or through others.
//!
//! Reads each crate's sources: `use` declarations, and paths in code and in macros' arguments. A name
//! that a file re-exports (`pub use`) counts for the file that defines it, since a crate's root hands
//! on what others need. Declaring a module (`mod x;`) is no import. Code for tests alone is not read.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, Item, ItemMod, ItemUse, Macro, UseTree,
    visit::{self, Visit},
};

/// Segments of a module's path within its crate.
type Module = Vec<String>;

/// One source file of a crate.
struct Source {
    path: PathBuf,
    module: Module,
    syntax: syn::File,
    /// What `use` makes known here, by its name here: the whole path, and whether it is re-exported.
    names: BTreeMap<String, (Vec<String>, bool)>,
    /// Modules whose every name is re-exported here.
    globs: Vec<Vec<String>>,
}

/// A crate's sources by their modules.
struct Sources(BTreeMap<Module, Source>);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        list.path.is_ident("cfg")
            && list.tokens.clone().into_iter().any(|token| match token {
                TokenTree::Ident(word) => word == "test" || word == "fuzzing",
                TokenTree::Group(group) => {
                    let words = group.stream().into_iter();
                    words
                        .map(|word| word.to_string())
                        .any(|word| word == "test" || word == "fuzzing")
                }
                _ => false,
            })
    })
}

/// The module of a file below `src`.
fn module_of(file: &Path) -> Module {
    let mut module: Module =
        file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    module
}

impl Sources {
    /// Of the program or library whose root this file is.
    fn read(start: &Path) -> Self {
        let directory = start.parent().expect("a root is in a directory").to_owned();
        let mut sources = Self(BTreeMap::new());
        let mut files = vec![start.to_owned()];
        while let Some(path) = files.pop() {
            let text = fs::read_to_string(&path)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let syntax = syn::parse_file(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let within = path.strip_prefix(&directory).expect("modules are below their root");
            let module = module_of(within);
            for item in &syntax.items {
                if let Item::Mod(ItemMod { attrs, ident, content: None, .. }) = item
                    && !is_for_tests(attrs)
                    && !attrs.iter().any(|attribute| attribute.path().is_ident("path"))
                {
                    let inside = directory.join(module.iter().collect::<PathBuf>());
                    let places = [format!("{ident}.rs"), format!("{ident}/mod.rs")];
                    let file = places.map(|place| inside.join(place));
                    files.extend(file.into_iter().filter(|file| file.is_file()));
                }
            }
            let (mut names, mut globs) = (BTreeMap::new(), Vec::new());
            for item in &syntax.items {
                if let Item::Use(item) = item
                    && !is_for_tests(&item.attrs)
                {
                    let shared = !matches!(item.vis, syn::Visibility::Inherited);
                    flatten(&item.tree, &mut Vec::new(), &mut |path, name| match name {
                        Some(name) => {
                            names.insert(name, (path, shared));
                        }
                        None if shared => globs.push(path),
                        None => {}
                    });
                }
            }
            sources.0.insert(module.clone(), Source { path, module, syntax, names, globs });
        }
        sources
    }

    /// The file that a path resolves to from a module, through re-exports.
    fn resolve(&self, from: &[String], path: &[String], depth: usize) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        let (mut module, mut rest): (Module, &[String]) = match first.as_str() {
            "crate" => (Module::new(), rest),
            "self" => (from.to_vec(), rest),
            "super" => (from.split_last()?.1.to_vec(), rest),
            _ => {
                let mut child = from.to_vec();
                child.push(first.clone());
                if self.0.contains_key(&child) {
                    (child, rest)
                } else {
                    let (whole, _) = self.0.get(from)?.names.get(first)?;
                    if depth > 8 || whole.first() == Some(first) {
                        return None;
                    }
                    let whole: Vec<String> = whole.iter().chain(rest).cloned().collect();
                    return self.resolve(from, &whole, depth + 1);
                }
            }
        };
        while let Some((next, after)) = rest.split_first() {
            if next == "super" {
                module.pop()?;
            } else {
                let mut child = module.clone();
                child.push(next.clone());
                if !self.0.contains_key(&child) {
                    break;
                }
                module = child;
            }
            rest = after;
        }
        let here = self.0.get(&module)?;
        if let Some(name) = rest.first()
            && depth < 8
        {
            if let Some((whole, _)) = here.names.get(name) {
                // A name of another crate resolves to no file here.
                let whole: Vec<String> = whole.iter().chain(&rest[1..]).cloned().collect();
                return self.resolve(&module, &whole, depth + 1);
            }
            let through = here.globs.iter().find_map(|glob| {
                let whole: Vec<String> = glob.iter().chain(rest).cloned().collect();
                let found = self.resolve(&module, &whole, depth + 1)?;
                self.0[&found].defines(name).then_some(found)
            });
            if let Some(found) = through.filter(|_| !here.defines(name)) {
                return Some(found);
            }
        }
        Some(module)
    }

    /// Which files each file imports, with the paths by which it does.
    fn imports(&self) -> BTreeMap<Module, BTreeMap<Module, BTreeSet<String>>> {
        let edges = |source: &Source| {
            let mut paths = Paths { inside: 0, found: BTreeSet::new() };
            paths.visit_file(&source.syntax);
            let mut edges: BTreeMap<Module, BTreeSet<String>> = BTreeMap::new();
            for path in paths.found {
                if let Some(target) = self.resolve(&source.module, &path, 0)
                    && target != source.module
                {
                    edges.entry(target).or_default().insert(path.join("::"));
                }
            }
            edges
        };
        self.0.values().map(|source| (source.module.clone(), edges(source))).collect()
    }
}

impl Source {
    /// Whether the file defines an item of this name.
    fn defines(&self, name: &str) -> bool {
        self.syntax.items.iter().any(|item| match item {
            Item::Const(item) => item.ident == name,
            Item::Enum(item) => item.ident == name,
            Item::Fn(item) => item.sig.ident == name,
            Item::Static(item) => item.ident == name,
            Item::Struct(item) => item.ident == name,
            Item::Trait(item) => item.ident == name,
            Item::Type(item) => item.ident == name,
            Item::Union(item) => item.ident == name,
            _ => false,
        })
    }
}

/// Calls `each` for every name of a `use`: its whole path, and its name here (none for a glob).
fn flatten(
    tree: &UseTree,
    prefix: &mut Vec<String>,
    each: &mut impl FnMut(Vec<String>, Option<String>),
) {
    match tree {
        UseTree::Path(part) => {
            prefix.push(part.ident.to_string());
            flatten(&part.tree, prefix, each);
            prefix.pop();
        }
        UseTree::Name(name) if name.ident == "self" => {
            each(prefix.clone(), prefix.last().cloned());
        }
        UseTree::Name(name) => {
            let whole = prefix.iter().cloned().chain([name.ident.to_string()]).collect();
            each(whole, Some(name.ident.to_string()));
        }
        UseTree::Rename(name) => {
            let whole = prefix.iter().cloned().chain([name.ident.to_string()]).collect();
            each(whole, Some(name.rename.to_string()));
        }
        UseTree::Glob(_) => each(prefix.clone(), None),
        UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, prefix, each);
            }
        }
    }
}

/// Collects what a file names.
struct Paths {
    /// Modules within the file, around where the visitor is.
    inside: usize,
    found: BTreeSet<Vec<String>>,
}

impl Paths {
    /// A path as the file's own module would write it.
    fn add(&mut self, mut path: Vec<String>) {
        for _ in 0..self.inside {
            if path.first().is_some_and(|first| first == "super") {
                path.remove(0);
            }
        }
        if path.len() > 1 || self.inside == 0 {
            self.found.insert(path);
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_for_tests(&item.attrs) {
            self.inside += 1;
            visit::visit_item_mod(self, item);
            self.inside -= 1;
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        // A re-export is no import of this file.
        if is_for_tests(&item.attrs) || !matches!(item.vis, syn::Visibility::Inherited) {
            return;
        }
        flatten(&item.tree, &mut Vec::new(), &mut |path, _| self.add(path));
    }

    /// `pub(super)` sets the visibility of an item, and imports nothing.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.add(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast Macro) {
        self.visit_path(&item.path);
        self.tokens(item.tokens.clone());
    }
}

impl Paths {
    /// Paths among a macro's arguments: words with `::` between them.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(word) if colons == 2 || path.is_empty() => {
                    path.push(word.to_string());
                    colons = 0;
                }
                TokenTree::Punct(point) if point.as_char() == ':' && !path.is_empty() => {
                    colons += 1
                }
                other => {
                    if path.len() > 1 {
                        self.add(path.clone());
                    }
                    path.clear();
                    colons = 0;
                    match other {
                        TokenTree::Ident(word) => path.push(word.to_string()),
                        TokenTree::Group(group) => self.tokens(group.stream()),
                        _ => {}
                    }
                }
            }
        }
        if path.len() > 1 {
            self.add(path);
        }
    }
}

/// Roots of all libraries and programs of the workspace.
fn crate_roots() -> Vec<PathBuf> {
    let mut roots = Vec::new();
    for floor in ["crates", "in-switch", "tools"] {
        for entry in fs::read_dir(root().join(floor)).unwrap() {
            let source = entry.unwrap().path().join("src");
            roots.extend(["lib.rs", "main.rs"].map(|name| source.join(name)));
        }
    }
    roots.retain(|root| root.is_file());
    roots.sort();
    roots
}

/// The files that reach each other, each group with what ties it.
fn cycles(imports: &BTreeMap<Module, BTreeMap<Module, BTreeSet<String>>>) -> Vec<Vec<Module>> {
    let reach = |from: &Module| {
        let mut reached = BTreeSet::new();
        let mut next: Vec<&Module> = imports[from].keys().collect();
        while let Some(module) = next.pop() {
            if reached.insert(module.clone()) {
                next.extend(imports[module].keys());
            }
        }
        reached
    };
    let reached: BTreeMap<Module, BTreeSet<Module>> =
        imports.keys().map(|module| (module.clone(), reach(module))).collect();
    let mut cycles: Vec<Vec<Module>> = Vec::new();
    for (module, all) in &reached {
        if all.contains(module) && !cycles.iter().any(|cycle| cycle.contains(module)) {
            cycles.push(
                all.iter().filter(|other| reached[*other].contains(module)).cloned().collect(),
            );
        }
    }
    cycles
}

#[test]
fn no_two_files_import_each_other() {
    let mut broken = String::new();
    let mut files = 0;
    let roots = crate_roots();
    for start in &roots {
        let sources = Sources::read(start);
        files += sources.0.len();
        let imports = sources.imports();
        let cycles = cycles(&imports);
        for cycle in cycles {
            broken.push_str(&format!("a cycle of {} files:\n", cycle.len()));
            for from in &cycle {
                for (to, paths) in imports[from].iter().filter(|(to, _)| cycle.contains(to)) {
                    let name = |module: &Module| {
                        let path = &sources.0[module].path;
                        let path = path.strip_prefix(root()).unwrap_or(path);
                        path.display().to_string()
                    };
                    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
                    broken.push_str(&format!(
                        "  {} -> {}: {}\n",
                        name(from),
                        name(to),
                        paths.join(", ")
                    ));
                }
            }
        }
    }
    assert!(roots.len() > 20 && files > 300, "{files} files of {} crates were read", roots.len());
    assert!(broken.is_empty(), "files that import each other:\n{broken}");
}
