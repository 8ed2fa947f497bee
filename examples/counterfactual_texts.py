"""What would these sentences be, were they about somebody else?

Fits gender, then occupation, on sentences of BUG, and writes ``counterfactual-texts.html`` (a gallery) and
``counterfactual-texts.svg`` (a picture of the terminal)::

    mute data prepare minilm bug-texts
    python examples/counterfactual_texts.py

Encoding the 84,000 sentences takes about seven minutes on two cores. The embeddings are cached in ``encoded``. Neither
concept uses a word list.
"""

import re
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mute.datasets.prepared import load_texts
from mute.text import Example, TextCounterfactual, load_encoder, write_gallery
from mute.text.differences import as_rich, differences

GENDER = [
    ("He received his PhD from Yale and teaches law in his home town.", "male", "female"),
    ("Her paintings show the harbour where she grew up; her father was a sailor.", "female", "male"),
    ("The actor thanked his wife when he received the prize.", "male", "female"),
    ("Mrs. Miller told the nurse that she had hurt herself.", "female", "male"),
    ("As a boy he wanted to be a pilot like his uncle.", "male", "female"),
    ("She runs a small firm with her brother and does the books herself.", "female", "male"),
]
OCCUPATION = [
    ("The author lives in Berlin with his two children.", "author", "singer"),
    ("A young lawyer opened her office next to the station.", "lawyer", "teacher"),
    ("Every evening the teacher walks home along the river.", "teacher", "singer"),
    ("The singer told us that he would be late.", "singer", "lawyer"),
]


def moved(corpus, concept, wanted):
    classes = {label for _, a, b in wanted for label in (a, b)}
    rows = [i for i, label in enumerate(corpus[concept]) if label in classes and corpus["split"][i] == "fit"]
    texts, labels = ([corpus[column][i] for i in rows] for column in ("text", concept))
    model = TextCounterfactual(encoder).fit(texts, labels, cache="encoded")
    sources, classes, goals = zip(*wanted, strict=True)
    return model.counterfactual(sources, goals, classes)


encoder = load_encoder("minilm")
corpus = load_texts("bug-texts")
console = Console(record=True, width=112)
examples = []
for title, concept, wanted in (("Gender", "gender", GENDER), ("Occupation", "profession", OCCUPATION)):
    found = moved(corpus, concept, wanted)
    table = Table(title=title, box=None, padding=(0, 2, 1, 0), title_justify="left", show_header=False)
    for source, text, to, before, after in zip(
        found.sources, found.texts, found.to, found.start_scores, found.scores, strict=True
    ):
        old, new = differences(source, text)
        table.add_row(as_rich(old, "red strike"), as_rich(new, "bold green"), f"→ {to}")
        examples.append(Example(source, text, to=to, start_score=before, score=after, group=title))
    console.print(table)
write_gallery("counterfactual-texts.html", examples, note="MUtE with four layers on MiniLM, edit search.")
picture = console.export_svg(title="mute text counterfactual")
# Without the fonts that it would fetch from elsewhere.
Path("counterfactual-texts.svg").write_text(re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL))
