"""The dashboard as a person meets it: it loads, follows the table by itself, says when the table goes away, and recovers.

Run by `.ci/browser/run`. Everything that is started ends with this, and every wait has an end.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

SLUICE = Path("target/debug/sluice").resolve()
WAIT_SECS = 20
EVIL = '<img src=x onerror="window.stolen=1">'
EVIL_BUCKET = "<img/src=x/onerror=stolen=1>#rpm"
LIMITS = f"""
[[bucket]]
dimension = "openai#rpm"
type = "requests"
capacity = 500
window = "1h"

[[bucket]]
dimension = "elevenlabs#concurrent"
type = "concurrent"
capacity = 5

[[bucket]]
dimension = "shared#rpm"
type = "requests"
capacity = 1000
window = "100h"
shares = {{ search = 0.01, batch = {{ part = 0.5, background = true }} }}

[[bucket]]
dimension = "azure#a-model-whose-name-is-longer-than-a-phone-is-wide-2026-11-22#requests-per-minute"
type = "requests"
capacity = 60
window = "1m"

[[bucket]]
dimension = "{EVIL_BUCKET}"
type = "requests"
capacity = 60
window = "1m"
"""


def expect(holds: object, what: str) -> None:
    if not holds:
        raise SystemExit(f"FAIL {what}")
    print(f"ok   {what}")


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Program:
    """A `sluice` that runs on, from when it says that it is ready."""

    def __init__(self, *arguments: str, **variables: str):
        self.process = subprocess.Popen(
            [SLUICE, *arguments], env=environment() | variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        for line in self.process.stdout:
            if line.startswith(("Ctrl-C stops it", "granted")):
                return
        raise SystemExit(f"FAIL sluice {' '.join(arguments)}: it ended with {self.process.wait()}")

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()


def environment() -> dict:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLUICE_", "AWS_"))}
    return clean | {
        "SLUICE_ENV": "sandbox",
        "SLUICE_ENDPOINT_URL": f"http://127.0.0.1:{ENGINE_PORT}",
        "AWS_ACCESS_KEY_ID": "sandbox",
        "AWS_SECRET_ACCESS_KEY": "sandbox",
    }


def sluice(*arguments: str) -> None:
    subprocess.run([SLUICE, *arguments], env=environment(), check=True, stdout=subprocess.DEVNULL, timeout=WAIT_SECS)


class Page:
    def __init__(self, port: int):
        options = Options()
        options.binary_location = shutil.which("chromium")
        for argument in ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage"]:
            options.add_argument(argument)
        if os.geteuid() == 0:
            # Chromium's sandbox does not run as root, as in a container; what is opened is this test's own page.
            options.add_argument("--no-sandbox")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        self.driver.set_page_load_timeout(WAIT_SECS)
        self.driver.set_script_timeout(WAIT_SECS)
        self.shape(1280, 900)
        self.driver.get(f"http://127.0.0.1:{port}/")

    def run(self, script: str, *arguments: object) -> object:
        return self.driver.execute_script(f"return {script}", *arguments)

    def until(self, what: str, script: str, *arguments: object) -> None:
        end = time.monotonic() + WAIT_SECS
        while not self.run(script, *arguments):
            if time.monotonic() > end:
                print(self.run("document.body.innerText"), self.driver.get_log("browser"), file=sys.stderr)
                raise SystemExit(f"FAIL {what}: not within {WAIT_SECS} s")
            time.sleep(0.1)
        print(f"ok   {what}")

    def shape(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def colours(self, scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def picture(self, name: str) -> None:
        if folder := os.environ.get("SLUICE_BROWSER_PICTURES"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.driver.save_screenshot(str(Path(folder) / f"{name}.png"))

    def complaints(self) -> list:
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def card(name: str) -> str:
    return f"[...document.querySelectorAll('.card')].find((card) => card.querySelector('h3').textContent === '{name}')"


BANNER = "document.getElementById('banner').hidden"
STALE = "document.getElementById('main').classList.contains('stale')"


def shows_times_as_the_command_does(page: Page) -> None:
    """The figures of the test in duration.rs."""
    times = [0.04, 0.3, 9.99, 36.49, 99.99, 104, 120, 3599.849, 5999, 7199, 7560, 200000]
    spans = ["0s", "0.3s", "9.9s", "36s", "99s", "1m 44s", "2m", "59m 59s", "99m 59s", "1h 59m", "2h 6m", "2d"]
    waits = ["0.1s", "0.3s", "10s", "37s", "1m 40s", "1m 44s", "2m", "60m", "99m 59s", "2h", "2h 6m", "3d"]
    shown = page.run("[arguments[0].map(span), arguments[0].map(wait)]", times)
    expect(shown == [spans, waits], f"times are rounded down, and waits up: {shown}")
    shown = page.run("arguments[0].map(took)", [0, 0.00049, 0.004, 0.0289, 0.9999, 1, 28.6, 104])
    expect(shown == ["0 ms", "0.4 ms", "4 ms", "28 ms", "999 ms", "1s", "28s", "1m 44s"], f"what took long is no figure in milliseconds: {shown}")


def follows(page: Page) -> None:
    page.until("the buckets are there", "document.querySelectorAll('.card').length === 5")
    page.until("a level is told", f"{card('openai#rpm')}.innerText.includes('500 left')")
    sluice("acquire", "openai#rpm=100")
    page.until("a grant shows by itself", f"/\\b40\\d left/.test({card('openai#rpm')}.innerText)")
    page.until("its line is drawn", f"{card('openai#rpm')}.querySelector('path.edge').getAttribute('d').length > 8")
    expect(page.run(BANNER), "no banner while all is well")


def tells_of_shares(page: Page) -> None:
    text = f"{card('shared#rpm')}.innerText.replaceAll('\\n', ' ')"
    page.until("shares are told with what is left of them", f"/Share search 10 of 10/.test({text}) && /Share batch 500 of 500.*background/.test({text})")
    lent, borrowed = (f"/Share {share}[^S]*{what} [\\d.]+ a second/.test({text})" for share, what in (("batch", "lent"), ("search", "borrowed")))
    end = time.monotonic() + WAIT_SECS
    while not page.run(f"{lent} && {borrowed}"):
        if time.monotonic() > end:
            raise SystemExit(f"FAIL what they lend and borrow is told: {page.run(text)}")
        sluice("acquire", "--share", "search", "shared#rpm=5")
    print("ok   what they lend and borrow is told")


def takes_names_as_text(page: Page) -> None:
    page.until("a holder is named as it is written", f"{card('elevenlabs#concurrent')}.innerText.includes(arguments[0])", EVIL)
    page.until("and so is a bucket", f"Boolean({card(EVIL_BUCKET)})")
    page.until("and a caller of the what-if", "[...document.getElementById('who').options].some((one) => one.value === arguments[0])", EVIL)
    expect(page.run("document.querySelectorAll('img').length === 0 && window.stolen === undefined"), "and none of it is run")


def answers(page: Page) -> None:
    verdict = "[...document.querySelectorAll('#verdicts li')].find((one) => one.innerText.includes('elevenlabs')).innerText"
    page.until("what if: twice the calls fit", f"{verdict}.includes('fits')")
    page.run("(() => { const f = document.getElementById('factor'); f.value = '1000'; f.dispatchEvent(new Event('input')); })()")
    page.until("what if: a thousand times do not", f"{verdict}.includes('over by')")
    page.run("(() => { const f = document.getElementById('filter'); f.value = 'OPENAI'; f.dispatchEvent(new Event('input')); })()")
    page.until("a filter leaves what it names", "document.querySelectorAll('.card').length === 1")
    page.run("(() => { const f = document.getElementById('filter'); f.value = ''; f.dispatchEvent(new Event('input')); })()")
    page.until("and without it all are back", "document.querySelectorAll('.card').length === 5")


def rests_while_hidden(page: Page) -> None:
    asked = "performance.getEntriesByType('resource').filter((one) => one.name.includes('/api/')).length"
    show = "(() => {{ Object.defineProperty(document, 'hidden', {{ value: {}, configurable: true }}); document.dispatchEvent(new Event('visibilitychange')); }})()"
    page.run(show.format("true"))
    time.sleep(1.5)
    before = page.run(asked)
    time.sleep(2.5)
    expect(page.run(asked) == before, "a hidden page asks for nothing")
    page.run(show.format("false"))
    page.until("and goes on when it is seen", f"{asked} > {before}")


def fits_every_screen(page: Page) -> None:
    for width in [320, 360, 800, 1280, 2000]:
        page.shape(width, 900)
        time.sleep(0.3)
        page.picture(f"width-{width}")
        widest = "[...document.body.querySelectorAll('*')].reduce((most, one) => Math.max(most, one.getBoundingClientRect().right), 0)"
        wide = page.run(f"[document.documentElement.scrollWidth, Math.round({widest})]")
        expect(max(wide) <= width, f"nothing is wider than {width} pixels: {wide}")
    page.shape(1280, 900)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.run(ground)
    page.colours("dark")
    expect(page.run(ground) != light, "a dark screen gets dark colours")
    page.picture("dark")
    page.colours("light")


def write_row(key: str, attribute: str, text: str) -> None:
    """Past all of Sluice, as any other client of the table could."""
    body = {
        "TableName": "ontopix-vendor-buckets-sandbox",
        "Key": {"vendor_dimension": {"S": key}},
        "UpdateExpression": "SET #a = :v",
        "ExpressionAttributeNames": {"#a": attribute},
        "ExpressionAttributeValues": {":v": {"S": text}},
    }
    headers = {
        "Content-Type": "application/x-amz-json-1.0",
        "X-Amz-Target": "DynamoDB_20120810.UpdateItem",
        "X-Amz-Date": "20260101T000000Z",
        "Authorization": "AWS4-HMAC-SHA256 Credential=sandbox/20260101/eu-central-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0",
    }
    request = urllib.request.Request(f"http://127.0.0.1:{ENGINE_PORT}/", json.dumps(body).encode(), headers)
    urllib.request.urlopen(request, timeout=WAIT_SECS).close()


def survives_what_it_cannot_draw(page: Page) -> None:
    title = "document.querySelector('#sweeps tbody tr').title"
    write_row("load#sweeps", "sweeps", "at=-9000000000000 ms=5")
    page.until("a sweep at no date of the calendar is told", f"document.querySelector('#sweeps tbody tr') && {title}.includes('-9000000000000')")
    write_row("load#sweeps", "sweeps", "at=1709550000 ms=5")
    page.until("and one at a date by it", f"{title}.startsWith('2024-03-04T')")
    expect(page.run(BANNER), "and neither is an error")
    page.run("(() => { window.whole = renderFaults; renderFaults = () => { throw new Error('no such thing'); }; })()")
    page.until("a page that cannot be drawn says so", f"!{BANNER} && document.getElementById('banner').innerText.includes('no such thing')")
    sluice("acquire", "openai#rpm=50")
    page.until("it goes on with what it can draw", f"/\\b35\\d left/.test({card('openai#rpm')}.innerText)")
    page.run("(() => { renderFaults = window.whole; })()")
    page.until("and is well again by itself", BANNER)


def is_closed_to_other_scripts(page: Page) -> None:
    page.run("(() => { const s = document.createElement('script'); s.textContent = 'window.stolen = 2'; document.body.append(s); })()")
    expect(page.run("window.stolen === undefined"), "a script without the nonce does not run")
    page.complaints()


def main() -> None:
    started = []
    page = None
    folder = Path(tempfile.mkdtemp())
    limits = folder / "limits.toml"
    limits.write_text(LIMITS)

    def begin(*arguments: str, **variables: str) -> Program:
        started.append(Program(*arguments, **variables))
        return started[-1]

    serve_table = ["sandbox", "--port", str(ENGINE_PORT), "--data", str(folder / "data"), "--buckets", str(limits)]
    serve_page = ["dashboard", "--listen", f"127.0.0.1:{PAGE_PORT}"]
    try:
        engine = begin(*serve_table)
        board = begin(*serve_page)
        holder = begin("acquire", "elevenlabs#concurrent", "--hold", "5m", SLUICE_CALLER=EVIL, SLUICE_LEASE_TTL="300")
        page = Page(PAGE_PORT)
        shows_times_as_the_command_does(page)
        follows(page)
        tells_of_shares(page)
        page.picture("shares")
        takes_names_as_text(page)
        answers(page)
        survives_what_it_cannot_draw(page)
        rests_while_hidden(page)
        fits_every_screen(page)
        expect(page.complaints() == [], "the console has no complaint")

        engine.stop()
        page.until("a table that is gone is told", f"!{BANNER} && document.getElementById('banner').innerText.includes('cannot be read')")
        expect(page.run(STALE), "and what is shown is greyed")
        expect(page.run("document.querySelectorAll('.card').length === 5"), "but stays")
        page.picture("gone")
        begin(*serve_table[:-2])
        page.until("it recovers by itself", f"{BANNER} && !{STALE}")
        expect(page.complaints() == [], "the console has no complaint of that")

        board.stop()
        page.until("a dashboard that is gone is told", f"!{BANNER} && document.getElementById('banner').innerText.includes('sends no data')")
        begin(*serve_page)
        page.until("and its return is noticed", f"{BANNER} && !{STALE}")
        page.complaints()
        is_closed_to_other_scripts(page)
        holder.stop()
    finally:
        if page:
            page.driver.quit()
        for program in reversed(started):
            program.stop()
        shutil.rmtree(folder)
    print(f"the dashboard does what it says ({time.monotonic() - BEGAN:.0f} s)")


if __name__ == "__main__":
    BEGAN = time.monotonic()
    ENGINE_PORT, PAGE_PORT = free_port(), free_port()
    main()
