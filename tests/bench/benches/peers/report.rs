//! A drawing of the bytes of hand-offs.

use std::path::Path;

use curator_bench::harness::{CURATOR, OURS};
use curator_bench::process::Result;
use plotters::prelude::{
    BLACK, ChartBuilder, Color, IntoDrawingArea, IntoLogRange, LineSeries, PathElement, RGBColor, SVGBackend, WHITE,
};
use serde_json::Value;

/// The start of the titles of the rows, before the number of waiters.
pub(crate) const BYTES: &str = "bytes of a hand-off, waiters: ";

const COLOURS: [(&str, RGBColor); 2] = [(OURS, RGBColor(183, 65, 14)), (CURATOR, RGBColor(70, 110, 160))];

/// The bytes of a hand-off against the length of the queue, both in powers of ten.
pub(crate) fn plot(rows: &[Value], file: &Path) -> Result<()> {
    let points = |side: &str| -> Vec<(f64, f64)> {
        let waiters = |row: &Value| row["row"].as_str()?.strip_prefix(BYTES)?.parse().ok();
        rows.iter().filter_map(|row| Some((waiters(row)?, row["figures"][side][0].as_f64()?))).collect()
    };
    if points(OURS).is_empty() {
        return Err("there are no bytes to draw".into());
    }
    let root = SVGBackend::new(file, (720, 420)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption("Bytes per hand-off while a queue is drained", ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d((1.0..10_000.0).log_scale(), (100.0..1_000_000.0).log_scale())?;
    chart.configure_mesh().x_desc("waiters in the queue").y_desc("bytes").draw()?;
    for (side, colour) in COLOURS {
        let series = chart.draw_series(LineSeries::new(points(side), colour.stroke_width(2)).point_size(3))?;
        let label = if side == OURS { "this project" } else { side };
        series.label(label).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    root.present()?;
    Ok(())
}
