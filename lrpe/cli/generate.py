"""``lrpe generate``: a trained language model goes on with a text."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lrpe.cli.choosing import one
from lrpe.errors import LrpeError, require


@dataclass(frozen=True)
class Generate:
    """Go on with a prompt, token by token as they come.

    Attributes:
        folder: a run of a language model, or a model's folder.
        prompt: what it goes on with.
        tokens: how many tokens to write.
        temperature: of sampling; 0 takes the likeliest token.
        top_k: sample from so many of the likeliest tokens; from all if 0.
        seed: of sampling.
    """

    folder: list[str] = field(default_factory=list, metadata={"words": "RUN"})
    prompt: str = ""
    tokens: int = 200
    temperature: float = 0.8
    top_k: int = 50
    seed: int = 0

    def run(self) -> int:
        import torch
        from transformers import AutoTokenizer, TextStreamer

        from lrpe.models import LrpeForCausalLM
        from lrpe.models.saved import find_model, load_model

        require(self.tokens >= 1, f"There is one token to write or more; got tokens={self.tokens}.")
        require(self.temperature >= 0, f"A temperature is 0 or more; got {self.temperature}.")
        source = Path(one(self.folder, "generate", "run"))
        model = load_model(find_model(source))
        tokenizer = AutoTokenizer.from_pretrained(find_tokenizer(source), trust_remote_code=False)
        if not isinstance(model, LrpeForCausalLM):
            raise LrpeError(f"{str(source)!r} holds a {type(model).__name__}, which writes no text.")
        ids = tokenizer(self.prompt or tokenizer.eos_token, return_tensors="pt", return_token_type_ids=False)
        sampling = {"temperature": self.temperature, "top_k": self.top_k} if self.temperature else {}
        torch.manual_seed(self.seed)
        streamer = TextStreamer(tokenizer, skip_special_tokens=True)
        writer: Any = model
        writer.generate(**ids, max_new_tokens=self.tokens, streamer=streamer, do_sample=bool(sampling), **sampling)
        return 0


def find_tokenizer(source: Path) -> Path:
    for folder in (source, source / "tokenizer", source.parent / "tokenizer", source.parent.parent / "tokenizer"):
        if (folder / "tokenizer.json").is_file():
            return folder
    raise LrpeError(f"A run has its tokeniser in tokenizer/, a model beside its weights; {str(source)!r} has none.")
