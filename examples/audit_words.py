"""Is gender gone from word vectors? An audit of MUtE on the words that ship with the package.

    python examples/audit_words.py [audit.html]

Half of the words are training rows; the audit uses words that the eraser has not seen. The strongest adversary learns
on unseen words. It reads more than one that learns on the training words: with 2,000 words a class in 100 dimensions,
even means and covariances are not known well enough. Read the curve of the leak by rows, and the noise floor in
the summary.
"""

import sys

import mute
from mute.datasets import load_glove_gender

words = load_glove_gender()
train, unseen = words.rows("fit"), words.rows("test")
eraser = mute.MUtE(random_state=0).fit(train.X, train.z)
report = mute.audit(eraser, unseen.X, unseen.z, fit_rows=(train.X, train.z))
print(report.verdict)
for line in report.summary:
    print("-", line)
report.to_html(sys.argv[1] if len(sys.argv) > 1 else "audit.html")
