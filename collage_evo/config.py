"""The configuration: frozen models of YAML and ``-s key=value`` overrides, which forbid unknown keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import platformdirs
import yaml
from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
    with_config,
)

from collage_evo.accuracy.budget import Budget, checked_budget
from collage_evo.accuracy.choose import checked_name
from collage_evo.accuracy.judge import Over
from collage_evo.config_errors import explain
from collage_evo.config_model import ModelConfig, Section
from collage_evo.effort import USUAL, Effort, with_effort
from collage_evo.errors import ConfigError, InputError
from collage_evo.files import reading
from collage_evo.genome.settings import GaSettings
from collage_evo.hardware.accelerator import devices
from collage_evo.hardware.levels import LEVELS
from collage_evo.hardware.target import CPU
from collage_evo.policy import Policy
from collage_evo.runtime.timing import TimingSettings
from collage_evo.yaml_values import Overrides, Refused, load_yaml, overridden


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class Settings(GaSettings):
    """The genetic search's own settings; unknown ones are an error here."""


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class PolicyConfig(Policy):
    """The policy; unknown values are an error here."""


class DataConfig(Section):
    source: str | None = Field(
        None,
        description="Your own inputs in place of random ones; their shapes fix dynamic dimensions: an .npz with "
        "arrays by input name, or a folder of a NAME.npy for each input, whose leading axis is that of the samples; "
        "a folder of an .npz for each sample, or of test_data_set_*/input_*.pb; or file.py:function, which yields a "
        "mapping of arrays for each sample.",
    )


class AccuracyConfig(Section):
    budget: Annotated[float | str, AfterValidator(checked_budget)] = Field(
        0.02,
        description="Largest error of the answer. Without a metric: the relative error (2-norm) of any output over "
        "the samples; the default leaves room for bfloat16, which OpenVINO takes by itself where it is fast. With a "
        "metric: its largest drop, as 0.01, or as 1% of what the model reaches in float32. exact: float32 only.",
    )
    metric: Annotated[str, AfterValidator(checked_name)] = Field(
        "",
        description="Metric that the budget limits, not the relative error. Without labels: agreement (share of "
        "largest outputs that stay), cosine and recall@10 (embeddings; share of nearest neighbours that stay), psnr "
        "(images), text (CTC), exact_match (tokens). With labels: top1, top5. Or file.py:function(outputs, items) "
        "that gives one number, higher is better: outputs has a mapping of arrays for each sample, items that "
        "sample's inputs and labels (arrays in the data that are no inputs).",
    )
    over: Over = Field(
        "all", description="Which error the budget bounds: that of all samples together, or that of the worst one."
    )
    seed: int = Field(0, description="Of the split of your samples into calibration, search and held-out.")
    calibration: PositiveInt = Field(
        300,
        description="Most samples that ranges of int8 are taken from. More: ranges that fit rare inputs; time before "
        "the search.",
    )
    seconds: PositiveFloat = Field(
        USUAL["accuracy.seconds"],
        description="Time for taking the ranges of int8, and as much for measuring what each operator loses in a "
        "lower precision, seconds; what is not measured by then is estimated. More: better mixtures of precisions in "
        "models of many operators.",
    )
    search: PositiveInt | None = Field(
        None,
        description="Most samples that each placement's error is measured on; by default 128, without a metric 32 of "
        "a slow model. More: smaller differences of errors are seen; fewer placements measured in the same time.",
    )
    held_out: PositiveInt = Field(
        300,
        description="Most samples that the search never sees, for the answer's error. More: a narrower interval; "
        "time at the end.",
    )
    batch_invariant: bool = Field(
        False,
        description="Admit only answers whose outputs for a row move in a batch and beside padding at most twice as "
        "far as those in float32, or by 1e-5. Where an answer takes open sizes the run measures this anyway.",
    )
    int8_without_data: bool = Field(False, description="Let static int8 take part with ranges from random inputs.")

    @model_validator(mode="after")
    def _is_no_percentage(self) -> AccuracyConfig:
        value = Budget.read(self.budget).value
        if value is not None and value > 1.0 and not self.metric:
            raise ValueError(f"budget {self.budget} is an error of {value:.0%}: 2 % is 0.02, or 2%")
        return self


def _distinct(cores: list[int]) -> list[int]:
    if len(set(cores)) < len(cores):
        raise ValueError(f"{cores} names a core more than once: name each once")
    return cores


def _known_level(level: str | None) -> str | None:
    if level is not None and level not in LEVELS:
        raise ValueError(f"there is no processor {level}: take {', '.join(LEVELS)}")
    return level


