"""Learned angles against where they started: a point for each α of each layer."""

from pathlib import Path
from typing import Any

from lrpe.models.block import Block
from lrpe.models.saved import load_model
from lrpe.report.page import picture
from lrpe.report.picture import Spec

LAYERS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999", "#000000")


def angles_picture(run: Path, file: Path, title: str) -> str:
    """The angles of a run's best model as a picture of a page; nothing if it has learned none."""
    angles = angles_of(run / "best") if (run / "best").exists() else []
    return picture(angles_spec(angles), file, f"{title}: its angles against their start.") if angles else ""


def angles_of(model_folder: Path) -> list[dict[str, Any]]:
    """{"layer", "start", "learned"} of every angle that a model of sequences learned, without its sign."""
    model = load_model(model_folder)
    found = []
    for block in (module for module in model.modules() if isinstance(module, Block)):
        config = model.config.layer_encoding(block.layer)
        if config.learned_angles and config.axes == 1 and config.matrix in ("unitary", "orthogonal"):
            pairs = zip(alpha(config.build()), alpha(block.attention.encoding), strict=True)
            found += [{"layer": f"layer {block.layer}", "start": a, "learned": abs(b)} for a, b in pairs]
    return found


def alpha(encoding: Any) -> list[float]:
    return encoding.matrix.angles.scaled().flatten().tolist()


def angles_spec(points: list[dict[str, Any]]) -> Spec:
    """On the diagonal an angle is where it started."""
    layers = list(dict.fromkeys(point["layer"] for point in points))
    ends = [min(p["start"] for p in points), max(p["start"] for p in points)]
    log = {"scale": {"type": "log"}, "type": "quantitative"}
    colour = {"field": "layer", "type": "nominal", "title": None, "sort": layers}
    colour |= {"scale": {"domain": layers, "range": [LAYERS[k % len(LAYERS)] for k in range(len(layers))]}}
    shape = colour | {"scale": {"domain": layers}}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": 420,
        "height": 320,
        "layer": [
            {
                "data": {"values": [{"start": end, "learned": end} for end in ends]},
                "mark": {"type": "line", "color": "#999999", "strokeDash": [4, 4]},
                "encoding": {"x": log | {"field": "start"}, "y": log | {"field": "learned"}},
            },
            {
                "data": {"values": points},
                "mark": {"type": "point", "size": 30},
                "encoding": {
                    "x": log | {"field": "start", "title": "α at the start"},
                    "y": log | {"field": "learned", "title": "|α| learned"},
                    "color": colour,
                    "shape": shape,
                },
            },
        ],
    }
