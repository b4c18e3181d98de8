"""The page in a real headless Chromium, beside live runs."""

import csv
import io
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
    *("--use-angle=swiftshader", "--enable-unsafe-swiftshader"),
)
#: Steps sleep, so that most of the cores are free; networks that take a part of them which is worth showing.
SETTINGS = (
    *("run.stop.return=500", "run.stop.minutes=30", "run.env=tests.benchmarks.napping:make"),
    *("run.env_kwargs.nap_s=0.004", "algorithm.hidden_sizes=[256, 256]", "balance.replay_ratio=4"),
    *("components.evaluator.episodes=2", "components.sampler.count=2"),
)
#: Counts the moments at which the stage has no picture, and those at which the server is gone.
WATCH = """() => {
  const stage = document.getElementById("stage");
  window.gone = window.lost = 0;
  const look = () => (window.lost += document.body.dataset.connected == "no");
  new MutationObserver(look).observe(document.body, {attributeFilter: ["data-connected"]});
  new MutationObserver(() => (window.gone += !stage.querySelector("img"))).observe(stage, {childList: true});
}"""
#: What is waited for: nothing needs scrolling sideways, the learning curve grows, another picture comes.
FITS = "width => innerWidth == width && document.documentElement.scrollWidth <= width"
GROWN = "points => Number(document.getElementById('learning').dataset.points) > points"
OTHER = "before => document.querySelector('#stage img').src != before"
#: What is drawn of a run that is over.
DRAWN = ("evaluation: mean_return", "critic_loss")


