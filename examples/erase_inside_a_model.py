"""Erase a concept from one layer of a transformer while it runs, and measure what the later layers still show.

    python examples/erase_inside_a_model.py [erase-inside-a-model.png]

A small transformer learns in seconds whether a tone rises or falls, from made-up recordings of eight numbers a frame.
The task does not involve the speaker, and yet every layer shows who speaks. An eraser is fitted on the states of one
layer; inside ``mute.intervene`` that layer returns erased states. On unseen recordings, probes read speaker and answer
from single frames of every layer, before and inside. Needs torch and matplotlib; half a minute on one core.
"""

import sys

import matplotlib
import numpy as np
import torch
from sklearn.neural_network import MLPClassifier
from torch import nn

import mute

matplotlib.use("Agg")
import matplotlib.pyplot as plt

FRAMES, INPUTS, WIDTH, LAYERS, ERASED = 12, 8, 16, 4, 1
SPEAKERS = np.array(["anna", "ben"])


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(INPUTS, WIDTH)
        self.places = nn.Parameter(0.3 * torch.randn(FRAMES, WIDTH))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(LAYERS)
        )
        self.answer = nn.Linear(WIDTH, 2)

    def forward(self, frames: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        states = [self.enter(frames) + self.places]
        for layer in self.layers:
            states.append(layer(states[-1]))
        return self.answer(states[-1].mean(dim=1)), states


def recordings(n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Frames, answers and speakers: a voice shifts and stretches every frame, a tone rises or falls along them."""
    speaker, answer = torch.randint(2, (n,)), torch.randint(2, (n,))
    frames = torch.randn(n, FRAMES, INPUTS)
    voice = speaker[:, None, None]
    frames[..., :4] = frames[..., :4] * torch.where(voice == 1, 1.3, 0.8) + 1.2 * voice
    frames[..., 7] += (2 * answer - 1)[:, None] * torch.linspace(-1.5, 1.5, FRAMES)
    return frames, answer, speaker


def train(model: Transformer, steps: int = 300) -> None:
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        frames, answer, _ = recordings(128)
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(frames)[0], answer).backward()
        optimiser.step()


@torch.no_grad()
def states_of(model: Transformer, frames: torch.Tensor) -> list[np.ndarray]:
    """States after each layer, a row for each frame."""
    return [states.reshape(-1, WIDTH).numpy() for states in model(frames)[1]]


def read(states: list[np.ndarray], labels: np.ndarray) -> list[float]:
    """Accuracy of a small network on the frames of each layer, learned on one half of the recordings."""
    half = len(labels) // 2
    scores = []
    for rows in states:
        rows = (rows - rows[:half].mean(axis=0)) / rows[:half].std(axis=0)
        probe = MLPClassifier((32,), max_iter=200, tol=1e-3, n_iter_no_change=3, random_state=0)
        scores.append(probe.fit(rows[:half], labels[:half]).score(rows[half:], labels[half:]))
    return scores


torch.manual_seed(0)
model = Transformer()
train(model)
model.eval()
layer = f"layers.{ERASED}"

# The eraser learns from recordings of its own.
frames, _, speaker = recordings(1500)
labels = SPEAKERS[speaker.numpy()].repeat(FRAMES)
eraser = mute.MUtE(20, router="logistic", random_state=0).fit(states_of(model, frames)[ERASED + 1], labels)
print(f"the router sends {eraser.routing_.error:.1%} of the frames to the wrong speaker")

frames, answer, speaker = recordings(1000)
given = SPEAKERS[speaker.numpy()]
lines: dict[str, list[list[float]]] = {}
for name in ("as it is", "erased in layer 2"):
    if name == "as it is":
        states = states_of(model, frames)
    else:
        with mute.intervene(model, layer, eraser):
            states = states_of(model, frames)
    lines[name] = [read(states, given.repeat(FRAMES)), read(states, answer.numpy().repeat(FRAMES))]
    for what, scores in zip(("speaker", "answer"), lines[name], strict=True):
        print(f"{name:18} {what:8}", *(f"{score:.3f}" for score in scores))
    means = [rows.reshape(-1, FRAMES, WIDTH).mean(axis=1) for rows in states]
    print(f"{name:18} speaker, from the mean of all frames", *(f"{score:.3f}" for score in read(means, given)))

judge = MLPClassifier((32,), max_iter=200, tol=1e-3, n_iter_no_change=3, random_state=0)
judge.fit(states_of(model, frames)[-1], given.repeat(FRAMES))
for target in SPEAKERS:
    with mute.intervene(model, layer, eraser, target=target):
        said = judge.predict(states_of(model, frames)[-1])
    print(f"moved to {target}: the last layer looks like {target} in {(said == target).mean():.3f} of the frames")

figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
for axis, title, i in zip(axes, ("speaker, who was erased", "answer, which was asked for"), (0, 1), strict=True):
    for (name, scores), style in zip(lines.items(), ("o-", "s-"), strict=True):
        axis.plot(scores[i], style, label=name)
    axis.axhline(0.5, color="grey", linewidth=0.8, linestyle=":")
    axis.axvline(ERASED + 1, color="grey", linewidth=0.8, linestyle=":")
    axis.set(title=title, xlabel="layer", xticks=range(LAYERS + 1), xticklabels=["input", *range(1, LAYERS + 1)])
axes[0].set_ylabel("accuracy of a network on frames")
axes[0].legend()
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "erase-inside-a-model.png", dpi=120)
