//! The picture in a terminal, in Braille dots.

use super::picture::Picture;

/// Width of the vertical axis's marks, to the right of the dots.
const MARKS: usize = 12;

/// Dots per letter, vertically and horizontally.
const DOTS: (usize, usize) = (4, 2);

/// Rows of text from one mark to the next.
const ROWS: usize = 4;

/// Number of positions per dot of an axis.
const DOTTED: usize = 3;

/// The width of the terminal that reads our output.
pub(super) fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout());
    size.ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(80)
}

/// The picture as lines of this number of columns, or somewhat more if that is too few.
pub(super) fn draw(picture: &Picture, columns: usize) -> String {
    let intervals = picture.scale.intervals() as usize;
    let columns = columns.clamp(40, 200) - MARKS;
    let (width, height) = (columns * DOTS.1, intervals * ROWS * DOTS.0);
    let mut dots = Dots::new(columns + 1, intervals * ROWS + 1);
    for y in (0..=height).step_by(DOTTED) {
        dots.set((0, y));
    }
    for x in (0..=width).step_by(DOTTED) {
        dots.set((x, height));
    }
    let last = (picture.calls.max(2) - 1) as f64;
    // the upper end of the stroke before, which the next one is joined to
    let mut before = None;
    for place in picture.places.iter() {
        let Some(place) = place else {
            before = None;
            continue;
        };
        let x = ((place.call - 1.0) / last * width as f64).round() as usize;
        let at = |share: f64| (x, height - (share * height as f64).round() as usize);
        let (low, high) = (at(place.low), at(place.high));
        if picture.single {
            dots.line(at(0.0), high);
        } else {
            dots.line(before.unwrap_or(low), low);
            dots.line(low, high);
            before = Some(high);
        }
    }
    let mut text = format!("{}\ndelay of each call\n\n", picture.title);
    for (row, letters) in dots.letters.chunks(dots.columns).enumerate() {
        text.extend(letters.iter().map(|bits| char::from_u32(0x2800 + u32::from(*bits)).unwrap_or(' ')));
        if row % ROWS == 0 {
            text.push(' ');
            text.push_str(&picture.scale.mark((intervals - row / ROWS) as u32));
        }
        text.push('\n');
    }
    let calls = picture.calls.to_string();
    let first = columns.saturating_sub(calls.len());
    text + &format!("{:<first$}{calls}\n\n{}\n", "call 1", picture.sentence)
}

/// A field of dots, from the upper left, in the letters that show them.
struct Dots {
    columns: usize,
    /// The Braille letters row by row, one bit per dot.
    letters: Vec<u8>,
}

impl Dots {
    fn new(columns: usize, rows: usize) -> Self {
        Self { columns, letters: vec![0; columns * rows] }
    }

    /// Sets a dot. One outside the field is ignored.
    fn set(&mut self, (x, y): (usize, usize)) {
        const BITS: [[u8; DOTS.1]; DOTS.0] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
        let at = y / DOTS.0 * self.columns + x / DOTS.1;
        if let (true, Some(letter)) = (x / DOTS.1 < self.columns, self.letters.get_mut(at)) {
            *letter |= BITS[y % DOTS.0][x % DOTS.1];
        }
    }

    /// Draws a line with as many dots as its longer side.
    fn line(&mut self, from: (usize, usize), to: (usize, usize)) {
        let steps = from.0.abs_diff(to.0).max(from.1.abs_diff(to.1));
        let part = |from: usize, to: usize, step: usize| {
            let way = (from.abs_diff(to) * step).checked_div(steps).unwrap_or(0);
            if from <= to { from + way } else { from - way }
        };
        for step in 0..=steps {
            self.set((part(from.0, to.0, step), part(from.1, to.1, step)));
        }
    }
}
