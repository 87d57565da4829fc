//! The public items of each library are compared with the lists in `api/`, so that no change goes unseen: a
//! line that disappears or differs breaks somebody's program.
//!
//! The listing is read from the sources, so it needs no nightly compiler and no network. It
//! relies on the lint `unreachable_pub`, which is on in this workspace: what is `pub` can be
//! reached from outside. Not in it: what is hidden from the documentation, the
//! implementations that a macro of ours writes, and auto traits (which
//! `crates/requeue/tests/auto_traits.rs` keeps).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use syn::{
    Attribute, Field, Fields, FieldsNamed, FieldsUnnamed, File, FnArg, ImplItem, Item, ItemImpl, ItemMacro,
    ItemTrait, Meta, Pat, Signature, TraitItem, Type, UseTree, Visibility,
};

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A module: whether users can name it, and its items.
struct Module {
    public: bool,
    items: Vec<Item>,
}

/// The module with the items of `file`, and the modules below it.
fn read_module(file: &Path, below: &Path, public: bool, modules: &mut Vec<Module>) {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let parsed: File = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    collect(parsed.items, below, public, modules);
}

/// The module of these items, and those below it, whose files are in the folder `below`.
fn collect(items: Vec<Item>, below: &Path, public: bool, modules: &mut Vec<Module>) {
    let mut items: Vec<Item> = items.into_iter().filter(|item| is_for_users(attributes(item))).collect();
    for item in &mut items {
        let Item::Mod(module) = item else { continue };
        let name = module.ident.to_string();
        let public = public && is_public(&module.vis);
        if let Some((_, inside)) = module.content.take() {
            collect(inside, &below.join(&name), public, modules);
            continue;
        }
        let flat = below.join(format!("{name}.rs"));
        let file = if flat.is_file() { flat } else { below.join(&name).join("mod.rs") };
        read_module(&file, &below.join(&name), public, modules);
    }
    modules.push(Module { public, items });
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Whether an item is public for users: not hidden, and not for tests, models or the counting of costs.
fn is_for_users(attributes: &[Attribute]) -> bool {
    !attributes.iter().any(|attribute| {
        let Meta::List(list) = &attribute.meta else { return false };
        let said = list.tokens.to_string();
        let hidden = list.path.is_ident("doc") && said == "hidden";
        let other = list.path.is_ident("cfg")
            && !said.starts_with("not")
            && ["test", "doctest", "requeue_loom", "requeue_counted"].iter().any(|cfg| said.contains(cfg));
        hidden || other
    })
}

/// The parts before an item that matter to its users.
fn marks(attributes: &[Attribute]) -> String {
    let mut marks = String::new();
    for attribute in attributes {
        match &attribute.meta {
            Meta::Path(path) if path.is_ident("non_exhaustive") => marks.push_str("#[non_exhaustive] "),
            Meta::List(list) if list.path.is_ident("cfg") => {
                marks.push_str(&format!("#[cfg({})] ", list.tokens));
            }
            meta if meta.path().is_ident("must_use") => marks.push_str("#[must_use] "),
            meta if meta.path().is_ident("deprecated") => marks.push_str("#[deprecated] "),
            _ => {}
        }
    }
    marks
}

fn derived(attributes: &[Attribute]) -> Vec<String> {
    let mut names = Vec::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("derive")) {
        let parsed = attribute.parse_nested_meta(|meta| {
            names.extend(meta.path.segments.last().map(|last| last.ident.to_string()));
            Ok(())
        });
        parsed.expect("a list of traits");
    }
    names
}

/// The item as rustfmt writes it, in one line, without a body.
fn line(item: Item) -> String {
    let text = prettyplease::unparse(&File {
        shebang: None,
        frontmatter: None,
        attrs: Vec::new(),
        items: vec![item],
    });
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ").replace("( ", "(").replace(", )", ")").replace("< ", "<").replace(", >", ">");
    text.trim_end_matches(['{', '}', ';', ' ', ',']).to_owned()
}

