//! The tree as a picture: boxes in boxes, package > NUMA node > cache > core > thread, threads
//! coloured by the NUMA node of the rank that is bound to them.

use super::text::cache_name;
use super::{Scene, bytes};
use hither::topo::Cpu;
use svg::Document;
use svg::node::element::{Group, Rectangle, Style, Text, Title};

const THREAD: (f64, f64) = (46.0, 30.0);
const PAD: f64 = 6.0;
const HEAD: f64 = 18.0;
const TOP: f64 = 72.0;
const MARGIN: f64 = 20.0;
const LEGEND: f64 = 52.0;
/// Narrowest picture, so that title and legend fit.
const MIN_WIDTH: f64 = 720.0;

const CSS: &str = "\
text{font-family:'DejaVu Sans',Verdana,Helvetica,Arial,sans-serif;fill:#1f2933}\
.title{font-size:18px;font-weight:bold}.sub{font-size:12.5px;fill:#52606d}\
.head{font-size:11px;fill:#3e4c59}.big{font-size:12.5px;font-weight:bold}\
.rank{font-size:12px;font-weight:bold;text-anchor:middle}\
.cpu{font-size:8.5px;text-anchor:middle;fill:#3e4c59}\
.package{fill:#f5f7fa;stroke:#7b8794;stroke-width:1.6}\
.node{fill:#fff;stroke:#9aa5b1;stroke-width:1.2}\
.cache{fill:#f8fafc;stroke:#cbd2d9}.core{fill:none;stroke:#9aa5b1;stroke-dasharray:2 2}\
.thread,.sample{stroke:#7b8794;stroke-width:.8}.free{fill:#fff}.shut{fill:#d2d6dc}";

/// A laid-out box: its size, and how to draw it at a place.
struct Tile {
    width: f64,
    height: f64,
    class: &'static str,
    label: Option<String>,
    hint: String,
    cells: Vec<(f64, f64, Tile)>,
    thread: Option<Thread>,
}

struct Thread {
    cpu: u32,
    rank: Option<(u32, bool)>,
    allowed: bool,
    hue: f64,
}

/// Puts equal tiles into the grid whose shape comes nearest to `aspect` (width by height).
fn grid(
    tiles: Vec<Tile>,
    aspect: f64,
    class: &'static str,
    label: Option<String>,
    hint: String,
) -> Tile {
    let width = tiles.iter().map(|t| t.width).fold(0.0, f64::max);
    let height = tiles.iter().map(|t| t.height).fold(0.0, f64::max);
    let gap = PAD * 0.75;
    let head = if label.is_some() { HEAD } else { 0.0 };
    let least = label.as_ref().map_or(0.0, |label| label.chars().count() as f64 * 7.0);
    let size = |columns: usize| {
        let rows = tiles.len().div_ceil(columns);
        (
            (columns as f64 * (width + gap) - gap).max(least) + 2.0 * PAD,
            rows as f64 * (height + gap) - gap + 2.0 * PAD + head,
        )
    };
    // Off the wished shape, and (weighing more) empty places in the last row, are bad.
    let badness = |&columns: &usize| {
        let (w, h) = size(columns);
        let empty = tiles.len().div_ceil(columns) * columns - tiles.len();
        (w / h / aspect).ln().abs() + empty as f64 / tiles.len() as f64
    };
    let columns =
        (1..=tiles.len().max(1)).min_by(|a, b| badness(a).total_cmp(&badness(b))).unwrap_or(1);
    let (w, h) = size(columns);
    // A label wider than what is below it leaves room on both sides.
    let spare = (w - 2.0 * PAD - (columns as f64 * (width + gap) - gap)) / 2.0;
    let place = |(i, tile): (usize, Tile)| {
        let (column, row) = ((i % columns) as f64, (i / columns) as f64);
        (PAD + spare + column * (width + gap), PAD + head + row * (height + gap), tile)
    };
    let cells = tiles.into_iter().enumerate().map(place).collect();
    Tile { width: w, height: h, class, label, hint, cells, thread: None }
}

