"""The network of the trained inverter: one small causal transformer that writes a text for an embedding.

A row of its input is ``[pseudo-tokens, tokens of a draft, tokens of the text]``. Without a draft, the network guesses:
the pseudo-tokens describe the wanted embedding e. With a draft, it corrects: they describe e, the draft's embedding ê,
and e - ê. Guessing and correcting share all weights of the body, so the corrector starts from a model that can write.

A corrector mostly copies. At each place `_align` proposes which token of the draft comes next, from the tokens written
last. The network writes from a mixture [1]_: with probability g a token of the vocabulary, else a token of the draft
that a pointer chooses. A linear map, `evidence`, says which tokens an embedding speaks of. For e - ê it shows which
tokens of the draft are wrong and which are missing.

.. [1] See, Liu, Manning (2017). Get to the point: summarization with pointer-generator networks. ACL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["END", "InverterNetwork", "Request", "Settings"]

# The token before and after every text. Those of the tokenizer count from 1.
END = 0

# What a position holds, for the embedding of kinds.
_PROMPT, _DRAFT, _TEXT = range(3)

# The alignment compares this many tokens before a place with as many before each token of the draft.
_LAGS = 3
# The preference for near places is learned for this many steps forward and back.
_FAR = 8

# Standard deviations at the start: of the weights, and of pseudo-tokens.
_SMALL, _LOUD = 0.02, 0.1

# Stands for a probability of 0 in logarithms.
_NEVER = 1e-30


@dataclass(frozen=True)
class Settings:
    """The shape of a network; `vocabulary` counts `END`, `max_tokens` does not."""

    dimension: int
    vocabulary: int
    width: int
    layers: int
    heads: int
    max_tokens: int
    prompt: int = 4


@dataclass(frozen=True)
class Request:
    """Embeddings (n, D) to write texts for, perhaps with token ids of drafts to correct and the embeddings of these."""

    wanted: Tensor
    drafts: Sequence[Sequence[int]] | None = None
    reached: Tensor | None = None


class _Reader(nn.Module):
    """Turns an embedding into pseudo-tokens."""

    def __init__(self, dimension: int, width: int, n_tokens: int) -> None:
        super().__init__()
        self.inner = nn.Linear(dimension, 2 * width)
        self.outer = nn.Linear(2 * width, n_tokens * width)
        self.norm = nn.LayerNorm(width)
        nn.init.constant_(self.norm.weight, _LOUD)

    def forward(self, x: Tensor) -> Tensor:
        x = self.outer(functional.gelu(self.inner(x)))
        return self.norm(x.view(len(x), -1, self.norm.normalized_shape[0]))


class _Layer(nn.Module):
    """Causal attention, then a feed-forward part; both are residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_inner = nn.LayerNorm(width), nn.LayerNorm(width)
        self.ask = nn.Linear(width, 3 * width)
        self.answer = nn.Linear(width, width)
        self.widen = nn.Linear(width, 2 * width)
        self.narrow = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.start(x, 0)[0]

    def start(self, x: Tensor, room: int) -> tuple[Tensor, list[Tensor]]:
        """The layer of a whole prompt, and its keys and values with room for more places."""
        q, k, v = self._split(x)
        x = self._finish(x, functional.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x, [functional.pad(part, (0, 0, 0, room)) for part in (k, v)] if room else []

    def step(self, x: Tensor, cache: list[Tensor], at: int, seen: Tensor) -> Tensor:
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


class _Prompt(NamedTuple):
    """What n texts begin with."""

    x: Tensor  # (n, L, W): pseudo-tokens and draft of each row, with room behind
    starts: list[int]  # where the room of each row begins
    evidence: Tensor  # (n, V): for each token
    draft: Tensor | None = None  # (n, S): token ids, with -1 behind shorter drafts
    held: Tensor | None = None  # (n, S, W): what is known of each of these tokens


# Token ids of drafts at N places, with -1 behind shorter drafts, and the probability that each is copied next.
_Pointed = tuple[Tensor, Tensor]


class InverterNetwork(nn.Module):
    """The transformer that the module describes.

    Examples
    --------
    >>> network = InverterNetwork(Settings(dimension=3, vocabulary=9, width=8, layers=1, heads=2, max_tokens=5))
    >>> loss, n_tokens = network.loss(Request(torch.zeros(2, 3)), [[1, 2, 3], [4]])
    >>> n_tokens
    6
    >>> texts = network.write(Request(torch.zeros(2, 3)), beam=2)
    >>> [len(row) for row in texts]
    [2, 2]
    """

    center: Tensor
    scale: Tensor
    evidence: Tensor

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = s = settings
        self.tokens = nn.Embedding(s.vocabulary, s.width)
        self.positions = nn.Embedding(s.max_tokens + 1, s.width)
        self.kinds = nn.Embedding(3, s.width)
        names = ("wanted", "reached", "missing")
        self.readers = nn.ModuleDict({name: _Reader(s.dimension, s.width, s.prompt) for name in names})
        self._draft_start = len(names) * s.prompt
        self.layers = nn.ModuleList(_Layer(s.width, s.heads) for _ in range(s.layers))
        self.norm = nn.LayerNorm(s.width)
        self.aligned = nn.Linear(s.width, s.width)
        self.pointer = nn.Linear(s.width, s.width)
        self.pointed = nn.Linear(s.width, s.width)
        self.gate = nn.Linear(s.width, 1)
        # At the start the token after the one written last comes next; tokens further back decide between repetitions.
        self.lags = nn.Parameter(torch.diag(torch.tensor([3.0, 2.0, 1.0])))
        self.offsets = nn.Parameter(-0.5 * torch.arange(-_FAR, _FAR + 1).abs().float())
        # Weights of the evidence for tokens: of e in a guess, of e - ê and of e in a correction.
        self.trust = nn.Parameter(torch.tensor([0.5, 0.5, 0.1]))
        self.doubt = nn.Parameter(_LOUD * torch.randn(s.width))
        self.register_buffer("evidence", torch.zeros(s.vocabulary, s.dimension))
        # Centre and root mean square of the training embeddings.
        self.register_buffer("center", torch.zeros(s.dimension))
        self.register_buffer("scale", torch.ones(1))
        self.bias = nn.Parameter(torch.zeros(s.vocabulary))
        # Small weights: a place begins as its own token, and the sum over layers does not grow with their number.
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                last = name.endswith(("answer", "narrow"))
                nn.init.normal_(module.weight, std=_SMALL / (2 * s.layers) ** 0.5 if last else _SMALL)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        # As loud as the token that a place holds, and distinct from it.
        nn.init.orthogonal_(self.aligned.weight)

    def loss(self, request: Request, texts: Sequence[Sequence[int]]) -> tuple[Tensor, int]:
        """Mean cross entropy of the texts' tokens, and their number."""
        x, evidence, pointed, answers = self._read(request, texts)
        words = self._log_words(x, evidence).gather(1, answers[:, None])[:, 0]
        if pointed is None:
            return -words.mean(), len(answers)
        (ids, chance), (write, copy) = pointed, self._log_gate(x)
        copied = (chance * (ids == answers[:, None])).sum(dim=1)
        return -torch.logaddexp(write + words, copy + torch.log(copied + _NEVER)).mean(), len(answers)

    @torch.no_grad()
    def hits(self, request: Request, texts: Sequence[Sequence[int]]) -> tuple[int, int]:
        """How many of the texts' tokens are the likeliest ones given the tokens before them, and their number."""
        x, evidence, pointed, answers = self._read(request, texts)
        return int((self._log_likely(x, evidence, pointed).argmax(dim=1) == answers).sum()), len(answers)

    def _read(self, request: Request, texts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor, _Pointed | None, Tensor]:
        """States at all tokens of the texts, evidence there, where they point to, and the tokens that should follow."""
        prompt = self._prompt(request, [len(text) + 1 for text in texts])
        rows = torch.tensor([row for row, text in enumerate(texts) for _ in range(len(text) + 1)])
        at = torch.tensor([place for text in texts for place in range(len(text) + 1)])
        longest = int(at.max()) + 1
        ids = torch.tensor([[END, *text, *[END] * (longest - 1 - len(text))] for text in texts])
        answers = torch.tensor([token for text in texts for token in (*text, END)])
        begun = torch.tensor(prompt.starts)
        shown = self.tokens(ids) + self.positions.weight[:longest] + self.kinds.weight[_TEXT]
        if prompt.draft is not None and prompt.held is not None:
            before = functional.pad(ids, (_LAGS - 1, 0), value=END).unfold(1, _LAGS, 1).flip(2)
            align = self._align(prompt.draft, before, torch.arange(longest))
            shown = shown + self.aligned(torch.softmax(align, dim=2) @ prompt.held)
        x = prompt.x.index_put((rows, begun[rows] + at), shown[rows, at])
        for layer in self.layers:
            x = layer(x)
        # Places behind a shorter text have no meaning: they are not among `rows`.
        ends = (begun[:, None] + torch.arange(longest)).clamp(max=x.shape[1] - 1)
        states, pointed = x[torch.arange(len(x))[:, None], ends], None
        if prompt.draft is not None:
            keys = self._keys(x[:, self._draft_start : self._draft_start + prompt.draft.shape[1]])
            pointed = prompt.draft[rows], self._point(states, keys, align)[rows, at]
        return states[rows, at], prompt.evidence.index_select(0, rows), pointed, answers

    @torch.no_grad()
    def write(self, request: Request, beam: int = 1) -> list[list[list[int]]]:
        """For each row the `beam` texts that a beam search finds likeliest, the best first, as token ids.

        Keys and values of what is written already are kept, so each token costs one pass of one position.
        """
        n, longest = len(request.wanted), self.settings.max_tokens
        x, starts, evidence, draft, held = self._prompt(request, [0] * n)
        begun = x.shape[1]
        # Behind the prompt, rows have one length: a place that a shorter prompt leaves empty is never looked at.
        seen = functional.pad(torch.arange(begun) < torch.tensor(starts)[:, None], (0, longest + 1))
        layers = cast(list[_Layer], list(self.layers))
        caches: list[list[Tensor]] = []
        for layer in layers:
            x, cache = layer.start(x, longest + 1)
            caches.append([part.repeat_interleave(beam, dim=0) for part in cache])
        seen, evidence = seen.repeat_interleave(beam, dim=0), evidence.repeat_interleave(beam, dim=0)
        if draft is not None and held is not None:
            keys = self._keys(x[:, self._draft_start :])
            draft, held, keys = (part.repeat_interleave(beam, dim=0) for part in (draft, held, keys))
        score = torch.full((n, beam), -torch.inf)
        score[:, 0] = 0.0  # all beams are equal at first: one is enough
        ended = torch.zeros(n, beam, dtype=torch.bool)
        written = torch.full((n, beam, longest + 1), END)
        before = torch.full((n * beam, 1, _LAGS), END)
        for at in range(longest + 1):
            seen[:, begun + at] = True
            x = self.tokens(before[..., 0]) + self.positions.weight[at] + self.kinds.weight[_TEXT]
            if draft is not None and held is not None:
                align = self._align(draft, before, torch.tensor([at]))
                x = x + self.aligned(torch.softmax(align, dim=2) @ held)
            for layer, kept in zip(layers, caches, strict=True):
                x = layer.step(x, kept, begun + at, seen[:, None, None, : begun + at + 1])
            pointed = None if draft is None else (draft, self._point(x, keys, align)[:, 0])
            likely = self._log_likely(x[:, 0], evidence, pointed).view(n, beam, -1)
            if at == longest:
                likely[..., 1:] = -torch.inf  # only the end has room left
            # A text that has ended stays as it is, at no cost.
            likely.masked_fill_(ended[..., None], -torch.inf)
            likely[..., END].masked_fill_(ended, 0.0)
            score, best = (score[..., None] + likely).view(n, -1).topk(beam, dim=1)
            parent, token = best // likely.shape[2], best % likely.shape[2]
            written = written.gather(1, parent[..., None].expand_as(written))
            written[..., at] = token
            ended = ended.gather(1, parent) | (token == END)
            if ended.all():
                break
            order = (torch.arange(n)[:, None] * beam + parent).view(-1)
            before = torch.cat([token.view(-1, 1, 1), before[order, :, :-1]], dim=2)
            if not torch.equal(order, torch.arange(n * beam)):
                # Beams of a row share their prompt: only what was written moves.
                place = slice(begun, begun + at + 1)
                for part in (part for kept in caches for part in kept):
                    part[:, :, place] = part[order, :, place]
        return [[text[: text.index(END)] if END in text else text for text in row] for row in written.tolist()]

    def _prompt(self, request: Request, room: list[int]) -> _Prompt:
        """What texts begin with, with room behind for as many tokens."""
        s, n = self.settings, len(request.wanted)
        wanted = (request.wanted - self.center) / self.scale
        pseudo = self.readers["wanted"](wanted)
        present = functional.linear(wanted, self.evidence)
        if request.drafts is None or request.reached is None:
            pseudo = pseudo + self.kinds.weight[_PROMPT]
            x = torch.cat([pseudo, pseudo.new_zeros(n, max(room), s.width)], dim=1)
            return _Prompt(x, [pseudo.shape[1]] * n, self.trust[0] * present)
        reached = (request.reached - self.center) / self.scale
        others = [self.readers["reached"](reached), self.readers["missing"](wanted - reached)]
        missing = functional.linear(wanted - reached, self.evidence)
        drafts = [[*draft[: s.max_tokens], END] for draft in request.drafts]
        pseudo = torch.cat([pseudo, *others], dim=1) + self.kinds.weight[_PROMPT]
        starts = [self._draft_start + len(draft) for draft in drafts]
        length = max(start + more for start, more in zip(starts, room, strict=True))
        x = torch.cat([pseudo, pseudo.new_zeros(n, length - self._draft_start, s.width)], dim=1)
        longest = max(map(len, drafts))
        ids = torch.tensor([draft + [-1] * (longest - len(draft)) for draft in drafts])
        tokens = ids.clamp(min=END)
        # A draft and the text share positions: a place that copies looks at its own position in the draft.
        held = self.tokens(tokens) + self.positions.weight[:longest]
        held = held + torch.tanh(missing.gather(1, tokens))[..., None] * self.doubt
        rows, at = torch.nonzero(ids >= 0, as_tuple=True)
        x = x.index_put((rows, at + self._draft_start), held[rows, at] + self.kinds.weight[_DRAFT])
        return _Prompt(x, starts, self.trust[1] * missing + self.trust[2] * present, ids, held)

    def _align(self, draft: Tensor, before: Tensor, at: Tensor) -> Tensor:
        """How much each token of the draft seems to be the next: shape (n, T, S).

        ``before`` of shape (n, T, _LAGS) holds what was written before the places ``at``, the last first.
        """
        size = draft.shape[1]
        padded = functional.pad(draft, (_LAGS, 0), value=END)
        align = self.offsets[(torch.arange(size) - at[:, None]).clamp(-_FAR, _FAR) + _FAR].expand(len(draft), -1, -1)
        for back in range(_LAGS):
            behind = padded[:, _LAGS - 1 - back : _LAGS - 1 - back + size]
            same = (behind[:, None, :, None] == before[:, :, None]).to(self.lags.dtype)
            align = align + same @ self.lags[back]
        return align.masked_fill(draft[:, None] < 0, -torch.inf)

    def _keys(self, x: Tensor) -> Tensor:
        return self.pointed(self.norm(x))

    def _point(self, x: Tensor, keys: Tensor, align: Tensor) -> Tensor:
        """The probability of each token of the draft to be copied next: shape (n, T, S)."""
        looked = self.pointer(self.norm(x)) @ keys.transpose(1, 2) / self.settings.width**0.5
        return torch.softmax(align + looked, dim=2)

    def _log_gate(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """log g and log(1 - g)."""
        gate = self.gate(self.norm(x))[:, 0]
        return functional.logsigmoid(gate), functional.logsigmoid(-gate)

    def _log_likely(self, x: Tensor, evidence: Tensor, pointed: _Pointed | None) -> Tensor:
        """log p of all tokens, of shape (N, V), at places with states of shape (N, W)."""
        words = self._log_words(x, evidence)
        if pointed is None:
            return words
        (ids, chance), (write, copy) = pointed, self._log_gate(x)
        copied = torch.zeros_like(words).scatter_add_(1, ids.clamp(min=END), chance)
        return torch.logaddexp(write[:, None] + words, copy[:, None] + torch.log(copied + _NEVER))

    def _log_words(self, x: Tensor, evidence: Tensor) -> Tensor:
        """log p of the words alone, without copies."""
        return torch.log_softmax(functional.linear(self.norm(x), self.tokens.weight, self.bias) + evidence, dim=1)
