"""Cut a stream into windows in which each token is predicted from the tokens before it."""

from dataclasses import dataclass

from lrpe.errors import require
from lrpe.lab.data.dataset import Draw, Sample
from lrpe.lab.data.text.stream import Stream

UNSCORED = -100  # the label of tokens that are not predicted; the default of torch's cross-entropy


@dataclass(frozen=True)
class Windows:
    """Window k predicts the tokens k · stride ... (k + 1) · stride - 1, the last of its ``length``.

    A stride of None means the length: no context is carried over from one window to the next. With a smaller stride,
    each window begins with length - stride tokens of context, which are not scored. Each token of the stream is scored
    once. ``packed`` windows number the documents, so that attention restarts with each; ``whole`` drops a shorter last
    window.
    """

    stream: Stream
    length: int = 512
    stride: int | None = None
    packed: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        require(
            1 <= self.step <= self.length,
            f"stride must be in 1 ... length, as a window scores its last `stride` tokens; got stride={self.stride}, "
            f"length={self.length}.",
        )

    @property
    def step(self) -> int:
        return self.length if self.stride is None else self.stride

    def __len__(self) -> int:
        return len(self.stream) // self.step if self.whole else -(-len(self.stream) // self.step)

    def sample(self, draw: Draw) -> Sample:
        """Return ``input_ids`` and, as ``labels``, the token that follows each of them.

        The input before the first token of a stream, and of each document if packed, is the end of a document.
        ``words`` and ``bytes`` count those of the scored tokens.
        """
        scored, end = draw.index * self.step, min((draw.index + 1) * self.step, len(self.stream))
        begin = max(0, (draw.index + 1) * self.step - self.length)
        ids = self.stream.read(begin - 1, end)
        labels = ids[1:].copy()
        labels[: scored - begin] = UNSCORED
        words, size = self.stream.words_and_bytes(scored, end)
        sample = {"input_ids": ids[:-1], "labels": labels, "words": words, "bytes": size}
        return sample | ({"sequences": self.stream.sequences(begin, end)} if self.packed else {})
