"""The step, the log-decay or the whole transition of each token, as the law of token-dependent steps needs them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lrpe.errors import LrpeError, require, show
from lrpe.theory.laws import Law, Measure

Rule = Tensor | Callable[[Tensor], Tensor]  # numbers (n, ...), or a function of tokens x (n, width) that returns them
_TOKENS = 32  # random tokens, if every rule is a function
_OTHERS = 4  # ways to replace the tokens after a cut, on which those before it must not depend
_SCALES = (0.1, 1.0, 10.0)  # of successive tokens: a decay may exceed 1 for large tokens alone


@dataclass(frozen=True)
class TokenRules:
    """Rules by the name of their argument, such as steps and log_decay, and the size of the tokens that they take.

    A rule that is a tensor fixes the number of tokens n; of several tensors all must have the same n.
    """

    rules: dict[str, Rule]
    width: int | None
    seed: int

    def __post_init__(self):
        for name, rule in self.rules.items():
            listed = rule.ndim > 0 if isinstance(rule, Tensor) else callable(rule)
            require(listed, f"{name} must be a tensor (n, ...) or a function of tokens x (n, dim); got {show(rule)}.")
        lengths = {name: len(rule) for name, rule in self.rules.items() if isinstance(rule, Tensor)}
        require(
            len(set(lengths.values())) <= 1,
            f"{' and '.join(lengths)} must have one entry per token; got {' and '.join(map(str, lengths.values()))}.",
        )
        fewest = min(lengths.values(), default=_TOKENS)
        require(fewest >= 2, f"{' and '.join(lengths)} must have at least 2 tokens; got {fewest}.")
        if self._functions and self.width is None:
            raise LrpeError(
                f"dim must be given if {' or '.join(self._functions)} is a function; got dim=None. Pass the size of "
                "the tokens x (n, dim) that it takes."
            )

    @property
    def _functions(self) -> dict[str, Callable[[Tensor], Tensor]]:
        return {name: rule for name, rule in self.rules.items() if not isinstance(rule, Tensor)}

    @property
    def count(self) -> int:
        """The number of tokens."""
        return next((len(rule) for rule in self.rules.values() if isinstance(rule, Tensor)), _TOKENS)

    def _tokens(self, seed: int) -> Tensor:
        """Return random tokens of three scales in turn: (count, width)."""
        drawn = torch.randn(
            self.count, self.width or 0, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
        )
        return drawn * torch.tensor(_SCALES, dtype=torch.float64)[torch.arange(self.count) % len(_SCALES), None]

    @torch.no_grad()
    def values(self, name: str) -> Tensor:
        """Return what each token brings by this rule, on the CPU: (n, ...)."""
        rule = self.rules[name]
        values = rule if isinstance(rule, Tensor) else rule(self._tokens(self.seed))
        if not isinstance(values, Tensor) or values.ndim == 0 or len(values) != self.count:
            shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise LrpeError(f"{name} must have one entry per token, here {self.count}, in its first axis; got {shape}.")
        return values.detach().cpu()

    def log_decay(self) -> Tensor | None:
        """Return log r_τ in float64, (n,), if there is a decay."""
        if "log_decay" not in self.rules:
            return None
        log_r = self.values("log_decay")
        require(log_r.ndim == 1, lambda: f"log_decay must have shape (n,), one per token; got {tuple(log_r.shape)}.")
        return log_r.double()

    @torch.no_grad()
    def causality(self, measure: Measure) -> list[Law]:
        """Measure whether a function gives a token what depends on this token and earlier ones alone."""
        if not self._functions:
            return []
        x, n = self._tokens(self.seed), self.count
        # -x too: a function of signs could be the same for all random tokens
        others = [-x, *(self._tokens(self.seed + draw) for draw in range(1, _OTHERS))]
        cuts = [cut for cut in {1, n // 4, n // 2, 3 * n // 4, n - 1} if cut > 0]
        changed = [(cut, torch.cat([x[:cut], other[cut:]])) for cut in cuts for other in others]
        differences = [f(y)[:cut] - f(x)[:cut] for f in self._functions.values() for cut, y in changed]
        what = ", ".join(_SYMBOLS[name] for name in self._functions)
        return [measure.law("Causality", f"{what} are functions of x_1, ..., x_τ alone", *differences)]

    def decay(self, measure: Measure) -> list[Law]:
        """Measure whether no decay exceeds 1."""
        log_r = self.log_decay()
        return [] if log_r is None else [measure.law("Decay", "log r_τ ≤ 0", log_r.clamp(min=0))]

    @property
    def tested(self) -> str:
        drawn = f" drawn by seed {self.seed}, of scales {', '.join(map(str, _SCALES))}" if self._functions else ""
        return f"{self.count} tokens{drawn}"

    @property
    def notes(self) -> tuple[str, ...]:
        fixed = [name for name, rule in self.rules.items() if isinstance(rule, Tensor)]
        verb = "is a tensor" if len(fixed) == 1 else "are tensors"
        return (f"{' and '.join(fixed)} {verb}, on which causality cannot be measured",) if fixed else ()


_SYMBOLS = {"steps": "u_τ", "log_decay": "log r_τ", "transition": "U_τ"}
