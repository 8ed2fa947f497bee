"""The network of the trained inverter: one small causal transformer that writes a text for an embedding.

A row of its input is ``[pseudo-tokens, tokens of a draft, tokens of the text]``. Without a draft, it guesses: the
pseudo-tokens tell the wanted embedding e. With one, it corrects: they tell e, the draft's ê, and e - ê. Both share all
weights of the body, so that the corrector starts from a model that can write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["END", "InverterNetwork", "Settings", "Task"]

# The token before and after every text. Those of the tokenizer count from 1.
END = 0

# What a position holds, for the embedding of kinds.
_PROMPT, _DRAFT, _TEXT = range(3)

# Standard deviations at the start, of weights and of pseudo-tokens.
_SMALL, _LOUD = 0.02, 0.1


@dataclass(frozen=True)
class Settings:
    """The shape of a network.

    Attributes
    ----------
    dimension : int
        Columns D of the embeddings.
    vocabulary : int
        Tokens, with `END`.
    width, layers, heads : int
        Of the transformer.
    max_tokens : int
        The longest text, without `END`.
    prompt : int
        Pseudo-tokens for an embedding.
    """

    dimension: int
    vocabulary: int
    width: int
    layers: int
    heads: int
    max_tokens: int
    prompt: int = 4


@dataclass(frozen=True)
class Task:
    """What texts are wanted for.

    Attributes
    ----------
    wanted : Tensor of shape (n, D)
    drafts : list of n lists of token ids, or None
        Texts to correct; cut at the longest the network can take.
    reached : Tensor of shape (n, D) or None
        The embeddings of the drafts.
    """

    wanted: Tensor
    drafts: Sequence[Sequence[int]] | None = None
    reached: Tensor | None = None


class InverterNetwork(nn.Module):
    """See the module; made of `Settings`.

    Examples
    --------
    >>> network = InverterNetwork(Settings(dimension=3, vocabulary=9, width=8, layers=1, heads=2, max_tokens=5))
    >>> loss, hits, n_tokens = network.loss(Task(torch.zeros(2, 3)), [[1, 2, 3], [4]])
    >>> n_tokens
    6
    >>> texts = network.write(Task(torch.zeros(2, 3)), beam=2)
    >>> [len(row) for row in texts]
    [2, 2]
    """

    center: Tensor
    scale: Tensor

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = s = settings
        self.tokens = nn.Embedding(s.vocabulary, s.width)
        self.positions = nn.Embedding(s.max_tokens + 1, s.width)
        self.kinds = nn.Embedding(3, s.width)
        self.readers = nn.ModuleDict({name: _Reader(s) for name in ("wanted", "reached", "missing")})
        self.layers = nn.ModuleList(_Layer(s.width, s.heads) for _ in range(s.layers))
        self.norm = nn.LayerNorm(s.width)
        # Centre and root mean square of the embeddings it was trained on.
        self.register_buffer("center", torch.zeros(s.dimension))
        self.register_buffer("scale", torch.ones(1))
        self.bias = nn.Parameter(torch.zeros(s.vocabulary))
        # Small weights, so that a place begins as its own token and a little of what layers say of it; what they add up
        # to shall not grow with their number.
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                last = name.endswith(("answer", "narrow"))
                nn.init.normal_(module.weight, std=_SMALL / (2 * s.layers) ** 0.5 if last else _SMALL)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def loss(self, task: Task, texts: Sequence[Sequence[int]]) -> tuple[Tensor, int, int]:
        """Mean cross entropy of the texts' tokens, how many of them it would have got right, and their number."""
        x, starts = self._prompt(task, [len(text) + 1 for text in texts])
        rows = [row for row, text in enumerate(texts) for _ in range(len(text) + 1)]
        at = [place for text in texts for place in range(len(text) + 1)]
        ids = [token for text in texts for token in (END, *text)]
        answers = [token for text in texts for token in (*text, END)]
        where = (torch.tensor(rows), torch.tensor(starts)[rows] + torch.tensor(at))
        x = x.index_put(where, self._embed(ids, at, _TEXT))
        for layer in self.layers:
            x = layer(x)
        logits, right = self._logits(x[where]), torch.tensor(answers)
        hits = int((logits.detach().argmax(dim=1) == right).sum())
        return functional.cross_entropy(logits, right), hits, len(answers)

    @torch.no_grad()
    def write(self, task: Task, beam: int = 1) -> list[list[list[int]]]:
        """For each row the `beam` texts that a beam search finds likeliest, the best first, as token ids.

        Keys and values of what is written already are kept, so each token costs one pass of one position.
        """
        n, longest = len(task.wanted), self.settings.max_tokens
        prompt, starts = self._prompt(task, [0] * n)
        # Behind the prompt, rows stay of one length: a place that a shorter prompt leaves empty is never looked at.
        seen = torch.arange(prompt.shape[1]) < torch.tensor(starts)[:, None]
        seen = torch.cat([seen, torch.zeros(n, longest + 1, dtype=torch.bool)], dim=1)
        caches: list[tuple[Tensor, ...]] = []
        for layer in self._stack():
            prompt, cache = layer.start(prompt, longest + 1)
            caches.append(tuple(part.repeat_interleave(beam, dim=0) for part in cache))
        seen = seen.repeat_interleave(beam, dim=0)
        begun = len(seen[0]) - longest - 1
        score = torch.full((n, beam), -torch.inf)
        score[:, 0] = 0.0  # all beams are alike at first: one is enough
        ended = torch.zeros(n, beam, dtype=torch.bool)
        written = torch.full((n, beam, longest + 1), END)
        last = torch.full((n * beam,), END)
        for at in range(longest + 1):
            seen[:, begun + at] = True
            x = self.tokens(last)[:, None] + self.positions.weight[at] + self.kinds.weight[_TEXT]
            for layer, kept in zip(self._stack(), caches, strict=True):
                x = layer.step(x, kept, begun + at, seen[:, None, None, : begun + at + 1])
            likely = torch.log_softmax(self._logits(x[:, 0]), dim=1).view(n, beam, -1)
            if at == longest:
                likely[..., 1:] = -torch.inf  # no room is left but for the end
            # What has ended stays as it is, at no cost.
            likely.masked_fill_(ended[..., None], -torch.inf)
            likely[..., END].masked_fill_(ended, 0.0)
            score, best = (score[..., None] + likely).view(n, -1).topk(beam, dim=1)
            parent, token = best // likely.shape[2], best % likely.shape[2]
            written = written.gather(1, parent[..., None].expand_as(written))
            written[..., at] = token
            ended = ended.gather(1, parent) | (token == END)
            if ended.all():
                break
            last = token.view(-1)
            order = (torch.arange(n)[:, None] * beam + parent).view(-1)
            if not torch.equal(order, torch.arange(n * beam)):
                # Beams of a row share their prompt: only what was written moves.
                place = slice(begun, begun + at + 1)
                for part in (part for kept in caches for part in kept):
                    part[:, :, place] = part[order, :, place]
        return [[_until_end(text) for text in row] for row in written.tolist()]

    def _prompt(self, task: Task, room: list[int]) -> tuple[Tensor, list[int]]:
        """Pseudo-tokens and draft of each row, with room behind for as many tokens, and where that begins."""
        s, n = self.settings, len(task.wanted)
        wanted = (task.wanted - self.center) / self.scale
        told = [self.readers["wanted"](wanted)]
        drafts: Sequence[Sequence[int]] = [[]] * n
        if task.drafts is not None and task.reached is not None:
            reached = (task.reached - self.center) / self.scale
            told += [self.readers["reached"](reached), self.readers["missing"](wanted - reached)]
            drafts = [[*draft[: s.max_tokens], END] for draft in task.drafts]
        pseudo = torch.cat(told, dim=1) + self.kinds.weight[_PROMPT]
        begin = pseudo.shape[1]
        starts = [begin + len(draft) for draft in drafts]
        length = max(start + more for start, more in zip(starts, room, strict=True))
        x = torch.cat([pseudo, pseudo.new_zeros(n, length - begin, s.width)], dim=1)
        if starts == [begin] * n:
            return x, starts
        rows = [row for row, draft in enumerate(drafts) for _ in draft]
        at = [place for draft in drafts for place in range(len(draft))]
        ids = [token for draft in drafts for token in draft]
        return x.index_put((torch.tensor(rows), torch.tensor(at) + begin), self._embed(ids, at, _DRAFT)), starts

    def _embed(self, ids: list[int], at: list[int], kind: int) -> Tensor:
        # A draft and the text share positions: to copy, a place looks at its like.
        return self.tokens(torch.tensor(ids)) + self.positions(torch.tensor(at)) + self.kinds.weight[kind]

    def _stack(self) -> list[_Layer]:
        return cast(list[_Layer], list(self.layers))

    def _logits(self, x: Tensor) -> Tensor:
        return functional.linear(self.norm(x), self.tokens.weight, self.bias)