def _known_device(device: str) -> str:
    if device not in (known := (CPU, *devices())):
        raise ValueError(f"no plug-in serves {device}: take {' or '.join(known)}, or install the plug-in that does")
    return device


class TargetConfig(Section):
    device: Annotated[str, AfterValidator(_known_device)] = Field(
        CPU, description="Device that latency is measured on."
    )
    threads: PositiveInt = Field(
        1,
        description="Threads that a placement may use. More: faster runs, as far as there are cores; fewer sessions "
        "at once.",
    )
    cores: Annotated[list[int], AfterValidator(_distinct)] = Field(
        default_factory=list, description="Cores to measure on; empty for all."
    )
    processor: Annotated[str | None, AfterValidator(_known_level)] = Field(
        None,
        description="A lesser processor that the answer is for: avx2, avx512 or avx512_bf16. The run is held to its "
        "instructions, on the caches and the clock of this one.",
    )

    @property
    def accelerated(self) -> bool:
        """Whether pieces may run on an accelerator beside the host."""
        return self.device != "cpu"


class BackendConfig(Section):
    trials: int = Field(
        0,
        ge=0,
        description="Ways of running its kernels that it may time, those on record from other runs included. More: "
        "faster kernels; seconds for each way.",
    )


class BackendsConfig(Section):
    """``use``, and settings of single backends under their names."""

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, BackendConfig] = Field(init=False)
    use: list[str] = Field(default_factory=list, description="Backends that take part; empty for every usable one.")
    seconds: PositiveFloat = Field(
        USUAL["backends.seconds"],
        description="Time for measuring single backends, seconds: of those that compile for long or take few models, "
        "none that is not done by then takes part, unless use names it. More: more libraries to choose from.",
    )

    @property
    def trials(self) -> dict[str, int]:
        """Tuning budgets by backend, those above zero."""
        return {name: backend.trials for name, backend in self.__pydantic_extra__.items() if backend.trials}


class TimingConfig(Section):
    warmup: int = Field(
        2, ge=0, description="Untimed runs first. More: less of the first runs' slowness in the times."
    )
    min_runs: PositiveInt = Field(5, description="Least number of timed runs. More: less noise, fewer measurements.")
    min_seconds: PositiveFloat = Field(0.05, description="Least time spent in timed runs, seconds. More: the same.")
    max_seconds: PositiveFloat = Field(3.0, description="Bound on all runs of one measurement, seconds.")

    def settings(self) -> TimingSettings:
        return TimingSettings(self.warmup, self.min_runs, self.min_seconds, self.max_seconds)


class CostsConfig(Section):
    timing: TimingConfig = Field(
        TimingConfig(warmup=3, min_runs=9, min_seconds=0.002, max_seconds=3.0),
        description="How each match is timed.",
    )
    seconds: PositiveFloat = Field(
        USUAL["costs.seconds"],
        description="Time for measuring costs, seconds; what is not measured by then is estimated. More: the search "
        "begins with better placements, and later.",
    )
    flush: bool = Field(True, description="Flush the caches between runs, as inside a model weights are cold.")
    far_behind: float = Field(
        4.0,
        gt=1,
        description="A match this many times slower than the best is dropped early. More: fewer wrong guesses "
        "dropped; time spent on slow ones.",
    )


class FitnessConfig(Section):
    timing: TimingConfig = Field(
        TimingConfig(warmup=4, min_runs=7, min_seconds=0.3, max_seconds=6.0),
        description="How each placement is timed end to end.",
    )
    executor: Literal["local", "dask"] = Field(
        "local",
        description="Where placements are measured: on this machine, or on a Dask cluster of its kind.",
    )
    address: str = Field("", description="The cluster's scheduler: tcp://10.0.0.1:8786.")
    margin: PositiveFloat = Field(
        0.1, description="A worker whose reference placement takes this share more or less is left out."
    )
    timeout_s: PositiveFloat | None = Field(
        None,
        description="A measuring process silent for longer is killed, seconds. By default 120, and 60 more for each "
        "GB of the model's weights.",
    )
    memory_gb: PositiveFloat | None = Field(
        None,
        description="A measuring process that uses more is killed, GiB. By default 8, or six times the model's "
        "weights, and at most three quarters of the memory of the machine or its container.",
    )
    give_up: float = Field(
        2.0,
        gt=1,
        description="A placement this many times slower than the best single backend is dropped. More: the search "
        "learns from slow ones too, at their length.",
    )


