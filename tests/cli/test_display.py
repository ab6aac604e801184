"""Progress and pictures show what the history holds, and change nothing."""

import io

import numpy as np
import pytest
from rich.console import Console

import fedual as fd
from fedual import pictures
from fedual.cli.progress import Display, sparkline

CLIENTS = fd.data.from_arrays([(np.eye(2), [0.0, 1.0]), (np.ones((3, 2)), [1.0, 2.0, 0.0])])
PROBLEM = fd.Problem(fd.losses.least_squares(l2=0.1), CLIENTS)


def run(display=None, **options):
    callbacks = () if display is None else (display,)
    return fd.solve(PROBLEM, fd.FedPD(step_size=1.0), rounds=120, callbacks=callbacks, **options)


@pytest.mark.parametrize("terminal", [False, True])
def test_displaying_changes_no_number(terminal):
    screen = io.StringIO()
    with Display(120, "FedPD", console=Console(file=screen, force_terminal=terminal, width=100)) as display:
        shown = run(display)
    plain = run()
    np.testing.assert_array_equal(shown.theta, plain.theta)
    np.testing.assert_array_equal(shown.history["objective"], plain.history["objective"])
    text = screen.getvalue()
    assert f"{plain.history['stationarity'][-1]:.3g}" in text
    assert "120 of 120" in text
    assert ("█" in text) == terminal


def test_without_a_terminal_every_interval_is_one_line():
    screen = io.StringIO()
    with Display(120, console=Console(file=screen, width=20)) as display:
        run(display)
    lines = screen.getvalue().splitlines()
    assert [line.split("  ")[0] for line in lines] == ["round 50 of 120", "round 100 of 120", "round 120 of 120"]
    assert "left" in lines[1]


def test_quiet_shows_nothing():
    screen = io.StringIO()
    with Display(120, quiet=True, console=Console(file=screen, force_terminal=True)) as display:
        run(display)
    assert screen.getvalue() == ""


def test_a_sparkline_is_logarithmic_and_skips_what_has_no_logarithm():
    assert sparkline([1e0, float("nan"), 1e-7, 0.0]) == "█▁"
    assert sparkline([10.0**-k for k in range(8)]) == "█▇▆▅▄▃▂▁"
    assert len(sparkline(np.geomspace(1, 1e-9, 1000))) == 40
    assert sparkline([]) == sparkline([float("nan")]) == ""


def test_a_picture_holds_the_evaluated_rounds():
    solution = run(evaluate_every=50)
    figure = pictures.plot({"a": solution, "b": run()}, x="round", y="stationarity")
    first, second = figure.axes[0].lines
    np.testing.assert_array_equal(first.get_xdata(), [50, 100])
    np.testing.assert_array_equal(first.get_ydata(), solution.history["stationarity"][[49, 99]])
    assert len(second.get_xdata()) == 120
    assert figure.axes[0].get_yscale() == "log"


def test_one_round_is_a_point():
    solution = fd.solve(PROBLEM, fd.FedPD(step_size=1.0), rounds=1)
    (line,) = pictures.plot({"a": solution}, y="objective").axes[0].lines
    assert line.get_marker() == "o"


def test_bad_requests_for_pictures_are_refused(tmp_path):
    with pytest.raises(ValueError, match="y = 'loss' is not a column"):
        pictures.plot({"a": run()}, y="loss")
    with pytest.raises(ValueError, match="no run"):
        pictures.plot({})
    with pytest.raises(ValueError, match=r"must end in \.png"):
        pictures.save_picture(pictures.plot({"a": run()}), tmp_path / "a.gif")
