//! The pages in a real browser, over its DevTools protocol.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use curator_framework::CreateMode;
use serde_json::{Value, json};

use crate::named::PATHS;
use crate::{Apache, Clients, PATIENCE, Web, in_process, until};

/// Debian's `chromium`, with one page.
struct Browser {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _profile: tempfile::TempDir,
    session: String,
    next: u64,
}

impl Browser {
    fn start() -> Self {
        let profile = tempfile::tempdir().unwrap();
        // The shell makes the protocol's descriptors, 3 and 4, of its standard input and output.
        let script =
            "command -v chromium >/dev/null || { echo 'chromium is missing: apt-get install chromium' >&2; exit 1; }
            exec chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
            --disable-background-networking --disable-component-update --disable-sync \
            --user-data-dir=\"$1\" --remote-debugging-pipe about:blank 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut child = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut browser = Self { child, input, output, _profile: profile, session: String::new(), next: 0 };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        browser.session = browser.call("Target.attachToTarget", attach)["sessionId"].as_str().unwrap().to_owned();
        browser
    }

    /// Sends a command and returns its result.
    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.try_call(method, parameters).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Sends a command. Returns its result, or the browser's error.
    fn try_call(&mut self, method: &str, parameters: Value) -> Result<Value, Value> {
        self.next += 1;
        let mut message = json!({"id": self.next, "method": method, "params": parameters});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let sent = self.input.write_all(format!("{message}\0").as_bytes());
        sent.expect("a running chromium; Debian's package `chromium` has it");
        loop {
            let mut answer = Vec::new();
            let length = self.output.read_until(0, &mut answer).unwrap();
            assert!(length > 0, "chromium has ended, or is missing: apt-get install chromium");
            let answer: Value = serde_json::from_slice(&answer[..length - 1]).unwrap();
            if answer["id"] == self.next {
                let is_done = answer["error"].is_null();
                return if is_done { Ok(answer["result"].clone()) } else { Err(answer["error"].clone()) };
            }
        }
    }

    fn open(&mut self, url: &str) {
        let opened = self.call("Page.navigate", json!({"url": url}));
        assert!(opened["errorText"].is_null(), "{url}: {opened}");
        self.until("the script", "document.readyState === 'complete' && lastId !== ''");
    }

    /// Evaluates an expression.
    fn eval(&mut self, expression: &str) -> Value {
        self.try_eval(expression).unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    /// Evaluates an expression. While the page is replaced by the next one, this is an error.
    fn try_eval(&mut self, expression: &str) -> Result<Value, Value> {
        let answer = self.try_call("Runtime.evaluate", json!({"expression": expression, "returnByValue": true}))?;
        Ok(answer["result"]["value"].clone())
    }

    /// Waits until an expression is true.
    fn until(&mut self, what: &str, expression: &str) {
        until(what, || (self.try_eval(expression) == Ok(json!(true))).then_some(()));
    }

    fn text(&mut self, selector: &str) -> String {
        let text = self.eval(&format!("document.querySelector({}).innerText", json!(selector)));
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Sets the width of the window, and light or dark.
    fn appear(&mut self, width: u32, height: u32, scheme: &str) {
        let is_telephone = width < 500;
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_telephone});
        self.call("Emulation.setDeviceMetricsOverride", size);
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", features);
    }

