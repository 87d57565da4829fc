//! The picture: how many times as fast as client-go, a bar for each headline.

use crate::judge::times;
use crate::plan::{Kind, Plan};
use crate::samples::Samples;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::path::Path;

/// A headline: its name, and client-go's time divided by ours.
pub(crate) fn bars(plan: &Plan, samples: &Samples) -> Vec<(String, f64)> {
    let mut bars = Vec::new();
    for section in &plan.sections {
        let field = &section.show[0];
        for row in &section.rows {
            let Some(headline) = &row.headline else { continue };
            let peer = row.cells.iter().find(|c| c.kind == Kind::Peer && c.name == "client-go");
            let Some(peer) = peer.and_then(|cell| samples.stat(cell, field)) else { continue };
            let ours = row.cells.iter().filter(|c| c.kind == Kind::Ours && headline.of.contains(&c.name));
            let ours = ours.filter_map(|cell| samples.stat(cell, field));
            let best = ours.map(|stat| times(stat.median, peer.median, field)).reduce(f64::max);
            bars.extend(best.map(|times| (headline.name.clone(), times)));
        }
    }
    bars
}

const WIDTH: i32 = 860;
const LEFT: i32 = 400;
const TOP: i32 = 56;
const STEP: i32 = 26;
const INK: RGBColor = RGBColor(40, 44, 52);
const FASTER: RGBColor = RGBColor(183, 65, 14);
const SLOWER: RGBColor = RGBColor(150, 150, 150);

/// Draws the bars.
pub(crate) fn draw(bars: &[(String, f64)], below: &str, path: &Path) -> Result<(), String> {
    let height = TOP + STEP * bars.len() as i32 + 40;
    let area = SVGBackend::new(path, (WIDTH as u32, height as u32)).into_drawing_area();
    let longest = bars.iter().map(|(_, times)| *times).fold(1.0, f64::max);
    let scale = f64::from(WIDTH - LEFT - 70) / longest;
    let x = |times: f64| LEFT + (times * scale) as i32;
    let font = |size: i32, color: RGBColor| ("sans-serif", size).into_font().color(&color);
    let draw = || -> Result<(), DrawingAreaErrorKind<_>> {
        area.fill(&WHITE)?;
        area.draw(&Text::new("client-go's time divided by requeue's", (16, 14), font(22, INK)))?;
        for (i, (name, times)) in bars.iter().enumerate() {
            let y = TOP + STEP * i as i32;
            let color = if *times >= 1.0 { FASTER } else { SLOWER };
            let middle = y + STEP / 2 - 2;
            let right = font(16, INK).pos(Pos::new(HPos::Right, VPos::Center));
            area.draw(&Text::new(name.as_str(), (LEFT - 10, middle), right))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_best_way_of_a_headline_is_drawn() {
        let plan = Plan::load(true, &["w2".to_string()]).unwrap();
        let mut samples = Samples::default();
        for (cell, ns) in plan.sections[0].rows[0].cells.iter().zip([50.0, 25.0, 100.0]) {
            samples.add(&cell.implementation, &cell.args, &json!({ "ns_per_op": ns }));
        }
        let bars = bars(&plan, &samples);
        assert_eq!(bars, [("W2 2 producers, 2 consumers".to_string(), 4.0)]);
    }
}
