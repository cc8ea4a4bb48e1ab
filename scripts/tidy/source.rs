//! Does a source file read as all of them should?
//!
//! Looks at Rust as tokens and as a syntax tree, so that a word in a comment or a string is not taken for code. What a test
//! contains (a file of tests, a `#[cfg(test)]` item, a `#[test]` function) is free of the rules on length, on `unwrap`, on
//! `unsafe` and on atomics. Functions inside macro definitions are not measured.

use crate::{Finding, Rule};
use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use std::ops::RangeInclusive;
use syn::spanned::Spanned;
use syn::visit::Visit;

/// A file longer than this, without its tests, is split where its state splits.
pub const FILE_LINES_MAX: usize = 800;
/// A function longer than this leaves its branches to the parent and its straight-line work to leaves.
pub const FUNCTION_LINES_MAX: usize = 70;

const RUNTIME_HOMES: &[&str] = &["src/driver/", "src/driver.rs", "src/boot.rs", "scripts/tidy/"];
const RUNTIME_NAMES: &[&str] = &["glommio", "io_uring"];

/// The modules of the process, each above those that it may name.
const MODULES: &[&str] = &[
    "cli",
    "boot",
    "client",
    "control",
    "config",
    "authenticate",
    "definitions",
    "driver",
    "backup",
    "storage",
    "users",
    "doorbell",
    "regular_file",
];

