//! The picture: how many times as good as client-go, a bar for each line of the summary.

use crate::summary::Line;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::path::Path;

const WIDTH: i32 = 940;
const LEFT: i32 = 470;
const TOP: i32 = 56;
const STEP: i32 = 26;
const INK: RGBColor = RGBColor(40, 44, 52);
const FASTER: RGBColor = RGBColor(183, 65, 14);
const SLOWER: RGBColor = RGBColor(150, 150, 150);

/// A bar that would be longer ends here; its number is its true length.
const MOST: f64 = 12.0;

/// Draws a bar for each line of the summary that has client-go's figure.
pub(crate) fn draw(lines: &[Line], below: &str, path: &Path) -> Result<(), String> {
    let bars: Vec<_> = lines.iter().filter_map(|line| Some((line.what.as_str(), line.times?))).collect();
    let height = TOP + STEP * bars.len() as i32 + 40;
    let area = SVGBackend::new(path, (WIDTH as u32, height as u32)).into_drawing_area();
    let longest = bars.iter().map(|(_, times)| *times).fold(1.0, f64::max).min(MOST);
    let scale = f64::from(WIDTH - LEFT - 70) / longest;
    let x = |times: f64| LEFT + (times.min(MOST) * scale) as i32;
    let font = |size: i32, color: RGBColor| ("sans-serif", size).into_font().color(&color);
    let draw = || -> Result<(), DrawingAreaErrorKind<_>> {
        area.fill(&WHITE)?;
        area.draw(&Text::new("client-go's figure divided by requeue's", (16, 14), font(22, INK)))?;
        for (i, (name, times)) in bars.iter().enumerate() {
            let y = TOP + STEP * i as i32;
            let color = if *times >= 1.0 { FASTER } else { SLOWER };
            let middle = y + STEP / 2 - 2;
            let right = font(16, INK).pos(Pos::new(HPos::Right, VPos::Center));
            area.draw(&Text::new(*name, (LEFT - 10, middle), right))?;
            area.draw(&Rectangle::new([(LEFT, y + 2), (x(*times), y + STEP - 6)], color.filled()))?;
            let left = font(16, INK).pos(Pos::new(HPos::Left, VPos::Center));
            area.draw(&Text::new(format!("{times:.1}x"), (x(*times) + 6, middle), left))?;
        }
        // as fast as client-go
        let bottom = TOP + STEP * bars.len() as i32;
        area.draw(&PathElement::new(vec![(x(1.0), TOP - 4), (x(1.0), bottom)], INK.stroke_width(1)))?;
        let center = font(15, INK).pos(Pos::new(HPos::Center, VPos::Bottom));
        area.draw(&Text::new("1x", (x(1.0), TOP - 5), center))?;
        area.draw(&Text::new(below, (16, bottom + 14), font(15, INK)))?;
        area.present()
    };
    draw().map_err(|e| format!("{}: {e}", path.display()))
}
