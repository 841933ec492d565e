"""Classifiers of texts, pairs of texts, tokens and images: a trunk, pooling, and a linear layer to the labels."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import ImageClassifierOutput, SequenceClassifierOutput, TokenClassifierOutput
from transformers.utils.generic import can_return_tuple

from lrpe.errors import LrpeError, require
from lrpe.models.configuration import LrpeConfig
from lrpe.models.inputs import check_labels
from lrpe.models.trunk import LrpeModel, LrpePreTrainedModel
from lrpe.parallel import refuse
from lrpe.precision import compute_dtype


class Classifier(nn.Module):
    """Dropout and a linear layer to the labels; a tanh layer before them if ``classifier_hidden_size`` is given."""

    def __init__(self, config: LrpeConfig, width: int):
        super().__init__()
        inner = config.classifier_hidden_size
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.dense = None if inner is None else nn.Linear(width, inner)
        self.labels = nn.Linear(inner or width, config.num_labels)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        x = self.dropout(x)
        return self.labels(x if self.dense is None else self.dropout(self.dense(x).tanh()))


class LrpeClassificationModel(LrpePreTrainedModel):
    """A trunk and a classifier; subclasses define what the classifier sees."""

    vectors = 1  # vectors of hidden_size in the classifier's input

    def __init__(self, config: LrpeConfig):
        super().__init__(config)
        self.model = LrpeModel(self.config)
        self.classifier = Classifier(self.config, self.vectors * self.config.hidden_size)
        self.post_init()


class LrpeForSequenceClassification(LrpeClassificationModel):
    """A trunk, pooling, and a classifier; with one label it is a regression."""

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Return logits (batch, num_labels); ``labels`` are (batch,) integers, or floats for a regression."""
        options = {"use_cache": False, "inputs_embeds": inputs_embeds} | kwargs
        output = self.model(input_ids, attention_mask, position_ids, return_dict=True, **options)
        logits = self.classifier(pool(output.last_hidden_state, attention_mask, self.config.pooling))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config, **kwargs)
        return SequenceClassifierOutput(loss, logits, output.hidden_states)


class LrpeForPairClassification(LrpeClassificationModel):
    """One trunk for both documents, and a classifier of [a, b, a·b, a - b] with their pooled vectors a and b."""

    vectors = 4

    def __init__(self, config: LrpeConfig):
        super().__init__(config)
        self.loss_type = "ForSequenceClassification"

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        pair_input_ids: Tensor | None = None,
        pair_attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Return logits (batch, num_labels) for ``input_ids`` (batch, n) and ``pair_input_ids`` (batch, m)."""
        if input_ids is None or pair_input_ids is None or input_ids.shape[0] != pair_input_ids.shape[0]:
            raise LrpeError("Pass both input_ids (batch, n) and pair_input_ids (batch, m), with the same batch size.")
        a, b = self.read(input_ids, attention_mask, **kwargs), self.read(pair_input_ids, pair_attention_mask, **kwargs)
        logits = self.classifier(torch.cat([a, b, a * b, a - b], -1))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config, **kwargs)
        return SequenceClassifierOutput(loss, logits)

    def read(self, ids: Tensor, mask: Tensor | None, **kwargs: Any) -> Tensor:
        hidden = self.model(ids, mask, return_dict=True, **{"use_cache": False} | kwargs).last_hidden_state
        return pool(hidden, mask, self.config.pooling)


class LrpeForTokenClassification(LrpeClassificationModel):
    """A trunk, and a classifier that labels every token."""

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> TokenClassifierOutput:
        """Return logits (batch, n, num_labels); ``labels`` are (batch, n) integers, -100 for tokens without one."""
        check_labels(labels)
        options = {"use_cache": False, "inputs_embeds": inputs_embeds} | kwargs
        output = self.model(input_ids, attention_mask, position_ids, return_dict=True, **options)
        logits = self.classifier(output.last_hidden_state)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, self.config, **kwargs)
        return TokenClassifierOutput(loss, logits, output.hidden_states)


class LrpeForImageClassification(LrpeClassificationModel):
    """A trunk over patches, pooling (mean, or "first" for a class token), and a classifier, for any image size."""

    main_input_name = "pixel_values"
    input_modalities = "image"

    def __init__(self, config: LrpeConfig):
        super().__init__(config)
        require(
            self.config.image_size is not None,
            "image_size must be set for an image model; got image_size=None. Pass one, such as 224.",
        )

    @can_return_tuple
    def forward(
        self, pixel_values: Tensor | None = None, labels: Tensor | None = None, **kwargs: Any
    ) -> ImageClassifierOutput:
        """Return logits (batch, num_labels) of images (batch, num_channels, height, width)."""
        output = self.model(pixel_values=pixel_values, use_cache=False, return_dict=True, **kwargs)
        logits = self.classifier(pool(output.last_hidden_state, None, self.config.pooling))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels, logits, self.config, **kwargs)
        return ImageClassifierOutput(loss, logits, output.hidden_states)


def pool(x: Tensor, mask: Tensor | None, kind: str) -> Tensor:
    """Return the mean, the last or the first of the real tokens; (batch, n, width) -> (batch, width)."""
    refuse("Pooling over the tokens of a row", "Pool lrpe.parallel.join_parts of the trunk's output.")
    if mask is None:
        return {"mean": lambda: x.mean(1), "last": lambda: x[:, -1], "first": lambda: x[:, 0]}[kind]()
    real = (mask != 0).long()
    if kind == "mean":
        return ((x * real[..., None]).sum(1, dtype=compute_dtype(x.dtype)) / real.sum(1, keepdim=True).clamp(min=1)).to(
            x.dtype
        )
    order = torch.arange(1, real.shape[1] + 1, device=x.device)
    index = (real * (order if kind == "last" else order.flip(0))).argmax(1)
    return x.gather(1, index[:, None, None].expand(-1, 1, x.shape[-1]))[:, 0]
