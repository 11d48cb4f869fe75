//! Runs the programs of the migration page in Java and in Rust, and compares both with the page.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use curator_framework::{CuratorFramework, RetryOneTime};
use curator_test::{ApacheServer, TestingServer, curator_class_path, unique_root};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../recipes/docs/migration.md");
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/ported");

/// A program that exists in both languages.
struct Ported {
    /// The name of the Java class and its file.
    java: &'static str,
    /// The name of the example and its file.
    rust: &'static str,
}

const ALL: [Ported; 5] = [
    Ported { java: "Invoices", rust: "invoices" },
    Ported { java: "Frames", rust: "frames" },
    Ported { java: "Settings", rust: "settings" },
    Ported { java: "Shop", rust: "shop" },
    Ported { java: "Batch", rust: "batch" },
];

impl Ported {
    /// Returns the lines that the page shows as printed. The page must show both files before them.
    fn printed(&self) -> String {
        let page = std::fs::read_to_string(PAGE).unwrap();
        let mut rest = page.as_str();
        for (fence, file) in [("java", format!("{}.java", self.java)), ("rust,no_run", format!("{}.rs", self.rust))] {
            let text = std::fs::read_to_string(Path::new(FOLDER).join(&file)).unwrap();
            let block = format!("```{fence}\n{text}```\n");
            let (_, behind) = rest.split_once(&block).unwrap_or_else(|| panic!("the page does not show {file}"));
            rest = behind;
        }
        let (_, printed) = rest.split_once("```text\n").expect("the page shows what is printed");
        printed.split_once("```").unwrap().0.to_owned()
    }
}

/// Returns the program of an example, which cargo builds beside the tests.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(program.exists(), "{} is missing: build with --all-targets", program.display());
    program
}

fn run(command: &mut Command, package: &str) -> Output {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}; `apt-get install {package}`"));
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

/// Compiles all Java programs into a folder.
fn compile(classes: &Path, jars: &str) {
    let sources = ALL.iter().map(|program| format!("{FOLDER}/{}.java", program.java));
    let mut compiler = Command::new("javac");
    run(compiler.args(["-cp", jars, "-d"]).arg(classes).args(sources), "openjdk-17-jdk-headless");
}

/// Runs all programs at once on a server, each below a root of its own.
fn all_print_what_the_page_shows(address: SocketAddr) {
    let classes = tempfile::tempdir().unwrap();
    let (jars, servers) = (&curator_class_path().unwrap(), &roots(address));
    let classes = classes.path();
    compile(classes, jars);
    std::thread::scope(|scope| {
        for program in &ALL {
            scope.spawn(move || {
                let mut rust = Command::new(example(program.rust));
                let output = run(rust.arg(format!("{servers}/rust")), "");
                assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{}.rs", program.rust);
                assert_eq!(String::from_utf8_lossy(&output.stdout), program.printed(), "{}.rs", program.rust);
            });
            scope.spawn(move || {
                let mut java = Command::new("java");
                java.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-cp"]);
                java.arg(format!("{}:{jars}", classes.display())).arg(program.java).arg(format!("{servers}/java"));
                let output = run(&mut java, "openjdk-17-jre-headless");
                assert_eq!(String::from_utf8_lossy(&output.stdout), program.printed(), "{}.java", program.java);
            });
        }
    });
}

/// Creates the roots of both languages, and returns the connect string of the node above them.
fn roots(address: SocketAddr) -> String {
    let root = unique_root("ported");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let retry = RetryOneTime::new(Duration::from_millis(100));
        let client = CuratorFramework::new_client(address.to_string(), retry).unwrap();
        client.start().unwrap();
        for language in ["java", "rust"] {
            let create = client.create().creating_parents_if_needed();
            create.for_path(&format!("{root}/{language}")).await.unwrap();
        }
        client.close().await;
    });
    format!("{address}{root}")
}

#[test]
fn programs_print_the_same_on_the_testing_server() {
    let server = TestingServer::start().unwrap();
    all_print_what_the_page_shows(server.address());
    let began = Instant::now();
    while !server.sessions().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(5), "a program has left its session");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn programs_print_the_same_on_apache_zookeeper() {
    match std::env::var("CURATOR_TEST_APACHE") {
        Ok(address) => all_print_what_the_page_shows(address.parse().unwrap()),
        Err(_) => all_print_what_the_page_shows(ApacheServer::start().unwrap().address()),
    }
}
