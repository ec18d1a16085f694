"""Sends the groups of a run to an experiment tracker, in the order in which they became complete."""

from __future__ import annotations

import argparse
import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

from rollout._args import filepath, flag, instance, integer, one_of
from rollout._types import Group, Path
from rollout.errors import RolloutError, StateError
from rollout.runs import _store as store
from rollout.runs.follow import Following
from rollout.runs.scores import COLLECTED, open_scores, scores_name
from rollout.runs.select import Where
from rollout.tracking.metrics import example_of, failures_of, metrics_of
from rollout.tracking.trackers import TRACKERS, Tracker

FAILURES_EVERY = 30.0
"""The number of seconds after which the failures of a run are counted again."""

_logger = logging.getLogger("rollout.log_to")


def log_to(
    run: Path,
    to: str,
    *,
    project: str = "rollout",
    name: str | None = None,
    follow: bool = False,
    examples: int = 10,
    tokenizer: Any = None,
    scores: str | None = None,
) -> int:
    """Send the groups of a run to an experiment tracker. Return their number.

    Each group is a step, from 1, in the order in which the groups became complete. A step has rewards,
    lengths and numbers of samples (see rollout.tracking.metrics.metrics_of), and the number of samples
    that have failed so far, by class. Groups that are not complete are not sent.

    A call continues after the last group that was sent to the same tracker, project and name, so no
    group is sent twice. RUN/logs/tracker-TRACKER.json contains the places. Runs in a bucket have no such
    file, so a call sends all groups. Settings, servers and secrets are not sent; examples contain the
    text of rollouts.

    to: wandb, trackio, tensorboard or mlflow. Its package is imported; its own environment variables
        configure it, such as WANDB_MODE=offline or MLFLOW_TRACKING_URI. tensorboard writes to the
        folder PROJECT/NAME.
    name: the name of the run in the tracker; by default, the name of its folder.
    follow: wait for further groups until the run has ended.
    examples: send the text of one rollout for each `examples` groups; 0 sends none.
    tokenizer: decodes the examples, as in rollout.decode. If no tokenizer is known, no examples are sent.
    scores: the scores set from which the rewards come; see Dataset. The groups with the rewards of a set
        are a run of their own in the tracker: the name of the set is appended to its name, such as run1-0001.

    Raises ImportError if the tracker's package is missing, and the errors of rollout.Following.
    """
    filepath("run", run)
    one_of("to", to, TRACKERS)
    instance("project", project, str, "a string")
    instance("name", name, str, "a string", none=True)
    flag("follow", follow)
    integer("examples", examples, 0)
    scores_name(scores)
    store.check_run(os.fspath(run))
    found = open_scores(os.fspath(run), scores)
    rewards = COLLECTED if found is None else found.name
    name = name or os.path.basename(os.path.normpath(os.fspath(run).partition("?")[0]))
    name = name if found is None else f"{name}-{rewards}"
    sent = _Sent(run, to, f"{project}/{name}", rewards)
    following = Following(run, where=Where(keep="keep"), timeout=None if follow else 0.0, after=sent.cursor, scores=rewards)
    tracker = TRACKERS[to](project, name, _config(run, rewards), sent.id, sent.step)
    begun = sent.step
    try:
        _send(following, tracker, sent, examples, tokenizer)
    finally:
        tracker.close()
    return sent.step - begun


def _send(following: Following, tracker: Tracker, sent: _Sent, examples: int, tokenizer: Any) -> None:
    """Send the groups that were not sent yet, and then the failures after the last group."""
    counted, failures = 0.0, sent.failures
    for group in _complete(following):
        step = sent.step + 1
        if time.monotonic() - counted > FAILURES_EVERY:
            failures, counted = failures_of(following.run), time.monotonic()
        text = None
        if examples and group.rows and (step - 1) % examples == 0:
            try:
                text = example_of(group, tokenizer)
            except (ValueError, OSError, ImportError) as err:
                _logger.warning("no examples are sent: %s", err)
                examples = 0
        tracker.log(step, {**metrics_of(group), **failures}, text)
        sent.save(step, following.cursor, tracker.id, failures)
    failures = failures_of(following.run)
    if failures != sent.failures:
        tracker.log(sent.step, failures, None)
        sent.save(sent.step, following.cursor, tracker.id, failures)


