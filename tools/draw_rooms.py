"""Draw docs/images/rooms.png: the rooms of the package, each above those that it may import.

python tools/draw_rooms.py
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from test_rooms import ORDER  # noqa: E402

WHAT = {
    "cli": "the command `mute`",
    "paper": "every study of the paper",
    "datasets": "shipped and fetched data",
    "text": "encoders, decoders, scores",
    "evaluation": "audit and compare",
    "torch": "interventions in a model",
    "export": "ONNX, torch modules",
    "rivals": "other erasers",
    "steering": "other counterfactuals",
    "distill": "fast copies",
    "eraser": "MUtE",
    "rbig": "RBIG",
    "estimators": "what all methods share",
    "adversaries": "the panel and its scores",
    "budget": "the least noise within a leak",
    "flow": "the paper: rotations, marginals, router",
    "tables": "files in and out",
    "storage": "safetensors, atomic files",
    "rows": "checks, chunks, stores, threads",
    "errors": "one error, one warning",
    "typing": "names of types",
}
# Neighbouring levels that are read as one floor of the house.
FLOORS = [
    ["errors", "typing"], ["rows", "storage", "tables"], ["flow"], ["estimators"], ["adversaries", "budget"],
    ["eraser", "rbig"], ["distill", "steering", "rivals"], ["torch", "export", "evaluation"], ["text", "datasets"],
    ["paper"], ["cli"],
]  # fmt: skip
COLORS = [
    "#e8edf3",
    "#dbe7f4",
    "#fbe3c8",
    "#f4ecd2",
    "#f6dcd9",
    "#f7cfa6",
    "#e3eed9",
    "#dcefe9",
    "#eee3f1",
    "#f1dfe4",
    "#e6e6e6",
]


def main() -> None:
    assert sorted(room for floor in FLOORS for room in floor) == sorted(room for level in ORDER for room in level)
    figure, axes = plt.subplots(figsize=(9, 6.2))
    for y, (floor, color) in enumerate(zip(FLOORS, COLORS, strict=True)):
        width = 9 / len(floor)
        for i, room in enumerate(floor):
            box = plt.Rectangle((i * width + 0.04, y + 0.06), width - 0.08, 0.88, facecolor=color, edgecolor="#667")
            axes.add_patch(box)
            x = (i + 0.5) * width
            axes.text(x, y + 0.63, room, ha="center", va="center", weight="bold", family="monospace", fontsize=11)
            axes.text(x, y + 0.3, WHAT[room], ha="center", va="center", fontsize=8.5, color="#333")
    axes.annotate("", (9.35, 0.2), (9.35, len(FLOORS) - 0.2), arrowprops={"arrowstyle": "-|>", "color": "#667"})
    axes.text(9.5, len(FLOORS) / 2, "may import", rotation=90, va="center", ha="center", fontsize=9, color="#667")
    axes.set_xlim(-0.05, 9.7)
    axes.set_ylim(-0.05, len(FLOORS) + 0.05)
    axes.axis("off")
    figure.savefig(ROOT / "docs" / "images" / "rooms.png", dpi=130, bbox_inches="tight")


if __name__ == "__main__":
    main()
