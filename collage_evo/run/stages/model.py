"""From the person's file to a model that runs, and to one that is searched."""

from __future__ import annotations

from collage_evo.fitness.measure.references import RECORDED, nonfinite_references, write_references
from collage_evo.graph.files import save_model
from collage_evo.graph.prepare import PreparedModel, SearchableModel, prepare_model, searchable
from collage_evo.graph.values import save_values
from collage_evo.run.context import Workplace
from collage_evo.run.stages.samples import keep_samples, own_samples
from collage_evo.target.slots import usable_cores


def prepare(place: Workplace) -> PreparedModel:
    """Read the model and compute reference outputs; leave them and all samples where measuring processes look."""
    with place.stage("model"):
        config = place.config
        own = own_samples(place)
        model = prepare_model(
            config.model.source,
            config.model.one_profile(),
            config.model.seed,
            config.verify.inputs,
            threads=len(usable_cores()),
            feeds=[sample.feeds for sample in own.search[: config.verify.inputs]] if own else (),
            any_shapes=config.model.sizes == "smallest",
            patience_s=config.fitness.timeout_s,
        )
        save_model(model.original, place.files.original)
        if model.dynamic is not None:
            save_model(model.dynamic, place.files.dynamic)
        write_references(place.files.reference, model.references)
        if config.verify.nonfinite == "kept":
            feeds, expected = model.references[0]
            names = (list(feeds), list(expected))
            spoiled = nonfinite_references(model.original, feeds, names, threads=len(usable_cores()))
            write_references(place.files.nonfinite, spoiled)
        keep_samples(place, model, own)
    return model


def normalise(run: Workplace, model: PreparedModel) -> SearchableModel:
    """Bring the model into the form that is searched.

    Raises:
        NotSearchable: it only runs whole.
    """
    from collage_evo.graph.normalise import Rules  # onnxscript is slow to import

    with run.stage("normalising the model"):
        found = searchable(model, threads=len(usable_cores()))
        save_model(found.graph.model, run.files.normalised)
        save_values(run.files.recorded, {RECORDED: found.recorded})
    if found.rules is not Rules.ALL:
        run.reporter.say(f"the model is simplified only as far as its outputs stay the same: {found.rules.value}")
    return found
