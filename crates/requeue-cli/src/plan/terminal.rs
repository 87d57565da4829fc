//! The picture in a terminal, in Braille dots.

use textplots::{
    AxisBuilder as _, Chart, LabelBuilder as _, LabelFormat, LineStyle, Plot as _, Shape, TickDisplay,
    TickDisplayBuilder as _,
};

use super::picture::Picture;

/// What the marks of the vertical axis may take, to the right of the dots.
const MARKS: usize = 12;

/// The dots of a row and of a column of text.
const ROW: u32 = 4;
const COLUMN: usize = 2;

/// Rows of text from one mark to the next, as the library has it.
const ROWS: u32 = 4;

/// The width of the terminal that reads our output.
pub(super) fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout());
    size.ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(80)
}

/// The picture as lines of so many columns, or somewhat more where that is too few.
pub(super) fn draw(picture: &Picture, columns: usize) -> String {
    let width = (columns.clamp(40, 200) - MARKS) * COLUMN;
    let height = picture.scale.intervals() * ROWS * ROW;
    let last = (picture.calls.max(2) - 1) as f64;
    let mut strokes: Vec<Vec<(f32, f32)>> = Vec::new();
    for place in picture.places.iter() {
        let Some(place) = place else {
            strokes.push(Vec::new());
            continue;
        };
        // Within 0 and 1, where an f32 is exact enough for a dot.
        let x = ((place.call - 1.0) / last) as f32;
        let points = [(x, place.low as f32), (x, place.high as f32)];
        match strokes.last_mut() {
            Some(stroke) if !picture.single => stroke.extend(points),
            _ if picture.single => strokes.push(vec![(x, 0.0), points[1]]),
            _ => strokes.push(points.to_vec()),
        }
    }
    let shapes: Vec<Shape<'_>> = strokes.iter().map(|stroke| Shape::Lines(stroke)).collect();
    let (scale, calls) = (picture.scale, picture.calls);
    let mut chart = Chart::new_with_y_range(width as u32, height, 0.0, 1.0, 0.0, 1.0);
    let mut view = chart
        .x_axis_style(LineStyle::Dotted)
        .x_label_format(LabelFormat::Custom(Box::new(move |x| {
            if x == 0.0 { "call 1".to_owned() } else { calls.to_string() }
        })))
        .y_label_format(LabelFormat::Custom(Box::new(move |y| scale.mark_at(f64::from(y)))))
        .y_tick_display(TickDisplay::Sparse);
    for shape in &shapes {
        view = view.lineplot(shape);
    }
    view.axis();
    view.figures();
    format!("{}\ndelay of each call\n\n{view}\n{}\n", picture.title, picture.sentence)
}
