"""Learned angles against their initial values: a point per α and layer."""

from pathlib import Path
from typing import Any

from lrpe.lab.report.page import picture
from lrpe.lab.report.palette import ramp
from lrpe.lab.report.picture import SOFT, Spec, powers_of_ten
from lrpe.models.block import Block
from lrpe.models.saved import load_model


def angles_picture(run: Path, file: Path, title: str) -> str:
    """Return the angles of a run's best model as an HTML figure; empty if it has learned none."""
    angles = angles_of(run / "best") if (run / "best").exists() else []
    return (
        picture(angles_spec(angles), file, f"{title}: learned angles against their initial values.") if angles else ""
    )


def angles_of(model_folder: Path) -> list[dict[str, Any]]:
    """Return {"layer", "start", "learned"} of every learned angle of a sequence model; the sign is dropped."""
    model = load_model(model_folder)
    found = []
    for block in (module for module in model.modules() if isinstance(module, Block)):
        config = model.config.layer_encoding(block.layer)
        if config.learned_angles and config.axes == 1 and config.matrix in ("unitary", "orthogonal"):
            pairs = zip(_alpha(config.build()), _alpha(block.attention.encoding), strict=True)
            found += [{"layer": f"layer {block.layer}", "start": a, "learned": abs(b)} for a, b in pairs]
    return found


def _alpha(encoding: Any) -> list[float]:
    return encoding.matrix.angles.scaled().flatten().tolist()


def angles_spec(points: list[dict[str, Any]]) -> Spec:
    """Draw each angle against its initial value; points on the diagonal have not moved."""
    drawn = [point for point in points if point["start"] > 0 and point["learned"] > 0]  # the axes are logarithmic
    layers = list(dict.fromkeys(point["layer"] for point in drawn))
    colour = {"field": "layer", "type": "nominal", "title": None}
    shape = colour | {"scale": {"domain": layers}}
    colour |= {"scale": {"domain": layers, "range": ramp(len(layers))}}
    x, y = (_axis(*named, drawn) for named in (("start", "initial α"), ("learned", "learned |α|")))
    (left, right), (bottom, top) = x["scale"]["domain"], y["scale"]["domain"]
    ends = [{"start": end, "learned": end} for end in (max(left, bottom), min(right, top))]
    diagonal = {"type": "line", "color": SOFT, "strokeDash": [4, 4], "strokeWidth": 1}
    return {
        "width": 340,
        "height": 280,
        "encoding": {"x": x, "y": y},
        "layer": [
            {"data": {"values": ends}, "mark": diagonal},
            {
                "data": {"values": drawn},
                "mark": {"type": "point", "size": 30, "opacity": 1},
                "encoding": {"color": colour, "shape": shape},
            },
        ],
    }


def _axis(field: str, title: str, points: list[dict[str, Any]]) -> Spec:
    marks = powers_of_ten(point[field] for point in points)
    scale = {"type": "log", "domain": [marks["values"][0], marks["values"][-1]]}
    return {"field": field, "type": "quantitative", "title": title, "scale": scale, "axis": marks}