class _Reader(nn.Module):
    """Turns an embedding into pseudo-tokens."""

    def __init__(self, s: Settings) -> None:
        super().__init__()
        self.inner = nn.Linear(s.dimension, 2 * s.width)
        self.outer = nn.Linear(2 * s.width, s.prompt * s.width)
        self.norm = nn.LayerNorm(s.width)
        nn.init.constant_(self.norm.weight, _LOUD)

    def forward(self, x: Tensor) -> Tensor:
        x = self.outer(functional.gelu(self.inner(x)))
        return self.norm(x.view(len(x), -1, self.norm.normalized_shape[0]))


class _Layer(nn.Module):
    """Attention to what came before, then a network of its own at each place; both add to what is there."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_inner = nn.LayerNorm(width), nn.LayerNorm(width)
        self.ask = nn.Linear(width, 3 * width)
        self.answer = nn.Linear(width, width)
        self.widen = nn.Linear(width, 2 * width)
        self.narrow = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self._split(x)
        return self._finish(x, functional.scaled_dot_product_attention(q, k, v, is_causal=True))

    def start(self, x: Tensor, room: int) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The layer of a prompt, and its keys and values with room for more places."""
        q, k, v = self._split(x)
        kept = tuple(torch.cat([part, part.new_zeros(*part.shape[:2], room, part.shape[3])], dim=2) for part in (k, v))
        x = self._finish(x, functional.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x, (kept[0], kept[1])

    def step(self, x: Tensor, cache: tuple[Tensor, ...], at: int, seen: Tensor) -> Tensor:
        """The layer of one further place, which is put into the cache."""
        q, k, v = self._split(x)
        keys, values = cache
        keys[:, :, at], values[:, :, at] = k[:, :, 0], v[:, :, 0]
        keys, values = keys[:, :, : at + 1], values[:, :, : at + 1]
        return self._finish(x, functional.scaled_dot_product_attention(q, keys, values, attn_mask=seen))

    def _split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        n, length, width = x.shape
        parts = self.ask(self.norm_attention(x)).view(n, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        return q, k, v

    def _finish(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.answer(attended.transpose(1, 2).reshape(x.shape))
        return x + self.narrow(functional.gelu(self.widen(self.norm_inner(x))))


def _until_end(text: list[int]) -> list[int]:
    return text[: text.index(END)] if END in text else text