def _complete(following: Following) -> Iterator[Group]:
    """Yield the groups that are complete. A timeout of the tracker is not mistaken for the end of the log."""
    groups = iter(following)
    while True:
        try:
            group = next(groups)
        except (StopIteration, TimeoutError):
            return
        yield group


class _Sent:
    """The place after the last group that was sent to a run in the tracker, in a file in the run's folder. The file
    has a place for each run in the tracker, so that alternating between two scores sets sends nothing twice."""

    def __init__(self, run: Path, to: str, where: str, scores: str) -> None:
        self._path = None if store.remote(run) else os.path.join(run, "logs", f"tracker-{to}.json")
        self._where, self._scores = where, scores
        self.step, self.cursor, self.id, self.failures = 0, None, None, {}
        place = self._places().get(where)
        if place is None:
            return
        if place["scores"] != scores:
            raise ValueError(f"name: the run {where} in {to} has the rewards of the scores set {place['scores']}, not of {scores}: pass another name")
        self.step, self.cursor, self.id, self.failures = place["step"], place["cursor"], place["id"], place["failures"]

    def _places(self) -> dict[str, dict[str, Any]]:
        if not self._path or not os.path.exists(self._path):
            return {}
        try:
            with open(self._path, encoding="utf-8") as file:
                places = json.load(file)
            if not all({"scores", "step", "cursor", "id", "failures"} <= place.keys() for place in places.values()):
                raise ValueError("it is not a list of places")
        except (ValueError, AttributeError) as err:
            raise StateError(f"{self._path}: not the places of log-to: {err}; without the file, all groups are sent again") from err
        return dict(places)

    def save(self, step: int, cursor: dict[str, Any], id: str, failures: dict[str, float]) -> None:
        self.step, self.failures = step, failures
        if self._path:
            place = {"scores": self._scores, "step": step, "cursor": cursor, "id": id, "failures": failures}
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            with open(self._path + ".tmp", "w", encoding="utf-8") as file:
                json.dump({**self._places(), self._where: place}, file)
            os.replace(self._path + ".tmp", self._path)


def _config(run: Path, scores: str) -> dict[str, Any]:
    """Return what identifies the run and its rewards: no addresses and no other settings."""
    info = _json_of(run, "run.json")
    config = info.get("config") or {}
    found = {"run_id": info.get("id"), "model": (config.get("agent") or {}).get("model"), "reward": (config.get("reward") or {}).get("kind")}
    if scores != COLLECTED:
        found |= {"scores": scores, "reward": (_json_of(run, "scores", scores, "scores.json").get("scorer") or {}).get("kind")}
    return {key: value for key, value in found.items() if value}


def _json_of(run: Path, *path: str) -> dict[str, Any]:
    try:
        return dict(json.loads(store.read(store.join(run, *path))))
    except FileNotFoundError:
        return {}


def main(args: Sequence[str]) -> int:
    """Run `python -m rollout log-to`, and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m rollout log-to", description="Send the groups of a run to an experiment tracker.")
    parser.add_argument("to", choices=TRACKERS, help="the tracker; its package must be installed")
    parser.add_argument("run", help="the run's folder or URL")
    parser.add_argument("--project", default="rollout", help="the project or experiment (default rollout)")
    parser.add_argument("--name", help="the name of the run in the tracker (default: the name of the folder)")
    parser.add_argument("--follow", action="store_true", help="wait for further groups until the run has ended")
    parser.add_argument("--examples", type=int, default=10, metavar="N", help="send one rollout for each N groups; 0 sends none (default 10)")
    parser.add_argument("--scores", metavar="NAME", help='use the rewards of this scores set, or "collected" (default: the newest complete set)')
    parser.add_argument("--tokenizer", metavar="DIR", help="the folder with the model's tokenizer (default: the tokenizer of the run)")
    given = vars(parser.parse_args(args))
    logging.basicConfig(level=logging.WARNING, format="rollout: %(message)s")
    try:
        sent = log_to(given.pop("run"), given.pop("to"), **given)
    except KeyboardInterrupt:
        return 130
    except (ImportError, OSError, ValueError, RolloutError) as err:
        parser.exit(1, f"rollout: log-to: {err}\n")
    print(f"rollout: sent {sent} group{'' if sent == 1 else 's'}")
    return 0