class SearchConfig(Section):
    objective: Literal["latency", "throughput"] = Field(
        "latency", description="latency: the shortest single run. throughput: the most runs per second of all cores."
    )
    seconds: PositiveFloat | None = Field(
        None,
        description="Budget of the genetic search, seconds; .inf for no limit. By default at most 45; without a "
        "limit of evaluations less, down to 15, if the stages before it took long: the aim is 100 seconds for a "
        "whole run, more for a slow model. More: more placements measured; most gain comes early.",
    )
    evaluations: PositiveInt | None = Field(None, description="Budget of measured placements. More: as with seconds.")
    rewrites: bool = Field(True, description="Try equal graphs too: docs/rewrites.md. It takes time for costs.")
    ga: Settings = Field(Settings(), description="Hyperparameters of the genetic search.")
    like: str | None = Field(
        None,
        description="Directory of a run of the same model with other weights, or of nearly the same one: its answer "
        "and front are what is measured, its costs are taken over, and a run takes seconds.",
    )
    tune: bool = Field(
        False,
        description="Tune search.ga first, on simulated targets learned from the seeds. It takes tune.seconds.",
    )


class TuneConfig(Section):
    trials: PositiveInt = Field(60, description="Trials in all. More: better settings, more time.")
    seconds: PositiveFloat = Field(120.0, description="Time for all trials, on top of the search's budget, seconds.")
    evaluations: PositiveInt = Field(60, description="Evaluations (predicted) of each search that a trial makes.")
    targets: PositiveInt = Field(2, description="Simulated targets a trial averages over.")
    space: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="GA setting -> {low, high, log?, step?} or {choices: [...]}; empty for a default space.",
    )


class VerifyConfig(Section):
    tolerance: PositiveFloat = Field(
        1e-3,
        description="Largest relative error (2-norm) of any output in float32 arithmetic: a backend that is further "
        "off is wrong. Lower precisions are judged by accuracy.budget.",
    )
    inputs: PositiveInt = Field(
        3,
        description="Inputs, random or your own, that outputs are checked on. More: rarer faults found; "
        "time for each check.",
    )
    nonfinite: Literal["any", "kept"] = Field(
        "any",
        description="kept: what loses NaN or infinity takes no part. Parts and whole models are then run on inputs "
        "with one of them in each array too.",
    )

    @property
    def keeps_nonfinite(self) -> bool:
        """Whether what loses NaN or infinity takes no part."""
        return self.nonfinite == "kept"


class FinalConfig(Section):
    candidates: PositiveInt = Field(
        2,
        description="Placements that race for being the answer: by the learned model and by their times in turn, "
        "and the last of them with a margin below the budget of error. More: less depends on single times of the "
        "search; rounds take longer.",
    )
    rounds: int = Field(
        28,
        ge=2,
        description="Most rounds in which placements and the best baselines are loaded anew and take "
        "turns: the race is over as soon as it is decided. More: smaller gains can be proved.",
    )
    seconds: PositiveFloat = Field(
        USUAL["final.seconds"],
        description="Time for the rounds of the final comparison, seconds, or 40 runs of the slowest contestant "
        "where these take longer; three rounds at least. A candidate that it cannot prove to be faster is not the "
        "answer. More: smaller gains can be proved.",
    )
    speeds: Literal["both", "searched"] | None = Field(
        None,
        description="Whether the answer is timed by the other objective too: in a single session, and in sessions on "
        "all cores. By default both, unless a run takes half a second.",
    )


class OutputConfig(Section):
    dir: str | None = Field(None, description="Run directory; by default runs/ and the configuration's name.")


class CacheConfig(Section):
    dir: str | None = Field(None, description="Where compiled regions are kept between runs.")
    max_gb: PositiveFloat | None = Field(
        None,
        description="Bound on the compiled regions that are kept, GB. By default 6, or four times the model's "
        "weights. More: later runs compile less.",
    )


class SweepConfig(Section):
    trials: PositiveInt = Field(20, description="Runs of the sweep in all, resumed ones included.")
    parallel: PositiveInt = Field(
        1, description="Runs at a time: on one machine each has its share of the cores, a cluster is shared by all."
    )
    sampler: Literal["tpe", "random", "grid"] = Field("tpe", description="How values are chosen.")
    metric: Literal["speedup", "latency"] = Field(
        "speedup", description="What counts: the best placement over the best single backend, or the answer's ms."
    )
    seed: int = Field(0, description="Of the sampler.")
    space: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="Key of the configuration -> {low, high, log?, step?} or {choices: [...]}.",
    )


