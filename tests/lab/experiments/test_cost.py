"""How long a dry run says that training would take."""

from lrpe.lab.cli import main
from lrpe.lab.experiments.columns import cifar10, find_column, stdlib
from lrpe.lab.experiments.cost import Speed, estimate, measure_speed
from lrpe.lab.experiments.scale import find_scale


def test_the_speed_of_this_machine_is_measured_on_a_model():
    speed = measure_speed(seconds=0)
    assert 1e-6 < speed.tflops < 1e4
    assert speed.source.startswith("measured here (")
    assert "3 layers of width 128" in speed.source


def test_a_dry_run_is_estimated_at_the_speed_of_this_machine_and_says_so(monkeypatch, capsys):
    monkeypatch.setattr("lrpe.lab.experiments.cost.measure_speed", lambda: Speed(0.05, "measured here (threads: 2)"))
    words = ["table", "lm", "--dry-run", "--rows", "base", "--columns", "stdlib"]
    assert main(words) == 0
    slow = capsys.readouterr().out
    assert "1 run, 67 s in all. Times are at 0.05 TFLOP/s, measured here (threads: 2)" in slow
    assert main([*words, "--tflops", "0.0005"]) == 0
    assert "111 min in all. Times are at 0.0005 TFLOP/s, from --tflops" in capsys.readouterr().out


def test_gates_convolutions_and_softmax_layers_are_counted():
    plain, extras, hybrid = (
        estimate(find_scale("small")(stdlib(row))) for row in ("spread", "spread-gate-conv", "hybrid")
    )
    added = 3 * (128 * 128 + 3 * 128 * 4)  # three layers with a gate and 4 weights per channel of q, k and v
    assert extras.parameters - plain.parameters == added + 3 * 128  # and a bias
    assert extras.flops - plain.flops == 3 * 2 * added * plain.tokens
    assert hybrid.parameters == plain.parameters
    assert hybrid.flops - plain.flops == 3 * 4 * 128 * (256 - 32) * plain.tokens  # every token instead of the state


def test_a_probe_is_estimated_with_its_own_vocabulary_and_the_whole_sequence():
    probe = find_scale("small")(find_column("parity")("type2"))
    cost, plan = estimate(probe), probe.training.optimization
    assert cost.parameters < 100_000  # two layers of width 64, and a handful of symbols
    assert cost.tokens == plan.updates * plan.batch * 33  # a start and 32 bits


def test_every_row_of_images_can_be_estimated_without_its_weights():
    for row in ("type2", "mixed"):
        assert estimate(find_scale("small")(cifar10(row))).parameters > 10_000
