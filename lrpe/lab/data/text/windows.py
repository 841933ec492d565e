"""A stream cut into windows, whose every token is to be predicted from those before it."""

from dataclasses import dataclass

from lrpe.errors import require
from lrpe.lab.data.dataset import Draw, Sample
from lrpe.lab.data.text.stream import Stream

UNSCORED = -100  # the label of what is not to be predicted, as torch's cross-entropy has it


@dataclass(frozen=True)
class Windows:
    """Window k predicts the tokens k · stride ... (k + 1) · stride - 1, the last of its ``length``.

    With a stride of None, which is the length, nothing is carried on from one window to the next; with a smaller one
    each has length - stride tokens that are given and not scored. Each token of the stream is scored once. ``packed``
    windows number the documents, so that the attention restarts with each; ``whole`` ones leave out a shorter last one.
    """

    stream: Stream
    length: int = 512
    stride: int | None = None
    packed: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        require(
            1 <= self.step <= self.length,
            f"A window of `length` tokens scores the last `stride`, so 1 ≤ stride ≤ length; got stride={self.stride}, "
            f"length={self.length}.",
        )

    @property
    def step(self) -> int:
        return self.length if self.stride is None else self.stride

    def __len__(self) -> int:
        return len(self.stream) // self.step if self.whole else -(-len(self.stream) // self.step)

    def sample(self, draw: Draw) -> Sample:
        """``labels`` are the tokens to predict, each in the place from which it is predicted.

        So ``input_ids`` are one token behind them; before a stream, and before each document if packed, stands the end
        of a document. ``words`` and ``bytes`` are those of the scored tokens.
        """
        scored, end = draw.index * self.step, min((draw.index + 1) * self.step, len(self.stream))
        begin = max(0, (draw.index + 1) * self.step - self.length)
        ids = self.stream.read(begin - 1, end)
        labels = ids[1:].copy()
        labels[: scored - begin] = UNSCORED
        words, size = self.stream.words_and_bytes(scored, end)
        sample = {"input_ids": ids[:-1], "labels": labels, "words": words, "bytes": size}
        return sample | ({"sequences": self.stream.sequences(begin, end)} if self.packed else {})
