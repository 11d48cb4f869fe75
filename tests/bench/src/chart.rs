//! A drawing of the rows of a suite that are compared with Curator.

use std::path::Path;

use plotters::element::{PathElement, Rectangle, Text};
use plotters::prelude::{BLACK, Color, IntoDrawingArea, RGBColor, SVGBackend, WHITE};
use plotters::style::TextStyle;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde_json::Value;

use crate::figures::ratio;
use crate::harness::{CURATOR, KAZOO, OURS, SOCKETS, figures_of};
use crate::process::Result;

/// The sides that are drawn beside Curator, each with a colour.
const SIDES: [(&str, &str, RGBColor); 3] = [
    (OURS, "this project", RGBColor(183, 65, 14)),
    (KAZOO, "kazoo", RGBColor(90, 140, 80)),
    (SOCKETS, "bare sockets", RGBColor(150, 150, 150)),
];
const WIDTH: i32 = 900;
/// The names of the rows end here, and the bars begin.
const NAMES: i32 = 460;
const BAR: i32 = 9;
const GAP: i32 = 10;
const TOP: i32 = 64;
/// The powers of ten of the ratios at both ends of the drawing.
const ENDS: (f64, f64) = (-1.0, 2.5);

/// A row: its title, and the ratio of each side to Curator. Larger is better.
struct Bars<'a> {
    title: &'a str,
    ratios: Vec<(RGBColor, f64)>,
}

/// Returns the bars of a row that is compared with Curator and has a target. An `at most` target inverts the ratios.
fn bars(row: &Value) -> Option<Bars<'_>> {
    let wanted = row["wanted"].as_str().filter(|wanted| !wanted.is_empty() && row["to"] == CURATOR)?;
    let (smaller_is_better, of_curator) = (wanted.starts_with("at most"), figures_of(row, CURATOR));
    let ratio_of = |side: &str| {
        let ratio = ratio(&figures_of(row, side), &of_curator)?;
        Some(if smaller_is_better { 1.0 / ratio } else { ratio })
    };
    let ratios: Vec<_> = SIDES.iter().filter_map(|(side, _, colour)| Some((*colour, ratio_of(side)?))).collect();
    (!ratios.is_empty()).then_some(Bars { title: row["row"].as_str()?, ratios })
}

#[allow(clippy::cast_possible_truncation, reason = "a place in the drawing")]
fn place(ratio: f64) -> i32 {
    let share = (ratio.log10().clamp(ENDS.0, ENDS.1) - ENDS.0) / (ENDS.1 - ENDS.0);
    NAMES + (f64::from(WIDTH - NAMES - GAP) * share) as i32
}

/// Draws the ratios to Curator, in powers of ten. Larger is better. Without any such row, nothing is drawn.
pub fn draw(title: &str, rows: &[Value], file: &Path) -> Result<()> {
    let all: Vec<_> = rows.iter().filter_map(bars).collect();
    let bars: usize = all.iter().map(|row| row.ratios.len()).sum();
    if bars == 0 {
        return Ok(());
    }
    let height = TOP + BAR * i32::try_from(bars)? + GAP * i32::try_from(all.len() + 1)?;
    let root = SVGBackend::new(file, (WIDTH.unsigned_abs(), height.unsigned_abs())).into_drawing_area();
    root.fill(&WHITE)?;
    let text = |size: i32, anchor: HPos| TextStyle::from(("sans-serif", size)).pos(Pos::new(anchor, VPos::Center));
    root.draw(&Text::new(format!("{title}: times better than Curator"), (GAP, 16), text(17, HPos::Left)))?;
    for (number, (_, name, colour)) in (0..).zip(SIDES) {
        let left = NAMES + 140 * number;
        root.draw(&Rectangle::new([(left, 12), (left + 14, 20)], colour.filled()))?;
        root.draw(&Text::new(name, (left + 20, 16), text(13, HPos::Left)))?;
    }
    for ratio in [0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0] {
        let (x, style) = (place(ratio), if ratio == 1.0 { BLACK.mix(0.8) } else { BLACK.mix(0.15) });
        root.draw(&PathElement::new([(x, TOP - 8), (x, height - GAP)], style))?;
        root.draw(&Text::new(ratio.to_string(), (x, TOP - 18), text(12, HPos::Center)))?;
    }
    let mut y = TOP;
    for Bars { title, ratios } in all {
        let middle = y + BAR * i32::try_from(ratios.len())? / 2;
        root.draw(&Text::new(title, (NAMES - GAP, middle), text(12, HPos::Right)))?;
        for (colour, ratio) in ratios {
            let mut ends = [place(1.0), place(ratio)];
            ends.sort_unstable();
            root.draw(&Rectangle::new([(ends[0], y), (ends[1], y + BAR - 1)], colour.filled()))?;
            y += BAR;
        }
        y += GAP;
    }
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_with_a_target_are_drawn_with_the_better_side_to_the_right() {
        let row = |title: &str, wanted: &str, to: &str| {
            let figures = json!({ OURS: [2.0, 2.0], CURATOR: [8.0, 8.0], SOCKETS: [1.0, 1.0] });
            json!({ "row": title, "wanted": wanted, "to": to, "figures": figures })
        };
        let ratios = |row: &Value| bars(row).map(|row| row.ratios.iter().map(|(_, ratio)| *ratio).collect::<Vec<_>>());
        assert_eq!(ratios(&row("load, s", "at most 0.5: met", CURATOR)), Some(vec![4.0, 8.0]));
        assert_eq!(ratios(&row("cycles/s", "at least 2: **missed**", CURATOR)), Some(vec![0.25, 0.125]));
        assert_eq!(ratios(&row("heap", "at most 2: met", KAZOO)), None);
        assert_eq!(ratios(&row("bytes", "", CURATOR)), None);
        assert!(place(0.01) == NAMES && place(0.5) < place(1.0) && place(1.0) < place(2.0));

        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("all.svg");
        draw("caches", &[row("load, s", "at most 0.5: met", CURATOR)], &file).unwrap();
        let svg = std::fs::read_to_string(&file).unwrap();
        assert!(svg.contains("load, s") && svg.contains("caches: times better"), "{svg}");
        let none = folder.path().join("none.svg");
        draw("caches", &[row("load, s", "", KAZOO)], &none).unwrap();
        assert!(!none.exists());
    }
}