    fn press(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            let text = if key == "Enter" { "\r" } else { "" };
            let code = json!({"type": kind, "key": key, "code": key, "text": text,
                "windowsVirtualKeyCode": if key == "Tab" { 9 } else { 13 }});
            self.call("Input.dispatchKeyEvent", code);
        }
    }

    /// Checks that the page needs no horizontal scrolling, in each size and scheme. `CURATOR_SCREENSHOTS` names a
    /// directory for pictures.
    fn fits(&mut self, name: &str) {
        for (width, height) in [(1280, 800), (1040, 800), (820, 900), (390, 844)] {
            for scheme in ["light", "dark"] {
                self.appear(width, height, scheme);
                let scrolled = self.eval("document.documentElement.scrollWidth");
                assert!(scrolled.as_u64().unwrap() <= u64::from(width), "{name} at {width}: {scrolled}");
                if let (Ok(folder), true) = (std::env::var("CURATOR_SCREENSHOTS"), matches!(width, 1280 | 390)) {
                    use base64::Engine as _;
                    let picture = self.call("Page.captureScreenshot", json!({"format": "png"}));
                    let picture = base64::engine::general_purpose::STANDARD.decode(picture["data"].as_str().unwrap());
                    std::fs::write(format!("{folder}/{name}-{width}-{scheme}.png"), picture.unwrap()).unwrap();
                }
            }
        }
        self.appear(1280, 800, "light");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _gone = self.input.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE / 3 && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

#[test]
fn browser_shows_500_contenders_and_a_release_without_a_reload() {
    let apache = Apache::start();
    let clients = Clients::new(&apache.connect);
    let (sessions, paths) = clients.crowd("/jobs/report", 500);
    for (path, data) in [("/jobs/billing", "10.0.0.7"), ("/licences/solver", "render-3.example")] {
        clients.contend(&sessions[2], path, "lock-", data);
    }
    let web = Web::start_live(&apache.connect, &[]);
    web.counts("/jobs/report", 1, 499);
    let mut browser = Browser::start();
    browser.open(&web.url("/"));
    assert_eq!(browser.eval("document.querySelectorAll('#rows tr').length"), 3);
    assert!(browser.text("tr[data-id='/jobs/report']").contains("499"));
    browser.fits("list");

    // The keyboard alone leads to the page of the lock.
    browser.eval("filter.focus()");
    browser.call("Input.insertText", json!({"text": "report"}));
    browser.until("the filter", "document.querySelectorAll('#rows tr:not([hidden])').length === 1");
    // The order, the box of contended locks, the link.
    for _ in 0..3 {
        browser.press("Tab");
    }
    assert_eq!(browser.eval("document.activeElement.textContent"), "/jobs/report");
    browser.press("Enter");
    browser.until("the page of the lock", "location.pathname === '/locks/jobs/report' && lastId !== ''");
    browser.until("its rows", "document.querySelectorAll('#rows tr').length === 500");
    assert_eq!(browser.text("#rows tr:first-child .state"), "holds");
    assert!(browser.text("#rows tr:nth-child(2) td:nth-child(3)").contains("host-0.example:1"));
    browser.fits("lock");

    browser.eval("window.isTheSamePage = true");
    let begin = Instant::now();
    clients.delete(&sessions[0], &paths[0]);
    browser.until("the release", "document.querySelectorAll('#rows tr').length === 499");
    let took = begin.elapsed();
    assert_eq!(browser.eval("window.isTheSamePage"), true);
    assert!(browser.text("#rows tr:first-child").contains("host-0.example:1"));
    assert_eq!(browser.text("#rows tr:first-child .state"), "holds");
    let history = browser.text("#history");
    assert!(history.contains("host-0.example:0 released it"), "{history}");
    assert!(history.contains("host-0.example:1 was granted the lock"), "{history}");
    // The follower collects for 0.1 s, the stream for 0.3 s; the rest is for a busy machine.
    assert!(took.as_secs_f64() < 3.0, "the release was shown after {took:?}");
    browser.fits("history");
}

#[test]
fn browser_shows_services_and_their_changes_without_a_reload() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    clients.contend(&client, "/jobs/report", "lock-", "host-0.example:1");
    let web = Web::start_live(&server.connect_string(), &[]);
    let mut browser = Browser::start();
    browser.open(&web.url("/"));
    assert_eq!(browser.eval("document.getElementById('services').checkVisibility()"), false);
    let attack = "<img src=x onerror='window.attacked = 1'>";
    for (name, count) in [("web", 5), ("billing", 1), ("a-service-with-a-long-name.of.eu-central-1.example", 2)] {
        for index in 0..count {
            let json = json!({"id": format!("worker-{index}"), "address": "10.0.0.7", "port": 8080 + index,
                "registrationTimeUTC": 1_753_142_400_000_i64, "enabled": index != 1,
                "payload": {"zone": format!("eu-{index}"), "note": attack}});
            clients.create(&client, &format!("/services/{name}/worker-{index}"), json.to_string());
        }
    }
    clients.create(&client, &format!("/services/web/{}", "<b>odd"), "not JSON");
    browser.until("the services", "document.querySelectorAll('#services-rows tr').length === 3");
    browser.until(
        "all instances",
        "['4 enabled', 'cannot be read'].every(part => document.querySelector('tr[data-id=web]').innerText.includes(part))",
    );
    let row = browser.text("tr[data-id=web]");
    for part in ["6", "1 disabled", "1 cannot be read", "10.0.0.7:8080", "and 1 more", "<b>odd"] {
        assert!(row.contains(part), "{part}: {row}");
    }
    browser.fits("services");
    browser.eval("filter.focus()");
    browser.call("Input.insertText", json!({"text": "billing"}));
    browser.until("the filter", "document.querySelectorAll('tbody tr:not([hidden])').length === 1");
    browser.eval("document.querySelector('tr[data-id=web] a').click()");
    browser.until("the page of the service", "location.pathname === '/services/web' && lastId !== ''");
    assert_eq!(browser.eval("document.querySelectorAll('#rows tr').length"), 6);
    browser.fits("service");
    clients.delete(&client, "/services/web/worker-0");
    browser.until("the end of an instance", "document.querySelectorAll('#rows tr').length === 5");
    clients.delete(&client, "/services/web");
    browser.until("the end of the service", "document.querySelector('main').innerText.includes('no such service')");
    browser.fits("ended");
    assert_eq!(browser.eval("typeof window.attacked"), "undefined");
}

