"""Words in gender classes: the pairs that define a gender direction, and the classes that follow from it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError

__all__ = ["PAIRS", "frequent_words", "gender_classes", "gender_direction"]

# (female, male). The direction comes from these pairs.
PAIRS = (
    ("she", "he"),
    ("her", "his"),
    ("herself", "himself"),
    ("woman", "man"),
    ("women", "men"),
    ("girl", "boy"),
    ("girls", "boys"),
    ("mother", "father"),
    ("mothers", "fathers"),
    ("daughter", "son"),
    ("daughters", "sons"),
    ("sister", "brother"),
    ("sisters", "brothers"),
    ("wife", "husband"),
    ("wives", "husbands"),
    ("aunt", "uncle"),
    ("niece", "nephew"),
    ("grandmother", "grandfather"),
    ("granddaughter", "grandson"),
    ("female", "male"),
    ("females", "males"),
    ("queen", "king"),
    ("princess", "prince"),
    ("duchess", "duke"),
    ("empress", "emperor"),
    ("actress", "actor"),
    ("actresses", "actors"),
    ("waitress", "waiter"),
    ("heroine", "hero"),
    ("bride", "groom"),
    ("girlfriend", "boyfriend"),
    ("lady", "gentleman"),
    ("ladies", "gentlemen"),
    ("mom", "dad"),
    ("stepmother", "stepfather"),
    ("widow", "widower"),
    ("nun", "monk"),
    ("spokeswoman", "spokesman"),
    ("businesswoman", "businessman"),
    ("congresswoman", "congressman"),
    ("chairwoman", "chairman"),
)

# A direction from a handful of pairs is the direction of those pairs, not of gender.
_FEWEST_PAIRS = 10

Floats = NDArray[np.float64]


def frequent_words(words: Sequence[str], most: int) -> list[str]:
    """The first `most` words that are written in the letters a to z only; `words` come most frequent first.

    Examples
    --------
    >>> frequent_words(["the", ",", "café", "queen", "mp3", "king"], 2)
    ['the', 'queen']
    """
    return [word for word in words if word.isascii() and word.isalpha()][:most]


def gender_direction(words: Sequence[str], unit: Floats) -> Floats:
    """Return the first principal component of the pairs, each centred at its own midpoint; female is positive.

    Parameters
    ----------
    words : sequence of n str
    unit : array of shape (n, D)
        Their vectors, each of length 1.

    Returns
    -------
    array of shape (D,)
        Of length 1.

    Raises
    ------
    MuteError
        If fewer than ten pairs of `PAIRS` are among the words; others than these are left out.
    """
    row = {word: i for i, word in enumerate(words)}
    pairs = [pair for pair in PAIRS if pair[0] in row and pair[1] in row]
    if len(pairs) < _FEWEST_PAIRS:
        raise MuteError(
            f"only {len(pairs)} gendered pairs (she/he, woman/man, ...) are among the {len(words)} words, and a gender "
            f"direction needs {_FEWEST_PAIRS}: give more words"
        )
    female = unit[[row[f] for f, _ in pairs]]
    male = unit[[row[m] for _, m in pairs]]
    half = (female - male) / 2
    _, _, components = np.linalg.svd(np.concatenate([half, -half]), full_matrices=False)
    direction: Floats = components[0]
    # A principal component has no sign of its own.
    return direction if (half @ direction).mean() > 0 else -direction


def gender_classes(words: Sequence[str], vectors: Floats, most: int) -> tuple[NDArray[np.intp], NDArray[np.str_]]:
    r"""Choose the most male, the most female and the most neutral words.

    With unit vectors :math:`u_w` and the gender direction :math:`g`, a word is scored by :math:`u_w \cdot g`. The words
    with the smallest score are male, those with the largest are female, and those with the smallest size of the score
    are neutral.

    Parameters
    ----------
    words : sequence of n str
    vectors : array of shape (n, D)
    most : int
        Words for each class. Where there are fewer than three times as many words, each class gets a third of them.

    Returns
    -------
    rows : array of shape (3 m,)
        Which words: male ones first, then female, then neutral, the most typical of each first.
    labels : array of shape (3 m,)
        ``"male"``, ``"female"`` or ``"neutral"``.

    Notes
    -----
    *Limits.* No word is in two classes as long as the m smallest sizes lie between the m smallest and the m largest
    scores; where they do not (scores all of one sign), the words nearest to zero among those left are neutral.
    """
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    score = unit @ gender_direction(words, unit)
    m = min(most, len(words) // 3)
    order = np.argsort(score, kind="stable")
    male, between, female = order[:m], order[m : len(order) - m], order[::-1][:m]
    neutral = between[np.argsort(np.abs(score[between]), kind="stable")][:m]
    return np.concatenate([male, female, neutral]), np.repeat(["male", "female", "neutral"], m)
