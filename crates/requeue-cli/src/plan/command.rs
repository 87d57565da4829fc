//! Runs `requeue plan`.

use std::io::{self, BufWriter, Write};

use super::calls::Answers;
use super::picture::Sketch;
use super::rows::Rows;
use super::{svg, terminal};
use crate::config::Plan;
use crate::system::exit::{CLOSED, USAGE, refuse};
use crate::system::whole_file::WholeFile;

/// Runs `requeue plan`. Returns the exit status.
pub(crate) fn run(args: &Plan) -> u8 {
    let (limiter, rhythm) = (&args.limiter, args.calls);
    let built = match limiter.build() {
        Ok(built) => built,
        Err(why) => return refuse(USAGE, &why),
    };
    let svg = match args.svg.as_deref().map(|path| (path, WholeFile::open(path))) {
        None => None,
        Some((path, Ok(file))) => Some((path, file)),
        Some((path, Err(e))) => return refuse(USAGE, &format!("--svg {}: {e}", path.display())),
    };
    let mut sketch = (args.plot || svg.is_some()).then(|| Sketch::new(limiter, rhythm));
    let rows = match (args.json, sketch.is_some()) {
        (true, _) => Some(Rows::json()),
        (false, false) => Some(Rows::table(rhythm)),
        (false, true) => None,
    };
    if let (true, Err(why)) = (args.plot || rows.is_some(), crate::system::stdio_check::has_output()) {
        return refuse(USAGE, why);
    }
    let mut out = BufWriter::new(io::stdout().lock());
    let show = || -> io::Result<()> {
        if let Some(rows) = &rows {
            rows.head(&mut out)?;
        }
        for call in Answers::new(built, rhythm) {
            if let Some(rows) = &rows {
                rows.row(&mut out, &call)?;
            }
            if let Some(sketch) = &mut sketch {
                sketch.take(&call);
            }
        }
        if let (true, Some(sketch)) = (args.plot, &sketch) {
            out.write_all(terminal::draw(&sketch.picture(), terminal::columns()).as_bytes())?;
        }
        out.flush()
    };
    match show() {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return CLOSED,
        Err(e) => return refuse(1, &format!("standard output: {e}")),
        Ok(()) => {}
    }
    if let (Some((path, file)), Some(sketch)) = (svg, &sketch) {
        let drawn = svg::draw(&sketch.picture())
            .map_err(io::Error::other)
            .and_then(|text| file.write(|out| out.write_all(text.as_bytes())));
        match drawn {
            // Under a name like /dev/stdout.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return CLOSED,
            Err(e) => return refuse(1, &format!("--svg {}: {e}", path.display())),
            Ok(()) => {}
        }
    }
    0
}