#[test]
fn browser_shows_queues_and_their_changes_without_a_reload() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    let odd = "/jobs/<b onclick=x>odd";
    for path in ["/jobs/report", odd] {
        for _ in 0..3 {
            clients.put(&client, path, "job");
        }
    }
    clients.put(&client, "/jobs/report-dead", "dead");
    clients.contend(&client, "/jobs/lock", "lock-", "host-0.example:1");
    let web =
        Web::start_live(&server.connect_string(), &["--queue", "/jobs/report", "--queue", odd, "--queue", "/jobs/no"]);
    let mut browser = Browser::start();
    browser.open(&web.url("/"));
    browser.until(
        "the queues",
        "document.querySelector('#queues-summary').innerText === '3 queues · 6 items · 1 dead letter'",
    );
    browser.until("an age", "/^\\d+s$/.test(document.querySelector('#queues-rows time').innerText)");
    assert_eq!(browser.text("tr[data-id='/jobs/report'] td:nth-child(2)"), "3");
    assert_eq!(browser.text("tr[data-id='/jobs/report'] td:nth-child(5)"), "1");
    assert!(browser.text("#queues").contains("<b onclick=x>odd") && browser.text("#queues").contains("no such queue"));
    browser.fits("queues");
    browser.eval("filter.focus()");
    browser.call("Input.insertText", json!({"text": "report"}));
    browser.until("the filter", "document.querySelectorAll('tbody tr:not([hidden])').length === 1");
    clients.put(&client, "/jobs/report", "job");
    browser.until("a put", "document.querySelector(\"tr[data-id='/jobs/report'] td\").innerText === '4'");
    assert_eq!(browser.eval("document.querySelectorAll('#queues b[onclick]').length"), 0);
}

#[test]
fn browser_shows_named_paths_and_their_changes_without_a_reload() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    let things = clients.things(&client);
    let odd = "/workers-<b onclick=x>odd";
    let create = |path: &str, data: &str| {
        let create = client.create().creating_parents_if_needed().with_mode(CreateMode::Ephemeral);
        clients.runtime.block_on(create.with_data(data).for_path(&format!("{odd}/{path}"))).unwrap();
    };
    for index in 0..5 {
        create(&format!("<img src=x>{index}"), "<script>window.attacked = 1</script>");
    }
    clients.create(&client, "/text", "abc");
    let more = ["--group", odd, "--group", "/no", "--counter", "/text", "--latch", "/no"];
    let web = Web::start_live(&server.connect_string(), &[&PATHS[..], &more].concat());
    let mut browser = Browser::start();
    browser.open(&web.url("/"));
    let summaries =
        "['groups', 'counters', 'barriers', 'latches'].map((kind) => $(`${kind}-summary`).innerText).join('; ')";
    let all = "3 groups · 7 members; 3 counters · 1 cannot be read; 2 barriers · 2 closed; 2 latches · 2 counts remain";
    browser.until("all kinds", &format!("{summaries} === '{all}'"));
    assert!(
        browser.text("#groups").contains("<img src=x>0 <script>") && browser.text("#groups").contains("and 2 more")
    );
    assert!(browser.text("#groups").contains("no such group") && browser.text("#latches").contains("no such latch"));
    assert!(browser.text("#counters").contains("the data of /text is not a counter"));
    assert_eq!(browser.eval("document.getElementById('queues').checkVisibility()"), false);
    browser.fits("named");
    browser.eval("document.querySelector('#barriers').scrollIntoView()");
    browser.fits("named-below");
    browser.eval("filter.focus()");
    browser.call("Input.insertText", json!({"text": "builds"}));
    browser.until("the filter", "document.querySelectorAll('tbody tr:not([hidden])').length === 1");
    clients.runtime.block_on(things.count_on());
    browser.until("the change", "document.querySelector(\"tr[data-id='/builds'] td\").innerText === '7000000001'");
    browser.until("the count", "$('latches-summary').innerText === '2 latches · 1 count remains'");
    assert_eq!(browser.eval("document.querySelectorAll('main b[onclick], main img, main script').length"), 0);
    assert_eq!(browser.eval("typeof window.attacked"), "undefined");
}

