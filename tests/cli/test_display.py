"""Progress on standard error, on a terminal and elsewhere."""

import io

import pytest
from rich.console import Console

from prefold.cli.display import LoadingDisplay, scene_display
from prefold.demo.scenes import Scene
from prefold.errors import ModelError

SCENE = Scene("name", "A scene", "about.", 1, "system", (("a", "b"),))


class Terminal(io.StringIO):
    """What is written to a terminal."""

    def isatty(self) -> bool:
        return True


def console_on(stream: io.StringIO) -> Console:
    return Console(file=stream, width=60, color_system=None, force_terminal=stream.isatty() or None)


def load(stream: io.StringIO) -> str:
    """What is shown of a download and what follows."""
    with LoadingDisplay(console_on(stream)) as progress:
        progress("Fetching", 0, 0)
        for done in (1 << 20, 2 << 20, 4 << 20):
            progress("Unpacking", done, 4 << 20)
        progress("Loading", 0, 0)
    return stream.getvalue()


def test_elsewhere_each_stage_is_a_line() -> None:
    assert "Fetching ...\nUnpacking ...\nLoading ...\n" == load(io.StringIO())


def test_on_a_terminal_known_sizes_are_bars() -> None:
    shown = load(Terminal())
    assert shown.startswith("Fetching ...")
    assert "Unpacking ━" in shown
    assert "4.2/4.2 MB" in shown
    # The bar is finished before the next line is written.
    assert shown.index("4.2/4.2 MB") < shown.index("Loading ...")
    assert shown.endswith("Loading ...\n")


def test_a_bar_is_ended_when_loading_fails() -> None:
    stream = Terminal()

    def load_in_vain() -> None:
        with LoadingDisplay(console_on(stream)) as progress:
            progress("Unpacking", 1, 2)
            raise ModelError("The disk is full")

    with pytest.raises(ModelError):
        load_in_vain()
    assert stream.getvalue().endswith("\x1b[?25h")  # the cursor is visible again


def test_a_scene_elsewhere_is_one_line() -> None:
    stream = io.StringIO()
    with scene_display(SCENE, console_on(stream)) as on_reply:
        on_reply("off")
        on_reply("on")
    assert "name: 2 requests with the cache off, then on ...\n" == stream.getvalue()


def test_a_scene_on_a_terminal_is_two_bars_that_go_away() -> None:
    stream = Terminal()
    with scene_display(SCENE, console_on(stream)) as on_reply:
        for mode in ("off", "off", "on"):
            on_reply(mode)
    shown = stream.getvalue()
    last = shown[shown.rindex("A scene, cache off") :]
    assert "2/2" in last
    assert "A scene, cache on" in last
    assert "1/2" in last
    assert "\x1b[2K" in last  # lines are erased
