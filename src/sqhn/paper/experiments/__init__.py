"""The paper's experiments: declarations (`catalogue`), what they do (`protocols`), and one runner."""
