//! The page: who may see it, what is answered, and what a browser is told.

use super::*;

/// `sluice dashboard` of a sandbox, or what else of it serves pages. Dropped, it is killed.
pub(crate) struct Dashboard {
    process: Child,
    port: u16,
}

struct HttpReply {
    status: u16,
    head: String,
    body: String,
}

const TOKEN: &str = "0123456789abcdef";

impl Dashboard {
    fn start(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
        let first = lines.next().expect("the dashboard says where it is");
        let port = first
            .trim_end_matches("/metrics")
            .rsplit(':')
            .next()
            .unwrap()
            .parse()
            .unwrap_or_else(|_| panic!("{first}"));
        let announced: Vec<String> = lines.by_ref().take_while(|line| !line.starts_with("Ctrl-C")).collect();
        assert!(announced.iter().all(|line| !line.contains(TOKEN)), "a token is in no log");
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, port }
    }

    pub(crate) fn of(sandbox: &Sandbox) -> Self {
        Self::start(sandbox.command(&["dashboard", "--listen", "127.0.0.1:0"]))
    }

    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> HttpReply {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let host = format!("127.0.0.1:{}", self.port);
        let all = [("Connection", "close"), ("Host", host.as_str())];
        let replaced = |name: &str| headers.iter().any(|(other, _)| *other == name);
        let lines = all.iter().filter(|(name, _)| !replaced(name)).chain(headers);
        let lines: String = lines.map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        stream.write_all(format!("{method} {path} HTTP/1.1\r\n{lines}\r\n").as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        HttpReply { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    fn get(&self, path: &str) -> HttpReply {
        self.ask("GET", path, &[])
    }

    pub(crate) fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
        serde_json::from_str(&answer.body).unwrap()
    }

    fn level(&self, name: &str) -> Option<f64> {
        let answer = self.json("/api/picture");
        let buckets = answer["picture"]["buckets"].as_array()?;
        buckets.iter().find(|bucket| bucket["dimension"] == name)?["level"].as_f64()
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn the_picture_follows_the_table_and_tells_what_is_new() {
    let limits = file("dashboard.toml", LIMITS);
    let sandbox = Sandbox::start(&["--buckets", limits.to_str().unwrap()]);
    let dashboard = Dashboard::of(&sandbox);
    assert_eq!(dashboard.level("openai#rpm"), Some(2.0), "the first to ask is told what is there");
    sandbox.stdout(&["acquire", "openai#rpm"]);
    wait_until("the level that the grant left", || {
        dashboard.level("openai#rpm").is_some_and(|level| level < 1.1)
    });

    let all = dashboard.json("/api/picture");
    let (instance, newest) = (all["instance"].as_str().unwrap(), all["newest"].as_i64().unwrap());
    let columns = |answer: &Value| answer["series"]["openai#rpm"]["level"].as_array().unwrap().len();
    assert!(columns(&all) > 0);
    let first = |answer: &Value| answer["series"]["openai#rpm"]["first"].as_i64().unwrap();
    let later = dashboard.json(&format!("/api/picture?instance={instance}&since={newest}"));
    assert!(first(&later) >= newest && columns(&later) > 0, "{later}");
    let other = dashboard.json(&format!("/api/picture?instance=another&since={newest}"));
    assert_eq!(first(&other), first(&all), "a page of another process is told all");

    let what_if = dashboard.json("/api/what-if?factor=3");
    assert_eq!(what_if["buckets"].as_array().unwrap().len(), 2);
    let slots = &what_if["buckets"][0];
    assert_eq!(
        (&slots["dimension"], &slots["outcome"]),
        (&Value::from("elevenlabs#concurrent"), &Value::from("fits"))
    );
    assert_eq!(dashboard.get("/api/what-if?factor=-1").status, 400);
    assert_eq!(dashboard.get("/api/what-if?factor=many").status, 400);
}

#[test]
fn a_table_that_goes_away_is_told_and_so_is_its_return() {
    let data = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("dashboard.db");
    let _ = std::fs::remove_file(&data);
    let sandbox = Sandbox::start(&["--data", data.to_str().unwrap()]);
    let port = sandbox.endpoint.rsplit(':').next().unwrap().to_owned();
    let dashboard = Dashboard::of(&sandbox);
    assert_eq!(dashboard.json("/api/picture")["trouble"], Value::Null);
    drop(sandbox);
    let trouble = || dashboard.json("/api/picture")["trouble"].clone();
    wait_until("an error of the table", || trouble().is_object());
    assert!(trouble()["since"].as_f64().is_some_and(|since| since > 0.0), "{}", trouble());
    assert!(!trouble()["error"].as_str().unwrap().is_empty());
    assert_eq!(dashboard.level("openai#rpm"), Some(500.0), "the last picture stays");
    let _again = Sandbox::at(&port, &["--data", data.to_str().unwrap()]);
    wait_until("a picture again", || trouble().is_null());
}

#[test]
fn what_other_machines_reach_needs_a_token() {
    let refused = |arguments: &[&str], variable: &str| {
        let mut command = sluice();
        command.env("SLUICE_ENV", "sandbox").env("SLUICE_DASHBOARD_TOKEN", variable);
        command.env("AWS_ACCESS_KEY_ID", "sandbox").env("AWS_SECRET_ACCESS_KEY", "sandbox");
        let output = command.arg("dashboard").args(arguments).output().unwrap();
        assert!(!output.status.success());
        text(&output.stderr)
    };
    let open = ["--listen", "0.0.0.0:0"];
    assert!(refused(&open, "").contains("SLUICE_DASHBOARD_TOKEN"));
    assert!(refused(&open, "short").contains("16 characters"));
    assert!(refused(&["--token", "short"], "").contains("16 characters"));
    assert!(refused(&["--listen", "8080"], "").contains("an address and a port"));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = refused(&["--listen", &taken.local_addr().unwrap().to_string()], "");
    assert!(busy.contains("in use") && busy.contains("--listen"), "{busy}");
}

#[test]
fn the_token_is_given_once_and_kept_in_a_cookie() {
    let sandbox = Sandbox::start(&[]);
    let mut command = sandbox.command(&["dashboard", "--listen", "0.0.0.0:0"]);
    command.env("SLUICE_DASHBOARD_TOKEN", TOKEN);
    let dashboard = Dashboard::start(command);
    let named = ("Host", "dashboards.example");
    for path in [
        "/",
        "/api/picture",
        "/api/what-if",
        "/?token=0123456789abcdeX",
        "/api/picture?token=0123456789abcdef",
    ] {
        let answer = dashboard.ask("GET", path, &[named]);
        assert_eq!(answer.status, 401, "{path}");
        assert!(!answer.head.contains("set-cookie") && !answer.body.contains("openai"), "{path}");
    }
    assert_eq!(dashboard.get("/healthz").body, "ok\n");
    let first = dashboard.ask("GET", &format!("/?token={TOKEN}"), &[named]);
    assert_eq!(first.status, 200);
    let cookie = first.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert!(cookie.contains("httponly") && cookie.contains("samesite=strict"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    assert_eq!(dashboard.ask("GET", "/api/picture", &[named, ("Cookie", cookie)]).status, 200);
    assert_eq!(
        dashboard.ask("GET", "/api/picture", &[("Authorization", &format!("Bearer {TOKEN}"))]).status,
        200
    );
    assert_eq!(
        dashboard.ask("GET", "/api/picture", &[("Authorization", "Bearer 0123456789abcdeX")]).status,
        401
    );
}

#[test]
fn another_sites_page_learns_nothing_and_nothing_can_be_written() {
    let sandbox = Sandbox::start(&[]);
    let dashboard = Dashboard::of(&sandbox);
    for path in ["/", "/api/picture", "/healthz"] {
        assert_eq!(dashboard.ask("GET", path, &[("Host", "rebound.example")]).status, 403, "{path}");
        assert_eq!(dashboard.ask("GET", path, &[("Host", "localhost")]).status, 200, "{path}");
        for method in ["POST", "PUT", "DELETE", "PATCH"] {
            assert_eq!(dashboard.ask(method, path, &[]).status, 405, "{method} {path}");
        }
        let head = dashboard.ask("GET", path, &[("Origin", "https://elsewhere.example")]).head;
        assert!(!head.contains("access-control-allow"), "{head}");
        for line in ["x-content-type-options: nosniff", "cache-control: no-store", "frame-ancestors 'none'"] {
            assert!(head.contains(line), "{path}: {line}: {head}");
        }
    }
}

/// To a scraper on this machine it answers by this machine's names; where it listens for others, by any.
#[test]
fn another_sites_page_learns_nothing_of_the_metrics() {
    let sandbox = Sandbox::start(&[]);
    let metrics = |listen| Dashboard::start(sandbox.command(&["metrics", "--listen", listen]));
    let (own, open) = (metrics("127.0.0.1:0"), metrics("0.0.0.0:0"));
    let refused = own.ask("GET", "/metrics", &[("Host", "rebound.example:9464")]);
    assert_eq!((refused.status, refused.body.contains("openai")), (403, false), "{}", refused.body);
    for (server, host) in [(&own, "127.0.0.1:9464"), (&own, "localhost"), (&open, "metrics.example")] {
        let answer = server.ask("GET", "/metrics", &[("Host", host)]);
        assert_eq!(
            (answer.status, answer.body.contains("openai#rpm")),
            (200, true),
            "{host}: {}",
            answer.body
        );
    }
}

#[test]
fn a_page_runs_its_own_script_alone_and_names_are_data() {
    let evil = "<img src=x onerror=alert(1)>";
    let sandbox = Sandbox::start(&[]);
    let mut command = sandbox.command(&["acquire", "elevenlabs#concurrent", "--hold", "1m"]);
    let mut holder = command.env("SLUICE_CALLER", evil).stdout(Stdio::null()).spawn().unwrap();
    let dashboard = Dashboard::of(&sandbox);
    wait_until("the holder's name", || dashboard.json("/api/what-if")["callers"][0] == evil);
    holder.kill().unwrap();
    holder.wait().unwrap();
    let (first, second) = (dashboard.get("/"), dashboard.get("/"));
    let nonce = |answer: &HttpReply| {
        let (_, after) = answer.head.split_once("script-src 'nonce-").unwrap();
        after.split('\'').next().unwrap().to_owned()
    };
    assert_ne!(nonce(&first), nonce(&second), "who has seen one page cannot know the nonce of the next");
    assert!(!first.head.contains("unsafe"), "{}", first.head);
    assert_eq!(first.body.matches(&format!("nonce=\"{}\"", nonce(&first))).count(), 2);
    assert!(!first.body.contains("elevenlabs"), "the page itself holds nothing of the table");
}
