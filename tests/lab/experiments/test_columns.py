"""The paper's configurations: both tables of its appendix, as it prints them."""

import inspect
import re
from dataclasses import replace

import pytest

from lrpe import LrpeError
from lrpe.lab.experiments import run as experiment_run
from lrpe.lab.experiments.build import build_config, build_task
from lrpe.lab.experiments.columns import COLUMNS, find_column
from lrpe.lab.experiments.cost import estimate
from lrpe.lab.experiments.methods import SEVEN, SIX
from lrpe.lab.experiments.scale import SCALES, paper, small, smoke

APPENDIX = """
| | ALM | BLM | IM |
| Vocab size | 267744/50265 | 50265 | - |
| Layers | 6 | 12 | 12 |
| Hidden dimensions | 512 | 768 | 384 |
| Number of heads | 8 | 12 | 6 |
| FFN dimensions | 2048 | 3072 | 1536 |
| FFN activation function | relu | gelu | gelu |
| Sequence length | 512 | 512 | - |
| Total batch size | 128 | 512 | 1600 |
| Number of updates | 50k updates | 23k updates | 300 epochs |
| Warmup steps | 4k steps | 3k steps | 20 epochs |
| Peak learning rate | 5e-4 | 5e-4 | 5e-4 |
| Learning rate scheduler | inverse-sqrt | polynomial | cosine |
| Optimizer | adam | adam | adamw |
| Adam eps | 1e-8 | 1e-6 | 1e-8 |
| Adam betas | 0.9, 0.98 | 0.9, 0.98 | 0.9, 0.98 |
| Weight decay | 0.01 | 0.01 | 0.05 |
"""  # its length of 51 is an erratum
APPENDIX_ARENA = """
| Task | Feature dim | Layer | Norm | Batch size | Epoch | Lr |
| Text | 128 | 4 | BN | 256 | 32 | 0.001 |
| ListOps | 128 | 4 | BN | 256 | 40 | 0.0001 |
| Retrieval | 64 | 4 | BN | 64 | 20 | 0.001 |
| Pathfinder | 32 | 4 | BN | 128 | 200 | 0.0005 |
| Image | 100 | 12 | BN | 100 | 200 | 0.001 |
"""


def read(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()]


def amount(text: str) -> tuple[float, str]:
    """50k updates -> (50000, "updates")."""
    number, word = text.split()
    return float(number.replace("k", "000")), {"steps": "updates"}.get(word, word)


def planned(updates: float, epochs: float) -> tuple[float, str]:
    return (epochs, "epochs") if epochs else (updates, "updates")


@pytest.mark.parametrize(
    ("column", "name", "vocabulary"),
    [("wikitext103", "ALM", 267744), ("books", "ALM", 50265), ("wikibook", "BLM", 50265), ("imagenet", "IM", None)],
)
@pytest.mark.parametrize("method", ["base", "type2"])
def test_a_paper_configuration_is_the_appendix_table(column, name, vocabulary, method):
    header, *rows = read(APPENDIX)
    said = {row[0]: row[header.index(name)] for row in rows}
    experiment = paper(COLUMNS[column](method))
    config, plan = build_config(experiment, {}), experiment.training.optimization
    assert [config.num_hidden_layers, config.hidden_size, config.num_attention_heads, config.intermediate_size] == [
        int(said[key]) for key in ("Layers", "Hidden dimensions", "Number of heads", "FFN dimensions")
    ]
    assert config.hidden_act == said["FFN activation function"]
    if vocabulary is not None:
        assert config.vocab_size == vocabulary
        assert str(vocabulary) in said["Vocab size"].split("/")
        assert experiment.data.options["length"] == config.max_position_embeddings == int(said["Sequence length"])
    assert plan.batch == int(said["Total batch size"])
    assert planned(plan.updates, plan.epochs) == amount(said["Number of updates"])
    assert planned(plan.warmup, plan.warmup_epochs) == amount(said["Warmup steps"])
    assert plan.rate == float(said["Peak learning rate"])
    assert plan.schedule == said["Learning rate scheduler"]
    assert plan.optimizer == said["Optimizer"]
    assert plan.eps == float(said["Adam eps"])
    assert plan.betas == tuple(float(beta) for beta in said["Adam betas"].split(","))
    assert plan.weight_decay == float(said["Weight decay"])


@pytest.mark.parametrize("row", read(APPENDIX_ARENA)[1:], ids=lambda row: row[0])
def test_a_paper_configuration_of_long_range_arena_is_the_appendix_table(row):
    task, width, layers, norm, batch, epochs, rate = row
    experiment = paper(COLUMNS[f"lra-{task.lower()}"]("base"))
    config, plan = build_config(experiment, {}), experiment.training.optimization
    assert norm == "BN"
    assert config.norm == "batch"
    assert (config.hidden_size, config.num_hidden_layers) == (int(width), int(layers))
    assert (plan.batch, plan.epochs, plan.rate) == (int(batch), float(epochs), float(rate))


def test_glue_begins_with_the_masked_language_model_of_its_row_setting_and_seed():
    experiment = small(COLUMNS["glue-cola"]("per", "authors")).with_seed(3).with_data({})
    start = experiment.start
    assert start is not None
    assert (start.column, start.method, start.setting, start.scale) == ("wikibook", "per", "authors", "small")
    assert start.training.seed == 3
    assert start.data.name == "stdlib"