@contextmanager
def browser_at(address, errors, width=1440):
    """A browser on the page; what it complains of in its console is collected."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield page_at(browser, address, errors, width)
        browser.close()


def page_at(browser, address, errors, width=1440):
    """A further page of a browser."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.set_default_timeout(300_000)
    page.on("console", lambda message: message.type == "error" and errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(address)
    return page


def address_of(run):
    """The page's address, once the run has it."""
    path = run.folder / "page.url"
    return run.until(lambda: path.exists() and path.read_text().strip(), "address of the page")


def picture(page):
    """What stands on the stage, as an array [height, width, 3]."""
    box = page.locator("#stage").bounding_box()
    return np.asarray(Image.open(io.BytesIO(page.screenshot(clip=box))).convert("RGB")).astype(int)


def moved(page, before):
    """Whether the picture differs from an earlier one."""
    return np.abs(picture(page) - before).max() > 50


def moves(page):
    """Wait until what stands on the stage looks different."""
    image, before = page.locator("#stage img"), picture(page)
    while not moved(page, before):
        page.wait_for_function(OTHER, arg=image.get_attribute("src"), polling=100)


def grows(page, points):
    """Wait until the learning curve has more points than these; returns how many."""
    page.wait_for_function(GROWN, arg=points, polling=100)
    return int(page.locator("#learning").get_attribute("data-points"))


@pytest.mark.long("one run is looked at in a browser, from its start to its end")
@pytest.mark.timeout(600)
def test_a_run_is_seen_from_its_start_to_its_end(launch, tmp_path):
    """Pendulum: the picture moves, curves grow, a setting is changed, a killed worker and its return show,
    the page comes back after its server's death, and nothing overflows or complains.
    """
    run = launch(*(f"--set={each}" for each in SETTINGS))
    errors = []
    with browser_at(address_of(run), errors) as page:
        says_that_it_loads(page.context.browser, page.url)
        page.wait_for_selector("#stage img")
        page.wait_for_selector("#state[data-state=training]")
        moves(page)
        points = grows(page, grows(page, 0))
        page.locator("#figures", has_text="GFLOP/s that the cores or GPUs multiply").wait_for()

        setting = page.locator("#settings tr[data-name=learning_rate]")
        setting.locator("input").fill("0.001")
        setting.get_by_text("set", exact=True).click()
        page.locator("#events li.why", has_text="page: set learning_rate 0.003 -> 0.001").wait_for()
        setting.locator(".number", has_text="0.001").wait_for()
        page.evaluate("scrollTo(0, 0)")

        run.kill("sampler-0")
        gone = page.locator("#events li.bad", has_text="sampler-0 was killed by SIGKILL")
        gone.wait_for()
        page.locator("#events li", has_text="sampler-0 is ready").nth(1).wait_for()
        page.wait_for_selector('.process[data-name="sampler-0"]:not(.gone)')

        page.evaluate(WATCH)
        run.kill("visualizer-0")
        page.wait_for_function("() => window.lost", polling=100)  # though it is back by now
        page.wait_for_selector("body[data-connected=yes]", state="attached")
        grows(page, max(points, 3))
        moves(page)
        look(page, tmp_path)
        run.interrupt()
        page.locator("#notice", has_text="interrupted by the user. To look again: spreeze view").wait_for()
        assert page.evaluate("window.gone") == 0
        assert page.locator("#stage img").evaluate("image => image.naturalWidth") > 0
        assert run.end() == 0
        assert not (run.folder / "page.url").exists()
        assert not (run.folder / "MUJOCO_LOG.TXT").exists()
        page.close()
        over_again(page.context.browser, run.folder, errors)
    assert errors == []


def says_that_it_loads(browser, address):
    """What is there before the first data, as without scripts."""
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(address)
        for place in ("#env", "#state", "#stage", "#scores", "#figures", "#flow", "#events"):
            assert page.locator(place).inner_text() == "loading"


def look(page, folder):
    """Keep a screen of each size, which people look at; none needs sideways scrolling."""
    for width, theme in ((1440, "light"), (390, "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme)
        # The charts follow the new size with the next status.
        page.wait_for_function(FITS, arg=width, polling=100)
        page.screenshot(path=folder / f"page-{width}-{theme}.png", full_page=True)


def over_again(browser, folder, errors):
    """The same run by ``spreeze view``: the whole curve, the agent by the saved policy, others beside it."""
    for name in ("another, run", "third"):
        shutil.copytree(folder, folder.with_name(name))
    runs = [str(folder), str(folder.with_name("another, run"))]
    command = [sys.executable, "-m", "spreeze_zmq.commands.spreeze", "view", *runs]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        page = page_at(browser, process.stdout.readline().partition("  (")[0], errors)
        page.locator("#state", has_text="past run").wait_for()
        page.wait_for_selector("#stage img")
        grows(page, 3)
        explore(page)
        page.close()
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def explore(page):
    """Two numbers over transitions: drawn, smoothed, zoomed, beside other runs, kept as a file."""
    part = page.locator("#explorer")
    first, second, axis, beside = (part.locator("select").nth(place) for place in range(4))
    first.select_option(DRAWN[0])
    second.select_option(DRAWN[1])
    axis.select_option("trained_transitions")
    for name in ("evaluation: mean return", "critic loss"):
        part.locator(".u-legend", has_text=name).wait_for()
    assert part.get_by_text("smoothed").count() == 0
    part.locator("input").fill("0.9")
    part.locator(".u-legend", has_text="critic loss, smoothed").wait_for()
    part.locator(".u-legend", has_text="another, run: critic loss, smoothed").wait_for()
    beside.select_option("third")
    part.locator(".u-legend", has_text="third: evaluation: mean return, smoothed").wait_for()
    whole = int(page.locator("#explored").get_attribute("data-points"))
    plot = part.locator(".u-over").bounding_box()
    page.mouse.move(plot["x"] + 0.3 * plot["width"], plot["y"] + 40)
    page.mouse.down()
    page.mouse.move(plot["x"] + 0.6 * plot["width"], plot["y"] + 60, steps=3)
    page.mouse.up()
    page.locator("#explored .zoomed").wait_for()
    part.locator(".u-over").dblclick()
    page.locator("#explored .uplot:not(.zoomed)").wait_for()
    with page.expect_download() as download:
        part.get_by_text("download CSV").click()
    head, *rows = csv.reader(download.value.path().open())
    names = [f"{run}{name}" for run in ("", "another, run: ", "third: ") for name in DRAWN]
    assert head == ["trained_transitions", *names]
    assert len(rows) >= whole
    trained = [float(row[0]) for row in rows]
    assert trained == sorted(set(trained))
    assert all(any(row[1:]) for row in rows)
    for name in ("another, run", "third"):
        part.locator(".chip", has_text=name).click()
    part.locator(".u-legend", has_text="another, run").wait_for(state="detached")


@pytest.mark.thorough
@pytest.mark.timeout(420)  # without a GPU the browser draws slowly
def test_a_robot_stays_in_view(launch, tmp_path):
    """HalfCheetah in MuJoCo's own viewer: it moves, and its camera follows it, for a second browser too."""
    Path("MUJOCO_LOG.TXT").unlink(missing_ok=True)  # of this process, which has made such models itself
    # before its first update a run acts at random, and leaves the browser a core
    run = launch("--set", "algorithm.learning_starts=1000000", topology="halfcheetah")
    errors = []
    with browser_at("about:blank", errors, width=390) as page:
        watch_robot(page, address_of(run))
    with browser_at("about:blank", errors, width=390) as page:
        watch_robot(page, address_of(run))
        page.screenshot(path=tmp_path / "halfcheetah.png")
        run.interrupt()
        page.locator("#notice", has_text="The run is over").wait_for()
        page.wait_for_timeout(2000)
        page.screenshot(path=tmp_path / "halfcheetah over.png")
        assert robot(picture(page)), "the last picture is gone"
    assert run.end() == 0
    assert errors == []
    assert not Path("MUJOCO_LOG.TXT").exists()


def watch_robot(page, address):
    """The robot's positions keep coming; what they show moves, and stays near the middle."""
    received = []

    def listen(stream):
        if "/viewer/state" in stream.url:
            stream.on("framereceived", lambda content: received.append(content))

    page.on("websocket", listen)
    page.goto(address)
    page.wait_for_selector("#stage iframe")
    while not robot(picture(page)):  # the test's own limit ends this
        page.wait_for_timeout(100)
    while len(received) <= 10:
        page.wait_for_timeout(100)
    before = picture(page)  # its surroundings, which come late, are there as well
    while not moved(page, before):
        page.wait_for_timeout(100)
    for seen in (before, picture(page)):
        x, y = robot(seen)
        assert 0.2 < x < 0.8
        assert 0.2 < y < 0.9


def robot(seen):
    """The centre of the cheetah's orange limbs, from 0 to 1; None where too little of them is seen."""
    red, green, blue = np.moveaxis(seen, -1, 0)
    limbs = (red > 90) & (red > 1.25 * green) & (red > 1.25 * blue)
    if limbs.mean() < 0.002:
        return None
    rows, columns = np.nonzero(limbs)
    return columns.mean() / limbs.shape[1], rows.mean() / limbs.shape[0]


BROKEN = 'role = "visualizer"\ncommand = ["python", "{folder}"]\n'


@pytest.mark.timeout(420)
def test_a_run_goes_on_without_its_page(launch, tmp_path):
    """A visualizer of the user's own that cannot start is one line, and no failure of the run: it trains."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "component.toml").write_text(BROKEN)
    (folder / "__main__.py").write_text("raise SystemExit('visualizer: no screen here') from None\n")
    topology = tmp_path / "run.toml"
    topology.write_text(
        '[run]\nenv = "CartPole-v1"\nalgorithm = "dqn"\nstop = { minutes = 30 }\n'
        '[components.visualizer]\nuse = "./mine"\nmax_restarts = 0\n'
    )
    run = launch(topology=str(topology))
    run.until(lambda: "the run goes on" in run.output.read_text(), "word of the visualizer", 120)
    run.until_training()
    run.interrupt()
    assert run.end() == 0
    said = [line for line in run.output.read_text().splitlines() if "visualizer" in line]
    assert len([line for line in said if "the run goes on" in line]) == 1
    assert not any("first failure" in line for line in run.output.read_text().splitlines())
