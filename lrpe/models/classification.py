"""What every classifier is: a trunk, and a layer that gives labels to what it read."""

from torch import Tensor, nn

from lrpe.models.configuration import LrpeConfig
from lrpe.models.trunk import LrpeModel, LrpePreTrainedModel


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
    """A trunk and a classifier; those who inherit say what goes from one to the other."""

    vectors = 1  # of hidden_size that the classifier sees side by side

    def __init__(self, config: LrpeConfig):
        super().__init__(config)
        self.model = LrpeModel(self.config)
        self.classifier = Classifier(self.config, self.vectors * self.config.hidden_size)
        self.post_init()
