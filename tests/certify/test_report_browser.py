"""The page in a real browser: what it computes of the layout, and what a reader sees. Needs Debian's chromium."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from muster.certify.report.build import build
from muster.certify.report.html import html
from tests.certify.report_samples import Fleet, certification

pytestmark = [pytest.mark.full]

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
LIMIT_S = 120
PROBE = """<script>
window.addEventListener("load", () => {
  const box = e => { const b = e.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; };
  const inside = [...document.querySelectorAll("svg")].map(svg => {
    const outer = svg.getBoundingClientRect();
    const out = [...svg.querySelectorAll("rect,circle,polyline,polygon,line,text")].filter(e => {
      const b = e.getBoundingClientRect();
      return b.left < outer.left - 2 || b.right > outer.right + 2 || b.top < outer.top - 2
        || b.bottom > outer.bottom + 2;
    });
    return {label: svg.getAttribute("aria-label"), box: box(svg), out: out.map(e => e.outerHTML.slice(0, 200))};
  });
  const style = getComputedStyle(document.body);
  const found = {
    width: document.documentElement.clientWidth, scroll: document.documentElement.scrollWidth, svgs: inside,
    ink: style.color, paper: style.backgroundColor, text: document.body.innerText.slice(0, 20000),
    failed: getComputedStyle(document.querySelector(".tag.Failed") || document.body).backgroundColor,
    closed: [...document.querySelectorAll("details")].every(d => !d.open),
  };
  const told = document.createElement("pre");
  told.id = "probe";
  told.textContent = JSON.stringify(found);
  document.body.appendChild(told);
});
</script></body>"""


def browser() -> str:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    assert found is not None, "this test needs a browser: apt-get install chromium"
    return found


def look(page: str, folder: Path, *, width: int = 1100, dark: bool = False) -> dict[str, Any]:
    """What the browser computes of the page; the probe is a script that only this copy of the page has."""
    probed = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*/>', "", page)
    file = folder / "report.html"
    file.write_text(probed.replace("</body>", PROBE))
    command = [
        browser(),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={folder / 'profile'}",
        f"--window-size={width},1400",
        *(["--blink-settings=preferredColorScheme=0"] if dark else ["--blink-settings=preferredColorScheme=1"]),
        "--dump-dom",
        file.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=True)
    match = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout.decode(), re.DOTALL)
    assert match is not None, done.stderr.decode()[-2000:]
    told = match[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    answer: dict[str, Any] = json.loads(told)
    return answer


SICK = Fleet(bad=("gpu-0003",), links=(("gpu-0006", "gpu-0013"),), untested=("gpu-0001",))
LONG = tuple(f"ip-10-0-{i}-{i}.very-long-region-name-of-some-cloud.compute.internal.example" for i in range(16))


@pytest.mark.parametrize("width", [500, 1100, 1900])
@pytest.mark.parametrize(
    "fleet",
    [SICK, Fleet(names=LONG, bad=LONG[3:5]), Fleet(nodes=256, domains=32, bad=("gpu-0003",), tests=("host", "pair"))],
    ids=["sick", "long-names", "256-nodes"],
)
def test_nothing_overflows_and_figures_stay_in_their_frames(fleet: Fleet, width: int, tmp_path: Path) -> None:
    found = look(html(build(*certification(fleet, parts=2))), tmp_path, width=width)
    assert found["scroll"] <= found["width"]
    assert found["svgs"]
    for figure in found["svgs"]:
        left, top, right, bottom = figure["box"]
        assert 0 <= left < right <= found["width"]
        assert bottom - top > 20
        assert figure["out"] == [], figure["label"]


def test_a_reader_sees_the_verdict_and_the_evidence_first(tmp_path: Path) -> None:
    found = look(html(build(*certification(SICK, parts=2))), tmp_path)
    seen = found["text"]
    for piece in (
        "Not passed: ",
        "Failed nodes (1)",
        "net plugin timed out",
        "gpu-0006 - gpu-0013",
        "Untested nodes",
    ):
        assert piece in seen
    assert seen.index("Not passed") < seen.index("Failed nodes") < seen.index("\nTests\n")
    assert found["closed"]


def _brightness(colour: str) -> float:
    red, green, blue = (float(n) for n in re.findall(r"[\d.]+", colour)[:3])
    return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_stands_out_in_light_and_in_dark(dark: bool, tmp_path: Path) -> None:
    found = look(html(build(*certification(SICK))), tmp_path, dark=dark)
    paper, ink = _brightness(found["paper"]), _brightness(found["ink"])
    assert (paper < 0.2) is dark
    assert abs(paper - ink) > 0.7
    assert abs(_brightness(found["failed"]) - paper) > 0.2


def test_the_real_page_needs_no_script(tmp_path: Path) -> None:
    """With its own policy in force the page draws the same, and the policy stops what is no style."""
    page = html(build(*certification(SICK)))
    file = tmp_path / "report.html"
    picture = tmp_path / "report.png"
    file.write_text(page)
    command = [
        browser(),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--window-size=1100,2000",
        f"--screenshot={picture}",
        file.as_uri(),
    ]
    subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=True)
    assert picture.stat().st_size > 30_000
    assert "default-src 'none'" in page
