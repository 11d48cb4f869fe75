//! What the program writes besides what it prints.

use std::path::Path;

use plotters::prelude::{
    BLACK, ChartBuilder, Color, IntoDrawingArea, IntoLogRange, LineSeries, PathElement, RGBColor, SVGBackend, WHITE,
};
use serde_json::Value;

use crate::peer::{CURATOR, OURS, Result};

const COLOURS: [(&str, RGBColor); 2] = [(OURS, RGBColor(183, 65, 14)), (CURATOR, RGBColor(70, 110, 160))];

/// The bytes of a hand-off against the length of the queue, both in powers of ten.
pub(crate) fn plot(queues: &Value, file: &Path) -> Result<()> {
    let points = |who: &str| -> Vec<(f64, f64)> {
        let rows = queues.as_array().map(Vec::as_slice).unwrap_or_default();
        let point = |row: &Value| Some((row["waiters"].as_f64()?, row[who]["bytes"].as_f64()?));
        rows.iter().filter_map(point).collect()
    };
    let root = SVGBackend::new(file, (720, 420)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption("Bytes per hand-off while a queue is drained", ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d((1.0..10_000.0).log_scale(), (100.0..1_000_000.0).log_scale())?;
    chart.configure_mesh().x_desc("waiters in the queue").y_desc("bytes").draw()?;
    for (who, colour) in COLOURS {
        let series = chart.draw_series(LineSeries::new(points(who), colour.stroke_width(2)).point_size(3))?;
        let label = if who == OURS { "this project" } else { who };
        series.label(label).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    root.present()?;
    Ok(())
}
