"""The experiment trackers: wandb, trackio, tensorboard and mlflow. Their packages are optional."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any, Protocol


class Tracker(Protocol):
    """A run in an experiment tracker."""

    id: str
    """With this id, the next process continues the run."""

    def log(self, step: int, metrics: dict[str, float], example: str | None) -> None:
        """Send the numbers of a step, and the text of an example."""

    def close(self) -> None:
        """Send what is pending, and end."""


def package(name: str, needs: str) -> Any:
    """Import a package. needs: what pip installs."""
    try:
        return importlib.import_module(name)
    except ImportError as err:
        raise ImportError(f"this tracker needs: pip install {needs} ({err})") from err


class Wandb:
    """Without a network, set WANDB_MODE=offline. Console output, code and the state of git are not sent."""

    def __init__(self, project: str, name: str, config: dict[str, Any], id: str | None, step: int) -> None:
        self._wandb = package("wandb", "wandb")
        settings = self._wandb.Settings(
            console="off", disable_git=True, disable_code=True, disable_job_creation=True, x_disable_stats=True, x_disable_meta=True
        )
        self._run = self._wandb.init(project=project, name=name, config=config, id=id, resume="allow" if id else None, settings=settings)
        self.id = str(self._run.id)

    def log(self, step: int, metrics: dict[str, float], example: str | None) -> None:
        more = {} if example is None else {"example": self._wandb.Table(columns=["step", "text"], data=[[step, example]])}
        self._run.log({**metrics, **more}, step=step)

    def close(self) -> None:
        self._run.finish()


class Trackio:
    """Keeps the run on this machine, unless TRACKIO_SPACE_ID or TRACKIO_SERVER_URL is set."""

    def __init__(self, project: str, name: str, config: dict[str, Any], id: str | None, step: int) -> None:
        self._trackio = package("trackio", "trackio")
        self._run = self._trackio.init(project=project, name=name, config=config, resume="allow", embed=False, auto_log_gpu=False, auto_log_cpu=False)
        self.id = name

    def log(self, step: int, metrics: dict[str, float], example: str | None) -> None:
        more = {} if example is None else {"example": self._trackio.Markdown("\n".join("    " + line for line in example.splitlines()))}
        self._run.log({**metrics, **more}, step=step)

    def close(self) -> None:
        self._run.finish()


class TensorBoard:
    """Writes to the folder PROJECT/NAME. After an interruption, TensorBoard drops points after the last step that was
    recorded."""

    def __init__(self, project: str, name: str, config: dict[str, Any], id: str | None, step: int) -> None:
        writer = package("torch.utils.tensorboard", "torch tensorboard").SummaryWriter
        self.id = id or f"{project}/{name}"
        try:
            self._writer = writer(self.id, purge_step=step + 1 if id else None)
        except (FileExistsError, NotADirectoryError) as err:
            raise type(err)(f"{self.id}: TensorBoard needs a folder with this name, but a file is in its place: pass another project") from err
        if not id:
            self._writer.add_text("config", "\n".join(f"    {key}: {value}" for key, value in config.items()))

    def log(self, step: int, metrics: dict[str, float], example: str | None) -> None:
        for key, value in metrics.items():
            self._writer.add_scalar(key, value, step)
        if example is not None:  # indented, so it is not read as Markdown
            self._writer.add_text("example", "\n".join("    " + line for line in example.splitlines()), step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class Mlflow:
    """The server or the folder is in MLFLOW_TRACKING_URI."""

    def __init__(self, project: str, name: str, config: dict[str, Any], id: str | None, step: int) -> None:
        mlflow = package("mlflow", "mlflow")
        self._metric, self._client = mlflow.entities.Metric, mlflow.MlflowClient()
        if id is None:
            found = self._client.get_experiment_by_name(project)
            experiment = found.experiment_id if found else self._client.create_experiment(project)
            id = self._client.create_run(experiment, run_name=name).info.run_id
            for key, value in config.items():
                self._client.log_param(id, key, value)
        self.id = str(id)

    def log(self, step: int, metrics: dict[str, float], example: str | None) -> None:
        now = int(time.time() * 1000)
        self._client.log_batch(self.id, metrics=[self._metric(key, value, now, step) for key, value in metrics.items()])
        if example is not None:
            self._client.log_text(self.id, example, f"examples/{step:06d}.txt")

    def close(self) -> None:
        self._client.set_terminated(self.id)


TRACKERS: dict[str, Callable[..., Tracker]] = {"wandb": Wandb, "trackio": Trackio, "tensorboard": TensorBoard, "mlflow": Mlflow}
