//! One diagram: curves over an axis, with title, names of the axes, grid and legend.

use super::axis::Axis;
use svg::Document;
use svg::node::element::{Circle, Group, Line, Polyline, Rectangle, Style, Text, Title};

/// Least width; long names in the legend make it wider.
const WIDTH: f64 = 860.0;
/// Width of a letter in the legend, about.
const LETTER: f64 = 6.9;
const PLOT: (f64, f64, f64, f64) = (78.0, 46.0, 560.0, 340.0);
const ROW: f64 = 17.0;

const CSS: &str = "\
text{font-family:'DejaVu Sans',Verdana,Helvetica,Arial,sans-serif;fill:#1f2933;font-size:11.5px}\
.title{font-size:15px;font-weight:bold}.grid{stroke:#e4e7eb}.frame{fill:none;stroke:#7b8794}\
.curve{fill:none;stroke-width:2}.limit{stroke-dasharray:6 4;stroke-width:1.5}.again{stroke-dasharray:2 3}";

/// Colours that stay apart for most eyes (Okabe and Ito).
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8a6d3b"];

struct Curve {
    name: String,
    limit: bool,
    points: Vec<(f64, f64)>,
}

/// See the module.
pub struct Chart {
    pub title: String,
    axis: String,
    unit: String,
    curves: Vec<Curve>,
}

impl Chart {
    /// A diagram without curves.
    pub fn new(title: &str, axis: &str, unit: &str) -> Chart {
        let (title, axis, unit) = (title.to_owned(), axis.to_owned(), unit.to_owned());
        Chart { title, axis, unit, curves: Vec::new() }
    }

    /// Adds a point to a curve, which begins with its first point. `limit` curves are dashed.
    /// Where several points of a curve lie at one place (a limit measured beside several
    /// curves), the middle one is drawn.
    pub fn add(&mut self, curve: &str, x: f64, y: f64, limit: bool) {
        let known = self.curves.iter().position(|c| c.name == curve && c.limit == limit);
        let at = known.unwrap_or_else(|| {
            self.curves.push(Curve { name: curve.to_owned(), limit, points: Vec::new() });
            self.curves.len() - 1
        });
        self.curves[at].points.push((x, y));
    }

    /// Whether a curve is drawn: a limit that is one of the curves already, or some of them, is not
    /// drawn a second time.
    fn shows(&self, curve: &Curve) -> bool {
        let is_it = |other: &Curve| {
            let rest = other.name.strip_prefix(&curve.name);
            !other.limit && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(','))
        };
        !curve.limit || !self.curves.iter().any(is_it)
    }

    /// The diagram as SVG.
    pub fn draw(&self) -> String {
        let shown: Vec<&Curve> = self.curves.iter().filter(|curve| self.shows(curve)).collect();
        let all = || shown.iter().flat_map(|curve| curve.points.iter());
        let horizontal = axis(&self.axis, all().map(|p| p.0), Axis::sweep);
        let vertical = axis(&self.unit, all().map(|p| p.1), Axis::measured);
        let (left, top, width, height) = PLOT;
        let place = |x: f64, y: f64| {
            let x = left + horizontal.place(x) * width;
            (round(x), round(top + (1.0 - vertical.place(y)) * height))
        };
        let mut grid = Group::new();
        for (value, name) in horizontal.marks(self.axis == "bytes") {
            let (x, _) = place(value, vertical.low);
            grid = grid.add(line(x, top, x, top + height));
            grid = grid.add(text(&name, x, top + height + 17.0, "middle"));
        }
        for (value, name) in vertical.marks(false) {
            let (_, y) = place(horizontal.low, value);
            grid = grid.add(line(left, y, left + width, y));
            grid = grid.add(text(&name, left - 7.0, y + 4.0, "end"));
        }
        let (middle_x, middle_y) = (left + width / 2.0, top + height / 2.0);
        grid = grid.add(text(&self.axis, middle_x, top + height + 38.0, "middle"));
        let turned = text(&self.unit, 20.0, middle_y, "middle");
        grid = grid.add(turned.set("transform", format!("rotate(-90 20 {middle_y})")));
        let mut curves = Group::new();
        let mut legend = Group::new();
        for (at, curve) in shown.iter().enumerate() {
            let colour = COLOURS[at % COLOURS.len()];
            let class = match (curve.limit, at < COLOURS.len()) {
                (true, _) => "curve limit",
                (false, true) => "curve",
                // The same colours again, told from the first ones.
                (false, false) => "curve again",
            };
            let medians = curve.medians();
            let points: Vec<(f64, f64)> = medians.iter().map(|&(x, y)| place(x, y)).collect();
            curves = curves.add(
                Polyline::new()
                    .set("class", class)
                    .set("stroke", colour)
                    .set("points", points.clone()),
            );
            for (&(x, y), &(px, py)) in medians.iter().zip(&points).filter(|_| !curve.limit) {
                let hint = format!("{}: {y:.4} {} at {x}", curve.name, self.unit);
                let dot = Circle::new().set("cx", px).set("cy", py).set("r", 3);
                curves = curves.add(dot.set("fill", colour).add(Title::new(hint)));
            }
            let y = top + 8.0 + at as f64 * ROW;
            let sample = line(left + width + 16.0, y, left + width + 42.0, y);
            legend = legend.add(sample.set("class", class).set("stroke", colour)).add(text(
                &curve.name,
                left + width + 48.0,
                y + 4.0,
                "start",
            ));
        }
        let bottom = (top + height + 52.0).max(top + 20.0 + shown.len() as f64 * ROW);
        let longest = shown.iter().map(|curve| curve.name.chars().count()).max().unwrap_or(0);
        let wide = WIDTH.max((left + width + 56.0 + longest as f64 * LETTER).ceil());
        let frame = Rectangle::new()
            .set("class", "frame")
            .set("x", left)
            .set("y", top)
            .set("width", width)
            .set("height", height);
        Document::new()
            .set("viewBox", (0, 0, wide, bottom))
            .set("width", wide)
            .set("height", bottom)
            .add(Style::new(CSS))
            // Where pictures stand on another colour, letters and a black curve would be lost.
            .add(Rectangle::new().set("width", wide).set("height", bottom).set("fill", "#ffffff"))
            .add(text(&self.title, left, 26.0, "start").set("class", "title"))
            .add(grid)
            .add(frame)
            .add(curves)
            .add(legend)
            .to_string()
    }
}

impl Curve {
    /// The points from left to right, one for each place.
    fn medians(&self) -> Vec<(f64, f64)> {
        let mut points = self.points.clone();
        points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        points.chunk_by(|a, b| a.0 == b.0).map(|same| same[same.len() / 2]).collect()
    }
}

/// The axis of values that are called `name`: shares of a whole all alike.
fn axis<V: Iterator<Item = f64> + Clone>(name: &str, values: V, other: fn(V) -> Axis) -> Axis {
    if name.starts_with('%') { Axis::percent(values) } else { other(values) }
}

fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn line(x1: f64, y1: f64, x2: f64, y2: f64) -> Line {
    Line::new().set("class", "grid").set("x1", x1).set("y1", y1).set("x2", x2).set("y2", y2)
}

fn text(content: &str, x: f64, y: f64, anchor: &str) -> Text {
    Text::new(content).set("x", round(x)).set("y", round(y)).set("text-anchor", anchor)
}
