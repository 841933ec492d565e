"""One label for an image: DeiT."""

from typing import Any

from torch import Tensor
from transformers.modeling_outputs import ImageClassifierOutput
from transformers.utils.generic import can_return_tuple

from lrpe.errors import require
from lrpe.models.classification import LrpeClassificationModel
from lrpe.models.configuration import LrpeConfig
from lrpe.models.pooling import pool


class LrpeForImageClassification(LrpeClassificationModel):
    """A trunk over patches, their mean or a class token ("first" pooling), and a classifier. Any image size will do."""

    main_input_name = "pixel_values"
    input_modalities = "image"

    def __init__(self, config: LrpeConfig):
        super().__init__(config)
        require(self.config.image_size is not None, "A model of images needs their usual image_size, such as 224.")

    @can_return_tuple
    def forward(
        self, pixel_values: Tensor | None = None, labels: Tensor | None = None, **kwargs: Any
    ) -> ImageClassifierOutput:
        """Logits (batch, num_labels) of images (batch, num_channels, height, width)."""
        output = self.model(pixel_values=pixel_values, use_cache=False, return_dict=True, **kwargs)
        logits = self.classifier(pool(output.last_hidden_state, None, self.config.pooling))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels, logits, self.config, **kwargs)
        return ImageClassifierOutput(loss, logits, output.hidden_states)
