"""The choice of a device, and what is measured on a GPU, with a GPU that only records what it is asked."""

import pytest
import torch

from lrpe.attention.choices import Causal
from lrpe.errors import LrpeError
from lrpe.lab.benchmarks import block, decode, device, encoding, length, limit, peers, sides, step, timing, train, turns
from lrpe.lab.benchmarks.memory import peak_allocated, peak_resident
from lrpe.lab.cli import main

_MAKERS = (block.fixed, block.learned, block.ready)


@pytest.fixture
def shapes_only(monkeypatch):
    """A device whose tensors have no numbers; an operation with a tensor that was left on the CPU fails."""
    monkeypatch.setattr(device, "_chosen", torch.device("meta"))


@pytest.fixture
def gpu(monkeypatch):
    """A GPU that logs the calls; an event is one second after the one before it."""
    log: list[str] = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            log.append("record")

        def elapsed_time(self, end):
            return 1000.0

    monkeypatch.setattr(device, "_chosen", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: log.append("synchronize"))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 100)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: log.append("reset"))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 350)
    return log


@pytest.mark.parametrize("name", ["gpu", "mps", "", "cuda:x"])
def test_a_device_that_no_benchmark_measures_is_refused(name):
    with pytest.raises(LrpeError, match="device must be cpu, cuda or cuda:N; got device="):
        device.check_device(name)


def test_a_gpu_that_is_not_here_is_refused_before_anything_is_measured(capsys):
    number = torch.cuda.device_count()
    assert main(["bench", "encoding", "--device", f"cuda:{number}"]) == 2
    assert f"torch finds {number} CUDA devices" in capsys.readouterr().err


def test_time_on_a_gpu_is_between_two_events_after_it_is_idle(gpu):
    result = timing.interleave([timing.Timed("a", lambda: gpu.append("a"))], lambda: None, rounds=1, calls=2, before=1)
    assert gpu[-7:] == ["a", "synchronize", "record", "a", "a", "record", "synchronize"]
    assert result.ratios["a"].seconds == 0.5
    assert result.processor_share == 1
    timing.clock()
    assert gpu[-1] == "synchronize"


def test_turns_on_a_gpu_are_timed_by_events_too(gpu):
    found = turns.take_turns({"a": lambda: gpu.append("a")}, rounds=2)
    assert gpu[-5:] == ["synchronize", "record", "a", "record", "synchronize"]
    assert found.seconds["a"] == [1.0, 1.0]


def test_memory_of_a_gpu_is_its_allocators(gpu):
    for measure in (peak_allocated, peak_resident):
        assert measure(lambda: gpu.append("run")) == 250
        assert gpu[-3:] == ["reset", "run", "synchronize"]


def test_every_contender_of_the_encodings_is_on_the_device(shapes_only):
    x = device.place(torch.zeros(1, 2, 8, 16))
    for contender in encoding._own_contenders(8, 16):
        for task in encoding._tasks_of(contender, x):
            task.run()
    for task in encoding._table_tasks(8, 16):
        task.run()
    for peer in peers.rotary_peers(8, 16):
        if peer.rotate is not None:
            peer.rotate(x)
    peers.softmax_written_out(x, x, x, causal=True)


@pytest.mark.parametrize("name", [sides.DEFAULT, *sides.OTHERS, sides.BIDIRECTIONAL])
def test_every_side_of_attention_is_on_the_device(shapes_only, name):
    sides.make_side(name, (1, 2, 32, 16)).forward_and_backward()()


def test_blocks_decoding_steps_and_the_limit_are_on_the_device(shapes_only):
    qkv = block.draw(block.QUICK)
    for encode in (
        block.base(block.QUICK),
        *(make(kind, block.QUICK) for make in _MAKERS for kind in ("RoPE", "Type 1")),
    ):
        block.block(encode)(*qkv)
    limit.matrix_product()()
    state = step._attention(2, 16, Causal())(*sides.draw((1, 2, 32, 16)), None)[1]
    step._attention(2, 16, Causal())(*sides.draw((1, 2, 1, 16)), state)


def test_a_model_that_is_trained_and_its_batch_are_on_the_device(shapes_only):
    tensors = [*train.build("type2", train.QUICK).parameters(), *train.draw(train.QUICK).values()]
    assert {x.device.type for x in tensors} == {"meta"}


def test_decoding_is_on_the_device(shapes_only):
    model = decode.build("linear", 256, decode.QUICK)
    cache = decode._empty_cache(model, 40)
    with torch.inference_mode():
        for part in (decode.draw(256, 33), decode.draw(256, 1)):
            model(part, past_key_values=cache)
        decode.products(model, 5)()


def test_a_long_text_is_on_the_device(shapes_only):
    for _, n, run in length._sides_of(length.QUICK, 7):
        run(*length.draw(n, length.QUICK))
