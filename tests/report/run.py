#!/usr/bin/env python3
"""The page of `weft bench report --format html` in a browser: on a telephone and on a desk, light and dark.

    tests/report/run.py --weft FILE [--pictures FOLDER] [RECORD...]

RECORDs are raw data of runs; without any it takes one of docs/measurements. Of the first it makes two more: one with
everything that a page may have to draw, and a hostile one. Needs Chromium, and is skipped without it. Closes with `N passed, N failed, N skipped`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "rig"))
from browser import Browser, installed  # noqa: E402
from counts import Counts  # noqa: E402

RECORD = HERE.parents[1] / "docs/measurements/2026-11-21-every-stack.json"
SIZES = {390: 844, 1400: 900}
SCHEMES = ("light", "dark")
HOSTILE = "<script>document.title='run'</script><img src=http://192.0.2.1/x onerror=\"document.title='run'\">" \
          + "w" * 300

# What is wrong with a page as it stands, as a list of words. Contrast is WCAG's: 4.5 for words.
LOOK = """(() => {
  const wrong = [];
  const wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) {
    const out = [...document.querySelectorAll('body *')].find(e =>
      e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.scroll, pre, svg'));
    wrong.push(`it is ${wide} wide in ${innerWidth}: ${out ? out.outerHTML.slice(0, 120) : '?'}`);
  }
  const pictures = [...document.querySelectorAll('svg[role=img]')];
  if (!pictures.length) wrong.push('it has no picture');
  for (const picture of pictures) {
    const words = picture.getAttribute('aria-labelledby').split(' ').map(id => document.getElementById(id));
    if (words.some(w => !w || !w.textContent)) wrong.push('a picture has no words');
    const axis = picture.querySelector('.axis');
    if (axis && !/(lower|higher) is better/.test(axis.textContent)) wrong.push(`no direction: ${axis.textContent}`);
    const lines = picture.querySelectorAll('polyline').length;
    const legend = picture.parentElement.querySelectorAll('.legend li').length;
    if (lines && lines !== legend) wrong.push(`${lines} lines and ${legend} in the legend`);
    const box = picture.getBoundingClientRect();
    for (const text of picture.querySelectorAll('text')) {
      const t = text.getBoundingClientRect();
      if (t.left < box.left - 1 || t.right > box.right + 1) wrong.push(`cut off: ${text.textContent}`);
    }
    if (!/NaN|Infinity/.test(picture.outerHTML)) continue;
    wrong.push('a picture has no number where one should be');
  }
  const light = c => {
    const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const paper = getComputedStyle(document.body).backgroundColor;
  for (const of of ['body', '.loses', '.soft', 'a', '.failed', '.wins', 'svg .tick']) {
    const found = document.querySelector(of);
    if (!found) continue;
    const style = getComputedStyle(found);
    const colour = found.closest('svg') ? style.fill : style.color;
    if (contrast(colour, paper) < 4.5) wrong.push(`${of} is hard to read: ${contrast(colour, paper).toFixed(2)}`);
  }
  for (const sign of document.querySelectorAll('.legend .sign')) {
    const fill = getComputedStyle(sign.previousElementSibling).fill;
    const found = contrast(getComputedStyle(sign).fill, fill);
    if (found < 4.5) wrong.push(`${sign.textContent} is hard to read: ${found.toFixed(2)}`);
  }
  for (const table of document.querySelectorAll('table')) {
    const around = table.closest('[role=region]');
    if (!around || around.tabIndex !== 0) wrong.push('a table cannot be scrolled by keys');
  }
  if (document.title === 'run') wrong.push('something of the record ran');
  return wrong;
})()"""


def of_today(record):
    """A record of version 1 as one of version 2 with repetitions enough to decide, what each program took, and the
    first stack of each row measured twice: everything that a page may have to draw."""
    run = json.loads(Path(record).read_text(encoding="utf-8"))
    run["version"] = 2
    run["options"] |= {"full": False, "targets": False, "paths": []}
    for path in run["paths"]:
        path |= {"hosts": [], "links": []}
    counts = dict.fromkeys(("voluntary_switches", "forced_switches", "minor_faults", "major_faults"), 1000)
    roles = [{"role": name, "lived": 1.2, "user": 0.4, "system": 0.6, "peak_octets": 1 << 20} | counts
             for name in ("server", "client")]
    for row in run["rows"]:
        first = row["cells"][0]
        row["cells"].append(json.loads(json.dumps(first)) | {"stack": f"{first['stack']}, again",
                                                             "again": first["stack"]})
        for cell in row["cells"]:
            cell["commands"] = [{"role": name, "host": "here", "command": line}
                                for name, line in zip(("server", "client"), cell["commands"])]
            good = [sample["metrics"] for sample in cell["samples"] if "metrics" in sample]
            cell["samples"] = [
                {"repetition": number, "at": number, "took": 1.2, "roles": roles,
                 "metrics": {key: value * (1 + number % 3 / 100) for key, value in metrics.items()}}
                for number, metrics in enumerate(good * 3, 1)]
    return run


def hostile(record):
    """The same with names that would do harm where they came through as markup."""
    run = of_today(record)
    run["environment"]["cpu"] = HOSTILE
    for row in run["rows"]:
        names = {name: f"{name}{HOSTILE}" for name in (cell["stack"] for cell in row["cells"])}
        row["reference"] = [names.get(name, name) for name in row["reference"]]
        for cell in row["cells"]:
            cell["stack"] = names[cell["stack"]]
    return run


def page(weft, record, file):
    command = [weft, "bench", "report", "--format", "html", "--output", file, record]
    subprocess.run(command, check=True, timeout=120)


def complaints(browser, file, width, scheme):
    """What is wrong with the page at this width and scheme."""
    wrong = []
    for event in browser.open(file, width, SIZES[width], scheme):
        method, what = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            url = what["request"]["url"]
            if not url.startswith(("data:", "about:")) and url != Path(file).resolve().as_uri():
                wrong.append(f"it asks for {url}")
        if method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown") or method == "Log.entryAdded":
            wrong.append(f"it says {json.dumps(what)[:300]}")
    wrong += browser.ask(LOOK)
    # Everything open, as a reader may have it.
    browser.ask("document.querySelectorAll('details').forEach(d => d.open = true)")
    wrong += [f"opened, {words}" for words in browser.ask(LOOK)]
    browser.ask("document.querySelectorAll('details').forEach(d => d.open = false); scrollTo(0, 0)")
    return wrong


def keys(browser, file):
    """What a reader without a mouse cannot do."""
    browser.open(file, 1400, SIZES[1400], "light")
    for _ in range(400):
        browser.press("Tab")
        if browser.ask("document.activeElement.tagName") == "SUMMARY":
            browser.press("Enter")
            opened = browser.ask("document.activeElement.parentElement.open")
            return [] if opened else ["the table behind a picture does not open by a key"]
    return ["no table behind a picture is reached by keys"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", required=True, help="the command")
    parser.add_argument("--pictures", type=Path, help="a folder for what was seen")
    parser.add_argument("records", nargs="*", default=[RECORD], help="raw data")
    args = parser.parse_args()
    program = installed()
    if program is None:
        print("skipped all: there is no Chromium (Debian package chromium)")
        return Counts(skipped=1).close()
    counts = Counts()
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for number, record in enumerate(args.records):
            files[Path(record).stem] = f"{folder}/{number}.html"
            page(args.weft, record, files[Path(record).stem])
        for made in (of_today, hostile):
            record = Path(folder, f"{made.__name__}.json")
            record.write_text(json.dumps(made(args.records[0])), encoding="utf-8")
            files[made.__name__] = f"{folder}/{made.__name__}.html"
            page(args.weft, record, files[made.__name__])
        browser = Browser(program)
        try:
            cases = {f"{name} {width} {scheme}": (name, width, scheme)
                     for name in files for width in SIZES for scheme in SCHEMES}
            for case, (name, width, scheme) in cases.items():
                wrong = complaints(browser, files[name], width, scheme)
                judge(counts, case, wrong)
                if args.pictures:
                    browser.picture(args.pictures / f"{case.replace(' ', '-')}.png")
            judge(counts, "keys", keys(browser, next(iter(files.values()))))
        finally:
            browser.close()
    return counts.close()


def judge(counts, case, wrong):
    counts.add("failed" if wrong else "passed")
    print(f"failed {case}: {'; '.join(wrong[:5])}" if wrong else f"passed {case}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
