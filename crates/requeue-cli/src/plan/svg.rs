//! The picture as SVG.

use std::io;
use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;

use super::picture::{Picture, Place};
use super::scale::marked_calls;

const SIZE: (u32, u32) = (800, 450);

/// Height of the title and the sentence at the top.
const HEAD: i32 = 66;

/// Maximum number of letters in the title and below it.
const LETTERS: (usize, usize) = (78, 110);

const INK: RGBColor = RGBColor(40, 44, 52);
const GREY: RGBColor = RGBColor(221, 223, 228);
const MAIN: RGBColor = RGBColor(183, 65, 14);

/// Draws the picture, on a white background, so that it fits on any page.
///
/// # Errors
///
/// The library's error; there is no output that could fail.
pub(super) fn draw(picture: &Picture) -> Result<String, String> {
    let mut out = String::new();
    draw_into(&mut out, picture).map_err(|e| e.to_string())?;
    Ok(out)
}

fn draw_into(out: &mut String, picture: &Picture) -> Result<(), DrawingAreaErrorKind<io::Error>> {
    let font = |size: i32| ("sans-serif", size).into_font().color(&INK);
    let whole = SVGBackend::with_string(out, SIZE).into_drawing_area();
    whole.fill(&WHITE)?;
    whole.draw(&Text::new(fitting(&picture.title, LETTERS.0), (18, 14), font(20)))?;
    whole.draw(&Text::new(fitting(&picture.sentence, LETTERS.1), (18, 40), font(15)))?;
    let (_, area) = whole.split_vertically(HEAD);
    let calls = picture.calls as f64;
    let beside = (calls * 0.02).max(0.6);
    let called = marked_calls(picture.calls).into_iter().map(|call| (call as f64, call.to_string()));
    let across = Axis { range: 1.0 - beside..calls + beside, marks: called.collect() };
    let intervals = picture.scale.intervals();
    let marked = |i: u32| (f64::from(i) / f64::from(intervals), picture.scale.mark(i));
    let upwards = Axis { range: 0.0..1.0, marks: (0..=intervals).map(marked).collect() };
    let mut chart = ChartBuilder::on(&area)
        .margin_left(14)
        .margin_right(24)
        .margin_bottom(8)
        .margin_top(8)
        .x_label_area_size(46)
        .y_label_area_size(88)
        .build_cartesian_2d(across, upwards)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(GREY)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .label_style(font(15))
        .axis_desc_style(font(16))
        .x_desc("call")
        .y_desc("delay")
        .draw()?;
    if picture.single {
        let places = || picture.places.iter().flatten();
        chart
            .draw_series(places().map(|at| {
                PathElement::new(vec![(at.call, 0.0), (at.call, at.high)], MAIN.stroke_width(2))
            }))?;
        chart.draw_series(places().map(|at| Circle::new((at.call, at.high), 4, MAIN.filled())))?;
    } else {
        for stretch in picture.places.split(Option::is_none).filter(|stretch| !stretch.is_empty()) {
            let both = |at: &Place| [(at.call, at.low), (at.call, at.high)];
            let line: Vec<(f64, f64)> = stretch.iter().flatten().flat_map(both).collect();
            chart.draw_series(std::iter::once(PathElement::new(line, MAIN.stroke_width(2))))?;
        }
    }
    whole.present()
}

/// An axis with marks where we want them.
struct Axis {
    range: Range<f64>,
    marks: Vec<(f64, String)>,
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let part = (value - self.range.start) / (self.range.end - self.range.start);
        limit.0 + (part * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.marks.iter().map(|(at, _)| *at).collect()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        self.marks.iter().find(|(at, _)| at == value).map_or_else(String::new, |(_, text)| text.clone())
    }
}

fn fitting(text: &str, letters: usize) -> String {
    match text.char_indices().nth(letters) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
