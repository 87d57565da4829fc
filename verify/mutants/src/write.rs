//! Writes the mutants of a file into its text, each behind its number.

use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::Result;
use crate::list::{Mutant, offset};

/// A file with its mutants.
pub struct Written {
    pub text: String,
    /// Where in the text each mutant stands: its own piece, for finding it from a compiler's error.
    pub pieces: Vec<(Range<usize>, usize)>,
    /// Mutants that no number can choose: they are built alone.
    pub alone: Vec<usize>,
}

/// Places in the text that can be changed, as the parser sees them.
#[derive(Default)]
struct Places<'a> {
    text: &'a str,
    binaries: Vec<[Range<usize>; 4]>,
    unaries: Vec<[Range<usize>; 3]>,
    arms: Vec<Arm>,
}

struct Arm {
    whole: Range<usize>,
    pattern_end: usize,
    guard: Option<Range<usize>>,
}

impl Places<'_> {
    fn range(&self, part: &impl Spanned) -> Range<usize> {
        let span = part.span();
        let at = |place: proc_macro2::LineColumn| offset(self.text, (place.line, place.column + 1));
        at(span.start())..at(span.end())
    }
}

impl<'ast> Visit<'ast> for Places<'_> {
    fn visit_expr_binary(&mut self, expr: &'ast syn::ExprBinary) {
        let parts =
            [self.range(expr), self.range(&*expr.left), self.range(&expr.op), self.range(&*expr.right)];
        self.binaries.push(parts);
        visit::visit_expr_binary(self, expr);
    }

    fn visit_expr_unary(&mut self, expr: &'ast syn::ExprUnary) {
        let parts = [self.range(expr), self.range(&expr.op), self.range(&*expr.expr)];
        self.unaries.push(parts);
        visit::visit_expr_unary(self, expr);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        let guard = match &arm.pat {
            syn::Pat::Guard(pattern) => Some(self.range(&*pattern.guard)),
            _ => None,
        };
        let arm_range = self.range(arm);
        self.arms.push(Arm { whole: arm_range, pattern_end: self.range(&arm.pat).end, guard });
        visit::visit_arm(self, arm);
    }
}

/// A place with all its mutants: each a number and what stands there instead.
struct Site {
    place: Range<usize>,
    kind: Kind,
    mutants: Vec<(usize, String)>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// The function returns something else at once.
    Return,
    /// The arm is never taken.
    NoArm,
    /// The guard of an arm is replaced.
    Guard,
    /// Another operator between the same operands (or none in front of its operand).
    Operator { operands: Vec<Range2>, operator: Range2 },
}

/// A range that can be compared.
type Range2 = (usize, usize);

fn pair(range: &Range<usize>) -> Range2 {
    (range.start, range.end)
}

