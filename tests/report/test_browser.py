"""The page in a real browser: nothing is fetched, the charts are drawn, tables sort, phones and paper are served."""

import shutil

import numpy as np
import pytest

import fedual as fd

for module in ("altair", "vl_convert", "jinja2"):
    pytest.importorskip(module, reason=f"reports need {module}: install fedual[report]")
sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright drives the browser")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")

from fedual import report

CHARTS = ("convergence", "primal", "dual", "strip", "p", "s")


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def solution():
    rng = np.random.default_rng(0)
    sites = [(X := rng.normal(size=(n, 3)), X @ rng.normal(size=3)) for n in (4, 11, 7, 30, 9, 5, 22)]
    problem = fd.Problem(fd.losses.least_squares(), fd.data.from_arrays(sites))
    return fd.solve(problem, fd.FedPD(fd.oracles.Exact(), 0.5), 30, fd.schedules.Skip(0.5))


@pytest.fixture(scope="module")
def files(solution, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    average = fd.solve(solution.problem, fd.FedAvg(fd.oracles.GradientDescent(2, 0.1)), 20)
    report.write(solution, folder / "one.html")
    report.write({"FedPD, p = 0.5": solution, "FedAvg": average}, folder / "two.html")
    return folder


@pytest.fixture
def open_page(browser, files):
    """Opens a page as a reader would; fails on anything in the console and on any request to elsewhere."""
    troubles = []
    pages = []

    def opened(name, width=1200):
        page = browser.new_page(viewport={"width": width, "height": 900})
        pages.append(page)
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        allowed = ("file:", "data:", "blob:")
        page.on("request", lambda r: troubles.append(r.url) if not r.url.startswith(allowed) else None)
        page.goto((files / name).as_uri())
        drawn(page, 1)
        return page

    yield opened
    for page in pages:
        page.close()
    assert troubles == []


def drawn(page, times):
    page.wait_for_selector(f'body[data-drawn="{times}"]', state="attached", timeout=60_000)


def column(page, number):
    return page.locator(f"table.sortable tbody tr > :nth-child({number})").all_inner_texts()


@pytest.mark.parametrize("name", ["one.html", "two.html"])
def test_every_chart_is_drawn(open_page, name):
    page = open_page(name)
    for chart in CHARTS:
        box = page.locator(f"#{chart} svg.marks").bounding_box()
        assert box["width"] > 300, chart
        marks = page.locator(f"#{chart} svg .mark-line path, #{chart} svg .mark-rect.role-mark path").all()
        assert marks, chart
        assert all("NaN" not in mark.get_attribute("d") for mark in marks), chart


def test_the_strip_has_a_cell_per_round_in_two_colors(open_page, solution):
    cells = open_page("one.html").locator("#strip .mark-rect.role-mark path").all()
    colors = [cell.get_attribute("fill") for cell in cells]
    communicated = solution.history["communicated"]
    assert len(colors) == 30
    assert len({c for c, talk in zip(colors, communicated, strict=True) if talk}) == 1
    assert len(set(colors)) == 2


def test_the_axes_are_switched(open_page):
    page = open_page("two.html")
    titles = page.locator("#convergence svg .role-axis-title")
    assert "stationarity" in " ".join(titles.all_text_contents())
    page.select_option("select[name=x]", "bytes")
    drawn(page, 2)
    assert "bytes sent" in " ".join(titles.all_text_contents())
    linear = page.locator("#convergence .mark-line path").first.get_attribute("d")
    page.check("input[name=logx]")
    drawn(page, 3)
    assert page.locator("#convergence .mark-line path").first.get_attribute("d") != linear
    page.select_option("select[name=y]", "objective")
    drawn(page, 4)
    assert not page.is_checked("input[name=logy]")
    assert "objective" in " ".join(titles.all_text_contents())


def test_the_nearest_point_shows_its_values(open_page):
    page = open_page("two.html")
    page.locator("#convergence svg.marks").scroll_into_view_if_needed()
    page.hover("#convergence svg.marks", position={"x": 500, "y": 200})
    shown = page.locator("#vg-tooltip-element.visible")
    shown.wait_for()
    text = shown.inner_text()
    assert any(run in text for run in ("FedPD, p = 0.5", "FedAvg"))
    assert "stationarity" in text


def test_the_table_of_clients_sorts_both_ways(open_page, solution):
    page = open_page("one.html")
    sizes = solution.problem.sizes
    rows = page.locator("table.sortable").first
    button = rows.get_by_role("button", name="rows", exact=True)
    button.click()
    assert [int(n) for n in column(page, 2)[: len(sizes)]] == sorted(sizes.tolist(), reverse=True)
    button.click()
    assert [int(n) for n in column(page, 2)[: len(sizes)]] == sorted(sizes.tolist())
    assert rows.locator("th[aria-sort=ascending]").inner_text().startswith("rows")


def test_what_is_not_defined_sorts_last_whichever_the_order(open_page):
    page = open_page("two.html")
    page.locator("summary", has_text="Clients").last.click()  # FedAvg has no duals
    table = page.locator("details[open] table.sortable")
    for _ in range(2):
        table.get_by_role("button", name="||λ_k||").click()
        assert set(table.locator("tbody tr > :nth-child(6)").all_inner_texts()) == {"n/a"}


@pytest.mark.parametrize("name", ["one.html", "two.html"])
def test_a_phone_shows_all_of_it_without_scrolling_sideways(open_page, name):
    page = open_page(name, width=390)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    for chart in CHARTS:
        box = page.locator(f"#{chart} svg.marks").bounding_box()
        assert box["x"] >= 0, chart
        assert box["x"] + box["width"] <= 390, chart


def test_on_paper_everything_is_open_and_nothing_is_cut_off(open_page):
    page = open_page("two.html")
    page.pdf(format="A4")
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 700, "height": 990})
    assert page.locator("section > details:not([open])").count() == 0
    assert page.locator("#controls").is_hidden()
    for chart in CHARTS:
        box = page.locator(f"#{chart} svg.marks").bounding_box()
        assert box["x"] + box["width"] <= 700, chart