fn thread_tile(scene: &Scene, cpu: &Cpu) -> Tile {
    let rank = scene.seats.get(&cpu.id).copied();
    let state = match rank {
        _ if !cpu.allowed => "this process may not run here".to_owned(),
        Some((rank, _)) => format!("rank {rank}"),
        None => "free".to_owned(),
    };
    Tile {
        width: THREAD.0,
        height: THREAD.1,
        class: "thread",
        label: None,
        hint: format!("CPU {}, core {}, thread {}: {state}", cpu.id, cpu.core, cpu.thread),
        cells: Vec::new(),
        // Hues of neighbouring nodes lie far apart (the golden angle).
        thread: Some(Thread {
            cpu: cpu.id,
            rank,
            allowed: cpu.allowed,
            hue: (205.0 + f64::from(cpu.numa) * 137.508) % 360.0,
        }),
    }
}

fn core_tile(scene: &Scene, core: &[Cpu]) -> Tile {
    let threads: Vec<Tile> = core.iter().map(|cpu| thread_tile(scene, cpu)).collect();
    if threads.len() == 1 {
        return threads.into_iter().next().unwrap_or_else(|| unreachable!("chunks have members"));
    }
    let hint = format!("core {}", core[0].core);
    grid(threads, 0.4, "core", None, hint)
}

fn cache_tile(scene: &Scene, cpus: &[Cpu]) -> Tile {
    let cores = cpus.chunk_by(|a, b| a.core == b.core).map(|core| core_tile(scene, core));
    let name = cache_name(scene, cpus[0].cache);
    grid(cores.collect(), 1.9, "cache", Some(name.clone()), name)
}

fn node_tile(scene: &Scene, cpus: &[Cpu]) -> Tile {
    let caches = cpus.chunk_by(|a, b| a.cache == b.cache).map(|c| cache_tile(scene, c));
    let info = &scene.topology.nodes[cpus[0].numa as usize];
    let id = info.id.map_or("?".into(), |id| id.to_string());
    let memory = info.memory.map_or(String::new(), |m| format!(" · {}", bytes(m)));
    let name = format!("NUMA node {id}{memory}");
    grid(caches.collect(), 1.9, "node", Some(name.clone()), name)
}

fn package_tile(scene: &Scene, cpus: &[Cpu]) -> Tile {
    let nodes = cpus.chunk_by(|a, b| a.numa == b.numa).map(|n| node_tile(scene, n));
    let name = format!("package {}", cpus[0].package);
    grid(nodes.collect(), 1.4, "package", Some(name.clone()), name)
}

fn rectangle(x: f64, y: f64, tile: &Tile) -> Rectangle {
    Rectangle::new()
        .set("x", round(x))
        .set("y", round(y))
        .set("width", round(tile.width))
        .set("height", round(tile.height))
        .set("rx", if tile.thread.is_some() { 3 } else { 5 })
}

/// A colour in #rrggbb, which every viewer knows, of a hue in degrees and a lightness.
fn pastel(hue: f64, lightness: f64) -> String {
    let reach = 0.7 * lightness.min(1.0 - lightness);
    let channel = |offset: f64| {
        let k = (offset + hue / 30.0) % 12.0;
        let value = lightness - reach * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        (value * 255.0).round() as u8
    };
    format!("#{:02x}{:02x}{:02x}", channel(0.0), channel(8.0), channel(4.0))
}

fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn text(class: &str, x: f64, y: f64, content: &str) -> Text {
    Text::new(content).set("class", class).set("x", round(x)).set("y", round(y))
}