def test_data_that_is_named_is_read_and_the_paper_scale_has_no_stand_ins():
    there = small(COLUMNS["wikitext2"]()).with_data({"wikitext2": "somewhere"})
    assert (there.data.name, there.data.path) == ("wikitext2", "somewhere")
    assert small(COLUMNS["wikitext2"]()).with_data({}).data.name == "stdlib"
    assert paper(COLUMNS["wikitext2"]()).with_data({"wikitext2": "hub"}).data.hub
    with pytest.raises(LrpeError, match="needs files: get them from"):
        paper(COLUMNS["wikitext2"]()).with_data({}).data.load()


def test_what_every_machine_has_stands_in_at_the_paper_scale_if_told_so():
    made = paper(COLUMNS["lra-listops"]()).with_data({"lra-listops": "here"}).data
    assert (made.name, made.path, made.options) == ("listops", None, {})  # of its authors' sizes
    assert paper(COLUMNS["glue-cola"]()).with_data({"wikibook": "here"}).start.data.name == "stdlib"


def test_another_dataset_of_the_same_kind_can_be_named_in_front_of_its_path():
    pairs = small(COLUMNS["lra-retrieval"]()).with_data({"lra-retrieval": "citations:papers"}).data
    assert (pairs.name, pairs.path, pairs.options) == ("citations", "papers", {"length": 512})
    assert paper(COLUMNS["lra-retrieval"]()).with_data({"lra-retrieval": "stdlib-pairs:here"}).data.path is None
    with pytest.raises(LrpeError, match=r"data of lra-retrieval must be of kind pair; got listops, .* kind sequence"):
        small(COLUMNS["lra-retrieval"]()).with_data({"lra-retrieval": "listops:here"})


@pytest.mark.parametrize(("column", "known"), [("imagenet", "mixup"), ("wikibook", "whole_words")])
def test_an_option_that_the_task_does_not_have_is_named_with_those_that_it_has(column, known):
    experiment = replace(smoke(COLUMNS[column]()).with_data({}), options={"wrong": 1})
    with pytest.raises(LrpeError, match=f"There is no option of the task of {column} named 'wrong'.*{known}"):
        build_task(experiment)


@pytest.mark.parametrize("column", COLUMNS)
def test_every_column_says_where_it_is_from_and_how_it_departs(column):
    notebook = inspect.getdoc(COLUMNS[column]) or ""
    assert re.search(r"^Departures:\n- \w", notebook, re.MULTILINE), notebook


def test_a_small_language_model_is_estimated_with_the_vocabulary_that_it_reads():
    cost = estimate(small(COLUMNS["wikitext103"]()).with_data({}))
    assert cost.parameters < 1e6


class Asked:
    """A task that remembers how it was asked for batches."""

    def batches(self, split, size, **shares):
        self.size, self.limit = size, shares["limit"]
        return self

    def epoch(self, number):
        return []


@pytest.mark.parametrize(("evaluation_batch", "size", "limit"), [(0, 2, 8), (3, 3, 6)])
def test_the_end_of_a_run_is_scored_in_batches_that_fit(monkeypatch, evaluation_batch, size, limit):
    monkeypatch.setattr(experiment_run, "evaluate", lambda task, model, batches, device: {})
    experiment, asked = smoke(COLUMNS["stdlib"]()), Asked()
    training = replace(experiment.training, micro_batch=2, evaluation_batch=evaluation_batch)
    experiment_run.score_split(replace(experiment, training=training), asked, None, "validation", "cpu")
    assert (asked.size, asked.limit) == (size, limit)  # two batches, of the update's size or of evaluation's


@pytest.mark.parametrize("scale", SCALES.values())
def test_every_scale_can_be_estimated_for_every_column(scale):
    for name, column in COLUMNS.items():
        experiment = column("type2")
        if scale not in (SCALES["demo"], SCALES["medium"]) or experiment.kind == "language":
            cost = estimate(scale(experiment))
            assert cost.parameters > 0, name
            assert cost.flops > 0 or experiment.samples == 0, name


def test_the_estimate_of_the_papers_language_model_is_six_operations_a_weight_and_token():
    cost = estimate(paper(COLUMNS["wikitext103"]("base")))
    assert cost.tokens == 50_000 * 128 * 512
    weights = 6 * (4 * 512**2 + 2 * 512 * 2048) + 267744 * 512
    sums = 6 * 4 * 512 * 64
    assert cost.flops == pytest.approx(3 * (2 * weights + sums) * cost.tokens, rel=0.01)
    assert cost.parameters == pytest.approx(156e6, rel=0.01)


@pytest.mark.parametrize(("method", "millions"), [("base", 22.04), ("rope", 22.04), ("type1", 22.05), ("type2", 22.05)])
def test_deit_small_has_the_papers_parameters_as_its_authors_ran_it(method, millions):
    cost = estimate(paper(COLUMNS["imagenet"](method, "authors")))
    assert cost.parameters / 1e6 == pytest.approx(millions, abs=0.006)


def test_a_smoke_experiment_keeps_its_row_and_setting():
    for method in (*SEVEN, *SIX):
        experiment = smoke(COLUMNS["lra-text"](method, "authors"))
        assert (experiment.method, experiment.setting, experiment.column) == (method, "authors", "lra-text")


def test_an_unknown_column_is_named_with_the_nearest():
    with pytest.raises(LrpeError, match="Did you mean 'wikitext2'"):
        find_column("wikitex2")
