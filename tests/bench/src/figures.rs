//! Medians, other quantiles, and ratios.

/// Returns the median.
#[must_use]
pub fn median(figures: &[f64]) -> Option<f64> {
    quantile(figures, 0.5)
}

/// Returns the figure at this share of all, in their order.
#[must_use]
pub fn quantile(figures: &[f64], share: f64) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a place")]
    let place = (last as f64 * share).round() as usize;
    sorted.get(place).copied()
}

/// Returns a figure as a ratio to another one.
#[must_use]
pub fn ratio(figure: Option<f64>, to: Option<f64>) -> String {
    match (figure, to) {
        (Some(figure), Some(to)) => format!("{:.2}", figure / to),
        _ => "–".to_owned(),
    }
}
