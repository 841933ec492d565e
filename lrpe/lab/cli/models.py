"""``lrpe generate`` and ``lrpe export``: continue a text with a trained model, or write it for transformers."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from lrpe.errors import LrpeError, require
from lrpe.lab.cli.words import one
from lrpe.schema import Range, Seed


@dataclass(frozen=True)
class Generate:
    """Continue a prompt, printing each token as it is generated.

    Attributes:
        folder: folder of a run of a language model, or of a model.
        prompt: text to continue; the end-of-text token if not given.
        tokens: number of tokens to generate.
        temperature: temperature of sampling; 0 takes the likeliest token.
        top_k: number of likeliest tokens to sample from; all if 0.
        seed: seed of sampling.
    """

    needs: ClassVar[tuple[str, ...]] = ("models",)
    folder: list[Path] = field(default_factory=list, metadata={"words": "RUN"})
    prompt: str = ""
    tokens: Annotated[int, Range(1, 10**9)] = 200
    temperature: Annotated[float, Range(0, 1000)] = 0.8
    top_k: Annotated[int, Range(0)] = 50
    seed: Seed = 0

    def run(self) -> int:
        import torch
        from transformers import TextStreamer

        from lrpe.models.saved import quietly

        source = one(self.folder, "generate", "run")
        model, tokenizer = _read_writer(source), read_tokenizer(_find_tokenizer(source))
        prompt = self.prompt or tokenizer.eos_token
        require(
            bool(prompt),
            f"The tokeniser of {str(source)!r} has no end-of-text token to start from; pass --prompt TEXT.",
        )
        ids = tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)
        torch.manual_seed(self.seed)
        model.generation_config = self.settings(model)
        with quietly():  # transformers warns of lengths beyond those of training, which our models are made for
            model.generate(**ids, streamer=TextStreamer(tokenizer, skip_special_tokens=True))
        return 0

    def settings(self, model: Any) -> Any:
        """Return the settings of this command; a generation_config.json beside the model is ignored."""
        from transformers import GenerationConfig

        sampling = {"temperature": self.temperature, "top_k": self.top_k} if self.temperature else {}
        ends = {name: getattr(model.config, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
        return GenerationConfig(max_new_tokens=self.tokens, do_sample=bool(sampling), **sampling, **ends)


def _read_writer(source: Path) -> Any:
    from lrpe.models import LrpeForCausalLM
    from lrpe.models.saved import find_model, load_model

    model = load_model(find_model(source))
    kind = type(model).__name__
    require(
        isinstance(model, LrpeForCausalLM),
        f"{str(source)!r} holds a {kind}, which cannot generate text; pass a language model.",
    )
    return model


def read_tokenizer(folder: Path) -> Any:
    """Return the tokeniser of a folder, from its tokenizer.json alone: files beside it may name code to run."""
    from transformers import PreTrainedTokenizerFast

    from lrpe.lab.data.text.tokenizer import load_tokenizer

    roles = {f"{role}_token": token for role, token in load_tokenizer(folder).names.items()}
    return PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), **roles)


def _find_tokenizer(source: Path) -> Path:
    for folder in (source, source / "tokenizer", source.parent / "tokenizer", source.parent.parent / "tokenizer"):
        if (folder / "tokenizer.json").is_file():
            return folder
    raise LrpeError(
        f"{str(source)!r} has no tokenizer.json, neither in tokenizer/, as a run has, nor beside the weights."
    )


@dataclass(frozen=True)
class Export:
    """Write a model to a folder that transformers loads.

    RUN is a model's folder (config.json and safetensors) or a run's, whose best checkpoint, or else last, is exported.

    Attributes:
        source: folder of the model or the run.
        to: folder to create; required.
        remote_code: include our code, for users who have transformers but not lrpe.
    """

    needs: ClassVar[tuple[str, ...]] = ("models",)
    source: list[Path] = field(default_factory=list, metadata={"words": "RUN"})
    to: Path | None = None
    remote_code: bool = False

    def run(self) -> int:
        from lrpe.adapt.export import export
        from lrpe.atomic import naming_failure
        from lrpe.models.saved import quietly

        source = one(self.source, "export", "run")
        if self.to is None:
            raise LrpeError("lrpe export needs --to, the folder to create: lrpe export RUN --to DIR.")
        # a folder name that is not valid Unicode cannot be written in its README.md
        with quietly(), naming_failure(self.to, UnicodeEncodeError):
            folder = export(source, self.to, self.remote_code)
        print(f"{folder}: {', '.join(sorted(file.name for file in folder.iterdir() if file.suffix != '.py'))}")
        print("Its README.md says how to load it.")
        return 0