/// Writes `mutants`, all of one file, into its `text`. `chosen` is the function that compares a
/// number with the one in the environment.
pub fn write(text: &str, mutants: &[&Mutant], chosen: &str) -> Result<Written> {
    let mut places = Places { text, ..Places::default() };
    places.visit_file(&syn::parse_file(text)?);
    let mut sites: Vec<Site> = Vec::new();
    let mut alone = Vec::new();
    for mutant in mutants {
        let span = mutant.from..mutant.to;
        let mut replacement = mutant.replacement.clone();
        let site = match mutant.genre.as_str() {
            "FnValue" => Some((span.start..span.start, Kind::Return)),
            "BinaryOperator" => places.binaries.iter().find(|[_, _, operator, _]| *operator == span).map(
                |[whole, left, operator, right]| {
                    let operands = vec![pair(left), pair(right)];
                    (whole.clone(), Kind::Operator { operands, operator: pair(operator) })
                },
            ),
            "UnaryOperator" => {
                places.unaries.iter().find(|[_, operator, _]| operator.start == span.start).map(
                    |[whole, operator, operand]| {
                        let operands = vec![pair(operand)];
                        (whole.clone(), Kind::Operator { operands, operator: pair(operator) })
                    },
                )
            }
            "MatchArmGuard" => places
                .arms
                .iter()
                .find_map(|arm| arm.guard.clone().filter(|guard| *guard == span))
                .map(|guard| (guard, Kind::Guard)),
            "MatchArm" => {
                replacement = "false".to_string();
                places.arms.iter().find(|arm| arm.whole.start == span.start).map(|arm| match &arm.guard {
                    Some(guard) => (guard.clone(), Kind::Guard),
                    None => (arm.pattern_end..arm.pattern_end, Kind::NoArm),
                })
            }
            // a field that is left out of an expression, for one
            _ => None,
        };
        let Some((place, kind)) = site else {
            alone.push(mutant.id);
            continue;
        };
        match sites.iter_mut().find(|site| site.place == place && site.kind == kind) {
            Some(site) => site.mutants.push((mutant.id, replacement)),
            None => sites.push(Site { place, kind, mutants: vec![(mutant.id, replacement)] }),
        }
    }
    // outer ones before inner ones: a site's inner ones come after it
    sites.sort_by(|a, b| {
        let key = |site: &Site| (site.place.start, !site.place.is_empty(), usize::MAX - site.place.end);
        key(a).cmp(&key(b)).then_with(|| a.kind.cmp(&b.kind))
    });
    let mut writer = Writer { text, sites: &sites, chosen, out: String::new(), pieces: Vec::new() };
    writer.part(0, (0, text.len()));
    Ok(Written { text: writer.out, pieces: writer.pieces, alone })
}

struct Writer<'a> {
    text: &'a str,
    sites: &'a [Site],
    chosen: &'a str,
    out: String,
    pieces: Vec<(Range<usize>, usize)>,
}

impl Writer<'_> {
    /// Writes a part of the text with the sites in it, of which the first may be number `first`.
    fn part(&mut self, first: usize, (from, to): Range2) {
        let mut at = from;
        for index in first..self.sites.len() {
            let site = &self.sites[index];
            if site.place.start < at || site.place.end > to {
                continue;
            }
            self.out.push_str(&self.text[at..site.place.start]);
            self.site(index);
            at = site.place.end;
        }
        self.out.push_str(&self.text[at..to]);
    }

    fn site(&mut self, index: usize) {
        let Site { place, kind, mutants } = &self.sites[index];
        let chosen = self.chosen;
        match kind {
            Kind::Return => {
                for (id, value) in mutants {
                    self.piece(*id, &format!("if {chosen}({id}) {{ return {value}; }} "));
                }
            }
            Kind::NoArm => {
                self.out.push_str(" if true");
                for (id, _) in mutants {
                    self.piece(*id, &format!(" && !{chosen}({id})"));
                }
            }
            Kind::Guard => {
                self.out.push('(');
                for (id, value) in mutants {
                    self.piece(*id, &format!("if {chosen}({id}) {{ {value} }} else "));
                }
                self.out.push_str("{ ");
                self.part(index + 1, pair(place));
                self.out.push_str(" })");
            }
            Kind::Operator { operands, operator } => {
                self.out.push('(');
                for (id, instead) in mutants {
                    let unchanged: Vec<_> =
                        operands.iter().map(|&(from, to)| format!("({})", &self.text[from..to])).collect();
                    let value = unchanged.join(&format!(" {instead} "));
                    self.piece(*id, &format!("if {chosen}({id}) {{ {value} }} else "));
                }
                self.out.push_str("{ ");
                let operator = &self.text[operator.0..operator.1];
                let (last, before) = operands.split_last().expect("an operator has an operand");
                for operand in before {
                    self.part(index + 1, *operand);
                }
                self.out.push_str(&format!(" {operator} "));
                self.part(index + 1, *last);
                self.out.push_str(" })");
            }
        }
    }

    fn piece(&mut self, id: usize, text: &str) {
        let from = self.out.len();
        self.out.push_str(text);
        self.pieces.push((from..self.out.len(), id));
    }
}
