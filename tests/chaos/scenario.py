"""The table of scenarios: `@scenario(NAME, WHAT)` before a function of a ChaosRun puts it there."""

import dataclasses
import typing

from chaos_run import SETTINGS

ALL = {}


@dataclasses.dataclass
class Scenario:
    name: str
    what: str
    act: typing.Callable
    settings: dict
    short: bool  # part of the minute's choice


def scenario(name, what, settings=None, short=False):
    def add(act):
        ALL[name] = Scenario(name, what, act, {**SETTINGS, **(settings or {})}, short)
        return act

    return add
