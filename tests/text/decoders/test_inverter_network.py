"""The network of the inverter: its cache and its padding change nothing, and it can copy."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from mute.text.decoders.inverter_network import END, InverterNetwork, Request, Settings


def small_network(seed: int = 0) -> InverterNetwork:
    torch.manual_seed(seed)
    network = InverterNetwork(Settings(dimension=5, vocabulary=7, width=8, layers=2, heads=2, max_tokens=4)).eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return network


@pytest.mark.parametrize("with_drafts", [False, True])
def test_beam_search_with_its_cache_finds_the_likeliest_texts(with_drafts: bool) -> None:
    """With a beam as wide as all texts there are, it must find the best of them, as the loss sees them."""
    network = small_network()
    wanted, reached = torch.randn(2, 5), torch.randn(2, 5)
    drafts = [[3, 1, 4, 1], [5]]

    def task(row: int, n: int) -> Request:
        one = wanted[[row] * n]
        return Request(one, [drafts[row]] * n, reached[[row] * n]) if with_drafts else Request(one)

    both = Request(wanted, drafts, reached) if with_drafts else Request(wanted)
    found = network.write(both, beam=400)
    everything = [[], *([a] for a in range(1, 7)), *([a, b] for a in range(1, 7) for b in range(1, 7))]
    for row in range(2):
        likely = []
        with torch.no_grad():
            for text in everything:
                loss, n = network.loss(task(row, 1), [text])
                likely.append(-float(loss) * n)
        short = [text for text in found[row] if len(text) <= 2]
        ranked = [everything[at] for at in np.argsort(likely)[::-1]]
        assert short[:5] == ranked[:5]


def test_padding_changes_nothing() -> None:
    network = small_network()
    wanted, reached = torch.randn(2, 5), torch.randn(2, 5)
    texts, drafts = [[1, 2, 3, 4], [5]], [[2], [6, 5, 4]]
    together, _ = network.loss(Request(wanted, drafts, reached), texts)
    alone = [network.loss(Request(wanted[[i]], drafts[i : i + 1], reached[[i]]), texts[i : i + 1])[0] for i in range(2)]
    assert_allclose(together.item(), (5 * alone[0].item() + 2 * alone[1].item()) / 7, rtol=1e-5)


def test_what_it_finds_likely_is_what_the_loss_sees() -> None:
    network = small_network()
    task, text = Request(torch.randn(1, 5), [[3, 1, 4, 1]], torch.randn(1, 5)), [3, 6, 1]
    x, evidence, pointed, answers = network._read(task, [text])
    likely = network._log_likely(x, evidence, pointed)
    assert_allclose(likely.exp().sum(dim=1).detach(), 1, rtol=1e-5)
    mean = likely[torch.arange(4), answers].mean()
    assert_allclose(network.loss(task, [text])[0].item(), -mean.item(), rtol=1e-5)
    assert answers.tolist() == [*text, END]


def test_an_untrained_network_can_copy() -> None:
    """Before it has learned anything, its pointer goes on after what it has written last, whatever comes twice."""
    torch.manual_seed(0)
    network = InverterNetwork(Settings(dimension=5, vocabulary=50, width=8, layers=1, heads=2, max_tokens=12)).eval()
    network.gate.bias.data.fill_(-5.0)
    drafts = [[7, 8, 9, 7, 8, 3, 7, 8, 4], [5], []]
    written = network.write(Request(torch.randn(3, 5), drafts, torch.randn(3, 5)))
    assert [row[0] for row in written] == drafts


def test_it_points_behind_a_word_that_it_has_replaced() -> None:
    network = small_network()
    with torch.no_grad():
        network.lags.copy_(torch.diag(torch.tensor([3.0, 2.0, 1.0])))
        network.offsets.zero_()
    # It wrote 6 for 2: the next of the draft is still 3.
    align = network._align(torch.tensor([[5, 1, 2, 3, 4, END, -1]]), torch.tensor([[[6, 1, 5]]]), torch.tensor([3]))
    assert align.argmax().item() == 3
    assert align[0, 0, 6] == -torch.inf