class Config(Section):
    """Everything a run needs."""

    model: ModelConfig
    effort: Effort = Field(
        "normal",
        description="How much time a run may take in all: quick is about half a minute for a network of 30 ms on one "
        "thread, normal a hundred seconds, thorough a quarter of an hour. It sets the defaults of other keys, which "
        "config shows.",
    )
    time: Annotated[float, Field(ge=5.0)] | None = Field(
        None,
        description="Seconds after which a run ends with the best answer so far, whether or not it was compared in "
        "turns. Stages have shares of it, which config shows; below 45 the default effort is quick. resume ignores "
        "it.",
    )
    data: DataConfig = DataConfig()
    accuracy: AccuracyConfig = AccuracyConfig()
    target: TargetConfig = TargetConfig()
    backends: BackendsConfig = BackendsConfig()
    costs: CostsConfig = CostsConfig()
    fitness: FitnessConfig = FitnessConfig()
    search: SearchConfig = SearchConfig()
    verify: VerifyConfig = VerifyConfig()
    final: FinalConfig = FinalConfig()
    output: OutputConfig = OutputConfig()
    cache: CacheConfig = CacheConfig()
    tune: TuneConfig = TuneConfig()
    sweep: SweepConfig = SweepConfig()
    policy: PolicyConfig = Field(
        PolicyConfig(),
        description="Thresholds, shares and efforts that decide which placement wins, or how long a run takes: for "
        "who compares methods. A run keeps those that are not the default ones.",
    )

    def untimed(self) -> Config:
        """The same without the limit of a whole run's time: a resumed run goes on until it is done."""
        return self.model_copy(update={"time": None})

    def replacing(self, section: str, **values: Any) -> Config:
        """The same with ``values``, which the program decided, in ``section``."""
        return self.model_copy(update={section: getattr(self, section).model_copy(update=values)})


def load_config(source: str, overrides: Sequence[str] = ()) -> Config:
    """Configuration from a YAML file; or defaults for a model given as ``.onnx`` file or ``builtin:NAME``.

    Raises:
        ConfigError: a key is unknown or a value not allowed; the message names it and the nearest key.
        InputError: no such file.
    """
    return parse_config(read_config(source), overrides, source)


def parse_config(data: Mapping[str, Any], overrides: Overrides, source: str) -> Config:
    """Configuration from plain values, changed by ``overrides``. Raises as :func:`load_config`."""
    try:
        return Config.model_validate(with_effort(overridden(data, overrides)))
    except ValidationError as error:
        raise ConfigError(f"{source}: {explain(error, Config)}") from error


def dump_config(config: Config, brief: bool = False) -> str:
    """The configuration as YAML, every key written out; if ``brief``, of the policy only what is not the default."""
    values = config.model_dump(mode="json", exclude={"policy"} if brief else None)
    if brief and config.policy.unusual:
        values["policy"] = config.policy.unusual
    return yaml.safe_dump(values, sort_keys=False)


def changed(config: Config, overrides: Overrides, source: str) -> Config:
    """``config``, changed by the user's ``overrides``. Raises as :func:`load_config`."""
    return parse_config(config.model_dump(), overrides, source)


def cache_directory(config: Config) -> Path:
    """Where costs and compiled regions are kept that runs share, links followed."""
    return Path(config.cache.dir or platformdirs.user_cache_dir("collage_evo")).resolve()


_TORCH = "torch.onnx.export(model, inputs, 'model.onnx')"
_OF_OTHERS = {
    **dict.fromkeys((".pt", ".pth", ".pt2", ".bin", ".safetensors"), _TORCH),
    **dict.fromkeys((".pb", ".h5", ".keras", ".tflite"), "tf2onnx"),
    ".pkl": "skl2onnx",
}
"""What writes an ONNX file of models in other forms."""


def read_config(source: str) -> dict[str, Any]:
    """The keys of a YAML file, or those that name a model, as plain values. Raises as :func:`load_config`."""
    if source.startswith("builtin:") or source.endswith((".onnx", ".ort")):
        return {"model": {"source": source}}
    path = Path(source)
    if path.is_dir():
        raise InputError(f"{source} is a directory: give a YAML configuration or an ONNX file")
    if not path.exists():
        raise InputError(f"no such file: {source}")
    if path.suffix in _OF_OTHERS:
        raise InputError(f"{source} is no ONNX file: write one with {_OF_OTHERS[path.suffix]}, and give that")
    with reading(path, "give a YAML configuration or an ONNX file", wrong="is neither YAML nor named .onnx"):
        try:
            data = load_yaml(path.read_text())
        except Refused as error:
            raise ConfigError(f"{source}: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{source} holds no keys: it needs at least model.source")
    return data
