//! Diagrams as PNG, for places that show no SVG. Letters are drawn with the fonts of the machine.

use hither::{Error, Result};
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};
use std::sync::Arc;

/// Pixels for one unit of a diagram: sharp on screens that have two for one.
const SCALE: f32 = 2.0;

/// Turns diagrams into pictures. Made once: it looks for all fonts there are.
pub struct Painter {
    options: Options<'static>,
}

impl Painter {
    /// With the fonts of the machine; an error if it has none, as there would be no letters.
    pub fn new() -> Result<Painter> {
        let mut options = Options::default();
        let fonts = Arc::make_mut(&mut options.fontdb);
        fonts.load_system_fonts();
        let family = fonts.faces().find_map(|face| Some(face.families.first()?.0.clone()));
        let family = family.ok_or_else(|| Error::Misuse {
            what: "drawing a diagram as PNG",
            why: "this machine has no fonts; install some (DejaVu, for instance)".into(),
        })?;
        // What no family that a diagram names stands for.
        fonts.set_sans_serif_family(family);
        Ok(Painter { options })
    }

    /// The picture of a diagram.
    pub fn paint(&self, svg: &str) -> Result<Vec<u8>> {
        let wrong = |why: String| Error::invalid("drawing a diagram as PNG", why);
        let tree = Tree::from_str(svg, &self.options).map_err(|e| wrong(e.to_string()))?;
        let size = tree.size();
        let (width, height) = ((size.width() * SCALE).ceil(), (size.height() * SCALE).ceil());
        let mut pixels = Pixmap::new(width as u32, height as u32)
            .ok_or_else(|| wrong(format!("{width} x {height} pixels are too many")))?;
        resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
        pixels.encode_png().map_err(|e| wrong(e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plot::chart::Chart;

    #[test]
    fn a_diagram_becomes_a_picture_with_letters_and_curves() {
        let drawn = |name: &str, y: f64| {
            let mut chart = Chart::new("Messages", "bytes", "ns");
            [8.0, 64.0, 512.0].iter().for_each(|x| chart.add(name, *x, x * y, false));
            Painter::new().unwrap().paint(&chart.draw()).unwrap()
        };
        let picture = Pixmap::decode_png(&drawn("put", 1.0)).unwrap();
        assert!(picture.width() >= 1700 && picture.height() > 700);
        let inked = |picture: &Pixmap| {
            let white = |pixel: &resvg::tiny_skia::PremultipliedColorU8| pixel.red() == 255;
            picture.pixels().iter().filter(|pixel| !white(pixel)).count()
        };
        // A longer name in the legend takes more ink, the curve being the same.
        let other = Pixmap::decode_png(&drawn("put put put put", 1.0)).unwrap();
        assert!(inked(&other) > inked(&picture) + 100, "{} {}", inked(&other), inked(&picture));
        assert!(Painter::new().unwrap().paint("<svg").is_err());
    }
}