/// The findings in all sources among `texts` (pairs of path and text).
pub fn check(texts: &[(String, String)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut sources = Vec::new();
    for (path, text) in texts {
        check_words(path, text, &mut findings);
        if path.ends_with(".rs") {
            match Source::new(path, text) {
                Ok(source) => sources.push(source),
                Err(error) => findings.push(Finding {
                    path: path.clone(),
                    line: error.span().start().line,
                    rule: Rule::Syntax,
                    what: error.to_string(),
                }),
            }
        }
    }
    let test_modules: Vec<String> = sources.iter().flat_map(|source| source.test_modules.clone()).collect();
    for source in &mut sources {
        source.is_test |= test_modules.iter().any(|module| is_module(&source.path, module));
        source.check(&mut findings);
    }
    findings
}

/// Whether `path` is the file of the module at `module` (a path without extension), or of one inside it.
fn is_module(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

fn check_words(path: &str, text: &str, findings: &mut Vec<Finding>) {
    // Put together, so that this file does not contain what it forbids.
    let marks = [concat!("FIX", "ME"), concat!("XX", "X:")];
    for (index, line) in text.lines().enumerate() {
        for mark in marks.iter().filter(|mark| line.contains(**mark)) {
            let what = format!("{mark} marks work left undone");
            findings.push(Finding { path: path.to_owned(), line: index + 1, rule: Rule::Unfinished, what });
        }
        if !path.ends_with(".rs") {
            continue;
        }
        if !RUNTIME_HOMES.iter().any(|home| path.starts_with(home)) {
            for name in RUNTIME_NAMES.iter().filter(|name| line.contains(**name)) {
                let what = format!("{name} is named only under src/driver/ and in src/boot.rs");
                findings.push(Finding { path: path.to_owned(), line: index + 1, rule: Rule::Runtime, what });
            }
        }
        if line.contains(concat!("```", "ignore")) {
            let what = "an example that is not compiled".to_owned();
            findings.push(Finding { path: path.to_owned(), line: index + 1, rule: Rule::Ignored, what });
        }
    }
}

/// A token with its line; groups are flattened into an opening and a closing mark.
struct Token {
    text: String,
    line: usize,
}

struct Function {
    name: String,
    lines: RangeInclusive<usize>,
}

struct Source {
    path: String,
    is_test: bool,
    line_count: usize,
    has_header: bool,
    tokens: Vec<Token>,
    /// The lines of `#[cfg(test)]` items and `#[test]` functions.
    test_lines: Vec<RangeInclusive<usize>>,
    functions: Vec<Function>,
    /// Modules that this file declares for tests only, as paths without extension.
    test_modules: Vec<String>,
}

impl Source {
    fn new(path: &str, text: &str) -> Result<Self, syn::Error> {
        let file = syn::parse_file(text)?;
        let stream: TokenStream = text.parse().map_err(|error| syn::Error::new(Span::call_site(), error))?;
        let mut tokens = Vec::new();
        flatten(stream, &mut tokens);
        let mut visitor =
            Visitor { path, test_lines: Vec::new(), functions: Vec::new(), test_modules: Vec::new() };
        visitor.visit_file(&file);
        Ok(Self {
            path: path.to_owned(),
            is_test: is_test_path(path),
            line_count: text.lines().count(),
            has_header: text.trim_start().starts_with("//!"),
            tokens,
            test_lines: visitor.test_lines,
            functions: visitor.functions,
            test_modules: visitor.test_modules,
        })
    }

    fn check(&self, findings: &mut Vec<Finding>) {
        let mut say = |line: usize, rule: Rule, what: String| {
            findings.push(Finding { path: self.path.clone(), line, rule, what });
        };
        if !self.has_header {
            say(1, Rule::Header, "a module opens with //! and the question it answers".to_owned());
        }
        if self.module() == Some(None) {
            say(0, Rule::Edge, "the module has no place among the others".to_owned());
        }
        self.check_lengths(&mut say);
        for index in 0..self.tokens.len() {
            self.check_token(index, &mut say);
        }
    }

    fn check_lengths(&self, say: &mut impl FnMut(usize, Rule, String)) {
        if self.is_test {
            return;
        }
        let own = (1..=self.line_count).filter(|line| !self.in_test(*line)).count();
        if own > FILE_LINES_MAX {
            say(0, Rule::FileLength, format!("{own} lines without tests, {FILE_LINES_MAX} at most"));
        }
        for function in &self.functions {
            let count = function.lines.clone().count();
            if count > FUNCTION_LINES_MAX && !self.in_test(*function.lines.start()) {
                let what = format!("{} has {count} lines, {FUNCTION_LINES_MAX} at most", function.name);
                say(*function.lines.start(), Rule::FunctionLength, what);
            }
        }
    }

    fn check_token(&self, index: usize, say: &mut impl FnMut(usize, Rule, String)) {
        let line = self.tokens[index].line;
        let in_shards = self.path.starts_with("shards/");
        let in_test = self.in_test(line);
        if in_shards && self.reads(index, &[".", "await"]) {
            say(line, Rule::Await, "nothing below shards/ waits".to_owned());
        }
        if !in_test && self.reads(index, &[".", "unwrap", "(", ")"]) {
            say(line, Rule::Unwrap, "unwrap() outside a test".to_owned());
        }
        if !in_test && !self.path.starts_with("src/driver/") && self.reads(index, &["unsafe"]) {
            say(line, Rule::Unsafe, "unsafe belongs into src/driver/".to_owned());
        }
        let shared =
            self.reads(index, &["sync", ":", ":", "atomic"]) || self.tokens[index].text.starts_with("Atomic");
        if in_shards && !in_test && !self.path.starts_with("shards/mailbox/") && shared {
            say(line, Rule::Atomics, "only the mailbox shares memory".to_owned());
        }
        for above in self.modules_above(index) {
            say(line, Rule::Edge, format!("{above} stands above this module"));
        }
        if self.reads(index, &["#", "[", "ignore"]) || self.is_conditional_ignore(index) {
            say(line, Rule::Ignored, "a test that does not run".to_owned());
        }
        if self.reads(index, &["todo", "!"]) || self.reads(index, &["unimplemented", "!"]) {
            say(line, Rule::Unfinished, "work left undone".to_owned());
        }
    }

    /// The file's place among the modules of the process, if it is part of one.
    fn module(&self) -> Option<Option<usize>> {
        let name = self.path.strip_prefix("src/")?.split(['/', '.']).next()?;
        let is_one = !matches!(name, "lib" | "main") && !is_test_path(&self.path);
        is_one.then(|| MODULES.iter().position(|module| *module == name))
    }

    /// The modules of the process that are named at `index` and stand above the file's own.
    fn modules_above(&self, index: usize) -> Vec<&str> {
        let Some(own) = self.module().flatten().filter(|_| self.reads(index, &["crate", ":", ":"])) else {
            return Vec::new();
        };
        let mut depth = 0;
        let mut named = Vec::new();
        // A name, or a list of paths in braces of which the first names count.
        for pair in self.tokens[index + 2..].windows(2) {
            let [before, token] = pair else { continue };
            match token.text.as_str() {
                "{" => depth += 1,
                "}" => depth -= 1,
                text if matches!((before.text.as_str(), depth), (":", 0) | ("{" | ",", 1)) => {
                    named.push(text)
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        named.retain(|name| MODULES[..own].contains(name));
        named
    }

    /// Whether the tokens from `index` on read as `words`.
    fn reads(&self, index: usize, words: &[&str]) -> bool {
        let tokens = &self.tokens[index..];
        tokens.len() >= words.len() && words.iter().zip(tokens).all(|(word, token)| token.text == *word)
    }

    /// Whether `#[cfg_attr(…, ignore)]` stands at `index`.
    fn is_conditional_ignore(&self, index: usize) -> bool {
        self.reads(index, &["#", "[", "cfg_attr"])
            && self.tokens[index..]
                .iter()
                .take_while(|token| token.text != "]")
                .any(|token| token.text == "ignore")
    }

    fn in_test(&self, line: usize) -> bool {
        self.is_test || self.test_lines.iter().any(|lines| lines.contains(&line))
    }
}

/// Files that hold tests by where they stand.
fn is_test_path(path: &str) -> bool {
    let mut parts = path.split('/').rev();
    let name = parts.next().unwrap_or(path);
    name == "tests.rs"
        || name.ends_with("_tests.rs")
        || parts.any(|part| matches!(part, "tests" | "benches" | "fuzz"))
}

fn flatten(stream: TokenStream, into: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                into.push(Token { text: open.to_owned(), line });
                flatten(group.stream(), into);
                into.push(Token { text: close.to_owned(), line: group.span_close().end().line });
            }
            TokenTree::Ident(ident) => into.push(Token { text: ident.to_string(), line }),
            TokenTree::Punct(punct) => into.push(Token { text: punct.as_char().to_string(), line }),
            // What a literal says is no code.
            TokenTree::Literal(_) => into.push(Token { text: String::new(), line }),
        }
    }
}

struct Visitor<'p> {
    path: &'p str,
    test_lines: Vec<RangeInclusive<usize>>,
    functions: Vec<Function>,
    test_modules: Vec<String>,
}

impl Visitor<'_> {
    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let start = signature.span().start().line;
        let end = block.brace_token.span.close().end().line;
        self.functions.push(Function { name: signature.ident.to_string(), lines: start..=end });
    }

    fn attributes(&mut self, attributes: &[syn::Attribute], whole: Span) {
        if attributes.iter().any(is_for_tests) {
            self.test_lines.push(whole.start().line..=whole.end().line);
        }
    }
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.attributes(&item.attrs, item.span());
        self.function(&item.sig, &item.block);
        syn::visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.attributes(&item.attrs, item.span());
        self.function(&item.sig, &item.block);
        syn::visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
        syn::visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.attributes(&item.attrs, item.span());
        syn::visit::visit_item_impl(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.attributes(&item.attrs, item.span());
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        self.attributes(&item.attrs, item.span());
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.attributes(&item.attrs, item.span());
        if item.content.is_none() && item.attrs.iter().any(is_for_tests) {
            self.test_modules.push(module_path(self.path, item));
        }
        syn::visit::visit_item_mod(self, item);
    }
}

/// `#[test]`, or a `#[cfg(…)]` that holds in tests, or under a model checker, only.
fn is_for_tests(attribute: &syn::Attribute) -> bool {
    if attribute.path().is_ident("test") {
        return true;
    }
    let syn::Meta::List(list) = &attribute.meta else { return false };
    let words = list.tokens.to_string();
    let mut words = words.split(|c: char| !c.is_alphanumeric() && c != '_');
    attribute.path().is_ident("cfg")
        && words.clone().any(|word| word == "test")
        && !words.any(|word| word == "not")
}

/// Where the module that `item` declares in the file at `path` stands, without the extension.
fn module_path(path: &str, item: &syn::ItemMod) -> String {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = name.trim_end_matches(".rs");
    let own_folder =
        if matches!(stem, "lib" | "main" | "mod") { folder.to_owned() } else { format!("{folder}/{stem}") };
    let renamed =
        item.attrs.iter().find(|attribute| attribute.path().is_ident("path")).and_then(|attribute| {
            let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
            let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &pair.value else {
                return None;
            };
            Some(format!("{folder}/{}", text.value().trim_end_matches(".rs")))
        });
    renamed.unwrap_or_else(|| format!("{own_folder}/{}", item.ident))
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