fn paint(tile: &Tile, x: f64, y: f64, mut into: Group) -> Group {
    let frame = rectangle(x, y, tile);
    let hint = Title::new(tile.hint.as_str());
    let Some(thread) = &tile.thread else {
        into = into.add(frame.set("class", tile.class).add(hint));
        if let Some(label) = &tile.label {
            let class = if tile.class == "package" { "big" } else { "head" };
            into = into.add(text(class, x + PAD + 2.0, y + HEAD - 3.0, label));
        }
        return tile.cells.iter().fold(into, |into, (dx, dy, t)| paint(t, x + dx, y + dy, into));
    };
    let frame = match thread.rank {
        _ if !thread.allowed => frame.set("class", format!("{} shut", tile.class)),
        None => frame.set("class", format!("{} free", tile.class)),
        Some((_, first)) => {
            let fill = pastel(thread.hue, if first { 0.72 } else { 0.90 });
            frame.set("class", tile.class).set("fill", fill)
        }
    };
    into = into.add(frame.add(hint));
    let middle = x + tile.width / 2.0;
    if let Some((rank, _)) = thread.rank {
        into = into.add(text("rank", middle, y + 14.5, &rank.to_string()));
    }
    into.add(text("cpu", middle, y + tile.height - 5.0, &format!("cpu {}", thread.cpu)))
}

fn legend(scene: &Scene, y: f64) -> Group {
    let sample = |rank, allowed| Tile {
        width: THREAD.0,
        height: THREAD.1,
        // Not "thread": a test counts those of the machine.
        class: "sample",
        label: None,
        hint: "legend".into(),
        cells: Vec::new(),
        thread: Some(Thread { cpu: 0, rank, allowed, hue: 205.0 }),
    };
    let some_smt = scene.topology.cpus().iter().any(|cpu| cpu.thread > 0);
    let some_free = scene.topology.allowed().any(|cpu| !scene.seats.contains_key(&cpu.id));
    let some_shut = scene.topology.cpus().iter().any(|cpu| !cpu.allowed);
    let mut entries = Vec::new();
    if scene.plan.binds() {
        entries.push((sample(Some((7, true)), true), "rank 7 is bound here"));
    }
    if scene.plan.binds() && some_smt {
        entries.push((sample(Some((7, false)), true), "rank 7 may also use it"));
    }
    if some_free {
        entries.push((sample(None, true), "free"));
    }
    if some_shut {
        entries.push((sample(None, false), "not allowed"));
    }
    let mut group = Group::new();
    let mut x = MARGIN;
    for (tile, words) in entries {
        group = paint(&tile, x, y, group);
        group = group.add(text("sub", x + THREAD.0 + 8.0, y + 19.0, words));
        x += THREAD.0 + 8.0 + words.len() as f64 * 7.3 + 18.0;
    }
    match scene.plan.binds() {
        true => group.add(text("sub", x, y + 19.0, "colour = NUMA node")),
        false => group,
    }
}

/// Draws the scene.
pub fn draw(scene: &Scene) -> Document {
    let cpus = scene.topology.cpus();
    let packages: Vec<Tile> =
        cpus.chunk_by(|a, b| a.package == b.package).map(|p| package_tile(scene, p)).collect();
    let machine = grid(packages, 1.5, "machine", None, String::new());
    let width = (machine.width + 2.0 * MARGIN).max(MIN_WIDTH);
    let height = TOP + machine.height + LEGEND;
    let mut body = Group::new()
        .add(text("title", MARGIN, 28.0, &scene.topology.name()))
        .add(text("sub", MARGIN, 47.0, &scene.summary()))
        .add(text("sub", MARGIN, 64.0, &scene.placement()));
    let left = MARGIN - PAD;
    body = machine.cells.iter().fold(body, |body, (x, y, t)| paint(t, left + x, TOP + y, body));
    body = body.add(legend(scene, TOP + machine.height + 10.0));
    Document::new()
        .set("viewBox", (0, 0, width.ceil() as i64, height.ceil() as i64))
        .set("width", width.ceil())
        .set("height", height.ceil())
        .add(Style::new(CSS))
        .add(Rectangle::new().set("width", "100%").set("height", "100%").set("fill", "#fff"))
        .add(body)
}
