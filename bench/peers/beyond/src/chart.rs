//! The pictures: bars, and what happened when.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::path::Path;

const WIDTH: i32 = 860;
const LEFT: i32 = 250;
const TOP: i32 = 58;
const STEP: i32 = 30;
const INK: RGBColor = RGBColor(40, 44, 52);
const OURS: RGBColor = RGBColor(183, 65, 14);
const THEIRS: RGBColor = RGBColor(130, 138, 150);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

fn color(queue: &str) -> RGBColor {
    if queue.starts_with("requeue") { OURS } else { THEIRS }
}

fn font(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

fn heads<'a>(area: &Area<'a>, title: &str, below: &str, rows: &[&str]) -> Drawn<'a> {
    area.fill(&WHITE)?;
    area.draw(&Text::new(title.to_string(), (16, 12), font(20)))?;
    area.draw(&Text::new(below.to_string(), (16, 36), font(14)))?;
    let right = font(15).pos(Pos::new(HPos::Right, VPos::Center));
    for (i, name) in rows.iter().enumerate() {
        let middle = TOP + STEP * i as i32 + STEP / 2;
        area.draw(&Text::new((*name).to_string(), (LEFT - 10, middle), right.clone()))?;
    }
    Ok(())
}

/// A bar for each queue, with its number. Where the numbers differ by much, by powers of ten.
pub(crate) fn bars(
    path: &Path,
    title: &str,
    below: &str,
    rows: &[(&str, f64, String)],
    by_powers: Option<f64>,
) -> Result<(), String> {
    let size = (WIDTH as u32, (TOP + STEP * rows.len() as i32 + 16) as u32);
    let area = SVGBackend::new(path, size).into_drawing_area();
    let long = |value: f64| match by_powers {
        Some(least) => (value.max(least) / least).log10(),
        None => value,
    };
    let longest = rows.iter().map(|(_, value, _)| long(*value)).fold(f64::MIN_POSITIVE, f64::max);
    // a letter is about 8 wide
    let widest = rows.iter().map(|(.., text)| text.len() as i32 * 8).max().unwrap_or(0);
    let scale = f64::from(WIDTH - LEFT - widest - 20) / longest;
    let draw = || -> Drawn<'_> {
        heads(&area, title, below, &rows.iter().map(|(name, ..)| *name).collect::<Vec<_>>())?;
        for (i, (name, value, text)) in rows.iter().enumerate() {
            let y = TOP + STEP * i as i32;
            let end = LEFT + ((long(*value) * scale) as i32).max(2);
            area.draw(&Rectangle::new([(LEFT, y + 5), (end, y + STEP - 5)], color(name).filled()))?;
            let left = font(15).pos(Pos::new(HPos::Left, VPos::Center));
            area.draw(&Text::new(text.clone(), (end + 7, y + STEP / 2), left))?;
        }
        area.present()
    };
    draw().map_err(|e| format!("{}: {e}", path.display()))
}

/// A line for each queue with a mark for each instant, in seconds.
pub(crate) fn strips(
    path: &Path,
    title: &str,
    below: &str,
    seconds: u32,
    rows: &[(&str, Vec<f64>)],
) -> Result<(), String> {
    let bottom = TOP + STEP * rows.len() as i32;
    let area = SVGBackend::new(path, (WIDTH as u32, (bottom + 34) as u32)).into_drawing_area();
    let scale = f64::from(WIDTH - LEFT - 60) / f64::from(seconds);
    let x = |at: f64| LEFT + (at * scale) as i32;
    let draw = || -> Drawn<'_> {
        heads(&area, title, below, &rows.iter().map(|(name, _)| *name).collect::<Vec<_>>())?;
        let thin = RGBColor(215, 218, 224).stroke_width(1);
        let center = font(13).pos(Pos::new(HPos::Center, VPos::Top));
        for tick in (0..=seconds).step_by((seconds as usize).div_ceil(12)) {
            let at = x(f64::from(tick));
            area.draw(&PathElement::new(vec![(at, TOP), (at, bottom)], thin))?;
            area.draw(&Text::new(format!("{tick} s"), (at, bottom + 6), center.clone()))?;
        }
        for (i, (name, instants)) in rows.iter().enumerate() {
            let y = TOP + STEP * i as i32;
            for at in instants {
                let mark = [(x(*at) - 1, y + 6), (x(*at) + 2, y + STEP - 6)];
                area.draw(&Rectangle::new(mark, color(name).filled()))?;
            }
            let left = font(15).pos(Pos::new(HPos::Left, VPos::Center));
            let count = instants.len().to_string();
            area.draw(&Text::new(count, (WIDTH - 50, y + STEP / 2), left))?;
        }
        area.present()
    };
    draw().map_err(|e| format!("{}: {e}", path.display()))
}
