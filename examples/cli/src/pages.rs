//! The manual pages and the completions.

use clap::Args;
use clap::builder::Resettable;
use clap_complete::Shell;

use crate::failure::Failure;
use crate::options::Options;
use crate::output::print_at_once;

/// The options of `curator completions`.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

/// The options of `curator man`.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The command, such as `lock` or `barrier enter` [default: the whole program]
    command: Vec<String>,
}

pub(crate) fn completions(Completions { shell }: &Completions) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(*shell, &mut Options::whole_command(), "curator", &mut script);
    print_at_once(&String::from_utf8_lossy(&script))?;
    Ok(0)
}

pub(crate) fn manual(Man { command }: &Man) -> Result<u8, Failure> {
    let mut program = Options::whole_command();
    program.build();
    let mut page = &program;
    for name in command {
        let text = || format!("no command {}: `curator --help` lists them", command.join(" "));
        page = page.find_subcommand(name).ok_or_else(|| Failure(2, text()))?;
    }
    let notes = page.get_after_help().map(ToString::to_string).unwrap_or_default();
    let man = clap_mangen::Man::new(page.clone().after_help(Resettable::Reset))
        .source(concat!("curator ", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    man.render(&mut text)?;
    let mut text = String::from_utf8_lossy(&text).into_owned();
    text.push_str(&section(&notes));
    print_at_once(&text)?;
    Ok(0)
}

/// Formats the notes with their lines as they are: most are tables.
fn section(notes: &str) -> String {
    let mut text = String::from(".SH NOTES\n.nf\n");
    for line in notes.lines() {
        // A control line would start with a dot or an apostrophe.
        text.push_str("\\&");
        text.push_str(&line.replace('\\', "\\e").replace('-', "\\-"));
        text.push('\n');
    }
    text + ".fi\n"
}
