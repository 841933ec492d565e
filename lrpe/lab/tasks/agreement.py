"""How well predictions agree with labels: the metrics of GLUE."""

import warnings
from collections.abc import Callable

import numpy as np
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

Score = Callable[[np.ndarray, np.ndarray], float]  # of predictions and labels


def correlation(measure: Callable) -> Score:
    """A correlation in which predictions that are all alike correlate with nothing: 0, not NaN."""

    def score(predictions: np.ndarray, labels: np.ndarray) -> float:
        if len(labels) < 2 or np.ptp(predictions) == 0 or np.ptp(labels) == 0:
            return 0.0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of inputs that are nearly alike
            return float(measure(predictions, labels).statistic)

    return score


METRICS: dict[str, Score] = {
    "accuracy": lambda predictions, labels: float(accuracy_score(labels, predictions)),
    "matthews": lambda predictions, labels: float(matthews_corrcoef(labels, predictions)),
    "f1": lambda predictions, labels: float(f1_score(labels, predictions, zero_division=0)),  # type: ignore[arg-type]
    "pearson": correlation(pearsonr),
    "spearman": correlation(spearmanr),
}