#[test]
fn data_is_text_in_the_browser() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    let attack = "<script>window.attacked = 1</script><img src=x onerror='window.attacked = 2'>";
    let odd = "/a b/<b onclick=x>ü%2f%25€?#";
    clients.contend(&client, odd, "lock-", attack);
    let web = Web::start_live(&server.connect_string(), &[]);
    web.counts("/a%20b/%3Cb%20onclick=x%3E%C3%BC%252f%2525%E2%82%AC%3F%23", 1, 0);
    let mut browser = Browser::start();
    browser.open(&web.url("/"));
    assert!(browser.text("#rows tr td:nth-child(4)").contains(attack));
    browser.eval("document.querySelector('#rows a').click()");
    browser.until("the page of the lock", "location.pathname.startsWith('/locks/') && lastId !== ''");
    assert_eq!(browser.text("h1"), odd);
    clients.contend(&client, odd, "lock-", format!("{attack}2"));
    clients.contend(&client, odd, "lock-", b"\xff\x00\x80".as_slice());
    browser.until("the rows", "document.querySelectorAll('#rows tr').length === 3");
    let (queue, history) = (browser.text("#rows"), browser.text("#history"));
    assert!(queue.contains(&format!("{attack}2")) && queue.contains("0xff0080"), "{queue}");
    assert!(history.contains(&format!("{attack}2")), "{history}");
    assert_eq!(browser.eval("typeof window.attacked"), "undefined");
    assert_eq!(browser.eval("document.querySelectorAll('main script, main img, main b[onclick]').length"), 0);
    browser.fits("odd");
}

#[test]
fn browser_tells_of_lost_connections_and_deleted_locks() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    let web = Web::start_live(&server.connect_string(), &[]);
    let mut browser = Browser::start();
    browser.open(&web.url("/"));
    assert!(browser.text("main").contains("No locks."));
    browser.fits("empty");

    let path = clients.contend(&client, "/jobs/a", "lock-", "one");
    browser.until("the lock", "document.querySelectorAll('#rows tr').length === 1");
    browser.open(&web.url("/locks/jobs/a"));
    clients.delete(&client, &path);
    clients.delete(&client, "/jobs/a");
    browser.until("the deletion", "document.querySelector('#summary').innerText.includes('no lock here')");
    assert!(browser.text("#history").contains("node was deleted"));
    browser.fits("deleted");
    clients.contend(&client, "/jobs/a", "lock-", "two");
    browser.until("the lock again", "document.querySelectorAll('#rows tr').length === 1");

    server.stop();
    let stale = "document.querySelector('#notice').innerText.includes('No connection to ZooKeeper since')";
    browser.until("the notice", stale);
    assert_eq!(browser.eval("document.body.className"), "stale");
    browser.fits("stale");
    server.restart().unwrap();
    browser.until("the end of the notice", "document.querySelector('#notice').innerText === ''");
    assert_eq!(browser.eval("document.body.className"), "");

    drop(web);
    browser.until(
        "the end of the program",
        "document.querySelector('#cut').innerText.includes('No connection to curator')",
    );
    assert_eq!(browser.eval("document.body.className"), "stale");
}

#[test]
fn address_has_the_filter_and_a_click_shows_more_locks() {
    const LOCKS: usize = 450;
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    for number in 0..LOCKS {
        clients.contend(&client, &format!("/many/{number:03}"), "lock-", "host");
    }
    for path in ["/many/007", "/many/008", "/many/008"] {
        clients.contend(&client, path, "lock-", "waiter");
    }
    let web = Web::start_live(&server.connect_string(), &[]);
    let mut browser = Browser::start();
    let shown = "Array.from(document.querySelectorAll('#rows tr:not([hidden])'), (row) => row.dataset.id)";
    browser.open(&web.url("/"));
    assert_eq!(browser.eval(&format!("{shown}.length")), 200);
    assert_eq!(browser.text("#more"), "Show 200 more of 450 locks");
    browser.fits("many");
    browser.eval("more.click()");
    assert_eq!(browser.eval(&format!("{shown}.length")), 400);
    browser.eval("more.click()");
    assert_eq!(browser.eval(&format!("[{shown}.length, more.hidden].join()")), "450,true");
    browser.open(&web.url("/?contended=1&order=queue"));
    assert_eq!(browser.eval(&format!("{shown}.join()")), "/many/008,/many/007");
    assert_eq!(browser.text("#matches"), "2 of 450");
    browser.eval("filter.value = '007'; filter.dispatchEvent(new Event('input'))");
    assert_eq!(browser.eval("location.search"), "?filter=007&order=queue&contended=1");
    assert_eq!(browser.eval(&format!("{shown}.join()")), "/many/007");
    browser.eval("contended.click(); order.value = 'key'; order.dispatchEvent(new Event('input'))");
    assert_eq!(browser.eval("location.search"), "?filter=007");
    // An order that does not exist is the first one.
    browser.open(&web.url("/?order=%22%5D&filter=%3Cb%3E"));
    assert_eq!(browser.eval("[order.value, filter.value].join()"), "key,<b>");
    assert_eq!(browser.eval(&format!("{shown}.length")), 0);
}