fn signature(signature: &Signature) -> String {
    let mut signature = signature.clone();
    for argument in &mut signature.inputs {
        // whether the body changes an argument is nobody's business
        match argument {
            FnArg::Receiver(receiver) => receiver.mutability = None,
            FnArg::Typed(argument) => {
                if let Pat::Ident(name) = &mut *argument.pat {
                    name.mutability = None;
                }
            }
        }
    }
    line(syn::parse_quote!(#signature {}))
}

/// The last name of the path of a type: `Get` of `crate::Get<'_, K>`.
fn name_of(ty: &Type) -> Option<String> {
    match ty {
        Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
        Type::Reference(reference) => name_of(&reference.elem),
        _ => None,
    }
}

/// The public fields, and whether there are others, because then nobody else can build it.
fn fields(owner: &str, fields: &Fields, of_enum: bool, lines: &mut BTreeSet<String>) {
    let (listed, others): (Vec<&Field>, Vec<&Field>) = match fields {
        Fields::Named(FieldsNamed { named: all, .. })
        | Fields::Unnamed(FieldsUnnamed { unnamed: all, .. }) => {
            all.iter().partition(|field| of_enum || is_public(&field.vis))
        }
        Fields::Unit => return,
    };
    for (place, field) in listed.into_iter().enumerate() {
        let name = field.ident.as_ref().map_or_else(|| place.to_string(), ToString::to_string);
        let ty = &field.ty;
        let written = line(syn::parse_quote!(type Field = #ty;));
        lines.insert(format!("{owner}.{name}: {}", written.trim_start_matches("type Field = ")));
    }
    if !others.is_empty() {
        lines.insert(format!("{owner}.. (private fields)"));
    }
}

fn of_trait(item: &ItemTrait, lines: &mut BTreeSet<String>) {
    let name = &item.ident;
    let mut head = item.clone();
    head.items.clear();
    head.attrs.clear();
    lines.insert(format!("{}{}", marks(&item.attrs), line(Item::Trait(head))));
    for part in &item.items {
        match part {
            TraitItem::Fn(part) if is_for_users(&part.attrs) => {
                let provided = if part.default.is_some() { " (provided)" } else { "" };
                lines.insert(format!("{name}::{}{}{provided}", marks(&part.attrs), signature(&part.sig)));
            }
            TraitItem::Type(part) => {
                let (part, bounds) = (&part.ident, &part.bounds);
                lines.insert(format!(
                    "{name}::{}",
                    line(syn::parse_quote!(trait #part: #bounds {})).replace("trait", "type")
                ));
            }
            TraitItem::Const(part) => {
                let (part, ty) = (&part.ident, &part.ty);
                lines.insert(format!(
                    "{name}::{}",
                    line(syn::parse_quote!(type #part = #ty;)).replace("type", "const")
                ));
            }
            _ => {}
        }
    }
}

fn of_impl(
    item: &ItemImpl,
    types: &BTreeSet<String>,
    foreign: &BTreeSet<String>,
    lines: &mut BTreeSet<String>,
) {
    let Some(owner) = name_of(&item.self_ty).filter(|owner| types.contains(owner)) else { return };
    let mut head = item.clone();
    head.items.clear();
    head.attrs.clear();
    if let Some((path, _)) = &item.trait_ {
        let name = path.segments.last().expect("a trait has a name").ident.to_string();
        if !foreign.contains(&name) {
            let parts = item.items.iter().filter_map(|part| match part {
                ImplItem::Type(part) => Some(format!(" [{}]", line(syn::parse_quote!(#part)))),
                _ => None,
            });
            let parts: String = parts.collect();
            lines.insert(format!("{}{}{parts}", marks(&item.attrs), line(Item::Impl(head))));
        }
        return;
    }
    let head = line(Item::Impl(head));
    for part in &item.items {
        match part {
            ImplItem::Fn(part) if is_public(&part.vis) && is_for_users(&part.attrs) => {
                let marks = marks(&part.attrs);
                lines.insert(format!("{owner}::{marks}{} [{head}]", signature(&part.sig)));
            }
            ImplItem::Const(part) if is_public(&part.vis) && is_for_users(&part.attrs) => {
                let (name, ty) = (&part.ident, &part.ty);
                let written = line(syn::parse_quote!(type #name = #ty;))
                    .replace("type ", "const ")
                    .replace(" = ", ": ");
                lines.insert(format!("{owner}::{written} [{head}]"));
            }
            _ => {}
        }
    }
}

/// The implementation that a `debug!` of the library generates: its bounds and its type come first.
fn written_by_debug(item: &ItemMacro) -> ItemImpl {
    let tokens = item.mac.tokens.to_string();
    let front = tokens.split('|').next().unwrap_or_default().trim_end_matches([' ', ',']);
    let (bounds, shown) = front.trim_start_matches('[').split_once(']').expect("bounds in brackets");
    let text = format!("impl<{bounds}> std::fmt::Debug for {shown} {{}}");
    let mut written: ItemImpl = syn::parse_str(&text).expect("an implementation");
    written.attrs.clone_from(&item.attrs);
    written
}

/// Each name that a `use` brings, with its path.
fn used(tree: &UseTree, path: &str, lines: &mut BTreeSet<String>) {
    match tree {
        UseTree::Path(tree) => used(&tree.tree, &format!("{path}{}::", tree.ident), lines),
        UseTree::Name(tree) => _ = lines.insert(format!("use {path}{}", tree.ident)),
        UseTree::Rename(tree) => _ = lines.insert(format!("use {path}{} as {}", tree.ident, tree.rename)),
        UseTree::Glob(_) => _ = lines.insert(format!("use {path}*")),
        UseTree::Group(tree) => tree.items.iter().for_each(|tree| used(tree, path, lines)),
    }
}

/// All public items of the library in `crates/{library}`, a line each, sorted.
fn listing(library: &str) -> String {
    let source = here().join("../crates").join(library).join("src");
    let mut modules = Vec::new();
    read_module(&source.join("lib.rs"), &source, true, &mut modules);

    let mut types = BTreeSet::new();
    let mut foreign = BTreeSet::new();
    for item in modules.iter().flat_map(|module| &module.items) {
        let (visibility, name) = match item {
            Item::Enum(item) => (&item.vis, &item.ident),
            Item::Struct(item) => (&item.vis, &item.ident),
            Item::Type(item) => (&item.vis, &item.ident),
            Item::Trait(item) => (&item.vis, &item.ident),
            _ => continue,
        };
        let names = if is_public(visibility) { &mut types } else { &mut foreign };
        names.insert(name.to_string());
    }

    let mut lines = BTreeSet::new();
    for module in modules {
        for item in module.items {
            list(item, module.public, &types, &foreign, &mut lines);
        }
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

fn list(
    item: Item,
    public: bool,
    types: &BTreeSet<String>,
    foreign: &BTreeSet<String>,
    lines: &mut BTreeSet<String>,
) {
    match item {
        Item::Macro(item) if item.mac.path.is_ident("messages") => {
            let error = item.mac.tokens.into_iter().next().expect("the error's name").to_string();
            for implemented in ["std::fmt::Display", "std::error::Error"] {
                let written = syn::parse_str(&format!("impl {implemented} for {error} {{}}"));
                of_impl(&written.expect("an implementation"), types, foreign, lines);
            }
        }
        Item::Macro(item) if item.mac.path.is_ident("timeout") => {
            let wait = item.mac.tokens.into_iter().next().expect("the kind of wait");
            for function in ["into_owned", "wait"] {
                lines.insert(format!("Timeout::fn {function}(self) [of {wait}]"));
            }
        }
        Item::Macro(item) if item.mac.path.is_ident("debug") => {
            of_impl(&written_by_debug(&item), types, foreign, lines);
        }
        Item::Use(item) if public && is_public(&item.vis) => used(&item.tree, "", lines),
        Item::Mod(item) if public && is_public(&item.vis) => _ = lines.insert(format!("mod {}", item.ident)),
        Item::Const(item) if is_public(&item.vis) => {
            let (name, ty) = (&item.ident, &item.ty);
            lines.insert(
                line(syn::parse_quote!(type #name = #ty;)).replace("type ", "const ").replace(" = ", ": "),
            );
        }
        Item::Fn(item) if is_public(&item.vis) => {
            lines.insert(format!("{}{}", marks(&item.attrs), signature(&item.sig)));
        }
        Item::Type(mut item) if is_public(&item.vis) => {
            item.attrs.clear();
            lines.insert(line(Item::Type(item)).trim_start_matches("pub ").to_owned());
        }
        Item::Struct(mut item) if is_public(&item.vis) => {
            let name = item.ident.to_string();
            let marks = marks(&item.attrs);
            lines.extend(
                derived(&item.attrs)
                    .into_iter()
                    .map(|derived| format!("impl {derived} for {name} (derived)")),
            );
            fields(&name, &item.fields, false, lines);
            item.attrs.clear();
            item.fields = Fields::Unit;
            lines.insert(format!("{marks}{}", line(Item::Struct(item)).trim_start_matches("pub ")));
        }
        Item::Enum(mut item) if is_public(&item.vis) => {
            let name = item.ident.to_string();
            let marks_of_enum = marks(&item.attrs);
            lines.extend(
                derived(&item.attrs)
                    .into_iter()
                    .map(|derived| format!("impl {derived} for {name} (derived)")),
            );
            for variant in item.variants.iter().filter(|variant| is_for_users(&variant.attrs)) {
                let variant_name = format!("{name}::{}", variant.ident);
                lines.insert(format!("{}{variant_name}", marks(&variant.attrs)));
                fields(&variant_name, &variant.fields, true, lines);
            }
            item.attrs.clear();
            item.variants.clear();
            lines.insert(format!("{marks_of_enum}{}", line(Item::Enum(item)).trim_start_matches("pub ")));
        }
        Item::Trait(item) if is_public(&item.vis) => of_trait(&item, lines),
        Item::Impl(item) => of_impl(&item, types, foreign, lines),
        _ => {}
    }
}

#[test]
fn the_public_items_are_those_that_are_written_down() {
    let mut stale = Vec::new();
    for library in [
        "requeue",
        "requeue-engine",
        "requeue-prometheus",
        "requeue-sim",
        "requeue-postgres",
        "requeue-sqlite",
        "requeue-watch",
    ] {
        let found = listing(library);
        let file = here().join("api").join(format!("{library}.txt"));
        if std::env::var_os("REQUEUE_BLESS").is_some() {
            fs::write(&file, &found).expect("the listing can be written");
        }
        let written = fs::read_to_string(&file).unwrap_or_default();
        let (found, written): (BTreeSet<&str>, BTreeSet<&str>) =
            (found.lines().collect(), written.lines().collect());
        stale.extend(written.difference(&found).map(|line| format!("{library}: is gone: {line}")));
        stale.extend(found.difference(&written).map(|line| format!("{library}: is new:  {line}")));
    }
    assert!(
        stale.is_empty(),
        "the public items differ from verify/api:\n{}\nIf that is meant, say so in CHANGELOG.md, and run\n\
         REQUEUE_BLESS=1 cargo test -p requeue-verify --test repository",
        stale.join("\n")
    );
}

/// Functions and types that users of `requeue` can name, those of the names that come from `requeue-core` too.
/// Neither number may grow: who adds one takes another away.
#[test]
fn the_face_of_the_queue_does_not_grow() {
    let (library, core) = (listing("requeue"), listing("requeue-core"));
    let used = library.lines().filter_map(|line| line.strip_prefix("use "));
    let names: BTreeSet<&str> = used.clone().filter_map(|path| path.rsplit("::").next()).collect();
    let of_core: BTreeSet<&str> = used.filter_map(|path| path.strip_prefix("requeue_core::")).collect();
    let is_function = |mut item: &str| {
        while item.starts_with("#[") {
            item = item.split_once("] ").map_or("", |(_, item)| item);
        }
        item.trim_start_matches("const ").starts_with("fn ")
    };
    let of = |owner: &BTreeSet<&str>, line: &str| {
        line.split_once("::").is_some_and(|(name, item)| owner.contains(name) && is_function(item))
    };
    let own = library.lines().filter(|line| is_function(line) || of(&names, line)).count();
    let functions = own + core.lines().filter(|line| of(&of_core, line)).count();
    let types = names.iter().filter(|name| name.starts_with(|first: char| first.is_uppercase())).count();
    assert!(
        functions <= 273,
        "{functions} functions, {own} of them not from requeue-core, and there were 273"
    );
    assert!(types <= 90, "{types} types, and there were 90");
    assert!(functions > 150 && types > 50, "they are counted: {functions} functions, {types} types");
}
