//! A time chart as SVG: the holder of each lease over time, and how long the queue was.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

const COLOURS: [&str; 6] = ["#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2"];
const WIDTH: f64 = 900.0;
const LEFT: f64 = 70.0;
const ROW: f64 = 24.0;
const QUEUE: f64 = 80.0;

/// One lease while a job holds it.
#[derive(Debug)]
struct Hold {
    job: usize,
    client: usize,
    lane: usize,
    from: Duration,
    until: Option<Duration>,
}

/// Books what happens, to be drawn at the end.
#[derive(Debug)]
pub struct Chart {
    begin: Instant,
    lanes: usize,
    holds: Vec<Hold>,
    /// How many waited from when on.
    queue: Vec<(Duration, usize)>,
}

impl Chart {
    /// A chart of at least so many leases that starts now.
    #[must_use]
    pub fn new(lanes: usize) -> Self {
        Self { begin: Instant::now(), lanes, holds: Vec::new(), queue: Vec::new() }
    }

    /// A job has a lease from now on. It is drawn in the first row that is free.
    pub fn granted(&mut self, job: usize, client: usize) {
        let taken = |lane| self.holds.iter().any(|hold| hold.lane == lane && hold.until.is_none());
        let lane = (0..).find(|&lane| !taken(lane)).unwrap_or_default();
        self.lanes = self.lanes.max(lane + 1);
        self.holds.push(Hold { job, client, lane, from: self.begin.elapsed(), until: None });
    }

    /// The job has it no more.
    pub fn ended(&mut self, job: usize) {
        let now = self.begin.elapsed();
        if let Some(hold) = self.holds.iter_mut().rev().find(|hold| hold.job == job && hold.until.is_none()) {
            hold.until = Some(now);
        }
    }

    /// So many wait from now on.
    pub fn waiting(&mut self, jobs: usize) {
        self.queue.push((self.begin.elapsed(), jobs));
    }

    /// The picture, which ends now.
    #[must_use]
    pub fn svg(&self) -> String {
        let end = self.begin.elapsed();
        let total = end.as_secs_f64().max(0.001);
        let x = |at: Duration| LEFT + at.as_secs_f64() / total * (WIDTH - LEFT - 10.0);
        let longest = self.queue.iter().map(|&(_, jobs)| jobs).max().unwrap_or_default().max(1);
        #[allow(clippy::cast_precision_loss, reason = "there are not that many leases")]
        let (rows, longest_queue) = (self.lanes as f64 * ROW, longest as f64);
        let bottom = 30.0 + rows + 20.0 + QUEUE;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{}\" font-family=\"sans-serif\" \
             font-size=\"11\">\n<text x=\"{LEFT}\" y=\"18\">Who held which lease when; a colour for each client</text>\n",
            bottom + 30.0
        );
        // Writing to a string cannot fail.
        for lane in 0..self.lanes {
            let y = row(lane) + ROW * 0.65;
            let _ok = writeln!(svg, "<text x=\"8\" y=\"{y}\">lease {}</text>", lane + 1);
        }
        for hold in &self.holds {
            let (from, until) = (x(hold.from), x(hold.until.unwrap_or(end)));
            let (y, height, colour) = (row(hold.lane) + 2.0, ROW - 4.0, COLOURS[hold.client % COLOURS.len()]);
            let width = (until - from).max(0.5);
            let _ok = writeln!(
                svg,
                "<g class=\"hold\"><rect x=\"{from:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{height}\" \
                 fill=\"{colour}\" stroke=\"white\"/><title>job {} of client {}, {:.3} s to {:.3} s</title>",
                hold.job,
                hold.client + 1,
                hold.from.as_secs_f64(),
                hold.until.unwrap_or(end).as_secs_f64(),
            );
            if width > 22.0 {
                let _ok = writeln!(
                    svg,
                    "<text x=\"{:.1}\" y=\"{}\" fill=\"white\">{}</text>",
                    from + 4.0,
                    y + 14.0,
                    hold.job
                );
            }
            svg.push_str("</g>\n");
        }
        let mut steps = format!("M {LEFT} {bottom}");
        let mut height = bottom;
        for &(at, jobs) in &self.queue {
            #[allow(clippy::cast_precision_loss, reason = "there are not that many jobs")]
            let next = bottom - jobs as f64 / longest_queue * QUEUE;
            let _ok = write!(steps, " L {0:.1} {height:.1} L {0:.1} {next:.1}", x(at));
            height = next;
        }
        let _ok = write!(
            svg,
            "<path class=\"queue\" d=\"{steps} L {0:.1} {height:.1} L {0:.1} {bottom} Z\" fill=\"#ccc\"/>\n\
             <text x=\"8\" y=\"{1}\">waiting</text><text x=\"{2}\" y=\"{1}\" text-anchor=\"end\">{longest}</text>\n\
             <line x1=\"{LEFT}\" y1=\"{bottom}\" x2=\"{3}\" y2=\"{bottom}\" stroke=\"black\"/>\n\
             <text x=\"{LEFT}\" y=\"{4}\">0 s</text><text x=\"{3}\" y=\"{4}\" text-anchor=\"end\">{total:.2} s</text>\n</svg>\n",
            x(end),
            bottom - QUEUE + 10.0,
            LEFT - 6.0,
            WIDTH - 10.0,
            bottom + 16.0,
        );
        svg
    }
}

#[allow(clippy::cast_precision_loss, reason = "there are not that many leases")]
fn row(lane: usize) -> f64 {
    30.0 + lane as f64 * ROW
}
